"""Layers of a block add up to the client's time, and a change of it is told apart without anything lost or invented."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.layers import Client, Decomposition, Span, Window, decompose, layers
from serving.metrics import parse
from serving.summary import Measured

CLIENT = Client(4, Measured(130.0), Measured(333.0))
INSIDE = ("server_queue_ms", "server_encode_ms", "server_prefill_ms", "server_transfer_ms")
WHOLE_E2E = (*INSIDE, "server_decode_ms", "router_ms", "unexplained_ms")
WHOLE_TTFT = (*INSIDE, "router_until_first_token_ms", "unexplained_ms")


def samples(histograms: dict[str, float], count: int) -> str:
    """As SGLang 0.5.23 writes them: mean ms by metric, or by stage where a name has no `sglang:`."""
    lines = []
    for name, mean_ms in histograms.items():
        metric, label = (name, "") if ":" in name else ("sglang:per_stage_req_latency_seconds", f'stage="{name}",')
        lines += [
            f'{metric}_sum{{{label}model_name="m"}} {count * mean_ms / 1e3}',
            f'{metric}_count{{{label}model_name="m"}} {count}',
        ]
    return "\n".join([*lines, ""])


def span(histograms: dict[str, float], count: int = 4) -> Span:
    return Span(parse(samples(histograms, 0)), parse(samples(histograms, count)))


def disaggregated(pictures: int = 4) -> Window:
    encoder = {"sglang:encoder_request_e2e_latency_seconds": 10.0, "sglang:encoder_transfer_seconds": 2.0}
    prefill = {
        "prefill_bootstrap": 2.0,
        "sglang:queue_time_seconds": 1.0,
        "prefill_forward": 60.0,
        "prefill_transfer_kv_cache": 8.0,
        "sglang:time_to_first_token_seconds": 999.0,
    }
    decode = {
        "decode_waiting": 0.5,
        "decode_transferred": 88.0,
        "sglang:queue_time_seconds": 0.5,
        "sglang:time_to_first_token_seconds": 100.0,
        "sglang:e2e_request_latency_seconds": 300.0,
    }
    return {"encode": span(encoder, pictures), "prefill": span(prefill), "decode": span(decode), "router": Span()}


def aggregated() -> Window:
    found = {
        "sglang:queue_time_seconds": 20.0,
        "prefill_forward": 60.0,
        "sglang:time_to_first_token_seconds": 100.0,
        "sglang:e2e_request_latency_seconds": 300.0,
    }
    return {"server": span(found)}


def found(window: Window, names: tuple[str, ...] | None = None) -> dict[str, float | None]:
    return {name: m.value for name, m in layers(window, CLIENT).items() if names is None or name in names}


def test_each_layer_of_a_disaggregated_stack_comes_from_the_role_that_does_the_work() -> None:
    assert found(disaggregated(), WHOLE_E2E) == pytest.approx(
        {
            "server_queue_ms": 3.5,
            "server_encode_ms": 12.0,
            "server_prefill_ms": 60.0,
            "server_transfer_ms": 8.0,
            "server_decode_ms": 200.0,
            "router_ms": 33.0,
            "unexplained_ms": 16.5,
        }
    )


@pytest.mark.parametrize(("names", "whole"), [(WHOLE_E2E, 333.0), (WHOLE_TTFT, 130.0)])
def test_layers_and_the_unexplained_rest_add_up_to_what_the_client_saw(names: tuple[str, ...], whole: float) -> None:
    assert sum(value or 0.0 for value in found(disaggregated(), names).values()) == pytest.approx(whole)


def test_a_single_server_has_the_same_form_with_fewer_layers() -> None:
    assert found(aggregated()) == pytest.approx(
        {
            "server_queue_ms": 20.0,
            "server_prefill_ms": 60.0,
            "server_decode_ms": 200.0,
            "http_ms": 33.0,
            "http_until_first_token_ms": 30.0,
            "unexplained_ms": 20.0,
            "server_ttft_ms": 100.0,
            "server_e2e_ms": 300.0,
        }
    )


def test_a_request_without_a_picture_is_no_request_that_encode_forgot() -> None:
    assert found(disaggregated(pictures=1))["server_encode_ms"] == pytest.approx(3.0)
    idle = {**disaggregated(), "encode": Span(parse(""), parse(""))}
    assert found(idle)["server_encode_ms"] == 0.0


def test_a_layer_without_a_metric_is_missing_and_then_nothing_is_unexplained() -> None:
    without = {**disaggregated(), "encode": Span(absent="`/metrics` is not there")}
    told = layers(without, CLIENT)
    assert told["server_encode_ms"] == Measured(None, "encode: `/metrics` is not there")
    assert told["unexplained_ms"].value is None
    assert "`server_encode_ms` (encode: `/metrics` is not there)" in str(told["unexplained_ms"].reason)


def test_a_role_that_did_not_count_every_request_has_no_layer() -> None:
    three = {**disaggregated(), "prefill": span({"prefill_transfer_kv_cache": 8.0}, count=3)}
    assert "prefill counted 3 of 4 requests" in str(layers(three, CLIENT)["server_transfer_ms"].reason)
    assert "exposes no" in str(layers(three, CLIENT)["server_prefill_ms"].reason)


def test_a_health_check_beside_the_requests_leaves_the_mean_and_many_do_not() -> None:
    one, many = ({**disaggregated(), "prefill": span({"prefill_transfer_kv_cache": 8.0}, count=n)} for n in (5, 6))
    assert layers(one, CLIENT)["server_transfer_ms"].value == pytest.approx(8.0)
    assert "prefill counted 6 of 4 requests" in str(layers(many, CLIENT)["server_transfer_ms"].reason)


def test_a_block_in_which_nothing_was_completed_has_no_layers() -> None:
    nothing = replace(CLIENT, requests=0)
    assert all(m.value is None and m.reason for m in layers(disaggregated(), nothing).values())


def decomposed(shifts: dict[str, float | None], change: float) -> Decomposition:
    before = dict.fromkeys(shifts, Measured(10.0))
    after = {n: Measured(None, "no metric") if s is None else Measured(10.0 + s) for n, s in shifts.items()}
    result = decompose(Measured(100.0), Measured(100.0 + change), before, after)
    assert result is not None
    return result


TIMES = st.floats(-1e4, 1e4)


@given(st.dictionaries(st.sampled_from(WHOLE_E2E[:-1]), TIMES, min_size=1), TIMES)
def test_contributions_and_the_unexplained_rest_are_the_change(shifts: dict[str, float], change: float) -> None:
    result = decomposed(dict(shifts), change)
    assert result.unexplained is not None
    assert sum(result.contributions.values()) + result.unexplained == pytest.approx(result.change, abs=1e-6)


@given(st.dictionaries(st.sampled_from(WHOLE_E2E[:-1]), st.none() | TIMES, min_size=1), TIMES)
def test_nothing_is_called_unexplained_while_a_layer_is_missing(shifts: dict[str, float | None], change: float) -> None:
    result = decomposed(shifts, change)
    assert set(result.missing) == {name for name, shift in shifts.items() if shift is None}
    assert (result.unexplained is None) == bool(result.missing)
    assert result.largest is None or not result.missing


def test_the_layer_that_moved_most_is_named_unless_more_is_unexplained() -> None:
    assert decomposed({"server_queue_ms": 30.0, "server_prefill_ms": -5.0}, 27.0).largest == "server_queue_ms"
    assert decomposed({"server_queue_ms": 3.0}, 27.0).largest is None


def test_a_whole_that_was_not_measured_is_not_told_apart() -> None:
    assert decompose(Measured(None, "failed"), Measured(1.0), {}, {}) is None


@pytest.mark.parametrize("after", ["nan", "+Inf", "-0.5"])
@pytest.mark.parametrize("metric", ["sglang:encoder_transfer_seconds", "sglang:encoder_request_e2e_latency_seconds"])
def test_a_count_that_went_backwards_or_is_no_number_is_not_measured(metric: str, after: str) -> None:
    """As after a restart in the middle of a block; what is left is not called unexplained."""
    window = dict(disaggregated())
    text = samples({"sglang:encoder_transfer_seconds": 2.0, "sglang:encoder_request_e2e_latency_seconds": 10.0}, 4)
    lines = [
        f"{line.rpartition(' ')[0]} {after}" if line.startswith(f"{metric}_sum") else line for line in text.split("\n")
    ]
    window["encode"] = Span(window["encode"].before, parse("\n".join(lines)))
    found = layers(window, CLIENT)
    assert found["server_encode_ms"].value is None
    assert "went backwards or is no number" in str(found["server_encode_ms"].reason)
    assert found["unexplained_ms"].value is None
    assert "server_encode_ms" in str(found["unexplained_ms"].reason)


def test_an_encoder_that_tells_nothing_has_worked_for_nothing_only_if_no_picture_was_sent() -> None:
    window = {**disaggregated(), "encode": Span(parse(""), parse(""))}
    assert layers(window, CLIENT)["server_encode_ms"].value == 0.0
    found = layers(window, replace(CLIENT, pictures=True))
    assert "exposes no" in str(found["server_encode_ms"].reason)
    assert found["unexplained_ms"].value is None
