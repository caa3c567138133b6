"""Log-probabilities by transformers in fp32, of given tokens after given prompts. Run by path in the engine environment.

    python -P reference_logprobs.py CHECKPOINT ASKED.json ANSWER.json

ASKED is a list of {"ids": [...]}, or of {"text": ..., "image": FILE, "new": [...]} whose prompt is made by the processor.
ANSWER has for each the log-probability of every token but the first, given all before it; of `new` alone for images.
An image may have a "vision_epsilon", for the norms whose epsilon SGLang does not take from the configuration.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoTokenizer
from transformers.models.glm5_next import configuration_glm5_next, modeling_glm5_next, processing_glm5_next
from transformers.models.glm5_next.image_processing_glm5_next import Glm5NextImageProcessor
from transformers.models.glm5_next.video_processing_glm5_next import Glm5NextVideoProcessor


def model(folder: Path) -> torch.nn.Module:
    """With the reference configuration. The indexer has no weights: it selects every token of these contexts anyway."""
    config = configuration_glm5_next.Glm5NextConfig.from_json_file(folder / "reference" / "config.json")
    made, told = modeling_glm5_next.Glm5NextForConditionalGeneration.from_pretrained(
        folder, config=config, dtype=torch.float32, output_loading_info=True
    )
    strangers = [name for name in told["missing_keys"] if ".indexer." not in name] + list(told["unexpected_keys"])
    if strangers:
        raise SystemExit(f"weights that are missing or not used: {', '.join(sorted(strangers))}")
    return made.eval()


def logprobs(made: torch.nn.Module, ids: list[int], first: int, **inputs: torch.Tensor) -> list[float]:
    """Of ids[first:], each given all before it."""
    with torch.no_grad():
        found = made(input_ids=torch.tensor([ids]), use_cache=False, **inputs).logits[0].float().log_softmax(-1)
    return [float(found[place - 1, ids[place]]) for place in range(first, len(ids))]


@contextmanager
def vision_epsilon(made: torch.nn.Module, epsilon: float | None) -> Iterator[None]:
    """In the norms of q and k, and in that of the merger; None leaves them as they are configured."""
    visual = made.model.visual
    norms = [(norm, "variance_epsilon") for b in visual.blocks for norm in (b.attn.q_norm, b.attn.k_norm)]
    norms.append((visual.merger.post_projection_norm, "eps"))
    configured = [getattr(norm, name) for norm, name in norms]
    for norm, name in norms if epsilon is not None else ():
        setattr(norm, name, epsilon)
    yield
    for (norm, name), value in zip(norms, configured, strict=True):
        setattr(norm, name, value)


def of_image(
    made: torch.nn.Module, folder: Path, text: str, image: str, new: list[int], epsilon: float | None
) -> list[float]:
    processor = processing_glm5_next.Glm5NextProcessor(
        Glm5NextImageProcessor.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
        Glm5NextVideoProcessor.from_pretrained(folder),
    )
    inputs = processor(text=[text], images=[Image.open(image).convert("RGB")], return_tensors="pt")
    prompt = inputs["input_ids"][0].tolist()
    kinds = torch.cat([inputs["mm_token_type_ids"], torch.zeros(1, len(new), dtype=torch.int64)], dim=1)
    vision = {"pixel_values": inputs["pixel_values"], "image_grid_thw": inputs["image_grid_thw"]}
    with vision_epsilon(made, epsilon):
        return logprobs(made, prompt + new, len(prompt), mm_token_type_ids=kinds, **vision)


if __name__ == "__main__":
    checkpoint, asked, answer = map(Path, sys.argv[1:4])
    torch.manual_seed(0)
    reference = model(checkpoint)
    found = [
        of_image(reference, checkpoint, one["text"], one["image"], one["new"], one.get("vision_epsilon"))
        if "image" in one
        else logprobs(reference, one["ids"], 1)
        for one in json.loads(asked.read_text())
    ]
    answer.write_text(json.dumps(found))
