"""Starts a module with a key among its arguments that stands on no command line, where everybody could read it.

INFRA_AGENT_ENGINE_KEY=... python -P start_with_key.py MODULE [arguments]

SGLang writes all its arguments into its log: what this process prints is printed without the key.
"""

import os
import runpy
import sys
from typing import Any, TextIO

HIDDEN = "***"


class WithoutKey:
    """A stream that lets everything through but the key. Loggers and tracebacks write through it, too."""

    def __init__(self, stream: TextIO, key: str) -> None:
        self.stream, self.key = stream, key

    def write(self, text: str) -> int:
        self.stream.write(text.replace(self.key, HIDDEN))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


if __name__ == "__main__":
    key, module = os.environ.pop("INFRA_AGENT_ENGINE_KEY"), sys.argv[1]
    sys.argv = [module, *sys.argv[2:], "--api-key", key]
    sys.stdout, sys.stderr = WithoutKey(sys.stdout, key), WithoutKey(sys.stderr, key)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
