"""Which rungs a hypothesis visits: the one that answers its question, and the gates that must hold before it.

A question is answered by exactly one rung, and only for the kinds of change that the rung can run. Correctness comes
before any timing and before any claim of less work: doing the wrong thing with fewer instructions is no improvement.
What the compiler emits says something of a GPU kernel only; a kernel that runs on CPU is timed where the others are checked.
"""

from serving.errors import BadInput
from tasks.records import Hypothesis, KernelTarget, Plan, Question, Rung, Step

ANSWERS: dict[Question, tuple[Rung, frozenset[str], str]] = {
    Question.LESS_WORK: (
        Rung.STATIC,
        frozenset({"kernel_candidate"}),
        "the compiler's output shows how much work is emitted; no timing is needed",
    ),
    Question.FEWER_BYTES: (
        Rung.NUMERICS,
        frozenset({"kernel_candidate"}),
        "the interpreter counts what a step loads and stores, over whole cycles",
    ),
    Question.SAME_RESULTS: (
        Rung.NUMERICS,
        frozenset({"kernel_candidate"}),
        "results are compared with fp64 in every regime",
    ),
    Question.FASTER_KERNEL: (
        Rung.MICROBENCH,
        frozenset({"kernel_candidate"}),
        "only a paired timing of the kernel itself answers speed",
    ),
    Question.MORE_OVERLAP: (
        Rung.OVERLAP,
        frozenset({"stack_edit", "code_patch"}),
        "a timeline shows whether two activities run at the same time",
    ),
    Question.SOUND_ENGINE: (
        Rung.ENGINE,
        frozenset({"kernel_candidate", "stack_edit", "code_patch"}),
        "one server shows drift, aborts and reuse",
    ),
    Question.BETTER_SERVICE: (
        Rung.SERVICE,
        frozenset({"kernel_candidate", "stack_edit", "code_patch"}),
        "only the deployed stack under traffic answers what users get",
    ),
}

GATES: dict[tuple[str, Rung], tuple[tuple[Rung, str], ...]] = {
    ("kernel_candidate", Rung.STATIC): ((Rung.NUMERICS, "less work counts only if the results stay right"),),
    ("kernel_candidate", Rung.MICROBENCH): (
        (Rung.NUMERICS, "no timing on wrong results"),
        (Rung.STATIC, "spills and lost vector width are rejected before a GPU is used"),
    ),
    ("kernel_candidate", Rung.ENGINE): (
        (Rung.NUMERICS, "a wrong kernel is not worth a server"),
        (Rung.STATIC, "what spills, or what the engine's own Triton would compile otherwise, is not worth one either"),
    ),
    ("kernel_candidate", Rung.SERVICE): (
        (Rung.NUMERICS, "no timing on wrong results"),
        (Rung.STATIC, "spills and lost vector width are rejected before a GPU is used"),
        (Rung.MICROBENCH, "the local gain predicts the service gain; without one there is nothing to deploy"),
        (Rung.ENGINE, "a kernel enters the service only after one server ran it soundly"),
    ),
}

POOLS: dict[Rung, str] = {
    Rung.STATIC: "cpu-build",
    Rung.NUMERICS: "cpu-build",
    Rung.MICROBENCH: "gpu-microbench",
    Rung.OVERLAP: "gpu-microbench",
    Rung.ENGINE: "gpu-validation",
    Rung.SERVICE: "gpu-deployment",
}
OF_GPU_KERNELS = (Question.LESS_WORK, Question.FEWER_BYTES)  # what a compiler or the interpreter counts
ON_CPU: dict[Rung, str] = {Rung.MICROBENCH: "cpu-build"}  # where a problem's kernels run on CPU
NOT_ON_CPU: dict[Rung, str] = {
    Rung.STATIC: "it has nothing to say of a kernel that runs on CPU",
    Rung.ENGINE: "the service rung compares log-probabilities of both servers before any traffic",
}
STAGE_RUNGS: dict[str, tuple[Rung, ...]] = {
    "microbench": (Rung.STATIC, Rung.NUMERICS, Rung.MICROBENCH),
    "validate": (Rung.OVERLAP, Rung.ENGINE),
    "deploy": (Rung.SERVICE,),
}
COST = list(Rung)


def make_plan(hypothesis: Hypothesis, upto: Rung | None = None, budget_s: float | None = None, tried: int = 1) -> Plan:
    """The rungs for one hypothesis, gates first. `upto` leaves out every dearer rung, even the one that answers.
    `tried`: hypotheses timed at this target so far, with this one; a win among several must be shown again.

    Raises `BadInput` when no rung answers the question for this kind of change.
    """
    answer, kinds, why = ANSWERS[hypothesis.question]
    change = hypothesis.change.kind
    if change not in kinds:
        raise BadInput(
            f"no rung answers the question `{hypothesis.question}` for a change of kind `{change}`",
            "ask one of: " + ", ".join(f"`{q}`" for q, (_, fitting, _) in ANSWERS.items() if change in fitting),
        )
    gates, pools = GATES.get((change, answer), ()), POOLS
    on_cpu = isinstance(hypothesis.target, KernelTarget) and hypothesis.target.runs_on == "cpu"
    if on_cpu:
        if hypothesis.question in OF_GPU_KERNELS:
            raise BadInput(
                f"no rung answers the question `{hypothesis.question}` for a kernel that runs on CPU",
                f"ask `{Question.SAME_RESULTS}` or `{Question.FASTER_KERNEL}`: it is timed for real here",
            )
        gates, pools = tuple(gate for gate in gates if gate[0] not in NOT_ON_CPU), POOLS | ON_CPU
    wanted = [Step(rung=rung, purpose="gate", why=why, pool=pools[rung]) for rung, why in gates]
    wanted.append(Step(rung=answer, purpose="answer", why=why, pool=pools[answer]))
    steps = tuple(step for step in wanted if upto is None or COST.index(step.rung) <= COST.index(upto))
    planned = {step.rung for step in wanted}
    left_out = {rung: f"not needed to answer `{hypothesis.question}`" for rung in Rung if rung not in planned}
    left_out |= {rung: why for rung, why in NOT_ON_CPU.items() if rung in left_out} if on_cpu else {}
    left_out |= {step.rung: f"dearer than --upto {upto}" for step in wanted if step not in steps}
    return Plan(hypothesis_id=hypothesis.id, steps=steps, left_out=left_out, budget_s=budget_s, tried=tried)


def stage_steps(plan: Plan, stage: str) -> tuple[Step, ...]:
    """The steps of a plan that one stage runs, in the plan's order."""
    return tuple(step for step in plan.steps if step.rung in STAGE_RUNGS[stage])


def stage_pools(plan: Plan, stage: str) -> tuple[str, ...]:
    """The pools that a stage visits for this plan, in order: a stage holds rungs of several. `build` needs no GPU."""
    if stage == "build":
        return (POOLS[Rung.STATIC],)
    return tuple(dict.fromkeys(step.pool for step in stage_steps(plan, stage)))
