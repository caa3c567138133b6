"""Writes a tiny random `glm4_moe` checkpoint with a byte-level BPE tokenizer. Run by path in the engine environment.

    python -P build_tiny_glm4_moe.py FOLDER '{"vocab_size": 1024, ...}'

Deterministic: the same parameters give the same bytes on every run. No network, no file read from outside.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

sys.path.insert(0, str(Path(__file__).parent))  # with -P a script's folder is not on the path
from tiny_tokenizer import tokenizer
from tiny_w8a8 import quantise

SPECIAL = ["<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
CHAT_TEMPLATE = (
    "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def model(parameters: dict[str, int]) -> Glm4MoeForCausalLM:
    """Weights are normal(0, 0.05) in bfloat16; norms and biases keep what transformers gives them."""
    torch.manual_seed(parameters["seed"])
    config = Glm4MoeConfig(
        **{k: v for k, v in parameters.items() if k not in ("seed", "w8a8")},
        n_group=1,
        topk_group=1,
        use_qk_norm=True,
        attention_bias=True,
        norm_topk_prob=True,
        routed_scaling_factor=1.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        eos_token_id=0,
        pad_token_id=0,
    )
    made = Glm4MoeForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.05)
    return made


if __name__ == "__main__":
    folder, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
    tokenizer(asked["vocab_size"], SPECIAL, CHAT_TEMPLATE).save_pretrained(folder)
    model(asked).save_pretrained(folder)
    if asked.get("w8a8"):
        quantise(folder)
