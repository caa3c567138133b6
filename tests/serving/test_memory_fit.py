"""The sizes of GLM-5.3-Flash, against what is published of it and what its shapes say."""

import pytest

from serving.memory_fit import footprint
from serving.model_facts import facts_of
from serving.roles import Value
from serving.setting import Setting

MODEL = facts_of("zai-org/GLM-5.3-Flash-FP8")


def setting(**options: Value) -> Setting:
    return Setting({name.replace("_", "-"): value for name, value in options.items()}, model=MODEL)


def test_the_weights_with_the_draft_block_are_the_320_billion_that_are_published() -> None:
    whole = footprint(setting(dtype="bfloat16", speculative_algorithm="EAGLE"))
    assert whole is not None
    assert whole.weights / 2 / 1e9 == pytest.approx(320, rel=0.01)


def test_a_state_is_142_6_mb_in_float32_besides_the_convolution_window() -> None:
    with_window, without = footprint(setting()), 34 * 64 * 128 * 128 * 4
    assert with_window is not None
    assert without / 1e6 == pytest.approx(142.6, rel=1e-3)
    assert with_window.state_bytes - without == 34 * 3 * 8192 * 3 * 2


def test_a_token_holds_512_values_and_a_quarter_of_an_8_bit_key_in_11_layers() -> None:
    kept = footprint(setting(kv_cache_dtype="bfloat16"))
    assert kept is not None
    assert kept.kv_token_bytes == 11 * (512 * 2 + (128 + 4) / 4)


def test_linear_states_are_split_over_ranks_and_kv_is_whole_on_each() -> None:
    one, eight = footprint(setting()), footprint(setting(tp_size=8))
    assert one is not None
    assert eight is not None
    assert eight.state_bytes == one.state_bytes / 8
    assert eight.kv_token_bytes == one.kv_token_bytes


def test_attention_groups_keep_the_states_and_attention_weights_of_a_rank_whole() -> None:
    split, groups = footprint(setting(tp_size=8)), footprint(setting(tp_size=8, attn_dp_size=8))
    assert split is not None
    assert groups is not None
    assert groups.state_bytes == 8 * split.state_bytes
    assert groups.weights > split.weights


def test_an_unknown_model_and_an_encoder_have_no_footprint() -> None:
    assert facts_of("somebody/else") is None
    assert footprint(Setting({})) is None
    assert footprint(setting(encoder_only=True)) is None
