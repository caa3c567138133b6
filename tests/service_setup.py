"""Files of a hypothesis about a stack, and fake servers that stand for its arms."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import yaml
from examples import experiment
from fake_engine import FakeEngine, listening
from fake_witness import told

from serving.arguments import Option
from serving.checkpoint import Checkpoint
from serving.launch import Part, Server
from serving.stack import load_stack
from serving.witness import Witness
from tasks.noise import Noise
from tasks.records import (
    Arm,
    Evidence,
    Hypothesis,
    RoleEdit,
    Rung,
    StackEdit,
    StackTarget,
    digest,
)

REQUESTS_A_BLOCK = 4


SERVING = Path(__file__).parents[1] / "serving"


OPTIONS = {
    name: Option(dest=name.replace("-", "_"), flag=False, type="int", choices=None, default=None)
    for name in ("chunked-prefill-size", "page-size")
} | {
    "device": Option(dest="device", flag=False, type="str", choices=None, default=None),
    "max-total-tokens": Option(dest="max_total_tokens", flag=False, type="int", choices=None, default=None),
    "enable-metrics": Option(dest="enable_metrics", flag=True, type="str", choices=None, default=False),
}


INFO = {
    Arm.INCUMBENT: {"chunked_prefill_size": 512, "page_size": 1},
    Arm.CANDIDATE: {"chunked_prefill_size": 64, "page_size": 1},
}


class Alive:
    def exit_status(self) -> None:
        return None

    def listener(self) -> int:
        return 1

    def alive(self) -> list[psutil.Process]:
        return [psutil.Process()]


class Setup:
    """Files of a hypothesis, and the fake servers that stand for its arms."""

    def __init__(self, folder: Path) -> None:
        self.stack, self.scenario = folder / "stack.yaml", folder / "scenario.yaml"
        self.checkpoint = folder / "checkpoint"
        self.checkpoint.mkdir()
        (self.checkpoint / "config.json").write_text('{"vocab_size": 1024}')
        arguments = {"device": "cpu", "chunked-prefill-size": 512, "page-size": 1, "enable-metrics": True}
        role = {"port": 31400, "arguments": arguments}
        stack = {"name": "s", "model": "m", "ready_timeout_s": 1, "roles": {"server": role}}
        self.stack.write_text(yaml.safe_dump(stack))
        scenario = yaml.safe_load((SERVING / "scenarios" / "mixed-lengths-cpu.yaml").read_text())
        span = {"low": 4, "high": 8}
        scenario["traffic"] |= {
            "pairs": 3,
            "noise_pairs": 4,
            "classes": {"chat": {"requests": REQUESTS_A_BLOCK, "prompt_tokens": span, "output_tokens": span}},
        }
        self.scenario.write_text(yaml.safe_dump(scenario))
        self.engines = {arm: FakeEngine(info=INFO[arm]) for arm in Arm}
        self.witnesses: dict[Arm, Witness] = {}

    def hypothesis(self, edit: RoleEdit | None = None) -> Hypothesis:
        target = StackTarget(
            stack=str(self.stack), scenario=str(self.scenario), incumbent_digest=load_stack(self.stack).digest
        )
        change = StackEdit(roles={"server": edit or RoleEdit(arguments={"chunked-prefill-size": 64})})
        fields = experiment().hypothesis.model_dump() | {
            "question": "better service",
            "target": target,
            "change": change,
        }
        return Hypothesis.model_validate(fields)

    @contextmanager
    def running_together(self, _specs: object, run_dir: Path, _overlays: object = None) -> Iterator[dict[str, Server]]:
        with ExitStack() as servers:
            yield {
                str(arm): self._server(servers.enter_context(listening(self.engines[arm])), arm, run_dir) for arm in Arm
            }

    def _server(self, engine: FakeEngine, arm: Arm, run_dir: Path) -> Server:
        model = Checkpoint(self.checkpoint, digest("weights"))
        log_file, process = run_dir / f"{arm}.log", Alive()
        witness = self.witnesses.get(arm) or told(run_dir / arm / "reports")
        part = Part(arm, "server", engine.base_url, os.getpid(), log_file, process)  # type: ignore[arg-type]
        return Server(arm, engine.base_url, 1, log_file, (), model, 1.0, process, witness, (part,))  # type: ignore[arg-type]


def values(evidence: Evidence, observable: str, arm: Arm) -> list[float | None]:
    return [b.value for b in evidence.blocks if b.observable == observable and b.arm is arm]


def requests_of(setup: Setup, arm: Arm) -> list[tuple[int, ...]]:
    return [tuple(body["input_ids"]) for body in setup.engines[arm].seen]


def known_noise(facts: Mapping[str, str]) -> Noise:
    """An earlier A/A run, so that a test need not make one."""
    changes = {"ttft_mean_ms": (0.02, -0.02, 0.01, -0.01)}
    return Noise(rung=Rung.SERVICE, workload="w", facts=dict(facts), seed=0, changes=changes, wall_s=1.0)
