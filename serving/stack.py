"""What a deployment is made of: the model, its roles, and the facts that the options of each role are derived from."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Protocol, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from serving.derive import arguments_of, peers_of, words_of
from serving.documents import AT_FIELD, read_mapping, validate
from serving.errors import BadInput
from serving.roles import (
    HiCache,
    Moe,
    Part,
    Positive,
    Quantization,
    ReplaySSM,
    Role,
    RoleSpec,
    Scalar,
    Speculative,
    Transfer,
    Value,
)
from serving.stack_rules import model_fault

__all__ = ["Role", "RoleChange", "RoleSpec", "Scalar", "StackName", "StackSpec", "Value", "apply_edit", "load_stack"]


StackName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=100)]


IS_SCENARIO = "looks like a scenario (it has `traffic` and no `roles`), and a stack is wanted"
STACK_WANTED = "name the file of a stack; `infra-agent schema StackSpec` shows what is in one"


class RoleChange(Protocol):
    """Changes to one role; `None` as a value takes an argument or a variable away."""

    @property
    def arguments(self) -> Mapping[str, Scalar | None]: ...
    @property
    def environment(self) -> Mapping[str, str | None]: ...
    @property
    def count(self) -> int | None: ...


def _model(model: str) -> str:
    if fault := model_fault(model):
        raise ValueError(fault)
    return model


class StackSpec(Part):
    """One deployment: a `server` alone, or prefill, decode and router, with or without encode.

    `model`: the name of a tiny checkpoint (serving/checkpoint.py) or the path of a checkpoint. `api_key_variable`: the
    variable of the launcher's environment that holds the key of the servers. `unmapped`: what an import could not
    express; nothing runs by it. `unmapped_why`: the reasons, by the same names.
    """

    name: StackName
    model: Annotated[str, Field(min_length=1), AfterValidator(_model)]
    quantization: Quantization = Quantization()
    transfer: Transfer = Transfer()
    moe: Moe = Moe()
    replayssm: ReplaySSM | None = None
    hicache: HiCache | None = None
    speculative: Speculative | None = None
    roles: Annotated[dict[Role, RoleSpec], Field(min_length=1)]
    ready_timeout_s: Positive
    api_key_variable: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")] | None = None
    unmapped: dict[str, JsonValue] = {}
    unmapped_why: dict[str, str] = {}

    @model_validator(mode="after")
    def _roles_serve_together(self) -> Self:
        names = set(self.roles)
        missing = {"prefill", "decode", "router"} - names
        if names != {"server"} and (missing or "server" in names):
            at = f"roles.{min(missing)}" if len(missing) == 1 and "server" not in names else "roles"
            raise PydanticCustomError(
                AT_FIELD,
                f"a stack is one `server`, or `prefill`, `decode` and `router` with or without `encode`; "
                f"this one has {', '.join(f'`{name}`' for name in self.roles)}",
                {"field": at},
            )
        if "server" in self.roles and self.roles["server"].count != 1:
            raise ValueError("`roles.server.count`: one server is all that can be started; more need a router")
        return self

    @property
    def digest(self) -> str:
        """sha256 of everything in the spec, in hex; parts that are left as they are by default do not count."""
        content = json.dumps(self.model_dump(mode="json", exclude_defaults=True), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()

    def argv(self, role: Role, replica: int = 0) -> tuple[str, ...]:
        """Command line of one replica without what the launcher adds: the model, host and port."""
        return (*words_of(arguments_of(self, role, replica)), *peers_of(self, role))

    def port_of(self, role: Role) -> int:
        """The port of the first replica. Raises BadInput for a role that is attached by its url."""
        port = self.roles[role].port
        if port is None:
            raise BadInput(f"`roles.{role}` of stack `{self.name}` has a `url`", "only a role with a `port` is started")
        return port

    def on_port(self, role: Role, port: int) -> "StackSpec":
        """The same stack with another HTTP port for one role."""
        moved = self.roles[role].model_copy(update={"port": port})
        return self.model_copy(update={"roles": {**self.roles, role: moved}})


def load_stack(path: Path) -> StackSpec:
    """Raises BadInput, naming the field, for a file that is not a stack."""
    document = read_mapping(path)
    if is_scenario(document):
        raise BadInput(f"`{path}` {IS_SCENARIO}", STACK_WANTED)
    return validate(document, StackSpec, str(path), path.parent)


def is_scenario(document: Mapping[str, object]) -> bool:
    """Whether the mapping of a file looks like a scenario and not like a stack."""
    return "traffic" in document and "roles" not in document


def apply_edit(spec: StackSpec, changes: Mapping[str, RoleChange]) -> StackSpec:
    """The spec with `changes` (by role) made. Raises BadInput for an unknown role or a result that is no stack."""
    edited: dict[str, object] = {name: role.model_dump() for name, role in spec.roles.items()}
    for name, change in changes.items():
        current = next((role for known, role in spec.roles.items() if known == name), None)
        if current is None:
            raise BadInput(
                f"the edit changes role `{name}`, which stack `{spec.name}` does not have",
                f"its roles are {', '.join(f'`{known}`' for known in spec.roles)}",
            )
        edited[name] = {
            **current.model_dump(),
            "count": change.count if change.count is not None else current.count,
            "arguments": _patched(current.arguments, change.arguments),
            "environment": _patched(current.environment, change.environment),
        }
    stated = spec.model_dump(exclude_unset=True)  # a part that is left out stays left out, which is no fault
    return validate({**stated, "roles": edited}, StackSpec, f"{spec.name} with the edit")


def _patched(current: Mapping[str, object], change: Mapping[str, object | None]) -> dict[str, object]:
    return {name: value for name, value in {**current, **change}.items() if value is not None}
