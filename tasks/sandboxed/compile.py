"""Compiles what a candidate asked to launch, from the text of its kernels. The candidate itself never runs here.

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
from buffers import Buffers
from offline import Binaries, OfflineDriver
from rebuilt import rebuild, value
from triton.runtime import driver

MAX_THREADS = 1024


class Cubins(Binaries):
    """Keeps a cubin and hands out its digest as the function handle."""

    def load_binary(self, name, cubin, shared, device):
        key = hashlib.sha256(cubin).hexdigest()
        (worker.STAGE / "cubins").mkdir(exist_ok=True)
        (worker.STAGE / "cubins" / f"{key}.cubin").write_bytes(cubin)
        return key, key, 0, 0, MAX_THREADS


def specialised(source, values):
    """What the JIT assumed of each argument beyond its value at run time: its type, being 1, and alignment."""
    attributes = {source.fn.arg_names[path[0]]: str(attrs) for path, attrs in source.attrs.items() if attrs}
    fixed = {name for name, kind in source.signature.items() if kind == "constexpr"}
    return {
        name: f"={worker.plain(values[name])}" if name in fixed else f"{kind} {attributes.get(name, '')}".strip()
        for name, kind in source.signature.items()
    }


class RecordingDriver(OfflineDriver):
    """Notes each launch in `launches`."""

    def __init__(self, arch):
        super().__init__(arch, Cubins())
        self.launcher_cls = self.launcher
        self.start(None)

    def start(self, buffers):
        self.launches, self.buffers = [], buffers

    def argument(self, kind, value):
        if not kind.startswith("*"):
            return {"type": kind, "value": worker.plain(value)}, None
        name, size, offset = self.buffers.place(value)
        return {"type": kind, "buffer": name, "offset_bytes": offset}, (name, size)

    def launcher(self, source, metadata):
        kernel = source.fn

        def launch(x, y, z, stream, function, packed, launch_metadata, enter, leave, *arguments):
            values = dict(zip(kernel.arg_names, arguments, strict=True))
            passed = [self.argument(kind, values[n]) for n, kind in source.signature.items() if kind != "constexpr"]
            self.launches.append({
                "scalars": worker.scalars({p.name: values[p.name] for p in kernel.params if not p.is_constexpr}),
                "specialised": specialised(source, values),
                "arguments": [described for described, _ in passed],
                "scratch_bytes": dict(used for _, used in passed if used and used[0].startswith("scratch_")),
                "kernel": kernel.fn.__name__, "source": kernel.recorded_digest, "grid": [x, y, z],
                "constexprs": {p.name: worker.plain(values[p.name]) for p in kernel.params if p.is_constexpr},
                "cubin": function, "num_warps": metadata.num_warps, "num_stages": metadata.num_stages,
                "num_ctas": metadata.num_ctas, "shared_bytes": metadata.shared,
                "global_scratch_bytes": metadata.global_scratch_size,
            })  # fmt: skip

        return launch


def compile_call(call, functions, recorder):
    """All launches of one workload, compiled."""
    given = {
        x["name"]: torch.empty(x["shape"], dtype=getattr(torch, x["dtype"])) for x in call["arguments"] if "shape" in x
    }
    buffers = Buffers(given)
    recorder.start(buffers)
    for launch in call["launches"]:
        arguments = {name: buffers.argument(x, functions) for name, x in launch["arguments"].items()}
        options = {name: value(x, functions) for name, x in launch["options"].items()}
        functions[launch["function"]][tuple(launch["grid"])](**arguments, **options)
    return recorder.launches


def main():
    request = worker.read_request()
    torch.set_num_threads(1)
    recorder = RecordingDriver(request["arch"])
    driver.set_active(recorder)
    try:
        functions = rebuild(request["functions"])
        workloads = {x["workload"]: compile_call(x, functions, recorder) for x in request["calls"]}
    except Exception as error:  # noqa: BLE001 - what a candidate's kernels raise is the result
        worker.write_result(request, fault=worker.describe(error), workloads={})
        return
    worker.write_result(request, fault=None, workloads=workloads)


main()
