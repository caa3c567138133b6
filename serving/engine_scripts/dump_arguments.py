"""Writes the options of SGLang's own argument parser and its router's as JSON. Run by path in the engine environment.

python -P dump_arguments.py FILE
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from sglang.srt.server_args import ServerArgs
from sglang_router.router_args import RouterArgs


def described(action: argparse.Action) -> dict[str, object]:
    return {
        "dest": action.dest,
        "flag": action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction),
        "many": action.nargs in ("+", "*") or (isinstance(action.nargs, int) and action.nargs > 1),
        "type": getattr(action.type, "__name__", str(action.type)) if action.type else "str",
        "choices": [str(choice) for choice in action.choices] if action.choices else None,
        "default": json.loads(json.dumps(action.default, default=str)),
    }


def options_of(add: Callable[[argparse.ArgumentParser], None]) -> dict[str, dict[str, object]]:
    parser = argparse.ArgumentParser()
    add(parser)
    return {
        option.removeprefix("--"): described(action)
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }


options = {"server": options_of(ServerArgs.add_cli_args), "router": options_of(RouterArgs.add_cli_args)}
Path(sys.argv[1]).write_text(json.dumps(options), encoding="utf-8")
