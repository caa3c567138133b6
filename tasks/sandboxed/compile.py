"""Calls the candidate's `run` on empty CPU tensors under a driver that compiles for real and records launches.

The JIT specialises exactly as it would on a GPU: same alignments, same integers, same constexprs. Writes each cubin
under the sha256 of its bytes, and result.json: the launches of every workload, or the candidate's fault.
"""

# mypy: ignore-errors

import hashlib
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))

import torch
import worker
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import driver
from vault import Vault

THREADS_PER_WARP = 32
MAX_SHARED_BYTES = 232448
MAX_THREADS = 1024


class Binaries:
    """Stands for the CUDA driver: keeps a cubin and hands out its digest as the function handle."""

    def load_binary(self, name, cubin, shared, device):
        key = hashlib.sha256(cubin).hexdigest()
        (worker.STAGE / "cubins").mkdir(exist_ok=True)
        (worker.STAGE / "cubins" / f"{key}.cubin").write_bytes(cubin)
        return key, key, 0, 0, MAX_THREADS

    def unload_module(self, module):
        return None

    def get_device_properties(self, device):
        return {
            "max_shared_mem": MAX_SHARED_BYTES, "max_num_regs": 65536, "multiprocessor_count": 132, "warpSize": 32,
            "sm_clock_rate": 1980000, "mem_clock_rate": 3201000, "mem_bus_width": 6144,
        }  # fmt: skip


def specialised(source, values):
    """What the JIT assumed of each argument beyond its value at run time: its type, being 1, and alignment."""
    attributes = {source.fn.arg_names[path[0]]: str(attrs) for path, attrs in source.attrs.items() if attrs}
    fixed = {name for name, kind in source.signature.items() if kind == "constexpr"}
    return {
        name: f"={worker.plain(values[name])}" if name in fixed else f"{kind} {attributes.get(name, '')}".strip()
        for name, kind in source.signature.items()
    }


class RecordingDriver(DriverBase):
    """Answers what the JIT asks before it compiles, and notes each launch in `launches`."""

    def __init__(self, arch):
        self.target = GPUTarget("cuda", arch, THREADS_PER_WARP)
        self.utils = Binaries()
        self.start({})
        self.launcher_cls = self.launcher

    def start(self, named):
        """Forget earlier launches; `named` are the tensors that `run` is given."""
        self.launches = []
        self.names = {tensor.untyped_storage().data_ptr(): name for name, tensor in named.items()}
        # Kept alive, so that no address is given out twice during a call.
        self.alive = []

    def buffer(self, tensor):
        """Name of the memory behind a tensor: an argument of `run`, or scratch that the candidate allocated."""
        storage = tensor.untyped_storage()
        self.alive.append(tensor)
        return self.names.setdefault(storage.data_ptr(), f"scratch_{len(self.names)}"), storage.nbytes()

    def argument(self, kernel, kind, value):
        if not kind.startswith("*"):
            return {"type": kind, "value": worker.plain(value)}, None
        self.watch.own(kernel, value)
        name, size = self.buffer(value)
        offset = value.data_ptr() - value.untyped_storage().data_ptr()
        return {"type": kind, "buffer": name, "offset_bytes": offset}, (name, size)

    def launcher(self, source, metadata):
        kernel = source.fn

        def launch(x, y, z, stream, function, packed, launch_metadata, enter, leave, *arguments):
            values = dict(zip(kernel.arg_names, arguments, strict=True))
            passed = [
                self.argument(kernel.fn.__name__, kind, values[n])
                for n, kind in source.signature.items()
                if kind != "constexpr"
            ]
            self.launches.append({
                "scalars": worker.scalars({p.name: values[p.name] for p in kernel.params if not p.is_constexpr}),
                "specialised": specialised(source, values),
                "arguments": [described for described, _ in passed],
                "scratch_bytes": dict(used for _, used in passed if used and used[0].startswith("scratch_")),
                "kernel": kernel.fn.__name__, "source": worker.source_digest(kernel), "grid": [x, y, z],
                "constexprs": {p.name: worker.plain(values[p.name]) for p in kernel.params if p.is_constexpr},
                "cubin": function, "num_warps": metadata.num_warps, "num_stages": metadata.num_stages,
                "num_ctas": metadata.num_ctas, "shared_bytes": metadata.shared,
                "global_scratch_bytes": metadata.global_scratch_size,
            })  # fmt: skip

        return launch

    @classmethod
    def is_active(cls):
        return True

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return 0

    def set_current_device(self, device):
        return None

    def get_current_stream(self, device=None):
        return 0

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_device_interface(self):
        return torch.cpu

    def map_python_to_cpp_type(self, ty):
        return ty

    def get_empty_cache_for_benchmark(self):
        raise worker.CandidateFault("the source tunes itself by timing; give tile sizes as launch options instead")

    def get_benchmarker(self):
        return lambda *args, **kwargs: self.get_empty_cache_for_benchmark()


def record(request, recorder):
    entry = worker.load_entry(request["entry"])
    workloads, vault = {}, Vault()
    for call in request["calls"]:
        vault.given, vault.allocated = [], []
        tensors = {
            x["name"]: vault.empty(x["shape"], getattr(torch, x["dtype"]), keep=vault.given)
            for x in call["arguments"]
            if "shape" in x
        }
        arguments = [x["value"] if "value" in x else tensors[x["name"]] for x in call["arguments"]]
        recorder.start(tensors)
        recorder.watch = worker.WorkOutside(vault)
        with vault.closing(), recorder.watch as watch:
            entry(*arguments, **request["launch"])
        watch.complain()
        if not recorder.launches:
            raise worker.CandidateFault(f"`{request['entry']}` returned without launching a kernel")
        workloads[call["workload"]] = recorder.launches
    return workloads


def main():
    request = worker.read_request()
    torch.set_num_threads(1)
    recorder = RecordingDriver(request["arch"])
    driver.set_active(recorder)
    try:
        workloads = record(request, recorder)
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is the result
        worker.write_result(request, fault=worker.describe(error), workloads={})
        return
    worker.write_result(request, fault=None, workloads=workloads)


main()
