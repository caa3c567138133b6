"""Libraries of the machine that an engine needs and that no lock installs."""

import ctypes

from serving.errors import Broken
from serving.stack import StackSpec

# Mooncake is linked against it, also where it moves everything by TCP.
IBVERBS = "libibverbs.so.1"
INSTALL = "apt-get install libibverbs1"


def loads(library: str) -> bool:
    """Whether the loader finds it, in `LD_LIBRARY_PATH` as it was when this process began and where libraries belong."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def check_libraries(spec: StackSpec) -> None:
    """Raises Broken, naming the library, for a stack that would end for the lack of one after it has loaded its weights.

    A role with an engine of its own is left to find what it needs.
    """
    backends = (spec.transfer.backend, spec.transfer.encoder or "")
    if len(spec.roles) == 1 or not any(backend.startswith("mooncake") for backend in backends) or loads(IBVERBS):
        return
    for role, part in spec.roles.items():
        if part.url is None and part.engine is None and role in ("prefill", "decode"):
            raise Broken(f"`{role}` needs Mooncake, and that needs `{IBVERBS}`, which is not on this machine", INSTALL)
