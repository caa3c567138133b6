"""What a checkpoint's configuration says to SGLang and not to transformers, and what it leaves unsaid.

SGLang's loader skips keys that it has no parameter for and serves parameters that it never filled, without a word, so
that a configuration which two readers understand differently shows only as wrong answers.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from serving.faults import Fault, error, warning
from serving.model_facts import ModelFacts, folder_of, nearest_model

_FIELD = "model"


def checkpoint_faults(
    model: str, facts: ModelFacts | None, quantization: str | None, started: bool = True
) -> Iterator[Fault]:
    """Faults of the checkpoint that a stack calls `model`; `facts` is its configuration, None where it is not known.

    `started`: whether a role of the stack is started here, and needs the checkpoint.
    """
    folder = folder_of(model)
    if folder is not None:
        yield from _files(folder)
    elif started and model.startswith((".", "/", "~")):
        why = "; `~` stands for no folder here" if model.startswith("~") else ""
        yield error(_FIELD, f"there is no folder `{model}`{why}", "give the folder of a whole checkpoint")
    elif facts is None:
        near = nearest_model(model)
        message = f"`{model}` is no checkpoint on this machine and none whose sizes we ship: sizes are not checked"
        hint = f"did you mean `{near}`?" if near else "validate where the checkpoint is"
        yield warning(_FIELD, message, hint)
    if facts is None:
        return
    yield from _dense_pattern(facts)
    if facts.model_type.startswith("glm5_next") and folder is not None:
        yield from _glm5_next(facts)
    yield from _quantization(facts, quantization)


def _files(folder: Path) -> Iterator[Fault]:
    index = folder / "model.safetensors.index.json"
    if not (folder / "config.json").is_file():
        yield error(_FIELD, f"`{folder.name}` has no config.json", "give the folder of a whole checkpoint")
    if not index.is_file():
        return
    try:
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        yield error(_FIELD, f"`{index.name}` is no index of weights", "copy the checkpoint again")
        return
    absent = sorted(name for name in named if not (folder / str(name)).is_file())
    if absent:
        message = f"{len(absent)} of {len(named)} weight files are missing, the first is `{absent[0]}`"
        yield error(_FIELD, message, "copy the checkpoint again")


def _dense_pattern(facts: ModelFacts) -> Iterator[Fault]:
    kinds, first = facts.raw.get("mlp_layer_types"), facts.number("first_k_dense_replace")
    if not isinstance(kinds, list):
        return
    if first is None:
        message = "`first_k_dense_replace` is absent: SGLang takes 3 dense layers, transformers reads `mlp_layer_types`"
        yield error(_FIELD, message, "state both, and the same")
        return
    wanted = ["dense" if layer < first else "sparse" for layer in range(len(kinds))]
    if kinds != wanted:
        at = next(layer for layer, (one, other) in enumerate(zip(kinds, wanted, strict=True)) if one != other)
        message = (
            f"`mlp_layer_types` says that layer {at} is {kinds[at]}, `first_k_dense_replace: {first}` says "
            f"{wanted[at]}: SGLang follows the second, and would serve a layer whose weights were never loaded"
        )
        yield error(_FIELD, message, "state both, and the same")


def _glm5_next(facts: ModelFacts) -> Iterator[Fault]:
    if facts.raw.get("mhc") is not True:
        message = "`mhc` is not true: SGLang would serve without the residual streams that transformers always has"
        yield error(_FIELD, message, 'add `"mhc": true` to the configuration that SGLang reads')
    if facts.gate_lower_bound is None and not isinstance(facts.raw.get("linear_attn_config"), dict):
        message = "`linear_lower_bound` is absent: SGLang takes the unbounded gate, transformers takes -5"
        yield error(_FIELD, message, "state it")
    if facts.index_topk is not None and facts.index_kpool is None:
        yield error(_FIELD, "`index_kpool` is absent: SGLang takes 1, transformers takes 16", "state it")


def _quantization(facts: ModelFacts, quantization: str | None) -> Iterator[Fault]:
    own = facts.raw.get("quantization_config")
    method = own.get("quant_method") if isinstance(own, dict) else None
    if quantization is not None and method is not None and method != quantization:
        message = f"`{quantization}` is asked for, and the checkpoint is in `{method}`: SGLang refuses most such pairs"
        yield warning("quantization.weights", message, "leave it to the checkpoint")
