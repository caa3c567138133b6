"""From evidence and criteria to a verdict. Pure: it runs nothing, reads nothing and gives the same answer again.

`decide` looks at the experiment after every record. It answers None while the plan goes on: a gate that holds is no
verdict. The order of the questions is the order of trust: did it run, was it the right code, is it right, is it better.
"""

from collections.abc import Callable, Mapping

from tasks.accounting import cost_of
from tasks.diagnose import diagnose
from tasks.judge_bytes import judge_bytes
from tasks.judge_microbench import judge_microbench
from tasks.judge_numerics import judge_numerics
from tasks.judge_service import judge_service
from tasks.judge_static import judge_static
from tasks.judgement import Criteria, Judgement, Rules
from tasks.records import Arm, Evidence, Experiment, Outcome, Question, Rung, Step, Verdict

JUDGES: dict[Rung, Callable[[Evidence, Criteria, bool], Judgement]] = {
    Rung.STATIC: judge_static,
    Rung.NUMERICS: judge_numerics,
    Rung.MICROBENCH: judge_microbench,
    Rung.SERVICE: judge_service,
}
# Questions that read another thing from the evidence of their rung than its gate does.
ANSWERS: dict[Question, Callable[[Evidence, Criteria, bool], Judgement]] = {Question.FEWER_BYTES: judge_bytes}
# Observed of one arm alone where only it has the launch options of a twin, branches, or goes through whole cycles.
OF_ONE_ARM = ("differing_elements", "line_share", "requested_bytes", "unique_bytes")


def decide(experiment: Experiment, rules: Rules) -> Verdict | None:
    """The verdict that the records so far force, or None while there are rungs to go."""
    if experiment.build is not None and experiment.build.failure is not None:
        return _verdict(experiment, Judgement.rejected(f"does not build: {experiment.build.failure}"), [])
    judged: list[Judgement] = []
    for step in experiment.plan.steps:
        evidence = experiment.of(step.rung)
        if evidence is None:
            return _verdict(experiment, _over_budget(experiment, step), judged)
        question = experiment.hypothesis.question if step.purpose == "answer" else None
        criteria = rules[step.rung] if isinstance(rules, Mapping) else rules
        judgement = judge(evidence, criteria, question)
        judged.append(judgement)
        if step.purpose == "answer" and judgement.outcome is Outcome.PASSED and experiment.plan.confirms:
            return _confirmed(experiment, step, criteria, judgement, judged[:-1])
        if judgement.outcome is not None and (step.purpose == "answer" or judgement.outcome is not Outcome.PASSED):
            return _verdict(experiment, judgement, judged[:-1])
    return _verdict(experiment, _no_answer(experiment), judged)


def _confirmed(
    experiment: Experiment, step: Step, criteria: Criteria, won: Judgement, earlier: list[Judgement]
) -> Verdict | None:
    """The verdict of the fresh run decides, and both estimates are shown; None until that run exists."""
    again = experiment.confirmation(step.rung)
    if again is None:
        return _verdict(experiment, _over_budget(experiment, step), [*earlier, won])
    judgement = judge(again, criteria, experiment.hypothesis.question)
    first = ", ".join(f"{i.observable} {i.estimate:+.1f} %" for i in won.intervals[:1])
    reason = f"confirmation of a win among {experiment.plan.tried} tried (first run: {first}): {judgement.reason} [P4]"
    both = (*judgement.intervals, *(i.model_copy(update={"method": f"{i.method}; first run"}) for i in won.intervals))
    return _verdict(experiment, judgement.model_copy(update={"reason": reason, "intervals": both}), earlier)


def judge(evidence: Evidence, criteria: Criteria, question: Question | None = None) -> Judgement:
    """Judge one rung: as the answer to a question, or without one as a gate (outcome None means that it holds)."""
    if evidence.not_run is not None:
        return Judgement.inconclusive(f"{evidence.rung}: not run: {evidence.not_run}")
    if evidence.candidate_fault is not None:
        return Judgement.rejected(f"{evidence.rung}: {evidence.candidate_fault}")
    unchecked = Judgement.inconclusive(f"{evidence.rung}: {evidence.unchecked}") if evidence.unchecked else None
    if unchecked is not None and not any(block.arm is Arm.CANDIDATE for block in evidence.blocks):
        return unchecked
    unproved = [proof for proof in evidence.engagement if not proof.proved]
    if unproved:
        proof = unproved[0]
        return Judgement.broken(
            f"{evidence.rung}: no proof that the {proof.arm} is what ran: {proof.what} should be `{proof.expected}`, "
            f"is `{proof.seen}`"
        )
    if evidence.rung is not Rung.STATIC and not evidence.engagement:
        return Judgement.broken(f"{evidence.rung}: no proof of engagement was recorded")
    missing = _missing(evidence)
    if missing is not None:
        return Judgement.broken(f"{evidence.rung}: {missing}")
    judge_rung = JUDGES[evidence.rung] if question is None else ANSWERS.get(question, JUDGES[evidence.rung])
    judgement = judge_rung(evidence, criteria, question is not None)
    failed = judgement.outcome in (Outcome.REJECTED, Outcome.BROKEN)
    return judgement if unchecked is None or failed else unchecked


def _missing(evidence: Evidence) -> str | None:
    """What was observed of the incumbent and not of the candidate, on the rungs that observe both in the same way."""
    if evidence.rung not in (Rung.STATIC, Rung.NUMERICS):
        return None
    both = [b for b in evidence.blocks if b.observable not in OF_ONE_ARM]
    seen = {arm: [(b.observable, b.workload, b.arch) for b in both if b.arm is arm] for arm in Arm}
    lacking = [x for x in seen[Arm.INCUMBENT] if x not in set(seen[Arm.CANDIDATE])]
    return f"{lacking[0][0]} at {lacking[0][1]} was observed of the incumbent alone" if lacking else None


def broken(experiment: Experiment, reason: str, lost_s: float = 0.0) -> Verdict:
    """The verdict for a fault of our own: it says nothing about the hypothesis. `lost_s`: wall time that it cost."""
    verdict = _made(experiment, Judgement.broken(reason), Outcome.BROKEN, [])
    return verdict.model_copy(update={"lost_s": lost_s})


def _over_budget(experiment: Experiment, next_step: Step) -> Judgement | None:
    """Everything counts: build, failed rungs, noise. A cost that is not known stops, since it could be any."""
    budget, spent = experiment.plan.budget_s, cost_of(experiment)
    if spent.device_s is None:
        return Judgement.inconclusive(f"the device time so far is not known, so {next_step.rung} is not started")
    if budget is None or spent.wall_s < budget:
        return None
    return Judgement.inconclusive(f"budget of {budget:g} s ended before {next_step.rung} ({spent.wall_s:.1f} s spent)")


def _no_answer(experiment: Experiment) -> Judgement:
    answering = [rung for rung, why in experiment.plan.left_out.items() if why.startswith("dearer")]
    last = answering[-1] if answering else "no rung"
    return Judgement.inconclusive(f"the gates hold; {last}, which answers the question, is left out by --upto")


def _verdict(experiment: Experiment, judgement: Judgement | None, earlier: list[Judgement]) -> Verdict | None:
    if judgement is None or judgement.outcome is None:
        return None
    return _made(experiment, judgement, judgement.outcome, earlier)


def _made(experiment: Experiment, judgement: Judgement, outcome: Outcome, earlier: list[Judgement]) -> Verdict:
    judged = tuple(finding for one in [*earlier, judgement] for finding in one.findings)
    findings = (*judged, *diagnose(experiment, judgement.intervals, judged))
    return Verdict(
        hypothesis_id=experiment.hypothesis_id,
        outcome=outcome,
        reason=judgement.reason,
        decided_by=judgement.criterion,
        intervals=judgement.intervals,
        not_run=_not_run(experiment),
        findings=findings,
        evidence_ids=tuple(evidence.id for evidence in experiment.evidence),
    )


def _not_run(experiment: Experiment) -> dict[str, str]:
    """What the verdict does not speak about. Speed is answered by a timing and by nothing else."""
    missing = dict(experiment.plan.left_out)
    for step in experiment.plan.steps:
        evidence = experiment.of(step.rung)
        if evidence is None:
            missing[step.rung] = "the experiment ended before it was done"
        elif evidence.not_run is not None:
            missing[step.rung] = evidence.not_run
    timed = (Rung.MICROBENCH, Rung.SERVICE)
    speed = (
        {} if any((e := experiment.of(r)) and e.blocks for r in timed) else {"speed": "no rung that measures time ran"}
    )
    return speed | {str(rung): why for rung, why in missing.items()}
