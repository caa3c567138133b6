"""Defines no `run`.

trap: H10
rung: build
reason: defines no function `run`
"""


def walk():
    return None
