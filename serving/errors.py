"""The exceptions of infra-agent: two, because there are two kinds of fault that are not a candidate's.

    InfraAgentError
    ├── BadInput   what the user gave cannot be understood          exit status 2, nothing is recorded
    └── Broken     our infrastructure failed (compiler, engine, port, ledger)    exit status 4, may be retried

A fault of a candidate is a REJECTED verdict, never an exception.
"""


class InfraAgentError(Exception):
    """`message` says what is wrong, with the value in backticks; `hint` says what to do next."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """Pickles with both arguments, so that it crosses process borders whole."""
        return type(self), (self.message, self.hint)

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}"


class BadInput(InfraAgentError):
    """A file, option or value from the user that cannot be used."""


class Broken(InfraAgentError):
    """The infrastructure failed; says nothing about a hypothesis."""
