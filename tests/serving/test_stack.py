"""Stack specs: what they refuse, how they become a command line, and how an edit changes them."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.documents import validate
from serving.errors import BadInput
from serving.home import REPOSITORY
from serving.roles import HiCache, Moe, Parallelism, Quantization, ReplaySSM, Resources, Speculative, Transfer
from serving.stack import RoleSpec, Scalar, StackSpec, apply_edit, load_stack
from serving.stack_rules import REFUSED_ARGUMENTS, argument_name_fault, variable_name_fault, variable_value_fault

STACKS = sorted((Path(__file__).parents[2] / "serving" / "stacks").glob("*.yaml"))


@dataclass
class Change:
    arguments: dict[str, Scalar | None] = field(default_factory=dict)
    environment: dict[str, str | None] = field(default_factory=dict)
    count: int | None = None


def stack(**arguments: Scalar | None) -> StackSpec:
    role = RoleSpec(port=31400, arguments={k.replace("_", "-"): v for k, v in arguments.items()})
    return StackSpec(name="s", model="tiny", roles={"server": role}, ready_timeout_s=1)


names = st.from_regex(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", fullmatch=True).filter(
    lambda name: argument_name_fault(name) is None
)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
values = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts


@given(st.dictionaries(names, values | st.none(), max_size=6))
def test_a_command_line_holds_exactly_the_arguments_that_are_on(arguments: dict[str, Scalar | None]) -> None:
    spec = StackSpec(
        name="s", model="m", roles={"server": RoleSpec(port=31400, arguments=arguments)}, ready_timeout_s=1
    )
    read_back = {}
    for word in spec.argv("server"):
        name, equals, value = word.removeprefix("--").partition("=")
        read_back[name] = value if equals else True
    assert read_back == {
        name: True if value is True else str(value)
        for name, value in arguments.items()
        if value is not None and value is not False
    }


@pytest.mark.parametrize("path", STACKS, ids=lambda p: p.stem)
def test_the_stacks_we_ship_can_be_read(path: Path) -> None:
    assert load_stack(path).name == path.stem


@pytest.mark.parametrize("name", ["--dtype", "chunked_prefill_size", "host", "port", "model-path", ""])
def test_an_option_that_is_misspelt_or_belongs_to_the_launcher_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "stack.yaml"
    file.write_text(
        f"name: s\nmodel: m\nready_timeout_s: 1\nroles: {{server: {{port: 31400, arguments: {{'{name}': 1}}}}}}"
    )
    with pytest.raises(BadInput, match="arguments"):
        load_stack(file)


def of_one_server(changes: dict[str, object], role: dict[str, object]) -> dict[str, object]:
    whole = {"name": "s", "model": "m", "ready_timeout_s": 1, "roles": {"server": {"port": 31400, **role}}}
    return {**whole, **changes}


@pytest.mark.parametrize(
    ("changes", "role", "why"),
    [
        ({"name": "s" * 101}, {}, "name"),
        ({"ready_timeout_s": float("inf")}, {}, "ready_timeout_s"),
        ({"model": "https://somebody:secret@host/m"}, {}, "is a url"),
        ({"model": "m\0"}, {}, "NUL"),
        ({}, {"host": "999.1.1.1"}, "no IP address"),
        ({}, {"host": ":::"}, "no IP address"),
        ({}, {"port": 65535, "count": 2}, "end beyond 65535"),
        ({}, {"port": 31400, "count": 10**9}, "end beyond 65535"),
        ({}, {"port": None, "url": "http://127.0.0.1:99999"}, "Port out of range"),
        ({}, {"port": None, "url": "http://127.0.0.1:0"}, "a port above 0"),
        ({}, {"port": None, "url": "http://[::1"}, "Invalid IPv6"),
        ({}, {"port": None, "url": "http://somebody:secret@host:1"}, "without a user"),
        ({}, {"arguments": {"lora-paths": ["a=b", "--host=0.0.0.0"]}}, "another option"),
        ({}, {"environment": {"SGLANG_X": "x" * 30_001}}, "longer than 30000"),
        ({}, {"resources": {"memory_gb": float("inf")}}, "memory_gb"),
    ],
)
def test_a_value_that_could_not_run_is_refused_and_no_password_is_shown(
    changes: dict[str, object], role: dict[str, object], why: str
) -> None:
    with pytest.raises(BadInput, match=why) as refused:
        validate(of_one_server(changes, role), StackSpec, "s")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("name: s", "model"),
        ("name: s\nmodel: m\nready_timeout_s: 1\nroles: {server: {port: 80}}", "port"),
        ("name: s\nmodel: m\nready_timeout_s: 1\nroles: {router: {port: 31400}}", "router"),
        ("name: s\nmodel: m\nready_timeout_s: 1\nspeed: 9\nroles: {server: {port: 31400}}", "speed"),
        ("name: [", "not valid YAML"),
        (f"name: {'[' * 3000}", "nested too deeply"),
        (f"name: {'9' * 5000}", "not valid YAML: Exceeds the limit"),
    ],
)
def test_a_bad_file_is_bad_input_that_names_the_field(text: str, field: str, tmp_path: Path) -> None:
    file = tmp_path / "stack.yaml"
    file.write_text(text)
    with pytest.raises(BadInput, match=field):
        load_stack(file)


def test_the_documentation_has_a_stack_that_can_be_read_and_names_every_field(tmp_path: Path) -> None:
    text = (REPOSITORY / "docs" / "serving.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "example.yaml").write_text(example)
    assert load_stack(tmp_path / "example.yaml").name == "my-stack"
    table = {name for line in text.splitlines() if line.startswith("| ") for name in re.findall(r"`(\w+)`", line)}
    parts = (StackSpec, RoleSpec, Quantization, Transfer, Moe, ReplaySSM, HiCache, Speculative, Parallelism, Resources)
    assert {name for part in parts for name in part.model_fields} <= table


def test_an_edit_adds_replaces_and_takes_away() -> None:
    before = stack(dtype="float32", page_size=1)
    after = apply_edit(before, {"server": Change(arguments={"page-size": 4, "dtype": None, "device": "cpu"})})
    assert after.roles["server"].arguments == {"page-size": 4, "device": "cpu"}
    assert before.roles["server"].arguments == {"dtype": "float32", "page-size": 1}
    assert after.digest != before.digest


def test_an_edit_that_restores_what_was_there_gives_the_same_digest() -> None:
    before = stack(page_size=1)
    there = apply_edit(before, {"server": Change(arguments={"page-size": 4}, environment={"OMP_NUM_THREADS": "1"})})
    back = apply_edit(there, {"server": Change(arguments={"page-size": 1}, environment={"OMP_NUM_THREADS": None})})
    assert back.digest == before.digest


def test_an_edit_of_an_unknown_role_names_the_roles_there_are() -> None:
    with pytest.raises(BadInput, match="`decode`") as refused:
        apply_edit(stack(), {"decode": Change(count=2)})
    assert "`server`" in refused.value.hint


def test_an_edit_cannot_take_over_what_the_launcher_owns() -> None:
    with pytest.raises(BadInput, match="host"):
        apply_edit(stack(), {"server": Change(arguments={"host": "0.0.0.0"})})


@pytest.mark.parametrize(
    "name",
    [
        "help",
        "version",
        "api-key",
        "admin-api-key",
        "config",
        "ssl-certfile",
        "nnodes",
        "forward-hooks",
        "custom-weight-loader",
        "hicache-storage-backend-extra-config",
        "chat-template",
        "crash-dump-folder",
        "tool-server",
        "sidecar",
        "gated-launch-port",
        "load-publish-endpoint",
    ],
)
def test_an_option_that_no_run_could_serve_with_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(BadInput, match=f"`{name}` .*{REFUSED_ARGUMENTS[name][:20]}"):
        apply_edit(stack(), {"server": Change(arguments={name: "x"})})


@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
def test_text_that_no_process_can_be_given_is_refused(value: str) -> None:
    for change in (Change(arguments={"dtype": value}), Change(environment={"OMP_NUM_THREADS": value})):
        with pytest.raises(BadInput, match="in its value"):
            apply_edit(stack(), {"server": change})


def test_more_than_one_server_is_refused() -> None:
    with pytest.raises(BadInput, match="one server is all"):
        apply_edit(stack(), {"server": Change(count=2)})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("PYTHONPATH", "launcher"),
        ("LD_PRELOAD", "may be changed"),
        ("LD_LIBRARY_PATH", "may be changed"),
        ("PYTHONSTARTUP", "may be changed"),
        ("PATH", "may be changed"),
        ("HOME", "may be changed"),
        ("http_proxy", "may be changed"),
        ("SGLANG_HOST_IP", "launcher"),
        ("SGLANG_USE_CPU_ENGINE", "launcher"),
        ("SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE", "launcher"),
        ("MC_TCP_BIND_ADDRESS", "launcher"),
        ("SGLANG_EXTERNAL_MODEL_PACKAGE", "loaded from"),
        ("SGLANG_PLUGINS", "loaded from"),
        ("TRITON_PTXAS_PATH", "loaded from"),
        ("TRITON_PTXAS_BLACKWELL", "loaded from"),
        ("NCCL_NET_PLUGIN", "loaded from"),
        ("OMP_TOOL_LIBRARIES", "loaded from"),
        ("CUDA_INJECTION64_PATH", "loaded from"),
        ("SGLANG_PORT", "loopback"),
        ("SGLANG_BACKUP_PORT_BASE", "loopback"),
        ("GLOO_SOCKET_IFNAME", "loopback"),
        ("SGLANG_SIMULATE_ACC_LEN", "pretend"),
        ("SGLANG_TEST_SCRIPTED_RUNTIME", "pretend"),
        ("A=B", "no name"),
        ("", "no name"),
    ],
)
def test_a_variable_that_loads_code_moves_the_server_or_pretends_is_refused(name: str, why: str) -> None:
    with pytest.raises(BadInput, match=f"(?s)roles.server.environment.*{why}"):
        apply_edit(stack(), {"server": Change(environment={name: "1"})})


@pytest.mark.parametrize(
    ("name", "value"),
    [("OMP_NUM_THREADS", "2"), ("SGLANG_OPT_FP8", "true"), ("NCCL_ALGO", "Ring"), ("MC_SLICE_SIZE", "65536")],
)
def test_a_variable_that_tunes_may_be_set_unless_it_names_a_place(name: str, value: str) -> None:
    assert variable_name_fault(name) is None
    assert variable_value_fault(value) is None
    assert variable_value_fault(f"/tmp/{value}") is not None


def test_a_picture_is_encoded_for_prefill_alone() -> None:
    spec = load_stack(next(file for file in STACKS if file.stem == "tiny-glm53-epd-cpu"))
    assert "--encoder-urls" in spec.argv("prefill")
    assert "--language-only" in spec.argv("prefill")
    assert not {"--encoder-urls", "--language-only"} & set(spec.argv("decode"))
