"""SGLang's own options, read from its argument parser, and the check of a stack against them."""

import difflib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from serving.engine_env import SCRIPTS, engine, run_script
from serving.errors import BadInput
from serving.home import home
from serving.stack import Scalar, StackSpec
from serving.stack_rules import NEEDED_ARGUMENTS


class Option(BaseModel):
    """`flag`: takes no value. `type`: name of the parser's conversion, such as `int`. `default`: before resolution."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dest: str
    flag: bool
    type: str
    choices: tuple[str, ...] | None
    default: object


_OPTIONS = TypeAdapter(dict[str, Option])


def known_arguments() -> dict[str, Option]:
    """Every option of the installed SGLang by name; read once per installation. Raises Broken without an engine."""
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
    options = known_arguments()
    for role, part in spec.roles.items():
        for name, value in part.arguments.items():
            field = f"roles.{role}.arguments.{name}"
            option = options.get(name)
            if option is None:
                raise BadInput(
                    f"`{field}`: SGLang {engine().versions['sglang']} has no such option", _likely(name, options)
                )
            fault = None if value is None else value_fault(option, value)
            if fault:
                raise BadInput(f"`{field}`: `{json.dumps(value)}` {fault}", f"correct `{field}` of stack `{spec.name}`")
        for name, (needed, why) in NEEDED_ARGUMENTS.items():
            if part.arguments.get(name) != needed:
                raise BadInput(
                    f"`roles.{role}.arguments.{name}` must be `{json.dumps(needed)}`: {why}",
                    f"state it in stack `{spec.name}`, and let no edit take it away",
                )


def value_fault(option: Option, value: Scalar) -> str | None:
    """Why the option would not take the value, or None."""
    if option.flag:
        return None if isinstance(value, bool) else "is not true or false, and this option is a switch"
    if isinstance(value, bool):
        return "is the value of a switch, and this option takes one of its own"
    if option.choices is not None and str(value) not in option.choices:
        return f"is not one of {', '.join(option.choices)}"
    return _number_fault(option, value) if option.type in ("int", "float") else None


def _number_fault(option: Option, value: Scalar) -> str | None:
    """Only one spelling of a number is taken, the one that the running server reports: other ones cannot be proved."""
    wanted = "an integer" if option.type == "int" else "a number"
    try:
        number = int(str(value)) if option.type == "int" else float(value)
    except ValueError:
        return f"is not {wanted}"
    if not math.isfinite(number):
        return "is not finite"
    plain = str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)
    if isinstance(value, str) and value != plain:
        return f"is {wanted} in an unusual spelling; write `{plain}`"
    return None


def _likely(name: str, options: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, options, n=3)
    return f"did you mean {' or '.join(f'`{c}`' for c in close)}?" if close else "see `--help` of the engine"
