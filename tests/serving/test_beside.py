"""A second stack on one machine: every port that a spec can state is moved, and what names a port otherwise is refused."""

import re
from pathlib import Path
from typing import Any

import pytest

from serving.addresses import PORT_OPTIONS, Listener, address_faults, listeners_of
from serving.arguments import known_arguments, router_arguments
from serving.beside import beside
from serving.documents import validate
from serving.errors import BadInput
from serving.stack import RoleSpec, StackSpec, load_stack
from serving.stack_rules import argument_name_fault

STACKS = sorted((Path(__file__).parents[2] / "serving" / "stacks").glob("*-cpu.yaml"))
DISAGGREGATED: dict[str, dict[str, Any]] = {
    "prefill": {
        "port": 31000,
        "bootstrap_port": 31100,
        "mooncake_ports": {"low": 32000, "high": 32063},
        "arguments": {"encoder-bootstrap-port": 31150, "nccl-port": "31160", "grpc-port": 31170, "page-size": 31000},
    },
    "decode": {"port": 31200, "count": 2, "mooncake_ports": {"low": 32064, "high": 32127}},
    "router": {"port": 31300, "prometheus_port": 31310},
}


def stack(roles: dict[str, dict[str, Any]]) -> StackSpec:
    return validate({"name": "s", "model": "m", "ready_timeout_s": 1, "roles": roles}, StackSpec, "s")


def all_of(spec: StackSpec) -> list[Listener]:
    return [listener for role in spec.roles for listener in listeners_of(spec, role)]


def meeting(one: StackSpec, other: StackSpec) -> list[tuple[str, str]]:
    return [(a.field, b.field) for a in all_of(one) for b in all_of(other) if a.meets(b)]


@pytest.mark.parametrize("file", STACKS, ids=lambda file: file.stem)
def test_a_stack_beside_itself_shares_no_port_and_differs_in_nothing_else(file: Path) -> None:
    spec = load_stack(file)
    other = beside(spec)
    assert len(all_of(other)) == len(all_of(spec)) > 0
    assert meeting(spec, other) == []
    ports = {"port", "bootstrap_port", "prometheus_port", "mooncake_ports"}
    plain = [{role: part.model_dump(exclude=ports) for role, part in one.roles.items()} for one in (spec, other)]
    assert plain[0] == plain[1]


def test_ports_in_options_and_ranges_move_as_far_as_the_others() -> None:
    spec = stack(DISAGGREGATED)
    other = beside(spec)
    assert meeting(spec, other) == []
    moved, from_ = other.roles["prefill"], spec.roles["prefill"]
    offset = (moved.port or 0) - (from_.port or 0)
    assert moved.mooncake_ports is not None
    assert (moved.mooncake_ports.low, moved.mooncake_ports.high) == (32000 + offset, 32063 + offset)
    assert moved.arguments == {
        "encoder-bootstrap-port": 31150 + offset,
        "nccl-port": str(31160 + offset),
        "grpc-port": 31170 + offset,
        "page-size": 31000,
    }
    assert [fault for fault in address_faults(other) if fault.severity == "error"] == []


def test_the_seven_ports_of_attention_groups_do_not_meet_those_of_the_other_stack() -> None:
    spec = stack({"server": {"port": 31000, "parallelism": {"tp": 8, "attention_dp": 8}}})
    assert meeting(spec, beside(spec)) == []


def test_a_stack_with_fewer_replicas_keeps_clear_of_all_that_the_other_one_has() -> None:
    many = stack(DISAGGREGATED)
    few = stack({**DISAGGREGATED, "decode": {**DISAGGREGATED["decode"], "count": 1}})
    assert meeting(many, beside(few, many)) == []


def test_an_option_that_is_no_port_is_left_for_its_own_fault() -> None:
    role = RoleSpec(port=31000, arguments={"nccl-port": "many", "grpc-port": True})
    other = beside(StackSpec(name="s", model="m", roles={"server": role}, ready_timeout_s=1))
    assert other.roles["server"].arguments == role.arguments


def test_a_stack_on_the_last_ports_has_its_second_one_below_and_one_on_all_of_them_has_none() -> None:
    assert beside(stack({"server": {"port": 65535}})).port_of("server") == 65534
    ends = {"prefill": {"port": 1024, "bootstrap_port": 65535}, "decode": {"port": 2000}, "router": {"port": 2001}}
    with pytest.raises(BadInput, match="no room for a second one"):
        beside(stack(ends))


@pytest.mark.engine
@pytest.mark.usefixtures("known_options")
def test_every_option_that_names_a_port_is_moved_belongs_to_the_launcher_or_is_refused() -> None:
    names = {*known_arguments(), *router_arguments()}
    ports = {name for name in names if re.search(r"(^|-)(ports?|endpoints?|urls?|addr)$", name)}
    assert set(PORT_OPTIONS) <= ports
    left = {name for name in ports - set(PORT_OPTIONS) if argument_name_fault(name) is None}
    assert left == {"health-check-endpoint"}, "a path on workers that the router knows"
