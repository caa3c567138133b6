"""What a deployment is made of: the model, and for each role its SGLang arguments, environment, count and port."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, field_validator

from serving.documents import read_document, validate
from serving.errors import BadInput
from serving.stack_rules import argument_fault, environment_fault

Scalar = bool | int | float | str
Role = Literal["server"]


class RoleChange(Protocol):
    """Changes to one role; `None` as a value takes an argument or a variable away."""

    @property
    def arguments(self) -> Mapping[str, Scalar | None]: ...
    @property
    def environment(self) -> Mapping[str, str | None]: ...
    @property
    def count(self) -> int | None: ...


class RoleSpec(BaseModel):
    """`arguments`: option names of SGLang without the leading dashes. `port`: on 127.0.0.1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: Annotated[int, Field(ge=1)] = 1
    arguments: dict[str, Scalar | None] = {}
    environment: dict[str, str] = {}
    port: Annotated[int, Field(ge=1024, le=65535)]

    @field_validator("count")
    @classmethod
    def _one(cls, count: int) -> int:
        if count != 1:
            raise ValueError("one server is all that can be started now")
        return count

    @field_validator("arguments")
    @classmethod
    def _may_be_stated(cls, arguments: dict[str, Scalar | None]) -> dict[str, Scalar | None]:
        for name, value in arguments.items():
            if fault := argument_fault(name, value):
                raise ValueError(f"`{name}` {fault}")
        return arguments

    @field_validator("environment")
    @classmethod
    def _may_be_set(cls, environment: dict[str, str]) -> dict[str, str]:
        for name, value in environment.items():
            if fault := environment_fault(name, value):
                raise ValueError(f"`{name}` {fault}")
        return environment


class StackSpec(BaseModel):
    """One deployment. `model` is the name of a tiny checkpoint (serving/checkpoint.py) or the path of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    model: Annotated[str, Field(min_length=1)]
    roles: Annotated[dict[Role, RoleSpec], Field(min_length=1)]
    ready_timeout_s: Annotated[float, Field(gt=0)]

    @property
    def digest(self) -> str:
        """sha256 of everything in the spec, in hex."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()

    def argv(self, role: Role) -> tuple[str, ...]:
        """Command line without what the launcher adds: `True` is a bare flag, `False` and `None` are absent."""
        arguments = self.roles[role].arguments
        return tuple(
            f"--{name}" if value is True else f"--{name}={value}"
            for name, value in arguments.items()
            if value is not None and value is not False
        )

    def on_port(self, role: Role, port: int) -> "StackSpec":
        return self.model_copy(
            update={"roles": {**self.roles, role: self.roles[role].model_copy(update={"port": port})}}
        )


def load_stack(path: Path) -> StackSpec:
    """Raises BadInput, naming the field, for a file that is not a stack."""
    return read_document(path, StackSpec)


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
            "count": change.count if change.count is not None else current.count,
            "arguments": _patched(current.arguments, change.arguments),
            "environment": _patched(current.environment, change.environment),
            "port": current.port,
        }
    return validate({**spec.model_dump(), "roles": edited}, StackSpec, f"{spec.name} with the edit")


def _patched(current: Mapping[str, object], change: Mapping[str, object | None]) -> dict[str, object]:
    return {name: value for name, value in {**current, **change}.items() if value is not None}
