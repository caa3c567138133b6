"""As `reference_logprobs.py`, for a `glm5_next` whose language part is rounded to W8A8 here. Run by path in the engine.

    python -P reference_w8a8.py CHECKPOINT ASKED.json ANSWER.json

CHECKPOINT is not quantised. Weights of linear layers and experts take the values that int8 codes with a scale per channel have,
their inputs those of int8 codes with a scale per token; all else is fp32. An engine that serves W8A8 in fp32 says the same,
but for inputs so close to the middle between two codes that rounding decides.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextExperts

sys.path.insert(0, str(Path(__file__).parent))  # with -P a script's folder is not on the path
from reference_logprobs import logprobs, model

# Of linear layers, those that stay as they are: the last as in `tiny_w8a8.py`.
WHOLE = ("lm_head", ".visual.", ".indexer.", "kv_b_proj")


def rounded(x: torch.Tensor) -> torch.Tensor:
    """The values that symmetric int8 codes with one scale for each row of the last axis can say."""
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-10) / 127
    return torch.round(x / scale) * scale


def round_inputs(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return rounded(inputs[0]), *inputs[1:]


def round_between(experts: Any) -> None:
    gate = experts._apply_gate
    experts._apply_gate = lambda gate_up: rounded(gate(gate_up))


def quantise(made: torch.nn.Module) -> None:
    """In place."""
    for name, module in made.named_modules():
        if isinstance(module, Glm5NextTextExperts):
            round_between(module)
            weights = [module.gate_up_proj, module.down_proj]
        elif isinstance(module, torch.nn.Linear) and not any(part in name for part in WHOLE):
            weights = [module.weight]
        else:
            continue
        for weight in weights:
            weight.data = rounded(weight.data)
        module.register_forward_pre_hook(round_inputs)


if __name__ == "__main__":
    checkpoint, asked, answer = map(Path, sys.argv[1:4])
    reference = model(checkpoint)
    reference.set_experts_implementation("eager")
    quantise(reference)
    answer.write_text(json.dumps([logprobs(reference, one["ids"], 1) for one in json.loads(asked.read_text())]))
