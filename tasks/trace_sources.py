"""Sources of an exported problem: its reference and its candidates, behind the calling convention of FlashInfer-Bench.

There inputs come before outputs, tensors and scalars alike, and nothing is changed in place.
"""

from pydantic import BaseModel, ConfigDict

from tasks.cpu_build import cpp_of
from tasks.definition import Definition, Timing
from tasks.hypothesis_file import load_hypothesis
from tasks.problem import CACHE, Problem
from tasks.records import KernelCandidate, KernelTarget

REFERENCE = """{source}

def run({parameters}):
    \"\"\"One step in fp64, results in the dtypes of the definition.\"\"\"
    found = step({{{tensors}}}, {{{scalars}}}, torch.float64)
    return {results}
"""
SOLUTION = """\"\"\"Calls `run` of kernel.py, which changes tensors in place, with the arguments of FlashInfer-Bench.\"\"\"

from .kernel import run as kernel


def run({parameters}):
{copies}    kernel({arguments})
"""


class NamedCandidate(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str
    kernel: KernelCandidate

    def fits(self, workload: Timing) -> bool:
        """Whether it takes the dtype of the workload's cache; one that chooses none takes any."""
        return self.kernel.launch.get(CACHE, workload.cache) == workload.cache


def inputs_of(definition: Definition) -> list[str]:
    """The inputs that `run` takes."""
    return [name for name in definition.inputs if name != definition.copies]


def candidates_of(problem: Problem) -> tuple[list[NamedCandidate], list[str]]:
    """The incumbent and the candidate of each hypothesis in the problem's folder, and what was left out and why.

    Raises BadInput for a hypothesis file that cannot be read.
    """
    found = [NamedCandidate(name="incumbent", description="The incumbent.", kernel=problem.incumbent)]
    left_out = []
    for path in sorted((problem.folder / "hypotheses").glob("*.yaml")):
        asked = load_hypothesis(path)
        if not isinstance(asked.target, KernelTarget) or not isinstance(asked.change, KernelCandidate):
            left_out.append(f"`{path.name}` is left out: it changes no kernel")
        elif not asked.change.source_name.endswith(".py"):
            left_out.append(f"`{path.name}` is left out: `{asked.change.source_name}` is no Python source")
        elif set(asked.change.launch) - set(problem.options_of(asked.change)) - {CACHE}:
            left_out.append(f"`{path.name}` is left out: it chooses the size of an axis, which is a constant there")
        elif problem.definition.runs_on == "cpu" and cpp_of(asked.change.source) is not None:
            left_out.append(f"`{path.name}` is left out: it needs a library that infra-agent compiles beside it")
        else:
            text = f"{asked.title}. A hypothesis, not a result: `infra-agent run` gives its verdict."
            found.append(NamedCandidate(name=path.stem, description=text, kernel=asked.change))
    return found, left_out


def reference_source(problem: Problem, workload: Timing) -> str:
    """reference.py with a `run` that returns every output, then every tensor that is changed in place."""
    definition, scalars = problem.definition, problem.reference_scalars(workload)
    given = [
        *inputs_of(definition),
        *(name for name, value in problem.scalars_of(workload).items() if value is not None),
    ]
    results = [*definition.outputs, *_in_place(problem)]
    dtypes = {name: problem.dtype_of(definition.tensors[name], workload) for name in results}
    return REFERENCE.format(
        source=problem.reference,
        parameters=", ".join(given),
        tensors=", ".join(f'"{name}": {name}' for name in inputs_of(definition)),
        scalars=", ".join(f'"{name}": {name if name in given else repr(x)}' for name, x in scalars.items()),
        results=", ".join(f'found["{name}"].to(torch.{dtype})' for name, dtype in dtypes.items()),
    )


def solution_sources(problem: Problem, candidate: KernelCandidate, workload: Timing) -> dict[str, str]:
    """{path: content}: the candidate as it is, and the entry that calls it."""
    definition, scalars, changed = problem.definition, problem.scalars_of(workload), _in_place(problem)
    given = [*inputs_of(definition), *(name for name, value in scalars.items() if value is not None)]
    after = [f"{name}_after" for name in changed]
    inputs = [f"{name}_after" if name in changed else name for name in inputs_of(definition)]
    passed = [name if name in given else "None" for name in scalars]
    options = [f"{name}={value!r}" for name, value in sorted(problem.options_of(candidate).items())]
    main = SOLUTION.format(
        parameters=", ".join([*given, *definition.outputs, *after]),
        copies="".join(f"    {name}_after.copy_({name})\n" for name in changed),
        arguments=", ".join([*inputs, *definition.outputs, *passed, *options]),
    )
    return {"main.py": main, "kernel.py": candidate.source}


def _in_place(problem: Problem) -> list[str]:
    return [name for name in problem.definition.inputs if problem.definition.role_of(name) == "in_place"]
