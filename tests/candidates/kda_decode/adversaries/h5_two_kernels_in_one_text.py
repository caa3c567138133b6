"""Writes its kernel so that the interpreter reads another function than the compiler.

trap: [H5, S9]
rung: build
reason: 'has a second .def. in its text'
base: incumbent
edits:
  - old: 'One token of one head, BV'
    new: |-
      One token of one head, and
          def kda_decode(q):
          BV
"""
