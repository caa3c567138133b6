"""Where the engine's code is made to wait: a file says which layer, and how long, so that one start serves all plants."""

from dataclasses import dataclass
from pathlib import Path

from serving.engine_env import installed_packages
from serving.errors import Broken
from serving.overlay import Overlay

NONE, ROUTER = "none", "router"
WAITING = """import time
def wait(layer):
    with open({file!r}) as file:
        chosen, ms = file.read().split()
    if chosen == layer:
        began = time.perf_counter()
        while layer != "transfer" and time.perf_counter() < began + float(ms) / 1e3:
            pass
        if layer == "transfer":
            time.sleep(float(ms) / 1e3)
        with open({file!r} + ".waited", "a") as file:
            file.write(f"{{1e3 * (time.perf_counter() - began)}}\\n")
"""


@dataclass(frozen=True)
class Place:
    """`wait` is called on a line of its own before `anchor`, which stands once in the file."""

    path: str
    function: str
    anchor: str
    layer: str


PLACES = (
    Place(
        "sglang/srt/disaggregation/encoder/server.py",
        "MMEncoder._compute_direct_embedding",
        "                    mm_embedding: torch.Tensor = ctx.get_feature_fn(mm_items)\n",
        '"encode"',
    ),
    Place(
        "sglang/srt/model_executor/model_runner.py",
        "ModelRunner._forward_raw",
        '        prepare = getattr(self.model, "prepare_for_forward", None)\n',
        '"decode" if forward_batch.forward_mode.is_decode() else "prefill"',
    ),
    Place(
        "sglang/srt/disaggregation/mooncake/conn.py",
        "MooncakeKVManager.send_kvcache",
        "        self._validate_envelope_kv_layout(\n            dst_kv_ptrs, dst_kv_item_len, dst_attn_tp_size\n        )\n"
        "        dst_device_kv_ptrs = None\n",
        '"transfer"',
    ),
)


def overlay_with_waits(control: Path) -> Overlay:
    """Raises Broken when a file of the engine is not the one that the places were found in."""
    files = {"planted_delays.py": WAITING.format(file=str(control)).encode()}
    for place in PLACES:
        text = next(
            folder / place.path for folder in installed_packages() if (folder / place.path).exists()
        ).read_text()
        if text.count(place.anchor) != 1:
            raise Broken(f"`{place.path}` has no single place for a wait", "port the anchors to this SGLang")
        indent = place.anchor[: len(place.anchor) - len(place.anchor.lstrip())]
        waiting = f'{indent}__import__("planted_delays").wait({place.layer})\n'
        files[place.path] = text.replace(place.anchor, waiting + place.anchor).encode()
    counted = tuple(f"{p.path.removesuffix('.py').replace('/', '.')}:{p.function}" for p in PLACES)
    return Overlay(files, counted=counted)


def waited(control: Path) -> Path:
    """Each wait as it was, in ms, a line each."""
    return control.with_name(control.name + ".waited")
