"""From a stack to the processes that make it: what each is called, its command line, variables and ports."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from serving.derive import derived_environment, urls_of
from serving.engine_env import MEETING, SCRIPTS, engine, process_environment
from serving.errors import BadInput, Broken
from serving.loopback import loopback_only
from serving.ports import LOOPBACK
from serving.roles import Role, RoleSpec
from serving.stack import StackSpec

ROUTER = "sglang_router.launch_router"
SERVER = "sglang.launch_server"
KEY_VARIABLE = "INFRA_AGENT_ENGINE_KEY"
# The encoder has no lock of its own: only prefill and decode talk to it.
LOCKED: tuple[Role, ...] = ("server", "prefill", "decode", "router")
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


@dataclass(frozen=True)
class Replica:
    """One process of a role. `other_ports`: bootstrap and metrics, which it binds beside `port`, all on `host`. `url`: how
    we reach it."""

    name: str
    role: Role
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    host: str
    port: int
    other_ports: tuple[int, ...]
    url: str


def replicas_of(spec: StackSpec, model: Path, run_dir: Path, server_name: str = "server") -> tuple[Replica, ...]:
    """Everything that has to be started, in the order of starting: the router is last. A role with a `url` is not ours.

    Raises BadInput for a key that is not in our environment, Broken for a role's own engine that is not there.
    """
    order = sorted(spec.roles, key=get_args(Role).index)
    return tuple(
        _replica(spec, role, number, model, run_dir, server_name)
        for role in order
        if spec.roles[role].url is None
        for number in range(spec.roles[role].count)
    )


def api_key(spec: StackSpec) -> str | None:
    """The key of the servers, from the variable that the stack names. Raises BadInput when it is not set."""
    if spec.api_key_variable is None:
        return None
    key = os.environ.get(spec.api_key_variable)
    if not key:
        raise BadInput(
            f"stack `{spec.name}` wants an API key, and the variable `{spec.api_key_variable}` is not set",
            f"export {spec.api_key_variable}=... or take `api_key_variable` out of the stack",
        )
    return key


def reached_at(spec: StackSpec, role: Role) -> tuple[str, ...]:
    """Where the replicas of a role answer us; a server that listens on every address is asked on loopback."""
    found = ANY_ADDRESS.get(spec.roles[role].host)
    return tuple(url if found is None else f"http://{found}:{url.rpartition(':')[2]}" for url in urls_of(spec, role))


def entry_of(spec: StackSpec) -> str:
    """Where clients ask: the router, or the one server."""
    return reached_at(spec, "router" if "router" in spec.roles else "server")[0]


def _replica(spec: StackSpec, role: Role, number: int, model: Path, run_dir: Path, server_name: str) -> Replica:
    part, key = spec.roles[role], api_key(spec)
    name = server_name if role == "server" else role if part.count == 1 else f"{role}-{number}"
    port = spec.port_of(role) + number
    own = ("--host", part.host, "--port", str(port))
    module = ROUTER if role == "router" else SERVER
    arguments = (*(() if role == "router" else ("--model-path", str(model))), *own, *spec.argv(role, number))
    starter = ("-m", module) if key is None or role not in LOCKED else (str(SCRIPTS / "start_with_key.py"), module)
    decided = derived_environment(spec, role)
    if key is not None and role in LOCKED:
        decided[KEY_VARIABLE] = key
    if part.host in LOOPBACK:
        decided["LD_PRELOAD"] = str(loopback_only())
    if role != "router":
        decided[MEETING] = f"file://{(run_dir / name / 'rendezvous').resolve()}"
    others = (part.bootstrap_port if role == "prefill" else None, part.prometheus_port if role == "router" else None)
    return Replica(
        name=name,
        role=role,
        command=(str(_python(part, role)), "-P", *starter, *arguments),
        environment=process_environment(str(part.arguments.get("device")), part.environment, decided),
        host=part.host,
        port=port,
        other_ports=tuple(other + number for other in others if other is not None),
        url=reached_at(spec, role)[number],
    )


def _python(part: RoleSpec, role: Role) -> Path:
    if part.engine is None:
        return engine().python
    python = Path(part.engine).expanduser() / "bin" / "python"
    if not python.exists():
        raise Broken(
            f"`roles.{role}.engine`: there is no engine environment at `{part.engine}`",
            "name a virtual environment that has sglang, or leave `engine` out",
        )
    return python
