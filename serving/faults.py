"""What is wrong with a file, field by field."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Fault(BaseModel):
    """`field`: path in the file, such as `roles.decode.arguments.tp-size`. A warning does not keep a stack from running."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: str
    message: str
    hint: str
    severity: Literal["error", "warning"] = "error"


def warning(field: str, message: str, hint: str) -> Fault:
    return Fault(field=field, message=message, hint=hint, severity="warning")


def error(field: str, message: str, hint: str) -> Fault:
    return Fault(field=field, message=message, hint=hint)
