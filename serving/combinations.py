"""Which options of a role SGLang would refuse or silently ignore, given the others and the model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from serving.checkpoint import TINY
from serving.combination_rules import RULES, Arguments, Model, Rule, stated

WITHOUT_LINEAR = frozenset({"glm4_moe"})  # model types known to have no linear-attention layer


@dataclass(frozen=True)
class Misfit:
    """An option of one role beside others. `says` completes the sentence that begins with the option."""

    option: str
    ends: Literal["refused", "ignored"]
    says: str
    hint: str


def misfits(arguments: Arguments, model: Model | None = None) -> tuple[Misfit, ...]:
    """Every rule that fires for the options of one role. Aliases must be spelled as in the rules."""
    known = model or Model()
    return tuple(
        Misfit(rule.option, rule.ends, f"is {rule.ends}: {rule.why}", _hint(rule))
        for rule in RULES
        if stated(arguments, rule.option) and rule.when(arguments, known)
    )


def model_of(model: str) -> Model:
    """What is known of a stack's `model`, without building it: from its name if it is a tiny one, else its config.json."""
    if model in TINY:
        family = TINY[model].script.removeprefix("build_tiny_").removesuffix(".py")
        return Model(linear_attention=False) if family in WITHOUT_LINEAR else Model()
    try:
        config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Model()
    text = config.get("text_config", config) if isinstance(config, dict) else None
    if not isinstance(text, dict):
        return Model()
    linear = text.get("linear_attn_config")
    if not isinstance(linear, dict):
        return Model(linear_attention=False) if text.get("model_type") in WITHOUT_LINEAR else Model()
    bounds = (linear.get("gate_lower_bound"), text.get("linear_lower_bound"))
    return Model(linear_attention=True, bounded_gate=True if any(x is not None for x in bounds) else None)


def _hint(rule: Rule) -> str:
    change = f"change {' or '.join(f'`{name}`' for name in rule.others)}, or leave" if rule.others else "leave"
    return f"{change} `{rule.option}` out ({rule.source})"
