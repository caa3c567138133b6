"""Which options of a role SGLang would refuse or silently ignore, given the others and the model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from serving.combination_rules import RULES, Arguments, Model, Rule, stated


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


def model_of(folder: Path) -> Model:
    """What the config.json of a checkpoint says of its linear-attention layers; nothing is known without one."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Model()
    if not isinstance(config, dict):
        return Model()
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else config
    linear = text.get("linear_attn_config")
    kinds = text.get("layer_types") or ()
    has_linear = bool(linear) or any("linear" in str(kind) or "kda" in str(kind) for kind in kinds)
    bounds = [linear.get("gate_lower_bound") if isinstance(linear, dict) else None, text.get("linear_lower_bound")]
    bounded = any(bound is not None for bound in bounds) if has_linear else None
    return Model(linear_attention=has_linear, bounded_gate=bounded)


def _hint(rule: Rule) -> str:
    change = f"change {' or '.join(f'`{name}`' for name in rule.others)}, or leave" if rule.others else "leave"
    return f"{change} `{rule.option}` out ({rule.source})"
