"""Tiny checkpoints: the same bytes each time, and a configuration that its two readers understand alike."""

import json
from pathlib import Path

import pytest

from serving.checkpoint import checkpoint


@pytest.mark.engine
def test_tiny_glm53_is_the_same_in_two_homes_and_means_the_same_to_sglang_and_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = checkpoint("tiny-glm53")
    monkeypatch.setenv("INFRA_AGENT_HOME", str(tmp_path / "elsewhere"))
    second = checkpoint("tiny-glm53")
    assert first.folder != second.folder
    assert first.digest == second.digest

    served = json.loads((first.folder / "config.json").read_text())["text_config"]
    reference = json.loads((first.folder / "reference" / "config.json").read_text())["text_config"]
    dense = served["first_k_dense_replace"]
    assert served["mlp_layer_types"] == ["dense"] * dense + ["sparse"] * (served["num_hidden_layers"] - dense)
    assert served["mhc"] is True
    assert not [name for name in served if name.startswith("index")]
    assert reference["index_topk"] == reference["max_position_embeddings"]  # dense and sparse attention select the same
    assert all(reference[name] == value for name, value in served.items() if name != "mhc")
    assert {file.name for file in first.folder.iterdir()} >= {
        "tokenizer.json", "preprocessor_config.json", "video_preprocessor_config.json", "chat_template.jinja",
    }  # fmt: skip
