"""A build names the compiler's own words for a candidate's fault, and stops for every fault of ours."""

from pathlib import Path

import pytest
from kernel_sources import DO_NOT_COMPILE, candidate, catalogue

from serving.errors import Broken
from tasks.build import build_kernel, built_arms
from tasks.problem import Problem
from tasks.records import Arm, Environment, digest
from tasks.toolchain import environment, ptxas

pytestmark = pytest.mark.usefixtures("shared_builds")
HYPOTHESIS = digest("a hypothesis")


def test_a_build_has_a_digest_that_follows_the_code_and_an_id_that_does_not_follow_the_cache(tiny: Problem) -> None:
    first = build_kernel(tiny, catalogue("reciprocal"), HYPOTHESIS)
    again = build_kernel(tiny, catalogue("reciprocal"), HYPOTHESIS)
    other = build_kernel(tiny, catalogue("hoist_gate"), HYPOTHESIS)
    assert again.cached
    assert first.id == again.id
    assert first.artifact_digest == again.artifact_digest != other.artifact_digest
    assert {"arch", "cpu", "ptxas", "python", "sandbox", "torch", "triton"} <= set(first.environment.facts)


def test_a_candidate_that_does_not_compile_is_a_build_with_a_failure(tiny: Problem) -> None:
    source, words = DO_NOT_COMPILE["does not compile"]
    build = build_kernel(tiny, candidate(source), HYPOTHESIS)
    assert words in str(build.failure)
    assert build.artifact_digest is None


def test_an_incumbent_that_does_not_compile_is_our_fault(tiny: Problem) -> None:
    source, _ = DO_NOT_COMPILE["does not compile"]
    with pytest.raises(Broken, match="the incumbent of `kda_decode` does not compile"):
        build_kernel(tiny.model_copy(update={"incumbent": candidate(source)}), catalogue("reciprocal"), HYPOTHESIS)


@pytest.mark.parametrize(("arch", "variable"), [(90, "TRITON_PTXAS_PATH"), (100, "TRITON_PTXAS_BLACKWELL_PATH")])
def test_a_ptxas_that_is_missing_or_cannot_run_is_our_fault_and_named(
    tiny: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arch: int, variable: str
) -> None:
    chosen = tmp_path / "ptxas"
    monkeypatch.setenv(variable, str(chosen))
    with pytest.raises(Broken, match=f"no such compiler: `{chosen}`") as broken:
        build_kernel(tiny, tiny.incumbent, HYPOTHESIS, arch=arch)
    assert variable in broken.value.hint
    chosen.write_text("")
    chosen.chmod(0o644)
    with pytest.raises(Broken, match="is not executable"):
        build_kernel(tiny, tiny.incumbent, HYPOTHESIS, arch=arch)
    chosen.write_text("#!/bin/sh\nexit 3\n")
    chosen.chmod(0o755)
    with pytest.raises(Broken, match="does not tell its version"):
        build_kernel(tiny, tiny.incumbent, HYPOTHESIS, arch=arch)


def test_a_ptxas_that_was_chosen_is_the_one_that_compiles(
    tiny: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = tmp_path / "ptxas"
    chosen.write_text(f'#!/bin/sh\n[ $# -gt 1 ] && echo chosen-one >&2 && exit 9\nexec {ptxas(90)} "$@"\n')
    chosen.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(chosen))
    new = candidate(tiny.incumbent.source + "\n# in no cache\n")
    build = build_kernel(tiny, new, HYPOTHESIS, arms=(Arm.CANDIDATE,))
    assert build.failure is not None


def test_a_build_of_other_versions_is_not_measured_here(tiny: Problem) -> None:
    build = build_kernel(tiny, tiny.incumbent, HYPOTHESIS, arms=(Arm.CANDIDATE,))
    elsewhere = build.model_copy(update={"environment": Environment(facts=environment(90).facts | {"triton": "3.6.0"})})
    with pytest.raises(Broken, match="another `triton`"):
        built_arms(tiny, tiny.incumbent, elsewhere, (Arm.CANDIDATE,))


def test_code_other_than_the_build_records_is_not_measured(tiny: Problem) -> None:
    build = build_kernel(tiny, tiny.incumbent, HYPOTHESIS, arms=(Arm.CANDIDATE,))
    with pytest.raises(Broken, match="other code than its build record"):
        built_arms(tiny, catalogue("reciprocal"), build, (Arm.CANDIDATE,))
