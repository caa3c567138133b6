"""Whether the answers to the timed traffic are right, as blocks: a sample of each block, scored once the traffic is over.

What the gate before the traffic asks is not what the traffic asks: a candidate may compute for the one and not for the other.
The incumbent scores the sampled answers of both arms; how its own come out is the floor.
"""

import logging
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from serving.answers import Scored, deficits, deficits_against, prompt_ids, score
from serving.errors import Broken
from serving.jsonl import read_jsonl, write_jsonl
from serving.launch import Server
from serving.model_facts import facts_of
from serving.observables import OBSERVABLES
from serving.request_record import RequestRecord
from serving.requests import Request, plan_requests
from serving.scenario import Scenario
from serving.sources import Images
from tasks.judge_answers import DEFICIT, TOKEN
from tasks.records import Arm, Block

log = logging.getLogger(__name__)


class Sampled(BaseModel):
    """An answer as it was streamed. `order` is of the block among those of the run, `number` gives its requests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arm: Arm
    order: int
    number: int
    request: str
    class_name: str
    token_ids: tuple[int, ...]


class Read(Sampled):
    """`deficits_nats`: one a token. `reason`: why the answer is not right, whatever its numbers are."""

    deficits_nats: tuple[float | None, ...] = ()
    reason: str | None = None


def keep_answers(
    scenario: Scenario, arm: Arm, number: int, order: int, records: Sequence[RequestRecord], folder: Path
) -> None:
    """Writes the sampled answers of a block. A function of seed and number: the same requests in both arms.

    A request that failed has no answer, and counts as failed instead.
    """
    by_id = {record.id: record for record in records}
    count = min(scenario.guard.answers_per_block, len(by_id))
    chosen = random.Random(f"answers:{scenario.traffic.seed}:{number}").sample(sorted(by_id), count)
    found = [
        Sampled(arm=arm, order=order, number=number, request=r.id, class_name=r.class_name, token_ids=r.token_ids)
        for r in (by_id[name] for name in chosen)
        if r.completed
    ]
    if found:
        write_jsonl(folder / f"{order:03d}-{arm}.answers.jsonl", found)


def score_answers(scenario: Scenario, incumbent: Server, folder: Path) -> list[Block]:
    """Blocks for every answer that was kept in the folder, or one that says why none could be scored.

    Raises Broken when the incumbent does not answer, or its own answers are not whole and finite.
    """
    if isinstance(scenario.traffic.source, Images):
        return [_not_measured("answers about pictures carry no token ids")]
    if scenario.guard.answers_per_block == 0:
        return [_not_measured("the scenario looks at none (`guard.answers_per_block`)")]
    sampled = [one for path in sorted(folder.glob("*.answers.jsonl")) for one in read_jsonl(path, Sampled)]
    if not any(one.token_ids for one in sampled if one.arm is Arm.INCUMBENT):
        return [_not_measured("no stream of the incumbent carried the token ids of a sampled answer")]
    facts = facts_of(str(incumbent.checkpoint.folder))
    vocabulary = None if facts is None else facts.number("vocab_size")
    if vocabulary is None:
        return [_not_measured("the checkpoint does not say how large its vocabulary is")]
    began, traffic = time.monotonic(), scenario.traffic
    planned = {(number, r.id): r for number in {one.number for one in sampled} for r in plan_requests(traffic, number)}
    read = _read_all(sampled, planned, incumbent.base_url, vocabulary)
    if isinstance(read, str):
        return [_not_measured(read)]
    if not read:
        return [_not_measured("no sampled request was answered by both arms")]
    write_jsonl(folder / "deficits.jsonl", read)
    blocks = [block for one in read for block in _blocks(one)]
    log.info("%d answers scored in %.1f s: %s", len(read), time.monotonic() - began, ", ".join(_shown(blocks)))
    return blocks


def _shown(blocks: Sequence[Block]) -> list[str]:
    """The largest deficit of each arm, in words."""
    found = {arm: [b.value for b in blocks if b.observable == DEFICIT and b.arm is arm] for arm in Arm}
    known = {arm: max((v for v in values if v is not None), default=None) for arm, values in found.items()}
    return [f"{arm}: largest deficit {known[arm]} nats, {found[arm].count(None)} not right" for arm in Arm]


def _read_all(
    sampled: Sequence[Sampled], planned: Mapping[tuple[int, str], Request], url: str, vocabulary: int
) -> list[Read] | str:
    """Each answer with its deficits; or why none has any. Answers that both arms gave alike are scored once.

    A router of prefill and decode passes no likeliest tokens on. The candidate's answers are then held against the
    incumbent's to the same requests, and those are held against nothing.
    """
    scores: dict[tuple[tuple[int, ...], tuple[int, ...]], Scored] = {}
    own: dict[tuple[int, str], tuple[Scored, tuple[int, ...]]] = {}
    found = []
    for one in sorted(sampled, key=lambda one: one.arm is Arm.CANDIDATE):
        name = (one.number, one.request)
        if (fault := _fault(one, planned[name], vocabulary)) is not None:
            found.append(_read(one, [], fault))
            continue
        prompt = prompt_ids(url, planned[name])
        if prompt is None:
            return "the server does not say which tokens it reads in a text"
        asked = (prompt, one.token_ids)
        if asked not in scores:
            scores[asked] = score(url, *asked)
        scored = scores[asked]
        if one.arm is Arm.INCUMBENT:
            own[name] = (scored, one.token_ids)
        if scored.best is not None:
            sound = None not in deficits(Scored(scored.best, scored.best))
            found.append(_by_numbers(one, deficits(scored), sound))
        elif name in own:
            ours, tokens = own[name]
            sound = None not in deficits(Scored(ours.given, ours.given))
            lost = deficits_against(ours, scored, one.token_ids, tokens)
            found += [_by_numbers(one, lost, sound)] if one.arm is Arm.CANDIDATE else []
    return found


def _by_numbers(one: Sampled, lost: Sequence[float | None], sound: bool) -> Read:
    """`sound`: the numbers that the answer is held against are all there."""
    if not sound:
        raise Broken(f"the incumbent's log-probabilities after `{one.request}` are not finite", "see its log")
    return _read(one, lost, f"token {lost.index(None) + 1} has no finite log-probability" if None in lost else None)


def _fault(one: Sampled, request: Request, vocabulary: int) -> str | None:
    """What is wrong with an answer that cannot be scored. An id beyond the vocabulary would end the server that scores."""
    if len(one.token_ids) != request.output_tokens:
        return f"its stream carried {len(one.token_ids)} token ids, {request.output_tokens} were asked for"
    alien = next((token for token in one.token_ids if not 0 <= token < vocabulary), None)
    return None if alien is None else f"`{str(alien)[:20]}` is no token id of the {vocabulary} that the model has"


def _read(one: Sampled, lost: Sequence[float | None], fault: str | None) -> Read:
    if fault is not None and one.arm is Arm.INCUMBENT:
        raise Broken(
            f"the incumbent's own answer to `{one.request}` under traffic is not sound: {fault}",
            "the incumbent must be sound before anything is compared with it",
        )
    return Read(**one.model_dump(), deficits_nats=tuple(lost), reason=fault)


def _blocks(read: Read) -> list[Block]:
    """The largest deficit of the answer and the token that has it, counted from 1. `part` is the request."""
    known = [lost for lost in read.deficits_nats if lost is not None]
    worst = max(known) if known and read.reason is None else None
    found = [_block(read, DEFICIT, OBSERVABLES[DEFICIT].unit, worst, read.reason)]
    if worst is not None:
        found.append(_block(read, TOKEN, "1", float(read.deficits_nats.index(worst) + 1), None))
    return found


def _block(read: Read, observable: str, unit: str, value: float | None, reason: str | None) -> Block:
    return Block(
        arm=read.arm,
        observable=observable,
        unit=unit,
        workload=f"answers-{read.class_name}",
        value=value,
        order=read.order,
        part=read.request,
        reason=reason,
    )


def _not_measured(why: str) -> Block:
    """A value of the incumbent that is not there. Nobody takes it for a fault: its answers are sound, or the run is broken."""
    log.warning("the answers under traffic are not looked at: %s", why)
    return Block(
        arm=Arm.INCUMBENT,
        observable=DEFICIT,
        unit=OBSERVABLES[DEFICIT].unit,
        workload="answers",
        value=None,
        order=0,
        reason=why,
    )
