"""Runs the `run` of adapter.py in the sandbox: compiled under a driver that records launches, or interpreted.

Unlike a candidate's, a peer's Python may use torch operations: those that compute are counted as launches of their own.
A tensor that `run` returns stands for the output `out`, which the engine would use as it is.
"""

# mypy: ignore-errors

import hashlib
import importlib.util
import inspect
import json
import os
import sys
from pathlib import Path

STAGE = Path("/stage")
REQUEST = json.loads((STAGE / "request.json").read_text())
INTERPRETED = REQUEST["mode"] == "interpret"
if INTERPRETED:
    os.environ["TRITON_INTERPRET"] = "1"
sys.path[:0] = ["/scripts", str(STAGE)]

import numpy as np
import torch
import worker
from offline import Binaries, OfflineDriver
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime import driver, interpreter


class Operations(TorchDispatchMode):
    """Counts the torch operations that would be launches of their own."""

    seen = ()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name not in worker.ALLOCATIONS | worker.VIEWS:
            self.seen = (*self.seen, name)
        return func(*args, **(kwargs or {}))


class OnGpu(torch.Tensor):
    """A CPU tensor that says it is on a GPU: wrappers choose grids by that."""

    @property
    def device(self):
        return torch.device("cuda", 0)


class Cubins(Binaries):
    """Keeps a cubin and hands out its digest as the function handle."""

    def load_binary(self, name, cubin, shared, device):
        key = hashlib.sha256(cubin).hexdigest()
        (STAGE / "cubins").mkdir(exist_ok=True)
        (STAGE / "cubins" / f"{key}.cubin").write_bytes(cubin)
        return key, key, 0, 0, 1024


class Recorder(OfflineDriver):
    """Compiles for real and notes each launch; there is no GPU."""

    def __init__(self, arch):
        super().__init__(arch, Cubins())
        self.launcher_cls = self.launcher
        self.launches, self.names = [], {}

    def argument(self, kind, value):
        if not kind.startswith("*"):
            return {"type": kind, "value": worker.plain(value)}
        storage = value.untyped_storage()
        name = self.names.setdefault(storage.data_ptr(), (f"scratch_{len(self.names)}", value))[0]
        return {"type": kind, "buffer": name, "offset_bytes": value.data_ptr() - storage.data_ptr()}

    def launcher(self, source, metadata):
        kernel = source.fn

        def launch(x, y, z, stream, function, packed, launch_metadata, enter, leave, *arguments):
            values = dict(zip(kernel.arg_names, arguments, strict=True))
            kinds = {name: kind for name, kind in source.signature.items() if kind != "constexpr"}
            self.launches.append({
                "kernel": kernel.fn.__name__, "source": hashlib.sha256(inspect.getsource(kernel.fn).encode()).hexdigest(),
                "grid": [x, y, z], "cubin": function, "num_warps": metadata.num_warps, "num_stages": metadata.num_stages,
                "num_ctas": metadata.num_ctas, "shared_bytes": metadata.shared, "constexprs": {}, "scalars": {},
                "global_scratch_bytes": metadata.global_scratch_size, "scratch_bytes": {}, "specialised": {},
                "arguments": [self.argument(kind, values[name]) for name, kind in kinds.items()],
            })  # fmt: skip

        return launch


def adapter():
    spec = importlib.util.spec_from_file_location("adapter", STAGE / "adapter.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run


def compiled(run):
    recorder, found, operations = Recorder(REQUEST["arch"]), {}, {}
    driver.set_active(recorder)
    for call in REQUEST["calls"]:
        tensors = {
            x["name"]: torch.Tensor._make_subclass(OnGpu, torch.empty(x["shape"], dtype=getattr(torch, x["dtype"])))
            for x in call["arguments"]
            if "shape" in x
        }
        recorder.launches = []
        recorder.names = {x.untyped_storage().data_ptr(): (name, x) for name, x in tensors.items()}
        with Operations() as counted:
            result = run(
                *(x["value"] if "value" in x else tensors[x["name"]] for x in call["arguments"]), **REQUEST["launch"]
            )
        scratch = {
            name: x.untyped_storage().nbytes() for name, x in recorder.names.values() if name.startswith("scratch_")
        }
        returned = recorder.names.get(result.untyped_storage().data_ptr()) if result is not None else None
        for launch in recorder.launches:
            for argument in launch["arguments"]:
                if returned and argument.get("buffer") == returned[0]:
                    argument["buffer"] = "out"
            used = {x.get("buffer") for x in launch["arguments"]}
            launch["scratch_bytes"] = {name: size for name, size in scratch.items() if name in used}
        found[call["workload"]], operations[call["workload"]] = recorder.launches, counted.seen
    return {"workloads": found, "operations": operations}


def interpreted(run):
    from counts import Counts

    counts, original, arrays, moved = Counts(), interpreter.InterpretedFunction.run, {}, {}
    counts.install()

    def counted(kernel, *args, **kwargs):
        with counts.launch(kernel):
            return original(kernel, *args, **kwargs)

    interpreter.InterpretedFunction.run = counted
    stored = np.load(STAGE / "inputs.npz", allow_pickle=False)
    for call in REQUEST["calls"]:
        name, specs = call["workload"], {x["name"]: x for x in call["arguments"] if "shape" in x}
        given = {
            n: torch.from_numpy(stored[f"{name}/{n}"]).to(getattr(torch, x["dtype"]))
            for n, x in specs.items()
            if x["role"] != "out"
        }
        kept, outputs = {n: given[n].clone() for n, x in specs.items() if x["role"] == "in_place"}, []
        counts.begin()
        for step in range(call["steps"]):
            now = {
                n: given[n][step] if x["role"] == "step" else given[n] for n, x in specs.items() if n in given
            } | kept
            out = torch.full(specs["out"]["shape"], torch.nan, dtype=getattr(torch, specs["out"]["dtype"]))
            now["out"] = out
            result = run(
                *(x["value"] if "value" in x else now[x["name"]] for x in call["arguments"]), **REQUEST["launch"]
            )
            outputs.append((out if result is None else result.reshape(out.shape)).float().clone())
        moved[name] = sum(x["unique_bytes"] for x in counts.kernels.values()) / call["steps"]
        arrays |= {f"{name}/out": torch.stack(outputs).numpy()} | {
            f"{name}/{n}": x.float().numpy() for n, x in kept.items()
        }
    np.savez(STAGE / "outputs.npz", **arrays)
    return {"unique_bytes": moved}


def main():
    torch.set_num_threads(1)
    if INTERPRETED:
        import rounding

        rounding.install()
        broken = rounding.self_test()
        if broken is not None:
            worker.write_result(REQUEST, fault=f"the interpreter cannot be trusted: {broken}")
            return
    try:
        run = adapter()
        found = interpreted(run) if INTERPRETED else compiled(run)
    except Exception as error:  # noqa: BLE001 - what a peer raises is the result
        worker.write_result(REQUEST, fault=f"{type(error).__name__}: {str(error)[:400]}")
        return
    worker.write_result(REQUEST, fault=None, **found)


main()
