"""A model whose weights are not all loaded, or a checkpoint that is not all used, is told by name."""

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from serving.witness import WATCH

spec = importlib.util.spec_from_file_location("account_of_weights", WATCH / "account_of_weights.py")
assert spec is not None
assert spec.loader is not None
accounting = importlib.util.module_from_spec(spec)
spec.loader.exec_module(accounting)

Weights = Iterable[tuple[str, torch.Tensor]]
WHOLE = {"unused": [], "unfilled": [], "left_out": {}}


class Model(torch.nn.Module):
    """One parameter is merged from two keys, as engines do."""

    def __init__(self) -> None:
        super().__init__()
        self.merged = torch.nn.Parameter(torch.empty(4, 2), requires_grad=False)
        self.norm = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16), requires_grad=False)


CHECKPOINT = {"q": torch.ones(2, 2), "k": torch.ones(2, 2), "norm": torch.ones(3)}


def plain(model: Any, weights: Weights) -> None:
    for name, tensor in weights:
        if name == "norm":
            model.norm.data.copy_(tensor.to(torch.bfloat16) * 1)
        else:
            model.merged.data.narrow(0, 0 if name == "q" else 2, 2).copy_(tensor)


def by_a_pool(model: Any, weights: Weights) -> None:
    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(plain, model, [pair]) for pair in weights]:
            job.result()


def put_in_place(model: Any, weights: Weights) -> None:
    kept = dict(weights)
    model.merged.data = torch.cat([kept["q"], kept["k"]])
    model.norm.data = kept["norm"].bfloat16()


def without(*left_out: str) -> Callable[[Any, Weights], None]:
    return lambda model, weights: plain(model, [pair for pair in weights if pair[0] not in left_out])


def account(
    load: Callable[[Any, Weights], None], checkpoint: dict[str, torch.Tensor], **put_into_loader: Any
) -> dict[str, Any]:
    told: list[dict[str, Any]] = []

    class Loader:
        @staticmethod
        def load_weights_only(model: Any, weights: Iterator[tuple[str, torch.Tensor]], device: object) -> None:
            load(model, weights)

    loader = SimpleNamespace(DefaultModelLoader=Loader, **put_into_loader)
    accounting.account_for(loader, told.append)
    loader.DefaultModelLoader.load_weights_only(Model(), iter(checkpoint.items()), None)
    (found,) = told
    return found


@pytest.mark.parametrize("load", [plain, by_a_pool, put_in_place])
def test_a_checkpoint_that_is_loaded_whole_leaves_nothing_to_tell(load: Callable[[Any, Weights], None]) -> None:
    assert account(load, CHECKPOINT) == WHOLE


def test_a_skipped_key_and_the_parameter_that_it_leaves_empty_are_told() -> None:
    assert account(without("norm"), CHECKPOINT) == WHOLE | {"unused": ["norm"], "unfilled": ["norm"]}


def test_a_parameter_that_is_filled_by_half_is_not_filled() -> None:
    assert account(without("k"), CHECKPOINT) == WHOLE | {"unused": ["k"], "unfilled": ["merged"]}


def test_a_layer_that_the_checkpoint_lacks_is_told_although_every_key_was_used() -> None:
    """What a wrong pattern of dense and sparse layers looks like: uninitialised memory is served."""
    assert account(plain, {"q": CHECKPOINT["q"], "norm": CHECKPOINT["norm"]}) == WHOLE | {"unfilled": ["merged"]}


def test_keys_that_lie_in_one_storage_are_told_apart() -> None:
    """A safetensors file may be mapped as a whole."""
    whole = torch.ones(4, 2)
    shared = {"q": whole[:2], "k": whole[2:], "norm": CHECKPOINT["norm"]}
    assert account(plain, shared) == WHOLE
    assert account(without("q"), shared)["unused"] == ["q"]


def test_keys_that_are_left_out_on_purpose_stand_under_what_is_computed_instead_and_no_others_do() -> None:
    left_out = lambda model, unused: {"another norm": [key for key in unused if key == "norm"]}  # noqa: E731
    assert account(without("norm"), CHECKPOINT, left_out=left_out) == {
        "unused": [],
        "unfilled": ["norm"],
        "left_out": {"another norm": ["norm"]},
    }
    assert account(without("q"), CHECKPOINT, left_out=left_out)["unused"] == ["q"]
