"""What a YAML file may not do to whoever reads it."""

from pathlib import Path

import pytest

from serving.documents import faults, read_mapping
from serving.errors import BadInput
from serving.stack import StackSpec

REFERENCES = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{{', '.join(f'{key}: *{before}' for key in 'pqrstuvw')}}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def written(folder: Path, text: str) -> Path:
    file = folder / "file.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (REFERENCES, "more than 100000 parts"),
        ("a: &a\n  b: *a", "refers to itself"),
        ("a: 1\nb: 2\na: 3", "the key `a` stands twice"),
        ('a: "\\ud800"', r"`\ud800` in it is no printable text"),
        ('"\\e[31mred": 1', r"`\x1b` in it is no printable text"),
    ],
)
def test_a_file_that_grows_repeats_itself_or_is_no_text_is_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        read_mapping(written(tmp_path, text))
    assert why in refused.value.message


def test_references_and_merged_keys_that_stay_small_are_read(tmp_path: Path) -> None:
    file = written(tmp_path, "a: &a {k: 1}\nb: *a\nc: {<<: *a, l: 2}\nd: ü\n")
    assert read_mapping(file) == {"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "l": 2}, "d": "ü"}


def test_every_one_of_many_unknown_keys_is_named(tmp_path: Path) -> None:
    document = read_mapping(written(tmp_path, "\n".join(f"key{number}: 1" for number in range(3000))))
    named = {fault.field for fault in faults(document, StackSpec)}
    assert named >= {f"key{number}" for number in range(3000)}
