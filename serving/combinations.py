"""Which options of SGLang 0.5.23 refuse each other, and which are taken and then not obeyed.

The tables are data (sglang_rules.py, sglang_layout_rules.py) with one function over them, so that whoever proposes a
change can ask before anything is started.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from serving.setting import Effect, Setting
from serving.sglang_layout_rules import LAYOUT_RULES
from serving.sglang_rules import RULES

_SAID: dict[Effect, str] = {
    "rejected": "SGLang refuses it",
    "ignored": "SGLang takes it and ignores it",
    "doubtful": "mind",
}


@dataclass(frozen=True)
class Clash:
    option: str
    effect: Effect
    message: str
    hint: str


def clashes(setting: Setting) -> Iterator[Clash]:
    """Every rule that the options break together."""
    for rule in (*RULES, *LAYOUT_RULES):
        given = setting.arguments.get(rule.option)
        if (given is None) == rule.absent and rule.when(setting):
            shown = f"no `{rule.option}`" if given is None else f"`{rule.option}`, given `{given}`"
            message = f"{shown}: {_SAID[rule.effect]}: {rule.why} ({rule.source})"
            yield Clash(rule.option, rule.effect, message, rule.hint)
