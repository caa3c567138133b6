"""The same program is recognised under other names and another layout; another program is not."""

import pytest
from kernel_sources import INCUMBENT, catalogue

from serving.errors import BadInput
from tasks.source import normalised_digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("memory", "tile_of_state"),
        ("def kda_decode", "# a comment\ndef kda_decode"),
        ("kda_decode", "other_name"),
        ("EPS", "SMALL"),
        ("BV", "ROWS"),
        ("import triton.language as tl", "import triton.language as T"),
        ('"""Shapes and dtypes: definition.yaml.', '"""Something else.'),
        ("    query = query /", "    query = (query) /"),
    ],
)
def test_a_copy_in_another_dress_is_recognised(old: str, new: str) -> None:
    dressed = INCUMBENT.replace(old, new)
    if new.endswith("as T"):
        dressed = dressed.replace("tl.", "T.")
    assert dressed != INCUMBENT
    assert normalised_digest(dressed) == normalised_digest(INCUMBENT)


@pytest.mark.parametrize("name", ["reciprocal", "hoist_gate", "clamp_gate"])
def test_another_program_is_another_program(name: str) -> None:
    assert normalised_digest(catalogue(name).source) != normalised_digest(INCUMBENT)


def test_another_constant_is_another_program() -> None:
    assert normalised_digest(INCUMBENT.replace("BV=32", "BV=64")) != normalised_digest(INCUMBENT)


def test_a_source_that_is_not_python_is_refused() -> None:
    with pytest.raises(BadInput, match="not valid Python"):
        normalised_digest("def (:")
