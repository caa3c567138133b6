"""SGLang's own options, read from its argument parser, and the check of a stack against them."""

import difflib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from serving.derive import LANGUAGE, arguments_of
from serving.engine_env import SCRIPTS, engine, run_script
from serving.errors import BadInput
from serving.faults import Fault, error
from serving.fields import FIELDS, contradictions, field_of
from serving.home import home
from serving.stack import Role, Scalar, StackSpec, Value
from serving.stack_rules import NEEDED_ARGUMENTS


class Option(BaseModel):
    """`flag`: takes no value; `many`: several. `type`: name of its conversion, such as `int`, or `json_object` for a text
    that is read as one later. `default`: unresolved.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dest: str
    flag: bool
    many: bool = False
    type: str
    choices: tuple[str, ...] | None
    default: object


_OPTIONS = TypeAdapter(dict[str, dict[str, Option]])


def known_arguments() -> dict[str, Option]:
    """Every option of the installed SGLang by name. Raises Broken without an engine."""
    return _options()["server"]


def router_arguments() -> dict[str, Option]:
    """Every option of the installed router by name. Raises Broken without an engine."""
    return _options()["router"]


def aliases() -> dict[str, str]:
    """Other spellings of an option of SGLang, such as `tensor-parallel-size`, to the one that is like its field."""
    options = known_arguments()
    own = {name: option.dest.replace("_", "-") for name, option in options.items()}
    return {name: first for name, first in own.items() if first != name and first in options}


def _options() -> dict[str, dict[str, Option]]:
    """Read once per installation."""
    installed = engine()
    script = hashlib.sha256((SCRIPTS / "dump_arguments.py").read_bytes()).hexdigest()
    key = f"{installed.versions['sglang']}-{installed.content[:16]}-{script[:16]}"
    folder = home() / "engine-arguments"
    cached = folder / f"{key}.json"
    if not cached.exists():
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "options.json"
            run_script("dump_arguments.py", str(made), cwd=Path(scratch))
            os.replace(made, cached)
    return _OPTIONS.validate_json(cached.read_bytes())


def check_arguments(spec: StackSpec) -> None:
    """Raises BadInput, naming the field, for an option that SGLang lacks or a value that it would not take."""
    for fault in argument_faults(spec):
        raise BadInput(f"`{fault.field}`: {fault.message}", fault.hint)


def argument_faults(spec: StackSpec) -> Iterator[Fault]:
    """Every option, stated or derived, that SGLang lacks, every value it would not take, every one that must be there."""
    for role, part in spec.roles.items():
        if part.url is None or part.arguments:  # what runs elsewhere and is not described needs no check
            yield from _contradictions(spec, role)
            yield from _unknown_to_sglang(spec, role)
            yield from _missing(spec, role)


def _contradictions(spec: StackSpec, role: Role) -> Iterator[Fault]:
    spellings = {} if role == "router" else aliases()
    for written, (name, derived, own) in contradictions(spec, role, spellings).items():
        fact = FIELDS[name].format(role=role)
        message = f"`{json.dumps(own)}` contradicts `{json.dumps(derived)}`, which follows from `{fact}`"
        yield error(
            f"roles.{role}.arguments.{written}", message, f"state it once: take it away here or change `{fact}`"
        )


def _unknown_to_sglang(spec: StackSpec, role: Role) -> Iterator[Fault]:
    options = router_arguments() if role == "router" else known_arguments()
    for name, value in arguments_of(spec, role).items():
        field = field_of(spec, role, name)
        option = options.get(name)
        if option is None:
            message = f"SGLang {engine().versions['sglang']} has no such option `{name}`"
            yield error(field, message, _likely(name, options))
        elif fault := values_fault(option, value):
            yield error(field, f"`{json.dumps(value)}` {fault}", _wanted(option, value))


def _missing(spec: StackSpec, role: Role) -> Iterator[Fault]:
    if role not in LANGUAGE:
        return
    for name, (needed, why) in NEEDED_ARGUMENTS.items():
        if spec.roles[role].arguments.get(name) != needed:
            message = f"`{name}` must be `{json.dumps(needed)}`: {why}"
            hint = f"state it in stack `{spec.name}`, and let no edit take it away"
            yield error(f"roles.{role}.arguments.{name}", message, hint)


def values_fault(option: Option, value: Value) -> str | None:
    """Why the option would not take the value or one of the values, or None."""
    if not isinstance(value, tuple):
        return value_fault(option, value)
    if not option.many:
        return "holds several values, and this option takes one"
    return next((fault for part in value if (fault := value_fault(option, part))), None)


def value_fault(option: Option, value: Scalar) -> str | None:
    """Why the option would not take the value, or None."""
    if option.flag:
        return None if isinstance(value, bool) else "is not true or false, and this option is a switch"
    if isinstance(value, bool):
        return "is the value of a switch, and this option takes one of its own"
    if option.choices is not None and str(value) not in option.choices:
        return f"is not one of {', '.join(option.choices)}"
    if option.type in _JSON:
        return _json_fault(str(value), _JSON[option.type])
    return _number_fault(option, value) if option.type in ("int", "float", "human_readable_int") else None


# By the type of an option: what its JSON must be.
_JSON: dict[str, tuple[type, str] | None] = {
    "loads": None,
    "json_list_type": (list, "an array"),
    "json_object": (dict, "an object"),
}


def _json_fault(value: str, wanted: tuple[type, str] | None) -> str | None:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return "is not JSON"
    return None if wanted is None or isinstance(found, wanted[0]) else f"is not {wanted[1]} of JSON"


def _number_fault(option: Option, value: Scalar) -> str | None:
    """Only one spelling of a number is taken, the one that the running server reports: other ones cannot be proved."""
    wanted = "a number" if option.type == "float" else "an integer"
    try:
        number = float(value) if option.type == "float" else int(str(value))
    except ValueError:
        return f"is not {wanted}"
    if not math.isfinite(number):
        return "is not finite"
    plain = str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)
    if isinstance(value, str) and value != plain:
        return f"is {wanted} in an unusual spelling; write `{plain}`"
    return None


def _wanted(option: Option, value: Value) -> str:
    """What to write in place of a value that the option would not take."""
    if option.flag:
        return "state true or false"
    if option.choices is not None:
        near = difflib.get_close_matches(str(value), option.choices, 1)
        return f"did you mean `{near[0]}`?" if near else "state one of these"
    kind = {"int": "an integer", "human_readable_int": "an integer", "float": "a number"}.get(option.type)
    if option.type in _JSON:
        kind = (_JSON[option.type] or (None, "JSON"))[1]
    return f"state {kind or 'a text'}{', or several' if option.many else ''}"


def _likely(name: str, options: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, options, n=3)
    return f"did you mean {' or '.join(f'`{c}`' for c in close)}?" if close else "see `--help` of the engine"
