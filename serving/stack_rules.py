"""What a stack may not state, and why: options that the launcher owns or needs, and variables that run code.

A stack and its edits are data. Nothing in them may load code, answer on another address, or keep the launcher from
talking to its own server; such a fault would otherwise show only after minutes, and as a fault of ours.
"""

import ipaddress
import re
from urllib.parse import urlsplit

from serving.engine_env import LOOPBACK_AND_OFFLINE, MEETING, WITHOUT_GPU

_OURS = "is set by the launcher from `model`, `host` and `port`"
_KEY = "would write the key into a record; name the variable that holds it in `api_key_variable`"
_ALONE = "is for a server of several machines, and the launcher has one"
_ROLE = "follows from the role: server, encode, prefill, decode or router"
_PORT = "is set by the launcher from `bootstrap_port`, `prometheus_port` and `host`"
_PEERS = "is set by the launcher from the addresses of the other roles"
_PUBLISHES = "publishes on an address of its own, which no part of a stack looks after"
_TLS = "makes the server speak TLS, and the client of infra-agent speaks plain HTTP on loopback"
_GRPC = "takes away the HTTP server that traffic and proof go through"
_NO_TEXT = "makes a server that does not generate, so it would never be ready"

_CODE = "makes the server import and call what its value names, and a stack is data"
_WRITES = "makes the server write to a place of the machine that no part of a stack looks after"

REFUSED_ARGUMENTS = {
    **dict.fromkeys(("forward-hooks", "custom-weight-loader", "hicache-storage-backend-extra-config"), _CODE),
    **dict.fromkeys(
        (
            "crash-dump-folder",
            "debug-tensor-dump-output-folder",
            "spec-trace-dir",
            "export-metrics-to-file-dir",
            "modelopt-checkpoint-save-path",
            "modelopt-export-path",
            "msprobe-dump-config",
        ),
        _WRITES,
    ),
    "sidecar": "starts a module that its value names, and a stack is data",
    "gated-launch-port": "waits for somebody outside of the stack before it loads the model, so it would never be ready",
    "tool-server": "connects to something outside of the stack, which no record holds",
    **dict.fromkeys(("host", "port", "model-path", "model"), _OURS),
    **dict.fromkeys(("help", "version"), "makes SGLang print and end instead of serving"),
    **dict.fromkeys(("api-key", "admin-api-key"), _KEY),
    "config": "reads arguments from a file that no record holds; state them here",
    **dict.fromkeys(
        ("tokenizer-path", "chat-template"), "reads what the model is asked in from a file that no record holds"
    ),
    **dict.fromkeys(
        ("ssl-keyfile", "ssl-certfile", "ssl-ca-certs", "ssl-keyfile-password", "enable-ssl-refresh"), _TLS
    ),
    **dict.fromkeys(("grpc-mode", "smg-grpc-mode"), _GRPC),
    **dict.fromkeys(("nnodes", "node-rank", "dist-init-addr", "nccl-init-addr"), _ALONE),
    **dict.fromkeys(("disaggregation-mode", "encoder-only", "language-only", "pd-disaggregation"), _ROLE),
    **dict.fromkeys(("disaggregation-bootstrap-port", "prometheus-port", "prometheus-host"), _PORT),
    **dict.fromkeys(("encoder-urls", "encoder-register-urls", "prefill", "decode", "worker-urls"), _PEERS),
    "is-embedding": _NO_TEXT,
    **dict.fromkeys(("kv-events-config", "load-publish-endpoint"), _PUBLISHES),
    **dict.fromkeys(("mini-lb", "enable-igw", "log-dir"), "is not a way in which infra-agent runs the router"),
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
_ADDRESSES = re.compile(r"_(ADDR|ADDRESS|IP|HOST|HOSTNAME|URL|IFNAME|NIC)$|_PORTS?(_|$)")
_FORGES = re.compile(r"_(TEST|SIMULATE|IS_IN_CI)(_|$)")
# The router's stores, directories of workers, other engines, and whatever else a role would talk to.
_OUTSIDE = re.compile(
    r"(oracle|postgres|redis|history|jwt|control-plane|service-discovery|(prefill-|decode-)?selector|otlp|client-|ca-|mcp|"
    r"remote-instance|modelexpress|decoupled-spec)\b.*"
)
_PLACE = "names a place that code or settings are loaded from, and no record holds what is there"
# Linux takes 128 KiB for one word or variable, its name included, and a character may take four bytes.
LONGEST_TEXT = 30_000
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def argument_name_fault(name: str) -> str | None:
    """Why an option of this name may not stand in a stack, or None."""
    if name.startswith("-") or "_" in name or "=" in name or not name:
        meant = name.partition("=")[0].lstrip("-").replace("_", "-")
        return f"is not how SGLang spells it: write `{meant}`" if meant else "is no name of an option"
    if _OUTSIDE.fullmatch(name):
        return "connects to something outside of the stack, which no record holds"
    return REFUSED_ARGUMENTS.get(name)


def variable_name_fault(name: str) -> str | None:
    """Why a variable of this name may not stand in a stack, or None."""
    if not NAME.fullmatch(name):
        return "is no name of a variable: letters, digits and `_`"
    if name in OWNED_VARIABLES:
        return "is set by the launcher, which has the last word"
    if not name.startswith(HARMLESS_PREFIXES):
        return f"is not one that may be changed: its name must begin with one of {', '.join(HARMLESS_PREFIXES)}"
    if _FORGES.search(name):
        return "makes the engine pretend, so nothing measured under it counts"
    if _LOADS.search(name):
        return _PLACE
    if _ADDRESSES.search(name):
        return "changes where the engine is reached; it stays where the spec puts it (by default on loopback)"
    return None


def variable_value_fault(value: str) -> str | None:
    """Why no variable of a stack may have this value, or None."""
    return _PLACE if "/" in value else text_fault(value)


def text_fault(value: object) -> str | None:
    """Why a process cannot be given this text, or None."""
    if not isinstance(value, str):
        return None
    if "\0" in value:
        return "has a NUL in its value, which no process can be given"
    if any("\ud800" <= c <= "\udfff" for c in value):
        return "has half a surrogate pair in its value"
    return f"is longer than {LONGEST_TEXT} characters" if len(value) > LONGEST_TEXT else None


def part_fault(value: object) -> str | None:
    """Why this cannot be one of several values of an option, which follow it as words of their own, or None."""
    if isinstance(value, str) and value.startswith("--"):
        return f"`{value[:80]}` among several values would be read as another option"
    return text_fault(value)


def host_fault(host: str) -> str | None:
    """Why no server can listen there, or None."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "is no IP address"
    return None if "%" not in host else "names a zone of an address, which a url cannot"


def url_fault(url: str) -> str | None:
    """Why this is not the address of a server, or None. The url itself may hold a password: it is not quoted."""
    if not re.fullmatch(r"https?://[^/\s@?#]+", url):
        return "is not `http://host:port`, without a user, a path and a query"
    try:
        parts = urlsplit(url)
        reachable = bool(parts.hostname) and parts.port != 0
    except ValueError as fault:
        return f"is not `http://host:port`: {str(fault)[:80]}"
    return None if reachable else "is not `http://host:port`: a host and a port above 0"


def model_fault(model: str) -> str | None:
    """Why this is neither the name of a checkpoint nor a path, or None. It is not quoted: a url may hold a password."""
    if "://" in model:
        return "is a url; give the folder of a checkpoint or the name of a tiny one"
    return text_fault(model)
