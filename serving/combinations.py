"""Which options of SGLang 0.5.23 refuse each other, and which are taken and then not obeyed.

The tables are data (sglang_rules.py, sglang_layout_rules.py, sglang_count_rules.py) with one function over them, so that
whoever proposes a change can ask before anything is started.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from serving.roles import Value
from serving.setting import Effect, Setting
from serving.sglang_count_rules import COUNT_RULES
from serving.sglang_layout_rules import LAYOUT_RULES
from serving.sglang_rules import RULES

ALL_RULES = (*RULES, *LAYOUT_RULES, *COUNT_RULES)

_SAID: dict[Effect, str] = {
    "rejected": "SGLang refuses it: ",
    "ignored": "SGLang takes it and ignores it: ",
    "doubtful": "",
}


@dataclass(frozen=True)
class Clash:
    option: str
    effect: Effect
    message: str
    hint: str


def clashes(setting: Setting) -> Iterator[Clash]:
    """Every rule that the options break together."""
    for rule in ALL_RULES:
        given = setting.arguments.get(rule.option)
        if (given is None) == rule.absent and rule.when(setting):
            shown = f"no `{rule.option}`" if given is None else f"`{rule.option}: {_written(given)}`"
            message = f"{shown}: {_SAID[rule.effect]}{rule.why} ({rule.source})"
            yield Clash(rule.option, rule.effect, message, rule.hint)


def _written(value: Value) -> str:
    """As it stands in the stack."""
    return value if isinstance(value, str) else json.dumps(value)
