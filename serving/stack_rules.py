"""What a stack may not state, and why: options that the launcher owns or needs, and variables that run code.

A stack and its edits are data. Nothing in them may load code, answer on another address, or keep the launcher from
talking to its own server; such a fault would otherwise show only after minutes, and as a fault of ours.
"""

import re

from serving.engine_env import LOOPBACK_AND_OFFLINE, MEETING, WITHOUT_GPU

_OURS = "is set by the launcher from `model` and `port`"
_KEY = "locks the server, and the client of infra-agent has no key"
_ALONE = "is for a deployment of several servers, and one is all that can be started now"
_TLS = "makes the server speak TLS, and the client of infra-agent speaks plain HTTP on loopback"
_GRPC = "takes away the HTTP server that traffic and proof go through"
_NO_TEXT = "makes a server that does not generate, so it would never be ready"

REFUSED_ARGUMENTS = {
    **dict.fromkeys(("host", "port", "model-path", "model"), _OURS),
    **dict.fromkeys(("help", "version"), "makes SGLang print and end instead of serving"),
    **dict.fromkeys(("api-key", "admin-api-key"), _KEY),
    "config": "reads arguments from a file that no record holds; state them here",
    **dict.fromkeys(
        ("ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-keyfile-password", "enable-ssl-refresh"), _TLS
    ),
    **dict.fromkeys(("grpc-mode", "smg-grpc-mode"), _GRPC),
    **dict.fromkeys(("nnodes", "node-rank", "dist-init-addr", "nccl-init-addr", "disaggregation-mode"), _ALONE),
    **dict.fromkeys(("is-embedding", "encoder-only"), _NO_TEXT),
}

# Each must be stated as it is here.
NEEDED_ARGUMENTS = {"enable-metrics": (True, "the layers of a verdict are read from `/metrics`")}

HARMLESS_PREFIXES = (
    "SGLANG_", "SGL_", "MC_", "MOONCAKE_", "NCCL_", "NVSHMEM_", "UCX_", "GLOO_", "CUDA_", "FLASHINFER_", "DG_JIT_",
    "TRITON_", "TORCH_", "TORCHINDUCTOR_", "TORCHDYNAMO_", "PYTORCH_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_",
    "MALLOC_",
)  # fmt: skip
OWNED_VARIABLES = frozenset({*LOOPBACK_AND_OFFLINE, *WITHOUT_GPU, MEETING, "MC_TCP_BIND_ADDRESS"})
_LOADS = re.compile(
    r"_(PATH|DIR|HOME|FILE|CONF|CONFIG|PACKAGE|MODULE|PLUGINS?|LIBRARIES|LIBRARY|MANAGER|NET|PIPE|ENTRY)$|_(PTXAS|PICKLE)"
)
_ADDRESSES = re.compile(r"_(ADDR|ADDRESS|IP|HOST|HOSTNAME|URL|PORT|IFNAME|NIC)$")
_FORGES = re.compile(r"_(TEST|SIMULATE|IS_IN_CI)(_|$)")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def argument_fault(name: str, value: object) -> str | None:
    """Why an option of this name or a value of these characters may not stand in a stack, or None."""
    if name.startswith("-") or "_" in name or "=" in name or not name:
        return "write the option as SGLang spells it, without the leading dashes"
    return REFUSED_ARGUMENTS.get(name) or text_fault(value)


def environment_fault(name: str, value: str) -> str | None:
    """Why the variable may not stand in a stack, or None."""
    if not NAME.fullmatch(name):
        return "is no name of a variable: letters, digits and `_`"
    if name in OWNED_VARIABLES:
        return "is set by the launcher, which has the last word"
    if not name.startswith(HARMLESS_PREFIXES):
        return f"is not one that may be changed: its name must begin with one of {', '.join(HARMLESS_PREFIXES)}"
    if _FORGES.search(name):
        return "makes the engine pretend, so nothing measured under it counts"
    if _LOADS.search(name) or "/" in value:
        return "names a place that code or settings are loaded from, and no record holds what is there"
    if _ADDRESSES.search(name):
        return "changes where the engine is reached; it stays on loopback"
    return text_fault(value)


def text_fault(value: object) -> str | None:
    """Why a process cannot be given this text, or None."""
    if not isinstance(value, str):
        return None
    if "\0" in value:
        return "has a NUL in its value, which no process can be given"
    return "has half a surrogate pair in its value" if any("\ud800" <= c <= "\udfff" for c in value) else None
