"""Writes the options of SGLang's own argument parser as JSON. Run by path in the engine environment.

python -P dump_arguments.py FILE
"""

import argparse
import json
import sys
from pathlib import Path

from sglang.srt.server_args import ServerArgs


def described(action: argparse.Action) -> dict[str, object]:
    return {
        "dest": action.dest,
        "flag": action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction),
        "type": getattr(action.type, "__name__", str(action.type)) if action.type else "str",
        "choices": [str(choice) for choice in action.choices] if action.choices else None,
        "default": json.loads(json.dumps(action.default, default=str)),
    }


parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
options = {
    option.removeprefix("--"): described(action)
    for action in parser._actions
    for option in action.option_strings
    if option.startswith("--")
}
Path(sys.argv[1]).write_text(json.dumps(options), encoding="utf-8")
