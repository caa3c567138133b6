"""Sparse attention that is served dense on a CPU: what is left out, by name, and which contexts are refused."""

import importlib.util
from types import ModuleType, SimpleNamespace

import pytest

from serving.engine_env import CPU_STAND_INS

SPARSE, DENSE = (SimpleNamespace(config=SimpleNamespace(**keys)) for keys in ({"index_topk": 128}, {}))
LAYER = "model.language_model.layers.3.self_attn"
INDEXER = [
    f"{LAYER}.indexer.{name}"
    for name in ("wq_b.weight", "wk.weight", "weights_proj.weight", "k_norm.weight", "k_norm.bias",
                 "index_kpool_compress_ape", "index_kpool_compress_gate")
]  # fmt: skip


@pytest.fixture(scope="module")
def dense() -> ModuleType:
    """By path: only an engine process has this folder on its path."""
    spec = importlib.util.spec_from_file_location("dense_attention", CPU_STAND_INS / "dense_attention.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_keys_of_the_indexer_are_left_out_by_name_and_no_others(dense: ModuleType) -> None:
    others = [f"{LAYER}.q_a_proj.weight", f"{LAYER}.indexer.something.weight", "model.visual.indexer.wk.weight"]
    assert dense.left_out(SPARSE, [*INDEXER, *others]) == {dense.LABEL: INDEXER}


def test_a_model_that_asks_for_no_sparse_attention_leaves_nothing_out(dense: ModuleType) -> None:
    assert dense.left_out(DENSE, INDEXER) == {}


class ModelConfig:
    """Of SGLang's, what is looked at."""

    def __init__(self, context_len: int, encoder_only: bool = False, index_topk: int | None = 128) -> None:
        self.context_len = context_len
        self.hf_text_config = SimpleNamespace(index_topk=index_topk)
        self.hf_config = SimpleNamespace(encoder_only=encoder_only)


@pytest.fixture
def model_config(dense: ModuleType) -> SimpleNamespace:
    module = SimpleNamespace(
        ModelConfig=type("ModelConfig", (ModelConfig,), {}),
        is_deepseek_dsa=lambda config: config.index_topk is not None,
    )
    dense.serve_dense(module)
    return module


def test_a_context_that_the_indexer_would_not_select_whole_is_refused_with_the_longest_that_it_would(
    model_config: SimpleNamespace,
) -> None:
    with pytest.raises(ValueError, match=r"129 tokens are admitted.*--context-length=128"):
        model_config.ModelConfig(129)


def test_a_context_that_is_selected_whole_is_served_dense_and_said_so(
    model_config: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    config = model_config.ModelConfig(128)
    assert not model_config.is_deepseek_dsa(config.hf_text_config)
    assert "dense attention in place of sparse attention (DSA): the same up to 128 tokens" in caplog.text


def test_encode_and_a_model_without_an_indexer_may_have_any_context(model_config: SimpleNamespace) -> None:
    model_config.ModelConfig(8192, encoder_only=True)
    model_config.ModelConfig(8192, index_topk=None)
