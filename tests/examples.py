"""Valid records to start from. Tests change the one thing that they are about."""

from tasks.plan import make_plan
from tasks.records import (
    Arm,
    Block,
    Build,
    Engagement,
    Environment,
    Evidence,
    Experiment,
    Hypothesis,
    KernelCandidate,
    KernelTarget,
    Prediction,
    Question,
    RoleEdit,
    Rung,
    StackEdit,
    StackTarget,
    digest,
)

ENVIRONMENT = Environment(facts={"triton": "3.8.0", "cpu": "example"})


PREDICTIONS = {
    Question.LESS_WORK: Prediction(observable="warp_instructions", direction="down", size=10, unit="%"),
    Question.FEWER_BYTES: Prediction(observable="unique_bytes", direction="down", size=10, unit="%"),
    Question.SAME_RESULTS: Prediction(observable="out_rel_error", direction="same", size=0, unit="1"),
    Question.FASTER_KERNEL: Prediction(observable="time_us", direction="down", size=10, unit="%"),
    Question.BETTER_SERVICE: Prediction(observable="itl_p95_ms", direction="down", size=5, unit="%"),
}


def kernel_hypothesis(question: Question = Question.LESS_WORK, **changes: object) -> Hypothesis:
    fields: dict[str, object] = {
        "title": "hoist the gate",
        "rationale": "each V tile repeats it",
        "target": KernelTarget(problem="kda_decode", incumbent_digest=digest("incumbent")),
        "change": KernelCandidate(source_name="hoist.py", source="def run(): ..."),
        "question": question,
        "prediction": PREDICTIONS.get(question, PREDICTIONS[Question.LESS_WORK]),
        "mechanism": "fewer MUFU in each program",
        "origin": "person",
    }
    return Hypothesis.model_validate(fields | changes)


def stack_hypothesis(question: Question = Question.BETTER_SERVICE) -> Hypothesis:
    return Hypothesis(
        title="smaller chunks",
        rationale="long prompts block short ones",
        target=StackTarget(stack="stack.yaml", scenario="scenario.yaml", incumbent_digest=digest("spec")),
        change=StackEdit(roles={"server": RoleEdit(arguments={"chunked-prefill-size": 64})}),
        question=question,
        prediction=PREDICTIONS[Question.BETTER_SERVICE],
        mechanism="shorter prefill forwards",
        origin="person",
    )


def experiment(hypothesis: Hypothesis | None = None, budget_s: float | None = None) -> Experiment:
    asked = hypothesis or kernel_hypothesis()
    plan = make_plan(asked, budget_s=budget_s)
    return Experiment(hypothesis_id=asked.id, attempt="20260101T000000Z-aaaaaa", hypothesis=asked, plan=plan)


def build(asked: Hypothesis, failure: str | None = None) -> Build:
    return Build(
        hypothesis_id=asked.id,
        artifact="builds/x",
        artifact_digest=None if failure else digest("artifact"),
        log="",
        environment=ENVIRONMENT,
        wall_s=1.0,
        failure=failure,
    )


def block(arm: Arm, observable: str, value: float | None, **changes: object) -> Block:
    fields: dict[str, object] = {
        "arm": arm,
        "observable": observable,
        "unit": "1",
        "workload": "w",
        "value": value,
        "order": 0,
    }
    if value is None:
        fields["reason"] = "not finite"
    return Block.model_validate(fields | changes)


def evidence(rung: Rung, *blocks: Block, **changes: object) -> Evidence:
    proofs = () if rung is Rung.STATIC else tuple(Engagement(arm=a, what="source", expected="x", seen="x") for a in Arm)
    fields: dict[str, object] = {
        "subject": digest("subject"),
        "rung": rung,
        "blocks": blocks,
        "engagement": proofs,
        "environment": ENVIRONMENT,
        "evaluator_digest": digest("evaluator"),
        "wall_s": 2.0,
    }
    return Evidence.model_validate(fields | changes)
