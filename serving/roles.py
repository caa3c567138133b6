"""The parts of a stack spec: what each role runs with, and the facts that its options are derived from (derive.py)."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from serving.stack_rules import (
    argument_name_fault,
    host_fault,
    part_fault,
    text_fault,
    url_fault,
    variable_name_fault,
    variable_value_fault,
)

Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...]
Role = Literal["server", "encode", "prefill", "decode", "router"]
StateDtype = Literal["float32", "bfloat16", "float16"]
# Strict: pydantic would take "2", 2.0 and true for numbers, and a file that says so has a mistake in it.
Count = Annotated[int, Field(ge=1, strict=True)]
FIRST_PORT, LAST_PORT = 1024, 65535
Port = Annotated[int, Field(ge=FIRST_PORT, le=LAST_PORT, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]


def _argument_name(name: str) -> str:
    if fault := argument_name_fault(name):
        raise ValueError(f"`{name}` {fault}")
    return name


def _variable_name(name: str) -> str:
    if fault := variable_name_fault(name):
        raise ValueError(f"`{name}` {fault}")
    return name


def _text(value: Value | None) -> Value | None:
    faults = map(part_fault, value) if isinstance(value, tuple) else [text_fault(value)]
    if fault := next(filter(None, faults), None):
        raise ValueError(fault)
    return value


def _host(host: str) -> str:
    if fault := host_fault(host):
        raise ValueError(fault)
    return host


def _url(url: str) -> str:
    if fault := url_fault(url):
        raise ValueError(fault)
    return url


def _variable_value(value: str) -> str:
    if fault := variable_value_fault(value):
        raise ValueError(fault)
    return value


ArgumentName = Annotated[str, AfterValidator(_argument_name)]
ArgumentValue = Annotated[Value | None, AfterValidator(_text)]
VariableName = Annotated[str, AfterValidator(_variable_name)]
VariableValue = Annotated[str, AfterValidator(_variable_value)]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PortRange(Part):
    """Both ends included."""

    low: Port
    high: Port

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"`low` {self.low} is above `high` {self.high}")
        return self


class Resources(Part):
    """Of one replica. `gpu_memory_gb`: of each GPU; `memory_gb`: of the host; 1 GB is 10^9 bytes. No `gpus`: a CPU."""

    gpus: Annotated[int, Field(ge=0, strict=True)] = 0
    gpus_per_node: Count | None = None
    gpu: Annotated[str, Field(pattern=r"^[a-z0-9-]+$")] | None = None
    gpu_memory_gb: Positive | None = None
    memory_gb: Positive | None = None


class Parallelism(Part):
    """Ranks of one replica. `attention_dp`: groups of attention, each of tp / attention_dp / attention_cp ranks.

    Linear attention is split over the ranks of one such group, and so is the LM head with `lm_head: attention_group`;
    `all_ranks` is SGLang's own choice. `inside_node`: parts whose ranks must be on one node.
    """

    tp: Count = 1
    ep: Count = 1
    attention_dp: Count = 1
    attention_cp: Count = 1
    moe_dense_tp: Count | None = None
    lm_head: Literal["all_ranks", "attention_group", "all_to_all"] = "all_ranks"
    inside_node: tuple[Literal["linear_attention", "lm_head"], ...] = ()


class RoleSpec(Part):
    """`arguments`: options of SGLang (of its router for `router`) without the leading dashes, beside the derived ones.

    Replica i of `count` listens on `port` + i, its bootstrap server on `bootstrap_port` + i, on address `host`. It is
    started by `launcher` in the environment `engine` (a folder; by default `INFRA_AGENT_ENGINE`). With a `url` the role
    runs already: what is stated here is what it should run with. `mooncake_ports`: where its transfer engine listens.
    """

    count: Count = 1
    arguments: dict[ArgumentName, ArgumentValue] = {}
    environment: dict[VariableName, VariableValue] = {}
    host: Annotated[str, AfterValidator(_host)] = "127.0.0.1"
    port: Port | None = None
    bootstrap_port: Port | None = None
    prometheus_port: Port | None = None
    mooncake_ports: PortRange | None = None
    resources: Resources = Resources()
    parallelism: Parallelism = Parallelism()
    engine: Annotated[str, Field(min_length=1)] | None = None
    launcher: Literal["local"] = "local"
    url: Annotated[str, AfterValidator(_url)] | None = None

    @model_validator(mode="after")
    def _placed_once(self) -> Self:
        if self.port is not None and self.port + self.count - 1 > LAST_PORT:
            raise ValueError(f"the ports of {self.count} replicas from {self.port} on end beyond {LAST_PORT}")
        if (self.port is None) == (self.url is None):
            raise ValueError("a role has a `port`, on which it is started, or the `url` of one that runs, not both")
        if self.url is not None and self.count > 1:
            raise ValueError("a role with a `url` is one server: it has no `count`")
        return self


class Quantization(Part):
    """Formats by SGLang's names; None leaves the choice to SGLang. `index`: keys of the sparse-attention indexer."""

    weights: Annotated[str, Field(min_length=1)] | None = None
    kv: Annotated[str, Field(min_length=1)] | None = None
    kda_state: StateDtype | None = None
    convolution: StateDtype | None = None
    index: Annotated[str, Field(min_length=1)] | None = None


class Transfer(Part):
    """How prefill hands KV and states to decode (`backend`), and encode its embeddings to prefill (`encoder`)."""

    backend: Annotated[str, Field(min_length=1)] = "mooncake_tcp"
    encoder: Annotated[str, Field(min_length=1)] | None = None
    ib_device: Annotated[str, Field(min_length=1)] | None = None
    kv_checksum: bool = False


class Moe(Part):
    """`all_to_all`: the expert exchange, such as deepep, and the `mode` of DeepEP; `runner`: the expert GEMMs."""

    all_to_all: Annotated[str, Field(min_length=1)] = "none"
    mode: Annotated[str, Field(min_length=1)] | None = None
    runner: Annotated[str, Field(min_length=1)] | None = None


class ReplaySSM(Part):
    """`decode`: buffered updates of the KDA state in decode steps; `verify`: in verification of drafts. `length`: L."""

    phase: Literal["decode", "verify"]
    length: Count | None = None


class HiCache(Part):
    """Host tier of the prefix cache of server and prefill: `size_gb` per rank, or `ratio` of the device pool."""

    size_gb: Count | None = None
    ratio: Positive | None = None
    storage: Annotated[str, Field(min_length=1)] | None = None
    write_policy: Annotated[str, Field(min_length=1)] | None = None


class Speculative(Part):
    algorithm: Annotated[str, Field(min_length=1)]
    steps: Count | None = None
    topk: Count | None = None
    draft_tokens: Count | None = None
    adaptive: bool = False
