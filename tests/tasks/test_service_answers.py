"""What a candidate answers under traffic is looked at, whatever it answers when the guard asks."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import FakeEngine, listening
from traffic_examples import IMAGES, traffic

from serving.checkpoint import Checkpoint
from serving.errors import Broken
from serving.home import REPOSITORY
from serving.launch import Server
from serving.scenario import Scenario, load_scenario
from serving.sources import Classes, Prompts, RequestClass, Span
from serving.traffic import send
from tasks.records import Arm, Block, digest
from tasks.service_answers import keep_answers, score_answers

INC, CAN = Arm
SCENARIO = load_scenario(REPOSITORY / "serving" / "scenarios" / "mixed-lengths-cpu.yaml")


def scenario(count: int = 3, **changes: object) -> Scenario:
    guard = SCENARIO.guard.model_copy(update={"answers_per_block": count})
    return SCENARIO.model_copy(update={"traffic": traffic(**changes), "guard": guard})  # type: ignore[arg-type]


def server(engine: FakeEngine, folder: Path, config: str = '{"vocab_size": 1024}') -> Server:
    (folder / "config.json").write_text(config)
    asked = Server.__new__(Server)  # its address and its checkpoint are all that is looked at
    for name, value in (("base_url", engine.base_url), ("checkpoint", Checkpoint(folder, digest("weights")))):
        object.__setattr__(asked, name, value)
    return asked


def scored(
    folder: Path, candidate: FakeEngine, incumbent: FakeEngine | None = None, asked: Scenario | None = None, **more: str
) -> list[Block]:
    """One block on either arm, then the answers of both on the incumbent."""
    asked, run = asked or scenario(), folder / "run"
    run.mkdir()
    with listening(incumbent or FakeEngine()) as ours, listening(candidate) as theirs:
        for order, (arm, engine) in enumerate(((INC, ours), (CAN, theirs))):
            keep_answers(asked, arm, 4, order, send(engine.base_url, asked.traffic, 4).records, run)
        return score_answers(asked, server(ours, folder, **more), run)


def of(blocks: list[Block], arm: Arm, observable: str = "answer_deficit") -> list[Block]:
    return [b for b in blocks if b.arm is arm and b.observable == observable]


def test_right_answers_of_both_arms_have_no_deficit_and_are_those_to_the_same_requests(tmp_path: Path) -> None:
    blocks = scored(tmp_path, FakeEngine())
    ours, theirs = of(blocks, INC), of(blocks, CAN)
    assert [b.value for b in (*ours, *theirs)] == [0.0] * 6
    assert [b.part for b in ours] == [b.part for b in theirs]
    assert {b.workload for b in blocks} <= {f"answers-{name}" for name in traffic().source.classes}  # type: ignore[union-attr]


def test_answers_that_both_arms_gave_alike_are_scored_once(tmp_path: Path) -> None:
    incumbent = FakeEngine()
    scored(tmp_path, FakeEngine(), incumbent)
    assert incumbent.paths.count("/generate") == 6 + 3


@pytest.mark.parametrize("incremental", [False, True])
def test_a_stream_of_new_ids_alone_gives_the_same_answer_as_one_that_repeats_them(
    incremental: bool, tmp_path: Path
) -> None:
    blocks = scored(tmp_path, FakeEngine(incremental=incremental))
    assert [b.value for b in of(blocks, CAN)] == [0.0] * 3


def test_tokens_that_the_incumbent_would_not_choose_have_their_deficit_and_their_place(tmp_path: Path) -> None:
    chats = RequestClass(requests=4, prompt_tokens=Span(low=3, high=9), output_tokens=Span(low=4, high=4))
    asked = scenario(source=Classes(kind="classes", classes={"chat": chats}))
    other = FakeEngine(streamed=lambda ids: [*ids[:2], *(token - 1 for token in ids[2:])])
    blocks = scored(tmp_path, other, asked=asked)
    assert all(b.value is not None and b.value > 1 for b in of(blocks, CAN))
    assert {b.value for b in of(blocks, CAN, "answer_deficit_token")} == {3.0}
    assert (tmp_path / "run" / "deficits.jsonl").read_text().count("\n") == 6


NOT_RIGHT: dict[str, Callable[[list[int]], object]] = {
    "carried 0 token ids": lambda ids: [],
    "token ids, ": lambda ids: [*ids, ids[-1]],
    "`1024` is no token id": lambda ids: [1024] * len(ids),
    "`-1` is no token id": lambda ids: [-1] * len(ids),
}


@pytest.mark.parametrize("said", [*NOT_RIGHT, "no list", "words"])
def test_an_answer_that_cannot_be_scored_is_not_right_and_never_unmeasured(said: str, tmp_path: Path) -> None:
    """An id beyond the vocabulary never reaches the server that scores: it would end it."""
    other = {"no list": lambda ids: "x", "words": lambda ids: ["x"] * len(ids)}
    incumbent = FakeEngine()
    blocks = scored(tmp_path, FakeEngine(streamed={**NOT_RIGHT, **other}[said]), incumbent)
    assert [b.value for b in of(blocks, CAN)] == [None] * 3
    wanted = said if said in NOT_RIGHT else "carried 0 token ids"
    assert all(wanted in (b.reason or "") for b in of(blocks, CAN))
    assert incumbent.paths.count("/generate") == 6 + 3


def test_an_incumbent_whose_own_answer_is_not_sound_is_broken(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="the incumbent's own answer to `4-"):
        scored(tmp_path, FakeEngine(), FakeEngine(streamed=lambda ids: [1024] * len(ids)))


def test_an_incumbent_without_finite_numbers_is_broken(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="not finite"):
        scored(tmp_path, FakeEngine(), FakeEngine(drift=None))


def test_a_request_that_failed_has_no_answer_and_counts_as_failed_instead(tmp_path: Path) -> None:
    blocks = scored(tmp_path, FakeEngine(fail_every=2), asked=scenario(count=6))
    assert (len(of(blocks, INC)), len(of(blocks, CAN))) == (6, 3)


NOT_MEASURED: dict[str, dict[str, object]] = {
    "pictures carry no token ids": {"asked": scenario(source=IMAGES)},
    "the scenario looks at none": {"asked": scenario(count=0)},
    "no stream of the incumbent carried": {"incumbent": FakeEngine(streamed=lambda ids: None)},
    "does not say how large its vocabulary is": {"config": "{}"},
}


@pytest.mark.parametrize("said", NOT_MEASURED)
def test_where_no_answer_can_be_scored_one_block_says_why(said: str, tmp_path: Path) -> None:
    (block,) = scored(tmp_path, FakeEngine(), **NOT_MEASURED[said])  # type: ignore[arg-type]
    assert (block.arm, block.value) == (INC, None)
    assert said in (block.reason or "")


def test_an_answer_to_a_text_is_scored_after_the_tokens_that_the_server_reads_in_it(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"text": "Hello there"}\n')
    prompts = Prompts(kind="prompts", file=str(file), requests=2, output_tokens=Span(low=4, high=4))
    blocks = scored(tmp_path, FakeEngine(), asked=scenario(source=prompts))
    assert [b.value for b in of(blocks, CAN)] == [0.0] * 2


@pytest.mark.parametrize(("streamed", "deficit"), [(lambda ids: ids, 0.0), (lambda ids: [t + 1 for t in ids], 0.01)])
def test_behind_a_router_that_tells_no_likeliest_tokens_answers_are_held_against_the_incumbents(
    streamed: Callable[[list[int]], object], deficit: float, tmp_path: Path
) -> None:
    blocks = scored(tmp_path, FakeEngine(streamed=streamed), FakeEngine(tops=False))
    assert [b.value for b in of(blocks, CAN)] == pytest.approx([deficit] * 3)
    assert not of(blocks, INC)


def test_behind_such_a_router_an_incumbent_without_finite_numbers_is_broken_too(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="not finite"):
        scored(tmp_path, FakeEngine(), FakeEngine(tops=False, drift=None))


def test_where_both_arms_answer_no_common_request_one_block_says_so(tmp_path: Path) -> None:
    (block,) = scored(tmp_path, FakeEngine(fail_every=1), FakeEngine(tops=False))
    assert "answered by both arms" in (block.reason or "")
