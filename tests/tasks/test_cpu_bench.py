"""CPU timings of kda_cpu: side by side, right before fast, noise first, raw samples; a GPU problem is never timed so."""

import pytest
from cpu_candidates import source_of

from serving.errors import BadInput, Broken
from tasks import cpu_bench, cpu_numerics
from tasks.build import build_kernel
from tasks.check import check
from tasks.cpu_bench import measure_cpu_bench
from tasks.cpu_build import built_cpu_arms
from tasks.cpu_numerics import measure_cpu_numerics
from tasks.decide import judge
from tasks.judge_microbench import MIX, TIME
from tasks.noise import Noise
from tasks.problem import KERNELS, Problem
from tasks.records import Arm, Block, Build, KernelCandidate, Outcome, Question, Rung, digest

pytestmark = pytest.mark.usefixtures("shared_builds")
CPP = KernelCandidate(source_name="fused_cpp.py", source=source_of("fused_cpp"))
GATE = digest("numerics evidence")


@pytest.fixture(scope="module")
def build(small_cpu: Problem, sandbox: str, tmp_path_factory: pytest.TempPathFactory) -> Build:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFRA_AGENT_HOME", str(tmp_path_factory.getbasetemp() / "shared-home"))
        return build_kernel(small_cpu, CPP, digest("a hypothesis"))


def test_a_whole_measurement_holds_noise_raw_samples_the_mix_and_what_ran(small_cpu: Problem, build: Build) -> None:
    seen: list[tuple[int, Noise | None]] = []

    def enough(blocks: tuple[Block, ...], noise: Noise | None) -> bool:
        seen.append((len(blocks), noise))
        return len(seen) == 2

    evidence = measure_cpu_bench(small_cpu, CPP, build, gate=GATE, enough=enough)
    times = [(b.arm, b.workload) for b in evidence.blocks if b.observable == TIME]
    assert sorted(times) == sorted((arm, x) for arm in Arm for x in ("tiny_b1", MIX) for _ in range(2))
    assert evidence.noise is not None
    assert [noise for _, noise in seen] == [evidence.noise] * 2
    assert {len(x) for x in evidence.noise.changes.values()} == {4}
    assert all(proof.proved for proof in evidence.engagement)
    assert {proof.arm for proof in evidence.engagement} == set(Arm)
    assert (evidence.candidate_fault, evidence.gate) == (None, GATE)
    assert evidence.environment.facts["device"] == "cpu"


def test_known_noise_is_not_measured_again_and_a_confirmation_draws_anew(
    small_cpu: Problem, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_bench, "_compare", lambda *_: None)
    monkeypatch.setattr(cpu_bench, "tracks_of", lambda *_: [])
    asked: list[str] = []
    known = Noise(rung=Rung.MICROBENCH, workload="kda_cpu", facts={}, seed=0, changes={}, wall_s=0)

    def recall(facts: dict[str, str]) -> Noise:
        asked.append(facts["incumbent"])
        return known

    with pytest.raises(ValueError, match="nothing was observed"):  # no pair ran
        measure_cpu_bench(small_cpu, CPP, build, gate=GATE, recall=recall)  # type: ignore[arg-type]
    assert len(asked) == 1


def test_a_candidate_cannot_compute_the_seed_of_its_inputs(
    small_cpu: Problem, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def stop(problem: Problem, seed: int) -> None:
        seeds.append(seed)
        raise Broken("enough seen", "")

    monkeypatch.setattr(cpu_numerics, "make_expected", stop)
    monkeypatch.setattr(cpu_bench, "tracks_of", stop)
    for _ in range(2):
        with pytest.raises(Broken, match="enough seen"):
            measure_cpu_numerics(small_cpu, CPP, build)
        with pytest.raises(Broken, match="enough seen"):
            measure_cpu_bench(small_cpu, CPP, build, gate=GATE)
    assert len(set(seeds)) == 4


def test_a_timing_without_its_gate_is_refused(small_cpu: Problem, build: Build) -> None:
    with pytest.raises(Broken, match="without its numerics evidence"):
        measure_cpu_bench(small_cpu, CPP, build, gate=None)


def test_numerics_of_the_cpp_candidate_pass_with_proof_of_what_ran(small_cpu: Problem, build: Build) -> None:
    evidence = measure_cpu_numerics(small_cpu, CPP, build)
    assert all(proof.proved for proof in evidence.engagement)
    assert judge(evidence, small_cpu.criteria, Question.SAME_RESULTS).outcome is Outcome.PASSED


def test_a_build_of_another_source_or_machine_is_not_measured(small_cpu: Problem, build: Build) -> None:
    other = CPP.model_copy(update={"source": CPP.source.replace("1e-6f", "2e-6f")})
    with pytest.raises(Broken, match="other code than its build record"):
        built_cpu_arms(small_cpu, other, build, (Arm.CANDIDATE,))
    elsewhere = build.environment.model_copy(update={"facts": {**build.environment.facts, "cpu": "another"}})
    with pytest.raises(Broken, match="another `cpu`"):
        built_cpu_arms(small_cpu, CPP, build.model_copy(update={"environment": elsewhere}), (Arm.CANDIDATE,))


def test_static_has_nothing_to_say_of_a_cpu_candidate() -> None:
    with pytest.raises(BadInput, match="runs on CPU"):
        check(Rung.STATIC, KERNELS / "kda_cpu" / "fused_cpp.py")
