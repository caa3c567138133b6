"""Loads the cubins of both arms, launches them as described, and times them. Argument: a folder with request.json.

Runs on a GPU machine in a process of its own, because a faulty kernel takes the CUDA context with it. No candidate
source is loaded here. Not yet run on a GPU.
"""

# mypy: ignore-errors

import ctypes
import hashlib
import importlib.util
import json
import struct
import sys
import time
from pathlib import Path

import torch

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
SHARED_WITHOUT_ASKING = 48 << 10
WARM_UP = 3
POISON = 0xFF  # NaN in every float type
SCALARS = {
    "i1": ctypes.c_int8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "fp32": ctypes.c_float, "fp64": ctypes.c_double,
}  # fmt: skip


class KernelFault(Exception):
    """A launch that the driver refuses or that fails on the GPU."""


class Driver:
    """The four calls of the CUDA driver that a launch needs."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.functions = {}

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(status, ctypes.byref(text))
            raise KernelFault(f"{name}: {(text.value or b'').decode()} ({status})")

    def function(self, path, launch):
        key = (str(path), launch["kernel"])
        if key not in self.functions:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(module), path.read_bytes())
            self.call("cuModuleGetFunction", ctypes.byref(function), module, launch["kernel"].encode())
            if launch["shared_bytes"] > SHARED_WITHOUT_ASKING:
                self.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, launch["shared_bytes"])
            self.functions[key] = function
        return self.functions[key]


def pack(arguments, addresses):
    """ctypes values in the order of the machine code; the two null pointers are Triton's unused scratch and profile."""
    values = []
    for x in arguments:
        if x["type"].startswith("*"):
            values.append(ctypes.c_uint64(addresses[x["buffer"]] + x["offset_bytes"]))
        elif x["type"] in SCALARS:
            value = x["value"]  # a number that is not finite has no JSON, so it comes by name
            values.append(SCALARS[x["type"]](float(value) if isinstance(value, str) else value))
        else:
            raise KernelFault(f"an argument of type `{x['type']}` cannot be launched here")
    return [*values, ctypes.c_uint64(0), ctypes.c_uint64(0)]


def text_sha256(cubin):
    """sha256 of the first `.text` section of an ELF."""
    table, (size, count, names) = struct.unpack_from("<Q", cubin, 40)[0], struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * size) for i in range(count)]
    for x in sections:
        start = sections[names][4] + x[0]
        if cubin[start : start + 6] == b".text.":
            return hashlib.sha256(cubin[x[4] : x[4] + x[5]]).hexdigest()
    raise KernelFault("a cubin without machine code")


class Cycle:
    """All launches of one arm for the steps of one cycle, ready to go. `tensors`: those of each step, by name; `first`:
    what they hold before the cycle; `exact`: right results after it."""

    def __init__(self, driver, arm, workload, request, reference):
        self.driver, self.scratch, self.launches = driver, {}, []
        self.tensors, self.first, self.exact = prepare(request, reference, workload)
        for step in self.tensors:
            for launch in workload["launches"]:
                self.launches.append(self.prepared(arm, launch, step))

    def prepared(self, arm, launch, tensors):
        if launch["num_ctas"] != 1 or launch["global_scratch_bytes"]:
            raise KernelFault("clusters and device-side descriptors cannot be launched here")
        for name, size in launch["scratch_bytes"].items():
            self.scratch.setdefault(name, torch.empty(size, dtype=torch.uint8, device="cuda"))
        addresses = {name: x.data_ptr() for name, x in (tensors | self.scratch).items()}
        function = self.driver.function(Path(arm["cubins"], f"{launch['cubin']}.cubin"), launch)
        values = pack(launch["arguments"], addresses)
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(x) for x in values))
        return function, launch["grid"], launch["num_warps"] * 32, launch["shared_bytes"], pointers, values

    def go(self, stream):
        for function, grid, threads, shared, pointers, _ in self.launches:
            self.driver.call("cuLaunchKernel", function, *grid, threads, 1, 1, shared, stream, pointers, None)


def timed_us(cycle, flush):
    """Microseconds per step of a whole cycle. The flush keeps the queue full, so no launch gap before it is timed."""
    for tensors in cycle.tensors:
        for name in tensors.keys() & cycle.first.keys():
            tensors[name].copy_(cycle.first[name])
    for memory in cycle.scratch.values():  # what a kernel keeps there from call to call is lost
        memory.fill_(POISON)
    flush.zero_()
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    before.record()
    cycle.go(stream)
    after.record()
    torch.cuda.synchronize()
    return before.elapsed_time(after) * 1e3 / len(cycle.tensors)


def error(found, exact, used):
    """Relative Frobenius error; integers: how many differ. None if anything is not finite."""
    found, exact = found[used], exact[used]
    if not exact.is_floating_point():
        return (found.long() != exact.long()).sum().item()
    if not torch.isfinite(found.float()).all():
        return None
    return ((found.double() - exact).norm() / exact.norm()).item()


def prepare(request, reference, workload):
    """(tensors of each step of a cycle, what is changed in place at its start, exact results after its last step)."""
    fixed, per_step = reference.make_inputs(workload, workload["axes"], request["seed"])
    fixed = {n: x.cuda() for n, x in fixed.items()}
    changed = {x["name"] for x in workload["results"] if x["in_place"]}
    first, kept, steps = {n: fixed[n].clone() for n in changed}, {n: fixed[n] for n in changed}, []
    shapes = {x["name"]: x for x in workload["arguments"] if x.get("role") == "out"}
    for i in range(workload["steps"]):
        now = {n: x[i].contiguous().cuda() for n, x in per_step.items()}
        exact = reference.step({**fixed, **now, **kept}, workload["scalars"])
        kept = {n: exact[n] for n in changed}
        out = {n: torch.empty(x["shape"], dtype=getattr(torch, x["dtype"]), device="cuda") for n, x in shapes.items()}
        steps.append({**fixed, **now, **out})
    first |= {n: torch.full(x["shape"], torch.nan, device="cuda").to(out[n].dtype) for n, x in shapes.items()}
    used = {
        x["name"]: per_step.get(x["slots"], fixed.get(x["slots"])).long().unique().cuda() if x["slots"] else slice(None)
        for x in workload["results"]
    }
    return steps, first, {x: (exact[x], used[x]) for x in used}


def measure(request, result, reference):
    driver, flush = Driver(), torch.empty(request["flush_bytes"], dtype=torch.uint8, device="cuda")
    for workload, orders in request["orders"].items():
        cycles = {}
        for name, arm in request["arms"].items():
            result["fault_of"] = name
            cycles[name] = Cycle(driver, arm, arm["workloads"][workload], request, reference)
            for launch in arm["workloads"][workload]["launches"]:
                content = Path(arm["cubins"], f"{launch['cubin']}.cubin").read_bytes()
                result["loaded"].setdefault(name, {})[launch["cubin"]] = text_sha256(content)
            for _ in range(WARM_UP):
                timed_us(cycles[name], flush)
        for order in orders:
            for name in order:
                result["fault_of"], cycle = name, cycles[name]
                started = time.time()
                spent = timed_us(cycle, flush)
                sample = {"workload": workload, "arm": name, "time_us": spent, "started_s": started}
                result["samples"].append(sample)
                if order is orders[-1]:
                    found = {x: error(cycle.tensors[-1][x], *cycle.exact[x]) for x in cycle.exact}
                    result["errors"].setdefault(name, {})[workload] = found
    result["fault_of"] = None


def main(folder):
    request = json.loads(Path(folder, "request.json").read_text())
    torch.cuda.init()
    torch.empty(1, device="cuda")
    Path(folder, "reference.py").write_text(request["reference"])
    spec = importlib.util.spec_from_file_location("reference", Path(folder, "reference.py"))
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    result = {"nonce": request["nonce"], "samples": [], "errors": {}, "loaded": {}, "fault_of": None, "fault": None}
    try:
        measure(request, result, reference)
    except (KernelFault, torch.AcceleratorError) as fault:
        result["fault"] = str(fault).splitlines()[0]
    Path(folder, "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
