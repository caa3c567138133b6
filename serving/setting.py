"""The options of one role taken together, and what a rule over them is. The rules: sglang_rules.py, sglang_layout_rules.py."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from serving.model_facts import ModelFacts
from serving.roles import Value

# rejected: SGLang ends, or cannot serve. ignored: it serves, and the option has no effect. doubtful: it works, with a catch.
Effect = Literal["rejected", "ignored", "doubtful"]


@dataclass(frozen=True)
class Setting:
    """All options of one role by their canonical names (`canonical`), its variables, and the model if it is known."""

    arguments: Mapping[str, Value]
    environment: Mapping[str, str] = field(default_factory=dict)
    model: ModelFacts | None = None
    gpu: str | None = None

    def on(self, name: str) -> bool:
        """Whether the option is stated and is not off."""
        return self.arguments.get(name, False) not in (False, None)

    def text(self, name: str, default: str = "") -> str:
        return str(self.arguments.get(name, default))

    def size(self, name: str, default: int = 1) -> int:
        """The option as an integer; `default` where it is absent or none."""
        try:
            return int(self.text(name, str(default)))
        except ValueError:
            return default

    def ranks(self, name: str) -> int:
        """A size that something is divided by; that it is below 1 is a fault of its own."""
        return max(1, self.size(name))

    def number(self, name: str, default: float) -> float:
        """The option as a number; `default` where it is absent or none."""
        try:
            return float(self.text(name, str(default)))
        except ValueError:
            return default

    @property
    def sparse(self) -> bool:
        """Whether the model has sparse attention (DSA), which its `index_*` keys ask for."""
        return self.model is not None and self.model.index_topk is not None

    @property
    def mode(self) -> str:
        return self.text("disaggregation-mode", "null")

    @property
    def on_cpu(self) -> bool:
        return self.text("device") == "cpu"

    @property
    def attention_tp(self) -> int:
        """Ranks of one attention group; linear attention is split over the same ones."""
        return max(1, self.size("tp-size") // self.ranks("attn-dp-size") // self.ranks("attn-cp-size"))


@dataclass(frozen=True)
class Rule:
    """`option`: the one to blame. `when`: whether the rule is broken. `source`: where that can be read.

    `absent`: the fault is that the option is not stated.
    """

    option: str
    effect: Effect
    when: Callable[[Setting], bool]
    why: str
    hint: str
    source: str
    absent: bool = False


def canonical(arguments: Mapping[str, Value], aliases: Mapping[str, str]) -> dict[str, Value]:
    """`arguments` by the names that the rules use. `aliases`: other spellings of an option, such as
    `tensor-parallel-size`, to its first one. The deprecated `dp-size` with `enable-dp-attention` is `attn-dp-size`.
    """
    named = {aliases.get(name, name): value for name, value in arguments.items()}
    if named.get("enable-dp-attention") is True and "dp-size" in named and "attn-dp-size" not in named:
        named["attn-dp-size"] = named.pop("dp-size")
    return named


def stated_without(*needed: str) -> Callable[[Setting], bool]:
    """Whether none of the options is on that the blamed one has an effect with."""
    return lambda setting: not any(setting.on(name) for name in needed)
