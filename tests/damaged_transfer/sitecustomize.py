"""Has a decode damage what prefill has sent it, before its first step: put before serving/cpu on PYTHONPATH.

The file `damage` in the folder of the decode names the damage of the next requests; `damaged` gets a line for each request.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import replaced_names

if TYPE_CHECKING:
    from torch import Tensor


def install(module: ModuleType) -> None:
    queue = module.DecodeTransferQueue
    commit = queue._commit_transfer_to_req

    def committed(self: Any, decode_req: Any) -> None:
        commit(self, decode_req)
        if module._is_fake_transfer(decode_req.req):  # of a look at its health
            return
        kind = Path("damage").read_text()
        DAMAGES[kind](Received(self.scheduler, decode_req.req))
        with Path("damaged").open("a") as file:
            file.write(f"{kind}\n")

    queue._commit_transfer_to_req = committed


class Received:
    """`states`: [KDA layers, slots, ...], `convolutions`: the same, for q, k and v; `slot`: that of the request.

    `latents`: of each layer of full attention, [tokens, ...]; `tokens`: where those of the prompt are, one page each.
    """

    def __init__(self, scheduler: Any, request: Any) -> None:
        pool, at = scheduler.req_to_token_pool, request.kv.req_pool_idx
        cache, pages = pool.mamba_pool.mamba_cache, scheduler.token_to_kv_pool_allocator
        assert pages.page_size == 1
        self.states: Tensor = cache.temporal
        self.convolutions: list[Tensor] = list(cache.conv)
        self.slot = int(pool.req_index_to_mamba_index_mapping[at])
        self.latents: list[Tensor] = list(pages.get_kvcache().full_kv_pool.kv_buffer)
        self.tokens: Tensor = pool.req_to_token[at, : len(request.origin_input_ids)].long()


def rounded(tensor: "Tensor") -> "Tensor":
    return tensor.bfloat16().to(tensor.dtype)


def state_zeroed(got: Received) -> None:
    got.states[:, got.slot] = 0


def state_rounded(got: Received) -> None:
    got.states[:, got.slot] = rounded(got.states[:, got.slot])


def states_swapped(got: Received) -> None:
    """Those of the first two layers."""
    got.states[:2, got.slot] = got.states[:2, got.slot].flip(0)


def convolution_zeroed(got: Received) -> None:
    for convolution in got.convolutions:
        convolution[:, got.slot] = 0


def page_zeroed(got: Received) -> None:
    for latents in got.latents:
        latents[got.tokens[len(got.tokens) // 2]] = 0


def page_of_another_token(got: Received) -> None:
    """Two pages that change places are no damage: without positions, attention does not see their order."""
    for latents in got.latents:
        latents[got.tokens[len(got.tokens) // 2]] = latents[got.tokens[0]].clone()


def pages_rounded(got: Received) -> None:
    for latents in got.latents:
        latents[got.tokens] = rounded(latents[got.tokens])


DAMAGES: dict[str, Callable[[Received], None]] = {
    "none": lambda got: None,
    "KDA state zeroed": state_zeroed,
    "KDA state rounded to bf16": state_rounded,
    "KDA states of two layers swapped": states_swapped,
    "convolution zeroed": convolution_zeroed,
    "KV page zeroed": page_zeroed,
    "KV page of another token": page_of_another_token,
    "KV rounded to bf16": pages_rounded,
}
replaced_names.AFTER_IMPORT["sglang.srt.disaggregation.decode"] = (install,)
_shadowed = Path(replaced_names.__file__).with_name("sitecustomize.py")
_spec = importlib.util.spec_from_file_location("cpu_sitecustomize", _shadowed)
assert _spec is not None
assert _spec.loader is not None
_spec.loader.exec_module(importlib.util.module_from_spec(_spec))
