"""Writes a tiny random `glm5_next` checkpoint with tokenizer, image and video processor. Run by path in the engine environment.

    python -P build_tiny_glm5_next.py FOLDER '{"vocab_size": 1024, ...}'

Deterministic: the same parameters give the same bytes on every run. No network, no file read from outside.

The layers are those of GLM-5.3-Flash (KDA, MLA, mHC, MoE, vision). `reference/config.json` is for transformers.

With an `index_topk` among the parameters of `text` both configurations ask for sparse attention (DSA), and the indexer has
its weights. Without one `config.json`, which SGLang reads, has no `index_*` key and the indexer no weights; dense attention
selects the same tokens, since transformers, which always has an indexer, is given an `index_topk` as long as the longest
context. With "w8a8" the linear layers of the language part are in INT8.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers.models.glm5_next import configuration_glm5_next, modeling_glm5_next
from transformers.models.glm5_next.image_processing_glm5_next import Glm5NextImageProcessor
from transformers.models.glm5_next.video_processing_glm5_next import Glm5NextVideoProcessor

sys.path.insert(0, str(Path(__file__).parent))  # with -P a script's folder is not on the path
from tiny_tokenizer import tokenizer
from tiny_w8a8 import quantise

IMAGE, VIDEO = (
    ("<|begin_of_image|>", "<|end_of_image|>", "<|image|>"),
    ("<|begin_of_video|>", "<|end_of_video|>", "<|video|>"),
)
SPECIAL = [
    "<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", *IMAGE, *VIDEO,
    "<think>", "</think>",
]  # fmt: skip
CHAT_TEMPLATE = (
    "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% elif part.type in ('image', 'image_url') %}"
    + "".join((IMAGE[0], IMAGE[2], IMAGE[1]))
    + "{% endif %}{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def configuration(text: dict[str, int], vision: dict[str, int]) -> configuration_glm5_next.Glm5NextConfig:
    """The two readers take dense or sparse from different keys: both are stated, and say the same."""
    layers, dense = text["num_hidden_layers"], text["first_k_dense_replace"]
    ids = {token: i for i, token in enumerate(SPECIAL)}
    return configuration_glm5_next.Glm5NextConfig(
        text_config={
            "index_topk": text["max_position_embeddings"],
            "index_head_dim": 32,
            "index_n_heads": 4,
            "index_kpool": 4,
            **text,
            "mlp_layer_types": ["dense" if i < dense else "sparse" for i in range(layers)],
            "layer_types": ["indexed_attention" if i % 4 == 3 else "linear_attention" for i in range(layers)],
            "linear_lower_bound": -5.0,
            "qk_rope_head_dim": 0,
            "swiglu_limit": 10.0,
            "routed_scaling_factor": 1.0,
            "rms_norm_eps": 1e-5,
            "eos_token_id": 0,
            "pad_token_id": 0,
        },
        vision_config={**vision, "swiglu_limit": 10.0},
        image_start_token_id=ids[IMAGE[0]],
        image_end_token_id=ids[IMAGE[1]],
        image_token_id=ids[IMAGE[2]],
        video_start_token_id=ids[VIDEO[0]],
        video_end_token_id=ids[VIDEO[1]],
        video_token_id=ids[VIDEO[2]],
    )


def write_model(config: configuration_glm5_next.Glm5NextConfig, seed: int, sparse: bool, folder: Path) -> None:
    """Weights are normal(0, 0.05) in bfloat16; norms, biases and gates are what transformers gives them, and as much noise.

    The weights of the indexer are drawn in any case, so that all others are the same, and kept if `sparse`.
    """
    torch.manual_seed(seed)
    model = modeling_glm5_next.Glm5NextForConditionalGeneration(config).to(torch.bfloat16)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter) * 0.05
            parameter.copy_(noise if parameter.dim() > 1 else parameter + noise)
    model.save_pretrained(folder)
    if sparse:
        return
    weights = folder / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(weights).items() if ".indexer." not in name}
    save_file(kept, weights, metadata={"format": "pt"})


def split_configuration(folder: Path, sparse: bool) -> None:
    """`config.json` for SGLang: mHC spelled out, whose default is off there, the indexer only if `sparse`."""
    whole = json.loads((folder / "config.json").read_text())
    text = {name: value for name, value in whole["text_config"].items() if sparse or not name.startswith("index")}
    (folder / "reference").mkdir()
    (folder / "reference" / "config.json").write_text(json.dumps(whole, indent=1, sort_keys=True))
    served = {**whole, "text_config": {**text, "mhc": True}}
    (folder / "config.json").write_text(json.dumps(served, indent=1, sort_keys=True))


if __name__ == "__main__":
    target, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
    has_indexer = "index_topk" in asked["text"]
    tokenizer(asked["text"]["vocab_size"], SPECIAL, CHAT_TEMPLATE).save_pretrained(target)
    write_model(configuration(asked["text"], asked["vision"]), asked["seed"], has_indexer, target)
    split_configuration(target, has_indexer)
    if asked.get("w8a8"):
        quantise(target)
    Glm5NextImageProcessor().save_pretrained(target)
    Glm5NextVideoProcessor().save_pretrained(target)
