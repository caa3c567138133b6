"""The same plan gives the same requests, whatever they come from, and each source keeps what it promises."""

import base64
import io
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from traffic_examples import CLOSED, POISSON, traffic

from serving.documents import validate
from serving.errors import BadInput
from serving.requests import plan_requests
from serving.scenario import Traffic
from serving.sources import Images, Prompts, RandomLengths, Source, Span

RANDOM = RandomLengths(kind="random", requests=6, prompt_tokens=100, output_tokens=10, range_ratio=0.25)
IMAGES = Images(
    kind="images",
    requests=2,
    width_px=Span(low=28, high=56),
    height_px=Span(low=28, high=28),
    question="what is it",
    output_tokens=Span(low=2, high=3),
)


def of(source: Source) -> Traffic:
    return traffic().model_copy(update={"source": source})


@pytest.fixture
def prompts(tmp_path: Path) -> Prompts:
    file = tmp_path / "prompts.jsonl"
    lines = [{"text": "How are you?"}, {"input_ids": [5, 6, 7], "output_tokens": 9}, {"text": "And you?"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Prompts(kind="prompts", file=str(file), requests=2, output_tokens=Span(low=2, high=2))


@pytest.mark.parametrize("planned", [traffic(), of(RANDOM), of(IMAGES)], ids=["classes", "random", "images"])
def test_the_same_block_is_the_same_requests_and_another_block_is_not(planned: Traffic) -> None:
    assert plan_requests(planned, 3) == plan_requests(planned, 3)
    assert plan_requests(planned, 3) != plan_requests(planned, 4)
    reseeded = planned.model_copy(update={"seed": 8})
    assert plan_requests(planned, 3) != plan_requests(reseeded, 3)


@pytest.mark.parametrize("planned", [traffic(), of(RANDOM)], ids=["classes", "random"])
def test_no_two_prompts_of_a_run_share_their_first_two_tokens(planned: Traffic) -> None:
    heads = [r.input_ids[:2] for block in range(50) for r in plan_requests(planned, block)]
    assert len(set(heads)) == len(heads)


def test_every_block_has_the_same_mix_and_lengths_within_their_spans() -> None:
    for block in range(20):
        planned = plan_requests(traffic(), block)
        assert sorted(r.class_name for r in planned) == ["chat"] * 4 + ["document"] * 2
        for r in planned:
            low, high, most = (3, 9, 5) if r.class_name == "chat" else (40, 50, 1)
            assert low <= len(r.input_ids) <= high
            assert 1 <= r.output_tokens <= most
            assert all(300 <= token <= 400 for token in r.input_ids)


@given(full=st.integers(1, 3000), ratio=st.floats(0, 1), block=st.integers(0, 99))
def test_random_lengths_lie_between_the_ratio_of_the_full_length_and_the_full_length(
    full: int, ratio: float, block: int
) -> None:
    source = RANDOM.model_copy(update={"prompt_tokens": full, "range_ratio": ratio})
    for request in plan_requests(of(source), block):
        assert max(int(full * ratio), 1) <= len(request.input_ids) <= full
        assert max(int(10 * ratio), 1) <= request.output_tokens <= 10


def test_a_range_ratio_of_one_gives_the_full_lengths() -> None:
    source = RANDOM.model_copy(update={"range_ratio": 1.0})
    assert {(len(r.input_ids), r.output_tokens) for r in plan_requests(of(source), 0)} == {(100, 10)}


def test_prompts_of_a_file_come_in_its_order_and_begin_again(prompts: Prompts) -> None:
    first, second = (plan_requests(of(prompts), block) for block in (0, 1))
    assert [(r.text, r.input_ids, r.output_tokens) for r in (*first, *second)] == [
        ("How are you?", (), 2),
        (None, (5, 6, 7), 9),
        ("And you?", (), 2),
        ("How are you?", (), 2),
    ]
    assert [r.prompt_tokens for r in first] == [None, 3]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}", "`text` or `input_ids`"),
        ('{"text": "a", "input_ids": [1]}', "not both"),
        ('{"text": "a", "size": 1}', "size"),
        ("nonsense", "line 2"),
    ],
)
def test_a_line_that_is_no_prompt_is_refused_with_its_number(line: str, said: str, prompts: Prompts) -> None:
    file = Path(prompts.file).with_name("wrong.jsonl")
    file.write_text('{"text": "right"}\n' + line + "\n")
    with pytest.raises(BadInput, match=said) as refused:
        Prompts.model_validate(prompts.model_dump() | {"file": str(file)})
    assert "line 2" in refused.value.message


@pytest.mark.parametrize("content", [None, "", "\n\n"], ids=["missing", "empty", "blank"])
def test_a_file_without_prompts_is_refused(content: str | None, prompts: Prompts) -> None:
    file = Path(prompts.file).with_name("none.jsonl")
    if content is not None:
        file.write_text(content)
    with pytest.raises(BadInput, match=r"none\.jsonl"):
        Prompts.model_validate(prompts.model_dump() | {"file": str(file)})


def test_the_path_of_a_data_file_is_relative_to_the_file_that_names_it(prompts: Prompts) -> None:
    file = Path(prompts.file)
    written = prompts.model_dump() | {"file": file.name}
    assert validate(written, Prompts, "a scenario", file.parent) == prompts


def test_a_picture_is_a_png_of_the_size_that_was_drawn_and_no_two_are_alike() -> None:
    found = [r.image_uri or "" for block in range(3) for r in plan_requests(of(IMAGES), block)]
    assert len(set(found)) == len(found)
    for uri in found:
        png = base64.b64decode(uri.removeprefix("data:image/png;base64,"), validate=True)
        width, height = struct.unpack(">II", png[16:24])
        assert png.startswith(b"\x89PNG")
        assert 28 <= width <= 56
        assert height == 28


def test_the_picture_can_be_decoded() -> None:
    image = pytest.importorskip("PIL.Image")
    uri = plan_requests(of(IMAGES), 0)[0].image_uri or ""
    decoded = image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB")
    assert all(low < 10 and high > 245 for low, high in decoded.getextrema())


def test_poisson_arrivals_are_seeded_and_start_at_once() -> None:
    many = traffic(POISSON).model_copy(update={"source": RANDOM.model_copy(update={"requests": 2000})})
    times = [r.due_s or 0.0 for r in plan_requests(many, 0)]
    assert times == [r.due_s for r in plan_requests(many, 0)] != [r.due_s for r in plan_requests(many, 1)]
    assert times[0] == 0.0
    assert times == sorted(times)
    assert times[-1] == pytest.approx(10.0, rel=0.2)


def test_a_client_that_waits_for_answers_has_no_times_to_keep() -> None:
    assert {r.due_s for r in plan_requests(traffic(CLOSED), 0)} == {None}


def test_classes_are_short_for_a_source_of_that_kind() -> None:
    whole = traffic().model_dump()
    short = {name: value for name, value in whole.items() if name != "source"} | {"classes": whole["source"]["classes"]}
    assert Traffic.model_validate(short) == traffic()
    with pytest.raises(ValidationError, match="one of the two"):
        Traffic.model_validate(whole | {"classes": whole["source"]["classes"]})


def test_times_of_a_trace_need_a_trace() -> None:
    with pytest.raises(ValidationError, match="needs a `source` of that kind, not `classes`"):
        Traffic.model_validate(traffic().model_dump() | {"arrivals": {"kind": "trace", "speed": 1}})
