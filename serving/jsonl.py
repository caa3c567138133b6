"""Files with one JSON object a line: written from records, read into frozen models with messages that name the line."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from serving.errors import BadInput

Model = TypeVar("Model", bound=BaseModel)


def write_jsonl(path: Path, records: Iterable[BaseModel]) -> None:
    """One JSON object per line."""
    path.write_text("".join(record.model_dump_json() + "\n" for record in records), encoding="utf-8")


def read_jsonl(path: Path, model: type[Model]) -> tuple[Model, ...]:
    """Every line that is not empty as `model`. Raises BadInput, naming the line, and for a file without lines."""
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"not a file: `{path}`", "name a file with one JSON object a line")
        stamp = path.stat().st_mtime_ns
        return _read(path, model, stamp)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read `{path}`: {error}", "name a file with one JSON object a line") from error


@lru_cache(maxsize=4)
def _read(path: Path, model: type[Model], stamp_ns: int) -> tuple[Model, ...]:
    """`stamp_ns`: when the file was written, so that a new one is read anew."""
    found = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                found.append(model.model_validate_json(line))
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(str(part) for part in first["loc"])
                what = f"`{where}`: {first['msg']}" if where else first["msg"]
                raise BadInput(
                    f"line {number} of `{path}`: {what.replace('Value error, ', '')}",
                    f"its keys are {', '.join(f'`{key}`' for key in model.model_fields)}",
                ) from error
    if not found:
        raise BadInput(f"`{path}` has no line", "name a file with one JSON object a line")
    return tuple(found)
