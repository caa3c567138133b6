"""Which edits of a stack the service rung refuses before a server starts."""

import pytest
import yaml
from service_setup import Setup

from serving.errors import BadInput
from tasks.records import (
    RoleEdit,
)
from tasks.service import measure_service
from tasks.service_arms import build_stack, check_edit


def test_a_stack_that_changed_since_the_hypothesis_was_read_is_refused(setup: Setup) -> None:
    hypothesis = setup.hypothesis()
    setup.stack.write_text(setup.stack.read_text().replace("31400", "31402"))
    with pytest.raises(BadInput, match="no longer the stack"):
        measure_service(hypothesis)


def test_an_option_that_sglang_lacks_is_bad_input_for_a_person_and_a_failed_build_for_a_run(setup: Setup) -> None:
    hypothesis = setup.hypothesis(RoleEdit(arguments={"chunky": 1}))
    with pytest.raises(BadInput, match="chunky"):
        check_edit(hypothesis)
    assert "chunky" in (build_stack(hypothesis).failure or "")
    assert build_stack(setup.hypothesis()).failure is None


FAULTS = {
    "help": RoleEdit(arguments={"help": True}),
    "api-key": RoleEdit(arguments={"api-key": "secret"}),
    "enable-metrics": RoleEdit(arguments={"enable-metrics": None}),
    "one server": RoleEdit(count=2),
    "LD_PRELOAD": RoleEdit(environment={"LD_PRELOAD": "x.so"}),
    "SGLANG_HOST_IP": RoleEdit(environment={"SGLANG_HOST_IP": "1"}),
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_fault_of_the_edit_is_bad_input_for_a_person_and_a_failed_build_for_a_run(said: str, setup: Setup) -> None:
    """Never BROKEN, which would be tried again for ever."""
    hypothesis = setup.hypothesis(FAULTS[said])
    with pytest.raises(BadInput, match=said):
        check_edit(hypothesis)
    assert said in (build_stack(hypothesis).failure or "")


def test_an_edit_that_validate_finds_an_error_in_is_a_failed_build_and_never_starts(setup: Setup) -> None:
    """One in a combination of options; the options themselves are ones that SGLang has."""
    hypothesis = setup.hypothesis(RoleEdit(arguments={"device": "cuda"}))
    with pytest.raises(BadInput, match=r"`roles\.server\.resources\.gpus`"):
        check_edit(hypothesis)
    assert "`roles.server.resources.gpus`: `0` GPUs for 1 rank" in (build_stack(hypothesis).failure or "")
    with pytest.raises(BadInput, match="ranks"):
        measure_service(hypothesis)


@pytest.mark.parametrize(
    "edit",
    [
        RoleEdit(arguments={"chunked-prefill-size": 512}),
        RoleEdit(arguments={"chunked-prefill-size": "512"}),
        RoleEdit(arguments={"chunked-prefill-size": 64, "page-size": 1}),
        RoleEdit(environment={"OMP_NUM_THREADS": None}),
        RoleEdit(count=1),
    ],
)
def test_an_edit_to_what_the_stack_states_already_is_a_failed_build(edit: RoleEdit, setup: Setup) -> None:
    assert "changes nothing" in (build_stack(setup.hypothesis(edit)).failure or "")


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"roles": {"server": {"url": "http://127.0.0.1:31400"}}}, "attached by its `url`"),
        ({"api_key_variable": "STACK_KEY"}, "carry no key"),
    ],
)
def test_a_stack_that_is_attached_or_locked_cannot_be_compared(
    stated: dict[str, object], said: str, setup: Setup
) -> None:
    setup.stack.write_text(yaml.safe_dump(yaml.safe_load(setup.stack.read_text()) | stated))
    with pytest.raises(BadInput, match=said):
        measure_service(setup.hypothesis(RoleEdit(count=1)))
