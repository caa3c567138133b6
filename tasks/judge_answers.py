"""Are the answers given under traffic right? How far their tokens are below the incumbent's likeliest ones."""

from collections.abc import Sequence

from tasks.judgement import Criteria, Judgement
from tasks.records import Arm, Block, Evidence, Finding, LocusKind

DEFICIT, TOKEN = "answer_deficit", "answer_deficit_token"
DRIFT_KEY = "guard.greatest_logprob_drift"
# The arms' log-probabilities may differ by the limit. Where the candidate's numbers make one token the likeliest, its own may
# be too high by that, and that of the incumbent's likeliest token too low by that: so much less likely may a right token be.
# The floor is the largest of a sample; another sample of the same is as often above it as below, and rarely above twice that.
LIMITS = 2


def judge_answers(evidence: Evidence, criteria: Criteria) -> Judgement | None:
    """None where the candidate's answers are right, and where none was scored, which `not_read` tells."""
    ours, theirs = (_of(evidence, arm) for arm in Arm)
    floors = [b.value for b in ours if b.value is not None]
    if not theirs and floors:
        return Judgement.rejected(
            "service: no sampled request was answered by the candidate [V5]", criteria.cite(DRIFT_KEY)
        )
    if not theirs:
        return None
    limit = LIMITS * max([criteria.limit(DRIFT_KEY), *floors])
    worst = max(theirs, key=_badness)
    if worst.value is not None and worst.value <= limit:
        return None
    token = next((b.value for b in evidence.blocks if _same_answer(b, worst)), None)
    lost = worst.reason if worst.value is None else f"token {token:g} is {worst.value:.3g} nats below the likeliest one"
    reason = f"service: an answer under traffic is wrong: `{worst.part}` of {worst.workload}: {lost} (limit {limit:.3g}) [V5]"
    next_test = "ask the candidate for this request again, alone and beside others, streamed and in one piece"
    implies = "what was timed is not what the model says, so its speed is not judged"
    where = f"{worst.workload}, request {worst.part}" + ("" if token is None else f", token {token:g}")
    finding = _finding(where, max(floors, default=None), worst.value, implies, next_test)
    return Judgement.rejected(reason, criteria.cite(DRIFT_KEY), (finding,))


def not_read(evidence: Evidence) -> str | None:
    """Why no answer was scored, None where some were, or where the evidence is from before any was."""
    reasons = [b.reason for b in _of(evidence, Arm.INCUMBENT) if b.reason is not None]
    return reasons[0] if reasons else None


def answers_finding(evidence: Evidence) -> tuple[Finding, ...]:
    """The largest deficit of each arm; nothing for evidence from before any answer was scored."""
    found = {arm: _of(evidence, arm) for arm in Arm}
    if not any(found.values()):
        return ()
    ours, theirs = (max((b.value for b in found[arm] if b.value is not None), default=None) for arm in Arm)
    why = not_read(evidence)
    implies = (
        f"the largest of {len(found[Arm.CANDIDATE])} answers: what was timed is what the model says"
        if why is None
        else f"not measured: {why}"
    )
    return (_finding("answers under traffic", ours, theirs, implies),)


def _finding(
    where: str, ours: float | None, theirs: float | None, implies: str, next_test: str | None = None
) -> Finding:
    return Finding.at(LocusKind.INPUT_CONDITION, where, DEFICIT, "nats", ours, theirs, implies, next_test)


def _of(evidence: Evidence, arm: Arm) -> Sequence[Block]:
    return [b for b in evidence.blocks if b.observable == DEFICIT and b.arm is arm]


def _badness(block: Block) -> float:
    return float("inf") if block.value is None else block.value


def _same_answer(block: Block, worst: Block) -> bool:
    ours, other = ((b.arm, b.part, b.order) for b in (block, worst))
    return block.observable == TOKEN and ours == other
