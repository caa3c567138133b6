"""Files that people write: YAML read into a model, with errors that name the field."""

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from serving.errors import BadInput

Model = TypeVar("Model", bound=BaseModel)


def read_model(path: Path, model: type[Model]) -> Model:
    """The file as a `model`. Raises BadInput when it is absent, not YAML, or does not fit."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read `{path}`: {error}", "give the path of a YAML file") from error
    except yaml.YAMLError as error:
        raise BadInput(f"`{path}` is not YAML: {error}", "look at the line and column named above") from error
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise BadInput(f"`{path}` does not fit: {describe(error)}", f"correct {fields(error)}") from error


def describe(error: ValidationError) -> str:
    """One clause per fault: field, what is wrong, the value that was given."""
    return "; ".join(f"`{_dotted(e['loc'])}`: {e['msg']} (given `{_short(e['input'])}`)" for e in error.errors())


def fields(error: ValidationError) -> str:
    return ", ".join(f"`{name}`" for name in dict.fromkeys(_dotted(e["loc"]) for e in error.errors()))


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "the whole file"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
