"""What no lock installs is missed before anything starts, and named."""

from pathlib import Path

import pytest

from serving import libraries
from serving.errors import Broken
from serving.libraries import check_libraries, loads
from serving.stack import StackSpec, load_stack

STACKS = Path(__file__).parents[2] / "serving" / "stacks"


def stack(name: str) -> StackSpec:
    return load_stack(STACKS / f"{name}.yaml")


def with_prefill(**part: object) -> StackSpec:
    spec = stack("tiny-glm53-epd-cpu")
    roles = {
        role: found.model_copy(update=part if role in ("prefill", "decode") else {})
        for role, found in spec.roles.items()
    }
    return spec.model_copy(update={"roles": roles})


@pytest.fixture
def without_ibverbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "IBVERBS", "libno-such-library.so.1")


def test_a_library_loads_or_does_not() -> None:
    assert loads("libc.so.6")
    assert not loads("libno-such-library.so.1")


@pytest.mark.usefixtures("without_ibverbs")
def test_a_stack_that_moves_kv_by_mooncake_is_broken_without_its_library() -> None:
    with pytest.raises(Broken, match=r"`prefill` needs Mooncake, and that needs `libno-such-library.so.1`") as broken:
        check_libraries(stack("tiny-glm53-epd-cpu"))
    assert broken.value.hint == "apt-get install libibverbs1"


@pytest.mark.usefixtures("without_ibverbs")
@pytest.mark.parametrize(
    "spec",
    [
        stack("tiny-glm-cpu"),
        with_prefill(url="http://127.0.0.1:1"),
        with_prefill(engine="/elsewhere"),
    ],
    ids=["one server", "runs elsewhere", "an engine of its own"],
)
def test_a_stack_that_does_not_need_ours_starts_without_it(spec: StackSpec) -> None:
    check_libraries(spec)
