"""Facts of a stack become options, variables and addresses of its roles, each stated once."""

from pathlib import Path

from serving.derive import arguments_of, derived_environment, peers_of, words_of
from serving.fields import contradictions, field_of
from serving.roles import RoleSpec
from serving.stack import StackSpec, load_stack

STACKS = Path(__file__).parents[2] / "serving" / "stacks"
EPD = load_stack(STACKS / "tiny-glm53-epd-cpu.yaml")
FLASH = load_stack(STACKS / "glm-5.3-flash-epd-h200.yaml")


def test_each_role_gets_the_flags_that_make_it_that_role() -> None:
    assert arguments_of(EPD, "encode")["encoder-only"] is True
    assert arguments_of(EPD, "prefill")["disaggregation-mode"] == "prefill"
    assert arguments_of(EPD, "decode")["disaggregation-mode"] == "decode"
    assert arguments_of(EPD, "router")["prometheus-host"] == "127.0.0.1"
    assert arguments_of(EPD, "prefill")["language-only"] is True
    assert "language-only" not in arguments_of(EPD, "decode")  # else each picture would be encoded twice


def test_facts_reach_prefill_and_decode_alike() -> None:
    for role in ("prefill", "decode"):
        assert arguments_of(FLASH, role)["kv-cache-dtype"] == "bfloat16"
        assert arguments_of(FLASH, role)["moe-a2a-backend"] == "deepep"
        assert derived_environment(FLASH, role)["SGLANG_MAMBA_CONV_DTYPE"] == "bfloat16"
        assert field_of(FLASH, role, "kv-cache-dtype") == "quantization.kv"


def test_the_router_knows_every_replica_and_the_bootstrap_port_of_each_prefill() -> None:
    prefill = EPD.roles["prefill"].model_copy(update={"count": 2, "port": 32000})
    two = EPD.model_copy(update={"roles": {**EPD.roles, "prefill": prefill}})
    assert peers_of(two, "router") == (
        *("--prefill", "http://127.0.0.1:32000", "31997", "--prefill", "http://127.0.0.1:32001", "31998"),
        *("--decode", "http://127.0.0.1:31302"),
    )
    assert arguments_of(two, "prefill", 1)["disaggregation-bootstrap-port"] == 31998
    assert peers_of(two, "prefill") == ("--encoder-urls", "http://127.0.0.1:31300")
    assert peers_of(two, "decode") == ()


def test_an_attached_role_is_reached_at_its_url() -> None:
    assert peers_of(FLASH, "router") == (
        *("--prefill", "http://glm-prefill:30000", "31997"),
        *("--decode", "http://glm-decode:30000"),
    )


def test_several_values_follow_their_option_and_switches_stand_alone() -> None:
    assert words_of({"a": True, "b": False, "c": None, "d": (1, 2), "e": "x"}) == ("--a", "--d", "1", "2", "--e=x")


def test_an_argument_that_says_otherwise_than_a_fact_is_a_contradiction() -> None:
    role = RoleSpec(port=31400, arguments={"kv-cache-dtype": "fp8_e4m3", "tp-size": "2"})
    role = role.model_copy(update={"parallelism": role.parallelism.model_copy(update={"tp": 2})})
    facts = {"name": "s", "model": "m", "ready_timeout_s": 1, "quantization": {"kv": "bfloat16"}}
    spec = StackSpec.model_validate({**facts, "roles": {"server": role}})
    assert contradictions(spec, "server") == {"kv-cache-dtype": ("kv-cache-dtype", "bfloat16", "fp8_e4m3")}


def test_a_part_that_is_left_as_by_default_does_not_change_the_digest() -> None:
    stated = {"name": "s", "model": "m", "ready_timeout_s": 1, "roles": {"server": {"port": 31400}}}
    plain, spelt = StackSpec.model_validate(stated), StackSpec.model_validate({**stated, "moe": {"all_to_all": "none"}})
    assert plain.digest == spelt.digest
