"""Rewrites a checkpoint for W8A8: int8 weights of its linear layers, a scale per channel. Imported by the scripts beside it."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

# Linear layers have two axes, and so have these, which stay as they are.
KEPT = ("embed_tokens.weight", "lm_head.weight", ".mlp.gate.weight", ".kv_b_proj.weight")
VISION = "model.visual."
# By the engine's names: it multiplies the cache by kv_b_proj without int8 sums, so int8 there would only round its weights.
IGNORED = {VISION: "re:visual\\..*", ".kv_b_proj.": "re:.*\\.kv_b_proj"}


def quantise(folder: Path) -> None:
    """In place; `weight_scale` is [N, 1] in fp32, and the configuration says how the weights are to be read.

    A vision part stays as it is.
    """
    file, kept = folder / "model.safetensors", {}
    for name, tensor in load_file(file).items():
        if tensor.dim() != 2 or not name.endswith(".weight") or name.endswith(KEPT) or name.startswith(VISION):
            kept[name] = tensor
            continue
        scale = tensor.float().abs().amax(1, keepdim=True).clamp_min(1e-10) / 127
        kept[name] = torch.round(tensor.float() / scale).to(torch.int8)
        kept[f"{name}_scale"] = scale
    save_file(kept, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "w8a8_int8", "is_dynamic": True}
    ignored = [pattern for part, pattern in IGNORED.items() if any(part in name for name in kept)]
    if ignored:
        config["quantization_config"]["ignore"] = ignored
    (folder / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True))
