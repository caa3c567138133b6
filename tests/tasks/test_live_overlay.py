"""Two live servers, one of them with other code: what is engaged is proved, what is garbage is seen, and no trace is left."""

import difflib
import hashlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from service_evidence import service

from serving.engagement import variable_differences
from serving.engine_env import SGLANG, installed_packages
from serving.errors import Broken
from serving.home import REPOSITORY
from serving.launch import Server, running_together
from serving.overlay import Overlay
from serving.scenario import Scenario
from serving.stack import load_stack
from serving.traffic import send
from serving.witness import check_weights
from tasks.criteria import load_criteria
from tasks.judge_answers import judge_answers
from tasks.judge_service import judge_service
from tasks.native import NativeSource
from tasks.problem import load_problem
from tasks.records import Arm, CodePatch, Outcome
from tasks.service_answers import keep_answers, score_answers
from tasks.service_code import Code, patch_overlay, spliced
from tasks.service_proof import prove_code
from tasks.service_quality import compare_quality

pytestmark = pytest.mark.engine

SERVING = REPOSITORY / "serving"
GARBAGE = """
def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound):
    out.copy_(v)
"""
CALLED = ("sglang/srt/managers/schedule_batch.py", "    def prepare_for_decode(self):\n")
NEVER = "sglang/srt/layers/attention/linear/kernels/kda_nvidia.py"


def added_line(path: str, after: str) -> str:
    """A diff that adds a comment behind a line of an installed file."""
    (text,) = [(site / path).read_text() for site in installed_packages() if (site / path).is_file()]
    assert text.count(after) == 1
    new = text.replace(after, f"{after}        # changed by a patch\n")
    lines = difflib.unified_diff(text.split("\n"), new.split("\n"), f"a/{path}", f"b/{path}", lineterm="")
    return "\n".join(lines) + "\n"


def patch(path: str, after: str) -> Overlay:
    return patch_overlay(CodePatch(package="sglang", version=SGLANG, diff=added_line(path, after)))


def installed() -> str:
    """Names, sizes and times of change of every installed file of SGLang, compiled ones included; contents of Python ones."""
    total = hashlib.sha256()
    for site in installed_packages():
        for path in sorted((site / "sglang").rglob("*")):
            state = path.lstat()
            total.update(f"{path} {state.st_size} {state.st_mtime_ns}\n".encode() if path.is_file() else b"")
            if path.suffix == ".py":
                total.update(path.read_bytes())
    return total.hexdigest()


@dataclass(frozen=True)
class Live:
    servers: dict[str, Server]
    overlay: Overlay
    run_dir: Path
    before: str


def free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in (one, other)]


@pytest.fixture
def live(own_home: Path, tmp_path: Path) -> Iterator[Live]:
    """The candidate's patched file runs, and its kernel computes nothing."""
    problem = load_problem("kda_cpu")
    splice = problem.definition.splice
    assert splice is not None
    kernel = spliced(splice, "splice.py", problem.folder, NativeSource(source=GARBAGE))
    patched = patch(*CALLED)
    overlay = Overlay({**kernel.files, **patched.files}, kernel.install, (*kernel.counted, *patched.counted))
    spec = load_stack(SERVING / "stacks" / "tiny-glm53-kda-cpu.yaml").model_copy(update={"model": "tiny-glm53"})
    specs = {arm: spec.on_port("server", port) for arm, port in zip(Arm, free_ports(), strict=True)}
    before = installed()
    with running_together(specs, tmp_path, {Arm.CANDIDATE: overlay}) as servers:
        yield Live(servers, overlay, tmp_path, before)
    assert installed() == before, "the overlay changed installed files"
    assert not (tmp_path / Arm.CANDIDATE / "overlay").exists()


def test_other_code_on_a_live_server_is_proved_judged_by_what_it_computes_and_leaves_no_trace(live: Live) -> None:
    for server in live.servers.values():
        check_weights(server.name, server.witness)
    ours, theirs = (live.servers[arm] for arm in Arm)
    assert variable_differences(ours, theirs, "server", frozenset()) == {}
    criteria = load_criteria(SERVING / "scenarios" / "decode-cpu.yaml", Scenario)
    quality = compare_quality(criteria.values, live.servers)

    proofs = prove_code(Code(live.overlay), live.servers, live.run_dir / "code.json")
    assert {proof.what for proof in proofs} >= {"server.code.candidate.py", f"server.code.{CALLED[0]}"}
    assert all(call.calls > 0 for call in live.servers[Arm.CANDIDATE].witness.calls().values())

    assert not quality.same
    judged = judge_service(service(list(quality.blocks)), criteria, True)
    assert judged.outcome is Outcome.REJECTED
    assert "log-probabilities drift" in judged.reason

    for order, (arm, server) in enumerate(live.servers.items()):
        records = send(server.base_url, criteria.values.traffic, 0).records
        keep_answers(criteria.values, Arm(arm), 0, order, records, live.run_dir)
    blocks = score_answers(criteria.values, live.servers[Arm.INCUMBENT], live.run_dir)
    (floor,) = [b.value for b in blocks if b.arm is Arm.INCUMBENT and b.observable == "answer_deficit"]
    assert floor is not None
    assert floor <= criteria.limit("guard.greatest_logprob_drift")
    under_traffic = judge_answers(service(blocks), criteria)
    assert under_traffic is not None
    assert "an answer under traffic is wrong" in under_traffic.reason

    idle = Overlay({**live.overlay.files, NEVER: b"# never imported on a CPU\n"}, None, live.overlay.counted)
    with pytest.raises(Broken, match="not imported"):
        prove_code(Code(idle), live.servers, live.run_dir / "idle.json")
