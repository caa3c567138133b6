"""Checkpoints to serve: tiny random ones, built here once, or a folder that exists."""

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from serving.engine_env import SCRIPTS, engine, run_script
from serving.errors import BadInput
from serving.home import home

# Above this size, in bytes, a weight file enters the digest by name and size: hashing a real model takes minutes.
HASHED_WHOLE = 64 << 20


@dataclass(frozen=True)
class Recipe:
    script: str
    parameters: dict[str, object]


@dataclass(frozen=True)
class Checkpoint:
    """`digest` is of the files as they lie in `folder`."""

    folder: Path
    digest: str


GLM4_MOE: dict[str, object] = {
    "seed": 0,
    "vocab_size": 1024,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "max_position_embeddings": 8192,
}

TINY = {
    "tiny-glm4-moe": Recipe("build_tiny_glm4_moe.py", GLM4_MOE),
    "tiny-glm4-moe-w8a8": Recipe("build_tiny_glm4_moe.py", {**GLM4_MOE, "w8a8": True}),
    "tiny-glm53": Recipe(
        "build_tiny_glm5_next.py",
        {
            "seed": 0,
            "text": {
                "vocab_size": 1024,
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_hidden_layers": 4,
                "num_attention_heads": 4,
                "num_key_value_heads": 4,
                "moe_intermediate_size": 64,
                "n_routed_experts": 8,
                "num_experts_per_tok": 2,
                "n_shared_experts": 1,
                "n_group": 1,
                "topk_group": 1,
                "first_k_dense_replace": 1,
                "q_lora_rank": 32,
                "kv_lora_rank": 64,
                "qk_nope_head_dim": 32,
                "v_head_dim": 32,
                "linear_head_dim": 32,
                "linear_num_heads": 4,
                "linear_conv_kernel_dim": 4,
                "max_position_embeddings": 8192,
            },
            "vision": {
                "hidden_size": 64,
                "depth": 2,
                "num_heads": 4,
                "intermediate_size": 128,
                "projection_intermediate_size": 128,
                "out_hidden_size": 64,
                "patch_size": 14,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
                "image_size": 112,
            },
        },
    ),
}


def _tiny_glm53(**text: int) -> Recipe:
    """With other sizes of the language part."""
    glm53 = TINY["tiny-glm53"]
    its_text = glm53.parameters["text"]
    assert isinstance(its_text, dict)
    return Recipe(glm53.script, {**glm53.parameters, "text": {**its_text, **text}})


# Linear attention as wide as that of GLM-5.3-Flash, so that its decode step is a share of a token's time worth measuring.
TINY["tiny-glm53-wide-kda"] = _tiny_glm53(linear_num_heads=64, linear_head_dim=128)
# With the indexer of sparse attention (DSA); all other weights are those of tiny-glm53.
TINY["tiny-glm53-dsa"] = _tiny_glm53(index_topk=128, index_kpool=4, index_head_dim=32, index_n_heads=4)
TINY["tiny-glm53-w8a8"] = Recipe(TINY["tiny-glm53"].script, {**TINY["tiny-glm53"].parameters, "w8a8": True})

# What the scripts share.
SHARED = ("tiny_tokenizer.py", "tiny_w8a8.py")


def checkpoint(model: str) -> Checkpoint:
    """The checkpoint that a stack calls `model`. Raises BadInput if there is none, Broken if a build fails."""
    folder = build(TINY[model]) if model in TINY else Path(model)
    if not (folder / "config.json").is_file():
        known = ", ".join(f"`{name}`" for name in TINY)
        raise BadInput(
            f"`model`: `{model}` is no checkpoint folder", f"give a folder with a config.json, or one of {known}"
        )
    return Checkpoint(folder, digest_of(folder))


def build(recipe: Recipe) -> Path:
    """The folder of the built checkpoint: from the store, or made in a temporary folder and renamed when whole."""
    source = b"".join((SCRIPTS / name).read_bytes() for name in (recipe.script, *SHARED))
    asked = json.dumps([recipe.parameters, dict(engine().versions)], sort_keys=True)
    store = home() / "checkpoints"
    folder = store / hashlib.sha256(source + asked.encode()).hexdigest()[:24]
    if folder.is_dir():
        return folder
    store.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store, prefix="building-") as scratch:
        made = Path(scratch) / "checkpoint"
        made.mkdir()
        run_script(recipe.script, str(made), json.dumps(recipe.parameters), cwd=Path(scratch))
        try:
            os.rename(made, folder)
        except OSError:
            # Another process was faster; both made the same bytes.
            if not folder.is_dir():
                raise
    return folder


def digest_of(folder: Path) -> str:
    """sha256 over names and contents of the files, in hex; large files count by name and size."""
    total = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        size = path.stat().st_size
        content = hashlib.sha256(path.read_bytes()).hexdigest() if size <= HASHED_WHOLE else f"{size} bytes"
        total.update(f"{path.relative_to(folder).as_posix()}\n{content}\n".encode())
    return total.hexdigest()
