"""A recorded trace, scaled: what its hashes say is shared is shared, token for token, and nothing else."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traffic_examples import traffic

from serving.errors import BadInput
from serving.home import REPOSITORY
from serving.requests import plan_requests
from serving.scenario import Arrivals, Traffic, load_scenario
from serving.sources import Span, Trace, TraceLine
from serving.trace import HEAD, block_ids, output_tokens, prompt, prompt_tokens, recorded_rate_per_s, shared_tokens

EXCERPT = REPOSITORY / "serving" / "traces" / "mooncake_conversation_200.jsonl"
WHOLE = REPOSITORY.parent / "shared" / "data" / "mooncake" / "conversation_trace.jsonl"
SCENARIO = REPOSITORY / "serving" / "scenarios" / "mooncake-conversation-cpu.yaml"
TOKENS = Span(low=300, high=1000)
LINES: tuple[dict[str, object], ...] = (
    {"timestamp": 1000, "input_length": 1000, "output_length": 64, "hash_ids": [0, 1]},
    {"timestamp": 1000, "input_length": 1536, "output_length": 1, "hash_ids": [0, 1, 2]},
    {"timestamp": 3000, "input_length": 513, "output_length": 320, "hash_ids": [0, 3]},
    {"timestamp": 5000, "input_length": 1, "output_length": 2000, "hash_ids": [4]},
)


def written(folder: Path, lines: Sequence[dict[str, object]] = LINES) -> Path:
    file = folder / "trace.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def trace(file: Path, **changes: object) -> Trace:
    fields = {"kind": "trace", "file": str(file), "requests": 2, "block_tokens": 16, "output_scale": 0.03125}
    return Trace.model_validate(fields | changes)


def replayed(source: Trace, speed: float = 2.0) -> Traffic:
    arrivals = Arrivals(kind="trace", speed=speed)
    return traffic().model_copy(update={"source": source, "arrivals": arrivals, "token_ids": TOKENS})


def common(first: Sequence[int], second: Sequence[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def test_lengths_and_times_shrink_and_what_was_shared_stays_shared(tmp_path: Path) -> None:
    source = trace(written(tmp_path), requests=4)
    planned = plan_requests(replayed(source), 0)
    assert [len(r.input_ids) for r in planned] == [32, 48, 17, 1]
    assert [r.output_tokens for r in planned] == [2, 1, 10, 62]
    assert [r.due_s for r in planned] == [0, 0, 1, 2]
    first, second, third, fourth = (r.input_ids for r in planned)
    assert common(first, second) == 32
    assert common(first, third) == 16
    assert common(first, fourth) == 0


def test_blocks_are_windows_of_the_trace_and_after_the_last_it_begins_again_with_other_tokens(tmp_path: Path) -> None:
    planned = [plan_requests(replayed(trace(written(tmp_path))), block) for block in range(4)]
    assert [[len(r.input_ids) for r in block] for block in planned] == [[32, 48], [17, 1]] * 2
    assert [[r.due_s for r in block] for block in planned] == [[0, 0], [0, 1]] * 2
    assert common(planned[0][0].input_ids, planned[1][0].input_ids) == 16
    assert planned[0][0].input_ids != planned[2][0].input_ids


def test_requests_are_sent_in_order_of_time_even_if_the_file_is_not(tmp_path: Path) -> None:
    source = trace(written(tmp_path, LINES[::-1]), requests=4)
    assert [line.timestamp for line in source.lines()] == [1000, 1000, 3000, 5000]


@given(
    length=st.integers(1, 200_000), block=st.integers(4, 512), recorded=st.integers(4, 512), scale=st.floats(1e-3, 1)
)
def test_a_prompt_has_as_many_blocks_as_it_has_hashes_at_any_scale(
    length: int, block: int, recorded: int, scale: float
) -> None:
    blocks = -(-length // recorded)
    line = TraceLine(timestamp=0, input_length=length, output_length=700, hash_ids=tuple(range(blocks)))
    source = Trace.model_construct(
        kind="trace", file="", requests=1, block_tokens=block, recorded_block_tokens=recorded, output_scale=scale
    )
    tokens = prompt_tokens(source, line)
    assert -(-tokens // block) == blocks
    assert tokens >= 1
    assert 1 <= output_tokens(source, line) <= 700


@given(
    shared=st.lists(st.integers(0, 10**6), max_size=4),
    rests=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).filter(lambda pair: pair[0] != pair[1]),
    seed=st.integers(0, 9),
)
def test_two_prompts_share_the_blocks_that_their_hashes_share_and_less_than_a_head_more(
    shared: list[int], rests: tuple[int, int], seed: int
) -> None:
    source = Trace.model_construct(
        kind="trace", file="", requests=1, block_tokens=16, recorded_block_tokens=512, output_scale=1.0
    )
    first, second = (
        prompt(
            source,
            TraceLine(timestamp=0, input_length=512 * (len(shared) + 1), output_length=1, hash_ids=(*shared, rest)),
            TOKENS,
            seed,
            0,
        )
        for rest in rests
    )
    assert 16 * len(shared) <= common(first, second) < 16 * len(shared) + HEAD


def test_tokens_of_a_block_depend_on_the_seed_and_lie_in_the_span() -> None:
    assert block_ids("1:0", 7, 512, TOKENS) == block_ids("1:0", 7, 512, TOKENS) != block_ids("2:0", 7, 512, TOKENS)
    assert all(300 <= token <= 1000 for token in block_ids("1:0", 10**8, 512, TOKENS))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hash_ids": [0]}, "1 hash ids, but 1000 tokens are 2 blocks of 512"),
        ({"hash_ids": [0, -1]}, "line 1 .*hash_ids.1"),
        ({"output_length": 0}, "line 1 .*output_length"),
        ({"input_length": "many"}, "line 1 .*input_length"),
        ({"timestamp": None}, "line 1 .*timestamp"),
    ],
)
def test_a_line_that_is_no_request_is_refused(changed: dict[str, object], said: str, tmp_path: Path) -> None:
    content = load_written(tmp_path, [LINES[0] | changed, *LINES[1:]])
    with pytest.raises(BadInput, match=said):
        load_scenario(content)


def load_written(folder: Path, lines: Sequence[dict[str, object]], requests: int = 2) -> Path:
    """A scenario with a trace of `lines` beside it."""
    written(folder, lines)
    text = SCENARIO.read_text().replace("../traces/mooncake_conversation_200.jsonl", "trace.jsonl")
    file = folder / "scenario.yaml"
    file.write_text(text.replace("requests: 40", f"requests: {requests}"))
    return file


def test_a_trace_that_is_shorter_than_a_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has 4 requests, a block takes 5"):
        load_scenario(load_written(tmp_path, LINES, requests=5))


def test_another_trace_is_another_scenario(tmp_path: Path) -> None:
    before = load_scenario(load_written(tmp_path, LINES)).digest
    assert load_scenario(load_written(tmp_path, [LINES[0] | {"output_length": 65}, *LINES[1:]])).digest != before


def test_the_hashes_say_how_many_tokens_a_cache_could_know(tmp_path: Path) -> None:
    source = trace(written(tmp_path), requests=4)
    assert shared_tokens(source, source.lines()) == (0, 32, 16, 0)


def test_the_rate_of_a_trace_is_that_of_the_gaps_between_its_requests(tmp_path: Path) -> None:
    assert recorded_rate_per_s(trace(written(tmp_path))) == pytest.approx(3 / 4)
    assert recorded_rate_per_s(trace(written(tmp_path, LINES[:2]))) is None


def test_the_excerpt_fits_the_tiny_model_and_shares_prefixes() -> None:
    source = load_scenario(SCENARIO).traffic.source
    assert isinstance(source, Trace)
    lines = source.lines()
    assert len(lines) == 200
    assert max(prompt_tokens(source, line) + output_tokens(source, line) for line in lines) < 8192
    assert sum(tokens > 0 for tokens in shared_tokens(source, lines)) > 190


@pytest.mark.skipif(not WHOLE.exists(), reason="the whole trace is not here (../shared/data/mooncake)")
def test_the_excerpt_is_the_beginning_of_the_whole_trace_and_the_whole_can_be_replayed() -> None:
    with WHOLE.open() as file:
        assert [next(file) for _ in range(200)] == EXCERPT.read_text().splitlines(keepends=True)
    whole = trace(WHOLE, requests=12_031)
    planned = plan_requests(replayed(whole, speed=1.0), 0)
    assert len(planned) == 12_031
    assert [len(r.input_ids) for r in planned] == [prompt_tokens(whole, line) for line in whole.lines()]
    assert planned[-1].due_s == pytest.approx(3536.999)
    shared = sum(shared_tokens(whole, whole.lines())) / sum(len(r.input_ids) for r in planned)
    assert 0.3 < shared < 0.5
