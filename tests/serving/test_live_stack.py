"""The real SGLang as encode, prefill, decode and router: `stack up`, answers, agreement with transformers, `stack down`.

One stack for the whole file, started by the command as a person would; beside it single servers for the comparison.
"""

import base64
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml
from fake_stack import ROOT, free_ports
from PIL import Image

from serving.checkpoint import Checkpoint, checkpoint
from serving.descendants import runs
from serving.engine_env import CPU_STAND_INS, run_script
from serving.identity import still_there
from serving.launch import begin
from serving.ports import port_is_free
from serving.process import stop
from serving.readiness import generates, wait_while
from serving.replicas import replicas_of
from serving.stack import RoleSpec, StackSpec, load_stack
from serving.stack_record import StackRecord

pytestmark = [pytest.mark.engine, pytest.mark.live, pytest.mark.timeout(600)]  # two to four minutes with idle cores

SHIPPED = ROOT / "serving" / "stacks" / "tiny-glm53-epd-cpu.yaml"
LENGTHS = (1, 2, 3, 5, 8, 13, 14, 21, 31, 32, 33, 47, 63, 64, 65, 80, 96, 127, 129, 200)
NEW_TOKENS = 6
LIMIT = 1e-5
# 3e-5 was seen; where in the vision tower it comes from is open.
IMAGE_LIMIT = 1e-4
# Of the gate of KDA, as it stands in serving/cpu.
GATE, FAULTY_GATE = "gate.exp()", "gate.mul(1.001).exp()"


@dataclasses.dataclass(frozen=True)
class Live:
    """A stack that `stack up` has started. `run`: the command `infra-agent stack`, in the same home."""

    file: Path
    model: Checkpoint
    url: str
    record: StackRecord
    run: Callable[..., subprocess.CompletedProcess[str]]


def infra_agent(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.argv[0] = 'infra-agent'; from flows.cli import main; main()"
    environment = os.environ | {"INFRA_AGENT_HOME": str(home)}
    command = [sys.executable, "-c", code, "stack", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, timeout=280, check=False)


def on_free_ports(folder: Path) -> Path:
    content = yaml.safe_load(SHIPPED.read_text())
    ports = iter(free_ports(6))
    for role in content["roles"].values():
        role |= {name: next(ports) for name in ("port", "bootstrap_port", "prometheus_port") if name in role}
    file = folder / SHIPPED.name
    file.write_text(yaml.safe_dump(content))
    return file


@contextmanager
def homed(home: Path) -> Iterator[None]:
    """For a fixture that outlives one test: each test has a home of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFRA_AGENT_HOME", str(home))
        yield


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    home, file = folder / "home", on_free_ports(folder)
    with homed(home):
        model = checkpoint(load_stack(file).model)
    done = infra_agent(home, "up", str(file))
    assert done.returncode == 0, done.stderr
    record = StackRecord.model_validate_json((home / "stacks" / "tiny-glm53-epd-cpu.json").read_bytes())
    yield Live(file, model, record.url, record, lambda *words: infra_agent(home, *words))
    infra_agent(home, "down", str(file))


def generate(url: str, **body: Any) -> dict[str, Any]:
    sampling = {"max_new_tokens": NEW_TOKENS, "temperature": 0, "ignore_eos": True}
    asked = {"sampling_params": sampling, "return_logprob": True, "logprob_start_len": 0, **body}
    answer = httpx.post(f"{url}/generate", json=asked, timeout=60, trust_env=False)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def prompt_of(length: int) -> list[int]:
    """Spread over the vocabulary without its special tokens, the same every time."""
    return [20 + (37 * length + 101 * place * place) % 1000 for place in range(length)]


def differences(url: str, model: Path, tmp_path: Path, lengths: Sequence[int] = LENGTHS) -> dict[str, float]:
    """The largest difference of a log-probability from transformers, over all prompts, in prefill and in decode."""
    ids, served = [], []
    for prompt in map(prompt_of, lengths):
        meta = generate(url, input_ids=prompt)["meta_info"]
        before, after = meta["input_token_logprobs"][1:], meta["output_token_logprobs"]
        assert len(after) == NEW_TOKENS
        ids.append({"ids": prompt + [token for _, token, _ in after]})
        served.append([value for value, _, _ in (*before, *after)])
    reference = asked_of_transformers(model, ids, tmp_path)
    gaps = [[abs(a - b) for a, b in zip(*pair, strict=True)] for pair in zip(served, reference, strict=True)]
    prefill = max(gap for one in gaps for gap in one[:-NEW_TOKENS])
    return {"prefill": prefill, "decode": max(gap for one in gaps for gap in one[-NEW_TOKENS:])}


def asked_of_transformers(model: Path, asked: list[dict[str, Any]], tmp_path: Path) -> list[list[float]]:
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    run_script("reference_logprobs.py", str(model), "asked.json", "answer.json", cwd=tmp_path)
    found: list[list[float]] = json.loads((tmp_path / "answer.json").read_text())
    return found


def test_status_shows_roles_ports_memory_and_health_and_nothing_is_reachable_from_outside(
    live: Live, tmp_path: Path
) -> None:
    done = live.run("status", str(live.file), "--json", str(tmp_path / "status.json"))
    assert done.returncode == 0, done.stderr
    (status,) = json.loads((tmp_path / "status.json").read_text())
    assert status["state"] == "up"
    assert status["detached"]
    replicas = {one["role"]: one for one in status["replicas"]}
    assert list(replicas) == ["encode", "prefill", "decode", "router"]
    for one, record in zip(status["replicas"], live.record.replicas, strict=True):
        assert one["health"] == "healthy"
        assert {str(port) for port in record.ports} <= set(one["ports"])
        assert one["memory_mb"] > 100
        assert set(one["ports"].values()) <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert "reachable from outside" not in done.stdout


def test_what_is_up_is_not_started_again_and_not_reaped(live: Live) -> None:
    again = live.run("up", str(live.file))
    assert again.returncode == 0, again.stderr
    assert "is up already" in again.stderr
    assert live.run("reap").stdout == "nothing was left\n"
    assert all(still_there(replica.leader) for replica in live.record.replicas)


def test_prefill_and_decode_apart_agree_with_transformers(
    live: Live, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """KV pages and KDA states have moved between two processes for every one of these tokens."""
    found = differences(live.url, live.model.folder, tmp_path)
    record_property("differences", found)
    assert max(found.values()) <= LIMIT, found


def picture(file: Path) -> str:
    image = Image.new("RGB", (56, 56))
    image.putdata([(4 * x, 4 * y, (x * y) % 256) for y in range(56) for x in range(56)])
    image.save(file)
    packed = io.BytesIO(file.read_bytes()).getvalue()
    return f"data:image/png;base64,{base64.b64encode(packed).decode()}"


def test_an_image_goes_through_encode_and_its_answer_agrees_with_transformers(
    live: Live, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    text = "<|user|>\n<|begin_of_image|><|image|><|end_of_image|>what is this<|assistant|>\n"
    data = picture(tmp_path / "picture.png")
    content = [{"type": "image_url", "image_url": {"url": data}}, {"type": "text", "text": "what is this"}]
    sampling = {"max_tokens": NEW_TOKENS, "temperature": 0, "logprobs": True, "ignore_eos": True}
    chat = {"model": "tiny", "messages": [{"role": "user", "content": content}], **sampling}
    spoken = httpx.post(f"{live.url}/v1/chat/completions", json=chat, timeout=60, trust_env=False).json()
    assert spoken["usage"]["prompt_tokens_details"]["image_tokens"] == 16
    answer = generate(live.url, text=text, image_data=data, logprob_start_len=-1)["meta_info"]["output_token_logprobs"]
    asked = {"text": text, "image": "picture.png", "new": [token for _, token, _ in answer]}
    (reference,) = asked_of_transformers(live.model.folder, [asked], tmp_path)
    gap = max(abs(a - b) for (a, _, _), b in zip(answer, reference, strict=True))
    record_property("difference", gap)
    assert gap <= IMAGE_LIMIT


def aggregated(live: Live) -> StackSpec:
    """The same model and options in one server that does everything."""
    apart = load_stack(live.file)
    part = apart.roles["prefill"]
    arguments = {"mm-attention-backend": "sdpa", **part.arguments}
    server = RoleSpec(port=free_ports(1)[0], arguments=arguments, environment=part.environment)
    return StackSpec(
        name="one", model=str(live.model.folder), quantization=apart.quantization, roles={"server": server},
        ready_timeout_s=240,
    )  # fmt: skip


def test_one_server_agrees_with_transformers_and_a_gate_that_is_a_thousandth_off_does_not(
    live: Live, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The negative control: the limit is one that a fault in the gate of KDA does not pass."""
    stand_ins = tmp_path / "cpu"
    shutil.copytree(CPU_STAND_INS, stand_ins)
    kernel = stand_ins / "sgl_kernel" / "linear_attention.py"
    sound = kernel.read_text()
    assert sound.count(GATE) == 1
    kernel.write_text(sound.replace(GATE, FAULTY_GATE))
    started = {}
    try:
        for name in ("sound", "faulty"):
            (replica,) = replicas_of(aggregated(live), live.model.folder, tmp_path, server_name=name)
            path = str(stand_ins if name == "faulty" else CPU_STAND_INS)
            started[name] = begin(
                dataclasses.replace(replica, environment={**replica.environment, "PYTHONPATH": path}), tmp_path
            )
        urls = {name: f"http://127.0.0.1:{process.port}" for name, process in started.items()}
        wait_while(lambda: [name for name, url in urls.items() if not generates(url)], started, 240)
        found = {
            "sound": differences(urls["sound"], live.model.folder, tmp_path),
            "faulty": differences(urls["faulty"], live.model.folder, tmp_path, lengths=(5, 64, 200)),
        }
    finally:
        stop(list(started.values()))
    record_property("differences", found)
    assert max(found["sound"].values()) <= LIMIT, found
    assert min(found["faulty"].values()) > LIMIT, found


def test_down_leaves_no_process_no_port_and_no_shared_memory_and_may_be_said_twice(live: Live) -> None:
    """The last test of the file: there is nothing to ask afterwards."""
    leaders = [psutil.Process(replica.leader.pid) for replica in live.record.replicas]
    everyone = {p for leader in leaders for p in (leader, *leader.children(recursive=True))}
    assert len(everyone) > len(leaders)
    done = live.run("down", str(live.file))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "stack `tiny-glm53-epd-cpu`: ended encode, prefill, decode, router\n"
    assert not any(runs(process) for process in everyone)
    assert all(port_is_free(port) for replica in live.record.replicas for port in replica.ports)
    assert not [file for replica in live.record.replicas for file in replica.shared if Path(file).exists()]
    again = live.run("down", str(live.file))
    assert again.returncode == 0
    assert "is not up: nothing to end" in again.stdout
