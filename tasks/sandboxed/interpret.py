"""Runs the candidate in the Triton interpreter on given inputs: its results, and what it launched, to files.

Inputs come from inputs.npz (`workload/name`, per-step inputs with a leading axis), results go to outputs.npz as
float32. Outputs are filled with NaN before each call; a write to them from outside a kernel is a fault.
"""

# mypy: ignore-errors

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, os.path.dirname(__file__))

import inspect

import numpy as np
import rounding
import torch
import worker
from counts import Counts
from triton.language.extra import libdevice
from triton.runtime import interpreter
from vault import Vault

POISON = 77


class Launches:
    """Notes each interpreted launch, and that results change nowhere else."""

    def __init__(self, watch):
        self.watch, self.seen, self.written = watch, [], {}
        self.snapshots = {}
        self.lacking = False
        self.counts = Counts()

    def install(self):
        self.counts.install()
        run = interpreter.InterpretedFunction.run
        set_grid = interpreter.interpreter_builder.set_grid_dim

        def note_grid(x, y, z):
            self.seen[-1]["grid"] = [x, y, z]
            set_grid(x, y, z)

        def note_run(kernel, *args, grid, warmup, **kwargs):
            paused, self.watch.paused = self.watch.paused, True
            try:
                if kernel.pre_run_hooks:
                    raise worker.CandidateFault(f"`{kernel.__name__}` has hooks that run before it")
                source = worker.source_digest(kernel)
                constexprs, others = parameters(kernel.fn, args, kwargs)
                self.seen.append({"kernel": kernel.__name__, "source": source, "grid": [1, 1, 1],
                                  "constexprs": constexprs, "scalars": worker.scalars(others)})  # fmt: skip
                for value in filter(lambda x: hasattr(x, "untyped_storage"), others.values()):
                    self.watch.own(kernel.__name__, value)
                with self.watch.vault.closing(False):
                    self.unchanged_outside()
                    with self.counts.launch(kernel):
                        result = run(kernel, *args, grid=self.out_of_reach(grid), warmup=warmup, **kwargs)
                    self.snapshot()
            finally:
                self.watch.paused = paused
            return result

        for name in ("create_extern_elementwise", "create_inline_asm"):
            setattr(interpreter.interpreter_builder, name, self.noting_the_lack(name.removeprefix("create_")))
        for name, function in inspect.getmembers(libdevice, callable):
            if getattr(function, "__module__", None) == libdevice.__name__:
                setattr(libdevice, name, self.noting_the_lack(f"libdevice.{name}"))
        interpreter.interpreter_builder.set_grid_dim = note_grid
        interpreter.InterpretedFunction.run = note_run

    def noting_the_lack(self, name):
        """Of the interpreter, which has no such operation: no fault of a candidate whose kernel compiles."""

        def lack(*args, **kwargs):
            self.lacking = True
            raise NotImplementedError(f"{name} is not supported in the interpreter")

        return lack

    def out_of_reach(self, grid):
        """A grid that is a function is the candidate's Python, too."""
        if not callable(grid):
            return grid

        def compute(meta):
            with self.watch.vault.closing():
                return grid(meta)

        return compute

    def watch_results(self, results):
        self.written = results
        self.snapshot()

    def snapshot(self):
        self.snapshots = {name: x.clone() for name, x in self.written.items()}

    def unchanged_outside(self):
        for name, before in self.snapshots.items():
            if not bits_equal(before, self.written[name]):
                raise worker.CandidateFault(f"`{name}` was written outside the kernels")


def bits_equal(x, y):
    return torch.equal(x.view(torch.uint8), y.view(torch.uint8))


def parameters(function, args, kwargs):
    """(constexprs as JSON, all other arguments), by name."""
    known = inspect.signature(function).parameters
    bound = inspect.getcallargs(function, *args, **{k: v for k, v in kwargs.items() if k in known})
    fixed = {n for n, p in known.items() if "constexpr" in str(getattr(p.annotation, "__name__", p.annotation))}
    constexprs = {name: worker.plain(value) for name, value in bound.items() if name in fixed}
    return constexprs, {name: value for name, value in bound.items() if name not in fixed}


def run_step(entry, request, check, tensors, launches, watch):
    """One call. `tensors` holds this step's inputs; results are changed in place."""
    results = {x["name"]: tensors[x["name"]] for x in check["arguments"] if x.get("role") in ("out", "in_place")}
    inputs = {name: x for name, x in tensors.items() if name not in results}
    before = {name: x.clone() for name, x in inputs.items()}
    launches.seen = []
    launches.watch_results(results)
    arguments = [x["value"] if "value" in x else tensors[x["name"]] for x in check["arguments"]]
    with watch.vault.closing(), watch:
        entry(*arguments, **{**request["launch"], **check["options"]})
    launches.unchanged_outside()
    launches.snapshots = {}
    watch.complain()
    for name, x in before.items():
        if not bits_equal(x, inputs[name]):
            raise worker.CandidateFault(f"the input `{name}` was changed")


def load_inputs(check, stored, specs):
    """Every given tensor of a run, in the dtype of its argument; of a twin, the entries that it takes of each axis."""
    given = {}
    for name, x in specs.items():
        if x["role"] == "out":
            continue
        tensor = torch.from_numpy(stored[f"{check['of']}/{name}"]).to(getattr(torch, x["dtype"]))
        for axis, entries in check["take"].items():
            if axis in x["axes"]:
                dim = x["axes"].index(axis) + (x["role"] == "step")
                tensor = tensor.index_select(dim, torch.tensor(entries))
        given[name] = tensor.contiguous()
    return given


def step_tensors(given, specs, step):
    """Fresh copies for one call; outputs hold NaN, or a number that is no likely answer."""
    tensors = {}
    for name, x in specs.items():
        if x["role"] == "out":
            poison = torch.nan if x["dtype"].startswith(("float", "bfloat")) else POISON
            tensors[name] = torch.full(x["shape"], poison).to(getattr(torch, x["dtype"]))
        elif x["role"] != "in_place":
            tensors[name] = (given[name][step] if x["role"] == "step" else given[name]).clone()
    return tensors


def takes_options(entry, check):
    """Whether `run` has the options of a twin by name."""
    known = inspect.signature(entry).parameters
    return all(name in known for name in check["options"])


def copy_slots(check, stored, step, kept):
    """What the caller does before a step: the contents of one slot to another."""
    source, target = stored[f"{check['of']}/{check['copies']}"][step].tolist() if check["copies"] else (-1, -1)
    if source >= 0:
        for name in check["slotted"]:
            kept[name][target] = kept[name][source]


def run_check(entry, request, check, stored, launches, watch):
    """All steps of one regime. Returns (arrays by name, launches of the first step or of one that differs from it)."""
    specs = {x["name"]: x for x in check["arguments"] if "shape" in x}
    given = load_inputs(check, stored, specs)
    kept = {name: given[name].clone() for name, x in specs.items() if x["role"] == "in_place"}
    outputs = {name: [] for name, x in specs.items() if x["role"] == "out"}
    usual, shown = None, []
    launches.counts.begin()
    for step in range(check["steps"]):
        copy_slots(check, stored, step, kept)
        tensors = watch.vault.give(step_tensors(given, specs, step) | kept)
        run_step(entry, request, check, tensors, launches, watch)
        kept = {name: tensors[name] for name in kept}
        if step + 1 == check["counted_steps"]:
            launches.counts.keep(check["workload"])
        usual = launches.seen if usual is None else usual
        if not shown or launches.seen != usual:
            shown = launches.seen
        for name, collected in outputs.items():
            collected.append(tensors[name].float().clone())
    arrays = {name: torch.stack(x).numpy() for name, x in outputs.items()}
    return arrays | {name: x.float().numpy() for name, x in kept.items()}, shown


def main():
    request = worker.read_request()
    torch.set_num_threads(1)
    rounding.install()
    broken = rounding.self_test()
    if broken is not None:
        worker.write_result(request, self_test=broken, fault=None, workloads={})
        return
    watch = worker.WorkOutside(Vault())
    launches = Launches(watch)
    launches.install()
    arrays, workloads, skipped = {}, {}, []
    try:
        entry = worker.load_entry(request["entry"])
        with np.load(worker.STAGE / "inputs.npz", allow_pickle=False) as stored:
            for check in request["checks"]:
                if not takes_options(entry, check):
                    skipped.append(check["workload"])
                    continue
                found, workloads[check["workload"]] = run_check(entry, request, check, stored, launches, watch)
                arrays |= {f"{check['workload']}/{name}": x for name, x in found.items()}
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is the result
        kind = "unsupported" if launches.lacking else "fault"
        worker.write_result(
            request, **{"self_test": None, "fault": None, "workloads": {}, kind: worker.describe(error)}
        )
        return
    np.savez(worker.STAGE / "outputs.npz", nonce=np.array(request["nonce"]), **arrays)
    counted = launches.counts.kept
    worker.write_result(request, self_test=None, fault=None, workloads=workloads, skipped=skipped, counted=counted)


main()
