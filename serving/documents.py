"""Read the YAML files that people write into frozen models, with messages that name the field."""

import difflib
import re
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from serving.errors import BadInput
from serving.faults import Fault, error

Model = TypeVar("Model", bound=BaseModel)
# The type of an error of a whole document that names the field to change in its context.
AT_FIELD = "at_field"
MAX_BYTES = 1_000_000
MAX_PARTS = 100_000
# What is wrong with the form of the text; anything else is a value that it may not have.
_OF_ITS_FORM = (yaml.scanner.ScannerError, yaml.parser.ParserError)
# Control characters move a terminal about, and half a surrogate pair can be printed nowhere.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")


def read_text(path: Path) -> str:
    """The text of a file. Raises `BadInput` when it is missing, a folder, empty, too large or not text."""
    try:
        if not path.exists():
            raise BadInput(f"no such file: `{path}`", "check the path; paths inside a file are relative to that file")
        if not path.is_file():
            raise BadInput(f"not a file: `{path}`", "name one file, not a folder")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as fault:
        raise BadInput(f"cannot read `{str(path)[:200]}`: {fault}", "check the path and its permissions") from fault
    if len(content) > MAX_BYTES:
        raise BadInput(f"the file `{path}` has more than {MAX_BYTES} bytes", "name a smaller file")
    if not content.strip():
        raise BadInput(f"the file `{path}` is empty", "`infra-agent schema` shows what belongs in it")
    try:
        text = content.decode()
    except UnicodeDecodeError as fault:
        raise BadInput(f"the file `{path}` is not UTF-8 text", "name a text file") from fault
    if "\0" in text:
        raise BadInput(f"the file `{path}` is binary", "name a text file")
    return text


class _Loader(yaml.SafeLoader):
    """A key that stands twice is a mistake, not a choice; references do not make a small file a huge one; text is text."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _parts(node, {}) > MAX_PARTS:
            raise _refused(node, f"with its references written out it has more than {MAX_PARTS} parts")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[object]()
        for key in (key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"):
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise _refused(node, f"the key `{name}` stands twice")
            seen.add(name)
        return super().construct_mapping(node, deep)


def _parts(node: yaml.Node, counted: dict[int, int | None]) -> int:
    """How many keys and values there are with every reference written out. `counted`: None for those that are open."""
    if id(node) in counted:
        found = counted[id(node)]
        if found is None:
            raise _refused(node, "it refers to itself")
        return found
    counted[id(node)] = None
    if isinstance(node, yaml.ScalarNode) and (odd := _UNPRINTABLE.search(node.value)):
        raise _refused(node, f"`{odd[0].encode('unicode_escape').decode()}` in it is no printable text")
    inside = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    total = 1 if isinstance(node, yaml.ScalarNode) else 1 + sum(_parts(part, counted) for part in inside)
    counted[id(node)] = total
    return total


def _refused(node: yaml.Node, why: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, why, node.start_mark)


def read_mapping(path: Path) -> dict[str, Any]:
    """The YAML mapping in a file. Raises `BadInput`."""
    text = read_text(path)
    try:
        document = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as fault:
        where = getattr(fault, "problem_mark", None)
        line = f" at line {where.line + 1}" if where else ""
        too_deep = isinstance(fault, RecursionError)
        what = getattr(fault, "problem", None) or ("it is nested too deeply" if too_deep else str(fault)[:100])
        hint = (
            "check indentation and quotes" if isinstance(fault, _OF_ITS_FORM) else "write it with plain, short values"
        )
        raise BadInput(f"`{path}` is not valid YAML{line}: {what}", hint) from fault
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise BadInput(f"`{path}` does not hold a YAML mapping", "start with `key: value` lines")
    return document


def read_document(path: Path, model: type[Model]) -> Model:
    """A file validated as `model`. Raises `BadInput` that names the field and, for an unknown key, the nearest one."""
    return validate(read_mapping(path), model, str(path), path.parent)


def validate(document: dict[str, Any], model: type[Model], source: str, folder: Path | None = None) -> Model:
    """`document` as `model`. `source` is what messages call it; paths in it are relative to `folder`. Raises `BadInput`."""
    try:
        return model.model_validate(document, context={"folder": folder})
    except ValidationError as invalid:
        # A misspelt key also leaves its right spelling missing: the misspelling is the one to name.
        first = min(invalid.errors(), key=lambda e: e["type"] != "extra_forbidden")
        fault = _fault(first, model)
        what = fault.message if first["type"] == "extra_forbidden" else f"`{fault.field}`"
        said = "" if first["type"] == "extra_forbidden" else f": {fault.message}"
        raise BadInput(f"{what} in `{source}`{said}", fault.hint) from invalid


def faults(document: dict[str, Any], model: type[BaseModel]) -> list[Fault]:
    """Everything for which `document` is no `model`, in the order of its fields; empty if it is one."""
    try:
        model.model_validate(document)
    except ValidationError as invalid:
        return [_fault(found, model) for found in invalid.errors()]
    return []


def _fault(found: Any, model: type[BaseModel]) -> Fault:
    loc = found["loc"] if found["type"] != AT_FIELD else (found["ctx"]["field"],)
    field = ".".join(str(part) for part in loc if part != "[key]") or "(whole file)"
    if found["type"] != "extra_forbidden":
        return error(field, _message(found), f"`infra-agent schema {model.__name__}` shows what it may be")
    near = difflib.get_close_matches(str(found["loc"][-1]), _known_keys(model), 1)
    hint = f"did you mean `{near[0]}`?" if near else f"`infra-agent schema {model.__name__}` lists the keys"
    return error(field, f"unknown key `{field}`", hint)


def _message(found: Any) -> str:
    message: str = found["msg"].removeprefix("Value error, ")
    given = None if "@" in str(found.get("input")) else found.get("input")  # a url may hold a password
    shown = f", given `{str(given)[:80]}`" if isinstance(given, str | int | float | bool) else ""
    return message[:1].lower() + message[1:] + shown


@cache
def _known_keys(model: type[BaseModel]) -> list[str]:
    """Every property name in the model's schema: a near miss in a nested part is found, too."""
    schema = model.model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    return sorted({key for part in parts for key in part.get("properties", {})})
