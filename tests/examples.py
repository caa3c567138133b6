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


def kernel_hypothesis(question: Question = Question.LESS_WORK, **changes: object) -> Hypothesis:
    fields: dict[str, object] = {
        "title": "hoist the gate",
        "rationale": "each V tile repeats it",
        "target": KernelTarget(problem="kda_decode", incumbent_digest=digest("incumbent")),
        "change": KernelCandidate(source_name="hoist.py", source="def run(): ..."),
        "question": question,
        "prediction": Prediction(observable="warp_instructions", direction="down", size=10, unit="%"),
        "mechanism": "fewer MUFU",
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
        prediction=Prediction(observable="itl_ms_p95", direction="down", size=5, unit="%"),
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
