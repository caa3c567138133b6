"""The real SGLang as encode, prefill, decode and router: `stack up`, answers, agreement with transformers, `stack down`.

One stack for the whole file, started by the command as a person would; beside it single servers for the comparison.
"""

import dataclasses
import itertools
import json
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from fake_stack import ROOT, free_ports
from live_stack import (
    KEY_VARIABLE,
    NEW_TOKENS,
    Live,
    answers,
    answers_of_decode,
    asked_of_transformers,
    client,
    distances,
    generate,
    homed,
    infra_agent,
    largest,
    locked_on_free_ports,
    picture,
)

from serving.checkpoint import checkpoint
from serving.descendants import runs
from serving.engine_env import CPU_STAND_INS
from serving.identity import still_there
from serving.launch import begin, with_variables
from serving.ports import port_is_free
from serving.process import stop
from serving.readiness import generates, is_healthy, wait_while
from serving.replicas import replicas_of
from serving.stack import RoleSpec, StackSpec, load_stack
from serving.stack_record import StackRecord
from serving.witness import Witness, check_weights

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]  # two to four minutes with idle cores

LENGTHS = (1, 2, 3, 5, 8, 13, 14, 21, 31, 32, 33, 47, 63, 64, 65, 80, 96, 127, 129, 200)
LIMIT = 1e-5
# SGLang gives the norms of q and k in the vision tower, and that of its merger, this epsilon; the checkpoint means 1e-5.
VISION_EPSILON = 1e-6
# Of the gate of KDA, as it stands in serving/cpu.
GATE, FAULTY_GATE = "gate.exp()", "gate.mul(1.001).exp()"
DAMAGED_TRANSFER = ROOT / "tests" / "damaged_transfer"
DAMAGES = (
    "KDA state zeroed",
    "KDA state rounded to bf16",
    "KDA states of two layers swapped",
    "convolution zeroed",
    "KV page zeroed",
    "KV page of another token",
    "KV rounded to bf16",
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    home, file, key = folder / "home", locked_on_free_ports(folder), f"key-{secrets.token_hex(8)}"
    with homed(home):
        model = checkpoint(load_stack(file).model)
    done = infra_agent(home, key, "up", str(file))
    assert done.returncode == 0, done.stderr
    record = StackRecord.model_validate_json((home / "stacks" / "tiny-glm53-epd-cpu.json").read_bytes())
    said = done.stdout + done.stderr
    yield Live(home, file, key, model, record, said, lambda *words: infra_agent(home, key, *words))
    infra_agent(home, key, "down", str(file))


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


def test_every_key_of_the_checkpoint_is_used_by_a_role_and_every_parameter_of_a_role_is_filled(live: Live) -> None:
    """Encode takes the vision tower alone, prefill everything but it, and decode, which is told of no encoder, all of it."""
    witness = Witness(live.home / "stacks" / live.spec.name / "reports", ())
    check_weights(live.spec.name, witness, several_roles=True)
    assert "weights" not in live.said
    role_of = {process.pid: replica.role for replica in live.record.replicas for process in replica.processes}
    unused = {role_of[told.pid]: set(told.weights[0].unused) for told in witness.reports() if told.weights}
    vision, language = unused["prefill"], unused["encode"]
    assert vision
    assert all(key.startswith("model.visual.") for key in vision)
    assert language
    assert not any(key.startswith("model.visual.") for key in language)
    assert unused == {"encode": language, "prefill": vision, "decode": set()}


def test_prefill_and_decode_apart_agree_with_transformers_and_what_moves_between_them_damaged_does_not(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    """KV pages and KDA states have moved between two processes for every one of these tokens.

    The negative control is a second decode at the same prefill, which damages what it has been sent.
    """
    monkeypatch.setenv(KEY_VARIABLE, live.key)
    spec = live.spec.on_port("decode", free_ports(1)[0])
    (replica,) = [one for one in replicas_of(spec, live.model.folder, tmp_path) if one.role == "decode"]
    meeting = spec.roles["prefill"].bootstrap_port
    assert meeting is not None
    started = {"decode": begin(with_variables(replica, {"PYTHONPATH": str(DAMAGED_TRANSFER)}), tmp_path)}
    given = {}
    try:
        with (
            live.client("router") as router,
            live.client("prefill") as prefill,
            client(replica.url, live.key) as decode,
        ):
            given["sound"] = answers(router, LENGTHS)
            wait_while(lambda: [] if is_healthy(replica.url) else ["decode"], started, 240)
            for damage in ("none", *DAMAGES):
                (tmp_path / "decode" / "damage").write_text(damage)
                given[damage] = answers_of_decode(prefill, decode, meeting, (5, 64))
    finally:
        stop(list(started.values()))
    damaged = (tmp_path / "decode" / "damaged").read_text().splitlines()
    assert damaged == [damage for damage in ("none", *DAMAGES) for _ in given[damage]]
    gaps = iter(distances([answer for some in given.values() for answer in some], live.model.folder, tmp_path))
    of = {name: list(itertools.islice(gaps, len(some))) for name, some in given.items()}
    found = {name: max(itertools.chain(*some)) for name, some in of.items()}
    record_property("differences", {**found, **largest(of["sound"])})
    assert max(found.pop("sound"), found.pop("none")) <= LIMIT, found
    assert min(found.values()) > LIMIT, found


def test_an_image_goes_through_encode_and_its_answer_agrees_with_transformers_at_the_epsilon_that_sglang_takes(
    live: Live, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The negative control: the limit is one that transformers with the epsilon of the checkpoint does not pass."""
    text = "<|user|>\n<|begin_of_image|><|image|><|end_of_image|>what is this<|assistant|>\n"
    data = picture(tmp_path / "picture.png")
    content = [{"type": "image_url", "image_url": {"url": data}}, {"type": "text", "text": "what is this"}]
    sampling = {"max_tokens": NEW_TOKENS, "temperature": 0, "logprobs": True, "ignore_eos": True}
    chat = {"model": "tiny", "messages": [{"role": "user", "content": content}], **sampling}
    with live.client("router") as router:
        spoken = router.post("/v1/chat/completions", json=chat).json()
        meta = generate(router, text=text, image_data=data, logprob_start_len=-1)["meta_info"]
    assert spoken["usage"]["prompt_tokens_details"]["image_tokens"] == 16
    answer = meta["output_token_logprobs"]
    asked = {"text": text, "image": "picture.png", "new": [token for _, token, _ in answer]}
    both = [asked | {"vision_epsilon": VISION_EPSILON}, asked]
    found = asked_of_transformers(live.model.folder, both, tmp_path)
    same, configured = (max(abs(a - b) for (a, _, _), b in zip(answer, one, strict=True)) for one in found)
    record_property("differences", {"same epsilon": same, "configured epsilon": configured})
    assert same <= LIMIT < configured


def aggregated(live: Live) -> StackSpec:
    """The same model and options in one server that does everything."""
    apart = live.spec
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
        with client(urls["sound"]) as sound, client(urls["faulty"]) as faulty:
            given = {"sound": answers(sound, LENGTHS), "faulty": answers(faulty, (5, 64, 200))}
    finally:
        stop(list(started.values()))
    found = {name: largest(distances(some, live.model.folder, tmp_path)) for name, some in given.items()}
    record_property("differences", found)
    assert max(found["sound"].values()) <= LIMIT, found
    assert min(found["faulty"].values()) > LIMIT, found


def test_without_the_key_nobody_is_answered_and_it_stands_on_no_command_line_and_in_no_file(live: Live) -> None:
    """After all that has been asked above. The encoder has no lock of its own; the environment is for our own user to read."""
    asked = {"input_ids": [5], "sampling_params": {"max_new_tokens": 1}}
    for replica in live.record.replicas:
        if replica.role != "encode":
            for stranger in (client(replica.url), client(replica.url, "another-key")):
                with stranger:
                    assert stranger.post("/generate", json=asked).status_code == 401, replica.role
    with live.client("router") as router:
        assert router.post("/generate", json=asked).status_code == 200
    processes = [process for replica in live.record.replicas for process in replica.process().alive()]
    assert len(processes) > len(live.record.replicas)
    assert not [process for process in processes if any(live.key in word for word in process.cmdline())]
    files = [file for file in live.file.parent.rglob("*") if file.is_file()]
    assert {"prefill.log", "tiny-glm53-epd-cpu.json"} <= {file.name for file in files}
    assert not [file for file in files if live.key.encode() in file.read_bytes()]
    assert live.key not in live.said + live.run("status").stdout


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
