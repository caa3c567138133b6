"""Writes the options of SGLang's own argument parser and its router's as JSON. Run by path in the engine environment.

python -P dump_arguments.py FILE
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang_router.router_args import RouterArgs

# Options that are texts for the parser, and are looked at minutes later: as JSON objects, or as one of a few names.
OBJECTS = {"json_model_override_args", "model_loader_extra_config", "hisparse_config"}
NAMES = {"speculative_algorithm": (*(algorithm.name for algorithm in SpeculativeAlgorithm), "NEXTN")}


def described(action: argparse.Action) -> dict[str, object]:
    return {
        "dest": action.dest,
        "flag": action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction),
        "many": action.nargs in ("+", "*") or (isinstance(action.nargs, int) and action.nargs > 1),
        "type": "json_object" if action.dest in OBJECTS else type_of(action),
        "choices": [str(choice) for choice in action.choices or NAMES.get(action.dest, ())] or None,
        "default": json.loads(json.dumps(action.default, default=str)),
    }


def type_of(action: argparse.Action) -> str:
    return str(getattr(action.type, "__name__", action.type)) if action.type else "str"


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
