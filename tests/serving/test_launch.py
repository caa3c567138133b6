"""The real SGLang with a tiny GLM: it answers on loopback only, and it is gone afterwards."""

import os
import signal
import socket
import threading
from pathlib import Path

import httpx
import psutil
import pytest

from serving.checkpoint import checkpoint
from serving.descendants import runs
from serving.endings import EngineEnded
from serving.errors import Broken
from serving.launch import Server, running
from serving.metrics import resolved_arguments
from serving.ports import port_is_free
from serving.stack import RoleSpec, Scalar, StackSpec, load_stack

pytestmark = pytest.mark.engine

STACK = Path(__file__).parents[2] / "serving" / "stacks" / "tiny-glm-cpu.yaml"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stack(**arguments: Scalar) -> StackSpec:
    shipped = load_stack(STACK)
    role = shipped.roles["server"]
    edited = RoleSpec(
        port=free_port(),
        environment=role.environment,
        arguments=role.arguments | {k.replace("_", "-"): v for k, v in arguments.items()},
    )
    return shipped.model_copy(update={"roles": {"server": edited}})


@pytest.fixture(scope="module", autouse=True)
def one_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once for the module: each test has a home folder of its own, and building takes seconds."""
    before = os.environ.get("INFRA_AGENT_HOME")
    os.environ["INFRA_AGENT_HOME"] = str(tmp_path_factory.mktemp("home"))
    try:
        return checkpoint("tiny-glm4-moe").folder
    finally:
        if before is None:
            del os.environ["INFRA_AGENT_HOME"]
        else:
            os.environ["INFRA_AGENT_HOME"] = before


def family(server: Server) -> list[psutil.Process]:
    return server.process.alive()


def listening(processes: list[psutil.Process]) -> set[str]:
    return {
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }


def test_a_server_generates_listens_on_loopback_only_and_leaves_nothing_after_ctrl_c(
    one_checkpoint: Path, tmp_path: Path
) -> None:
    spec = stack().model_copy(update={"model": str(one_checkpoint)})
    port = spec.port_of("server")
    processes: list[psutil.Process] = []

    def serve_until_interrupted() -> None:
        with running(spec, tmp_path, "server") as server:
            body = {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}}
            answer = httpx.post(f"{server.base_url}/generate", json=body, timeout=60).json()
            assert len(answer["output_ids"]) == 4
            assert resolved_arguments(server.base_url)["chunked_prefill_size"] == 512
            processes.extend(family(server))
            assert listening(processes) == {"127.0.0.1"}
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)
            server.process.leader.wait(600)

    with pytest.raises(KeyboardInterrupt):
        serve_until_interrupted()
    assert len(processes) > 1
    assert not any(runs(process) for process in processes)
    assert port_is_free(port)


def test_a_server_that_cannot_start_is_named_with_the_last_error_of_its_log(
    one_checkpoint: Path, tmp_path: Path
) -> None:
    spec = stack(attention_backend="torch_native", page_size=7, kv_cache_dtype="fp8_e4m3").model_copy(
        update={"model": str(one_checkpoint)}
    )
    with pytest.raises(EngineEnded) as ended, running(spec, tmp_path, "server"):
        pass
    assert ended.value.server == "server"
    assert ended.value.refused
    assert port_is_free(spec.port_of("server"))


def test_a_taken_port_is_broken_before_anything_starts(one_checkpoint: Path, tmp_path: Path) -> None:
    spec = stack().model_copy(update={"model": str(one_checkpoint)})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", spec.port_of("server")))
        taken.listen()
        with pytest.raises(Broken, match="is taken"), running(spec, tmp_path, "server"):
            pass


def test_the_same_recipe_gives_the_same_bytes_in_two_homes(
    one_checkpoint: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = checkpoint("tiny-glm4-moe")
    assert again.folder != one_checkpoint
    assert again.digest == checkpoint(str(one_checkpoint)).digest
