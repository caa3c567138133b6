"""Options that SGLang refuses or ignores beside others."""

import json
from pathlib import Path

import pytest

from serving.arguments import known_arguments
from serving.combination_rules import RULES, Model
from serving.combinations import misfits, model_of
from serving.effective import in_effect

REPLAY = {"enable-linear-replayssm": True}
SPEC = {"enable-linear-replayssm-spec": True, "speculative-algorithm": "EAGLE"}


@pytest.mark.parametrize(
    ("arguments", "ends"),
    [
        (REPLAY, []),
        (REPLAY | {"disaggregation-mode": "decode"}, ["refused"]),
        (REPLAY | {"disaggregation-mode": "null"}, []),
        (REPLAY | {"enable-linear-replayssm-spec": True, "speculative-algorithm": "EAGLE"}, ["refused"]),
        (REPLAY | {"mamba-radix-cache-strategy": "extra_buffer"}, ["refused"]),
        (REPLAY | {"mamba-radix-cache-strategy": "no_buffer"}, []),
        (REPLAY | {"linear-attn-decode-backend": "cutedsl"}, ["refused"]),
        (REPLAY | {"linear-attn-backend": "cutedsl"}, ["refused"]),
        (REPLAY | {"linear-attn-backend": "flashkda"}, []),
        (REPLAY | {"linear-attn-backend": "cutedsl", "linear-attn-decode-backend": "helion"}, []),
        (SPEC, []),
        (SPEC | {"disaggregation-mode": "prefill"}, ["refused"]),
        (SPEC | {"disaggregation-mode": "decode"}, []),
        (SPEC | {"speculative-eagle-topk": 4}, ["refused"]),
        (SPEC | {"speculative-eagle-topk": "1"}, []),
        ({"enable-linear-replayssm-spec": True}, ["ignored"]),
        ({"linear-replayssm-cache-len": 8}, ["ignored"]),
        (REPLAY | {"linear-replayssm-cache-len": 8}, []),
        ({"linear-attn-decode-backend": "flashkda"}, ["refused"]),
        ({"enable-hierarchical-cache": True, "disable-radix-cache": True}, ["refused"]),
        ({"enable-int8-mamba-checkpoint": True, "enable-hierarchical-cache": True}, ["refused"]),
        ({"hicache-size": 32}, ["ignored"]),
        ({"hicache-size": 32, "enable-hierarchical-cache": True}, []),
        ({"hicache-size": 32, "disaggregation-mode": "decode"}, []),
        ({"speculative-num-steps": 5}, ["ignored"]),
        ({"speculative-num-steps": 5, "speculative-algorithm": "EAGLE"}, []),
        ({"deepep-mode": "normal"}, ["ignored"]),
        ({"deepep-mode": "normal", "moe-a2a-backend": "deepep"}, []),
        ({"disaggregation-ib-device": "mlx5_0"}, ["ignored"]),
        ({"enable-dp-lm-head": True, "enable-tp-lm-head-all-to-all": True}, ["refused"]),
        ({"schedule-policy": "lpm", "disable-radix-cache": True}, ["ignored"]),
        ({"schedule-policy": "lpm"}, []),
        ({"enable-linear-replayssm": False, "disaggregation-mode": "decode"}, []),
    ],
    ids=str,
)  # fmt: skip
def test_a_combination_is_named_where_it_is_one_that_cannot_work(arguments: dict[str, object], ends: list[str]) -> None:
    assert [misfit.ends for misfit in misfits(arguments)] == ends


def test_replay_is_ignored_where_the_gate_is_bounded_and_only_there() -> None:
    (found,) = misfits(REPLAY, Model(linear_attention=True, bounded_gate=True))
    assert (found.option, found.ends) == ("enable-linear-replayssm", "ignored")
    assert "lower bound" in found.says
    assert not misfits(REPLAY, Model(linear_attention=True, bounded_gate=False))
    assert not misfits(REPLAY, Model())


def test_the_config_of_a_checkpoint_says_whether_its_gate_is_bounded(tmp_path: Path) -> None:
    def model(**config: object) -> Model:
        (tmp_path / "config.json").write_text(json.dumps(config))
        return model_of(str(tmp_path))

    bounded = {"linear_attn_config": {"gate_lower_bound": -5.0}}
    assert model(**bounded) == model(text_config=bounded) == Model(linear_attention=True, bounded_gate=True)
    assert model(linear_attn_config={"num_heads": 4}) == Model(linear_attention=True)
    assert model(model_type="glm4_moe") == model_of("tiny-glm4-moe") == Model(linear_attention=False)
    assert model(model_type="something new") == model_of("/nowhere") == Model()
    (tmp_path / "config.json").write_text("[")
    assert model_of(str(tmp_path)) == Model()


@pytest.mark.engine
def test_every_rule_is_about_options_that_sglang_has_under_that_name() -> None:
    options = known_arguments()
    for name in {name for rule in RULES for name in (rule.option, *rule.others)}:
        assert options[name].dest.replace("_", "-") == name


@pytest.mark.engine
def test_defaults_and_aliases_of_the_real_parser_change_nothing() -> None:
    options = known_arguments()
    spelled = {"tp-size": 1, "schedule-policy": "fcfs", "schedule-conservativeness": 1, "hicache-size": 0}
    assert in_effect(spelled, options) == {}
    assert in_effect({"enable-hicache": True}, options) == in_effect({"enable-hierarchical-cache": True}, options)
    assert in_effect({"no-dllm-fdfo": True}, options) == {"dllm-fdfo": "off"}
    assert in_effect({"chunked-prefill-size": 512}, options) == {"chunked-prefill-size": "512"}
