"""What the checks need to know of a model: read from the checkpoint's configuration, none of its weights."""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.checkpoint import TINY
from serving.documents import read_text
from serving.errors import BadInput

MODELS = Path(__file__).resolve().parent / "models"


@dataclass(frozen=True)
class ModelFacts:
    """Sizes by the names of the configuration where they have one; None where the model has no such part.

    `raw`: the whole configuration of the language part. `source`: where it was read.
    """

    source: str
    model_type: str
    raw: Mapping[str, object]

    def number(self, *names: str) -> int | None:
        """The first of the keys that is there, as an integer."""
        for name in names:
            value = self.raw.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return int(value)
        return None

    @property
    def layers(self) -> int | None:
        return self.number("num_hidden_layers")

    @property
    def attention_heads(self) -> int | None:
        return self.number("num_attention_heads")

    @property
    def linear_heads(self) -> int | None:
        return self.number("linear_num_heads") if self.linear_layers else None

    @property
    def intermediate(self) -> int | None:
        return self.number("intermediate_size")

    @property
    def moe_intermediate(self) -> int | None:
        return self.number("moe_intermediate_size")

    @property
    def experts(self) -> int | None:
        return self.number("n_routed_experts", "num_experts")

    @property
    def index_topk(self) -> int | None:
        return self.number("index_topk")

    @property
    def index_kpool(self) -> int | None:
        return self.number("index_kpool")

    @property
    def gate_lower_bound(self) -> float | None:
        """Lower bound of KDA's forget gate; None for the unbounded form."""
        for name in ("gate_lower_bound", "linear_lower_bound"):
            value = self.raw.get(name)
            if isinstance(value, int | float):
                return float(value)
        return None

    @property
    def linear_layers(self) -> int:
        """Layers of linear attention: by `layer_types`, else all but each fourth of a glm5_next, as SGLang reads it."""
        kinds = self.raw.get("layer_types")
        if isinstance(kinds, list):
            return kinds.count("linear_attention")
        if not self.model_type.startswith("glm5_next") or self.layers is None:
            return 0
        return sum(1 for layer in range(self.layers) if layer % 4 != 3)

    @property
    def full_layers(self) -> int | None:
        return None if self.layers is None else self.layers - self.linear_layers


def folder_of(model: str) -> Path | None:
    """The folder on this machine that a stack's `model` names, or None where it names none."""
    try:
        folder = Path(model)
        return folder if folder.is_dir() else None
    except (OSError, ValueError):  # no name that a folder can have
        return None


def facts_of(model: str) -> ModelFacts | None:
    """The facts of a stack's `model`: of a checkpoint folder, of a tiny checkpoint, or of a model that we ship the sizes of.

    None for a name that says nothing here, such as one in a container. Raises BadInput for an unreadable configuration.
    """
    folder = folder_of(model)
    if folder is not None and (folder / "config.json").is_file():
        return _language_part(_read(folder / "config.json"), str(folder / "config.json"))
    if model in TINY:
        return _tiny(model)
    shipped = MODELS / f"{_without_format(model)}.json"
    if shipped in MODELS.glob("*.json"):
        return _language_part(_read(shipped), f"serving/models/{shipped.name}")
    return None


def nearest_model(model: str) -> str | None:
    """The model that we know and whose name is nearest to this unknown one, or None where none is near."""
    name = _without_format(model)
    known = [*TINY, *(path.stem for path in MODELS.glob("*.json"))]
    near = difflib.get_close_matches(name, known, 1, cutoff=0.8)
    return near[0] + Path(model).name.lower().removeprefix(name) if near else None


def _without_format(model: str) -> str:
    return re.sub(r"-(fp8|bf16|nvfp4|fp4|w8a8)$", "", Path(model).name.lower())


def _read(path: Path) -> dict[str, object]:
    try:
        document = json.loads(read_text(path))
    except ValueError as error:
        raise BadInput(f"`{path}` is not JSON: {error}", "give the folder of a whole checkpoint") from error
    if not isinstance(document, dict):
        raise BadInput(f"`{path}` does not hold a mapping", "give the folder of a whole checkpoint")
    return document


def _language_part(config: dict[str, object], source: str) -> ModelFacts:
    text = config.get("text_config")
    part = {**config, **text} if isinstance(text, dict) else config
    kind = str(config.get("model_type") or part.get("model_type") or "unknown")
    return ModelFacts(source, kind, part)


def _tiny(model: str) -> ModelFacts:
    recipe = TINY[model]
    kind = recipe.script.removeprefix("build_tiny_").removesuffix(".py")
    text = recipe.parameters.get("text", recipe.parameters)
    return ModelFacts(f"serving/checkpoint.py, {model}", kind, dict(text) if isinstance(text, dict) else {})
