"""A stack is checked against SGLang's own options before anything starts."""

import pytest

from serving.arguments import Option, check_arguments, known_arguments, value_fault
from serving.errors import BadInput
from serving.stack import RoleSpec, Scalar, StackSpec


def option(flag: bool = False, kind: str = "str", choices: tuple[str, ...] | None = None) -> Option:
    return Option(dest="x", flag=flag, type=kind, choices=choices, default=None)


@pytest.mark.parametrize(
    ("taken", "value"),
    [
        (option(flag=True), True),
        (option(flag=True), False),
        (option(kind="int"), 3),
        (option(kind="int"), "3"),
        (option(kind="float"), 1),
        (option(kind="float"), "0.5"),
        (option(choices=("a", "b")), "a"),
        (option(kind="int", choices=("1", "2")), 2),
        (option(kind="loads"), "{}"),
        (option(kind="json_object"), '{"a": 1}'),
        (option(kind="json_list_type"), "[1]"),
    ],
)
def test_a_value_that_the_parser_takes_is_fine(taken: Option, value: Scalar) -> None:
    assert value_fault(taken, value) is None


@pytest.mark.parametrize(
    ("refused", "value", "why"),
    [
        (option(flag=True), 1, "switch"),
        (option(flag=True), "yes", "switch"),
        (option(kind="int"), True, "of its own"),
        (option(kind="int"), "many", "integer"),
        (option(kind="int"), 0.5, "integer"),
        (option(kind="float"), "fast", "number"),
        (option(kind="int"), "4_096", "`4096`"),
        (option(kind="int"), " 4096 ", "`4096`"),
        (option(kind="int"), "٤٠٩٦", "`4096`"),
        (option(kind="int"), "+1", "`1`"),
        (option(kind="float"), "1.0", "`1`"),
        (option(kind="float"), "1_0.5", "`10.5`"),
        (option(kind="float"), float("nan"), "finite"),
        (option(kind="float"), "inf", "finite"),
        (option(choices=("a", "b")), "c", "a, b"),
        (option(kind="loads"), "{", "not JSON"),
        (option(kind="loads"), "[" * 20_000, "not JSON"),
        (option(kind="json_object"), "{", "not JSON"),
        (option(kind="json_object"), "[]", "not an object"),
        (option(kind="json_list_type"), "{}", "not an array"),
    ],
)
def test_a_value_that_the_parser_refuses_is_refused_with_the_reason(refused: Option, value: Scalar, why: str) -> None:
    assert why in (value_fault(refused, value) or "")


def stack(**arguments: Scalar | None) -> StackSpec:
    role = RoleSpec(port=31400, arguments={k.replace("_", "-"): v for k, v in arguments.items()})
    return StackSpec(name="s", model="m", roles={"server": role}, ready_timeout_s=1)


@pytest.mark.engine
def test_an_unknown_option_names_its_field_and_the_nearest_real_one() -> None:
    with pytest.raises(BadInput, match=r"roles\.server\.arguments\.chunked-prefil-size") as refused:
        check_arguments(stack(chunked_prefil_size=4))
    assert "`chunked-prefill-size`" in refused.value.hint


@pytest.mark.engine
def test_a_value_outside_the_choices_names_its_field() -> None:
    with pytest.raises(BadInput, match=r"roles\.server\.arguments\.schedule-policy.*fcfs"):
        check_arguments(stack(schedule_policy="whenever"))
    check_arguments(stack(schedule_policy="fcfs", page_size=4, enable_metrics=True))


@pytest.mark.engine
@pytest.mark.parametrize("value", [None, False])
def test_metrics_must_be_on(value: Scalar | None) -> None:
    with pytest.raises(BadInput, match=r"roles\.server\.arguments\.enable-metrics"):
        check_arguments(stack(enable_metrics=value))


@pytest.mark.engine
def test_options_are_read_once_and_then_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    first = known_arguments()
    monkeypatch.setattr("serving.arguments.run_script", lambda *_a, **_k: pytest.fail("asked the engine again"))
    assert known_arguments() == first
    assert first["port"].type == "int"
