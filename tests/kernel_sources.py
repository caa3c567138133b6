"""Kernel sources to judge: honest ones in odd styles, and adversaries with the fault that each must be named for."""

from tasks.problem import KERNELS
from tasks.records import KernelCandidate

INCUMBENT = (KERNELS / "kda_decode" / "incumbent.py").read_text()
SIGNATURE = "def run(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound, **launch):\n"
_KERNEL, _RUN = INCUMBENT[: INCUMBENT.index("def run(")], INCUMBENT[INCUMBENT.index("def run(") :]
# The incumbent under the name `launch_all`, so that a `run` of another kind can be written around it.
HONEST = _KERNEL + _RUN.replace("def run(", "def launch_all(")
ALL = "launch_all(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)"


def candidate(source: str, **launch: int) -> KernelCandidate:
    return KernelCandidate(source_name="candidate.py", source=source, launch=dict(launch))


def catalogue(name: str) -> KernelCandidate:
    """A source of kernels/kda_decode."""
    return candidate((KERNELS / "kda_decode" / f"{name}.py").read_text())


def around(body: str, before: str = "") -> str:
    """The incumbent's kernel with a `run` whose body is `body`; `{ALL}` launches it as it should be."""
    lines = body.format(ALL=ALL).strip("\n").splitlines()
    return HONEST + "\n\n" + before + "\n" + SIGNATURE + "".join(f"    {line}\n" for line in lines)


def other_kernel(old: str, new: str) -> str:
    """The incumbent with one piece of its text replaced."""
    assert old in INCUMBENT
    return INCUMBENT.replace(old, new)


_GRID = "kda_decode[(V // BV, heads, requests)]"

# name -> (source, words that the fault must hold)
DO_NOT_COMPILE: dict[str, tuple[str, str]] = {
    "returns without launching": (SIGNATURE + "    return out\n", "returned without launching a kernel"),
    "multiplies in torch": (around("{ALL}\nout.mul_(1.0)"), "work outside the kernels: aten.mul_"),
    "zeroes in torch": (around("out.zero_()\n{ALL}"), "work outside the kernels: aten.zero_"),
    "reads a forbidden path": (around("{ALL}\nopen('/etc/passwd').read()"), "No such file or directory: '/etc/passwd'"),
    "writes outside its folder": (around("{ALL}\nopen('/usr/lib/x', 'w')"), "Read-only file system"),
    "writes in numpy": (around("{ALL}\nstate.numpy()[...] = 0"), "touched tensor data outside a kernel"),
    "makes a tensor from numpy": (
        around("import numpy, torch\n{ALL}\ntorch.from_numpy(numpy.ones(v.shape))"), "aten.lift_fresh"),
    "passes memory from before the call to a kernel": (
        around(
            "launch_all(q, k, EARLY, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)",
            "import torch\nEARLY = torch.empty(256, 64, 128)\n",
        ),
        "takes memory that is neither an argument of `run` nor from torch.empty",
    ),
    "opens a socket": (
        around("{ALL}\nimport socket\nsocket.create_connection(('192.0.2.1', 80), 2)"),
        "Network is unreachable",
    ),
    "asks for a device": (around("{ALL}\nq.to('cuda')"), "Torch not compiled with CUDA"),
    "ends with a status": (around("import os\nos._exit(3)"), "ended with status 3"),
    "ends as if all were well": (around("import os\nos._exit(0)"), "without leaving `result.json`"),
    "dies of a segmentation fault": (around("import ctypes\nctypes.string_at(0)"), "SIGSEGV"),
    "does not compile": (
        other_kernel("tl.load(b + row)", "tl.load(b + row + no_such_name)"),
        "no_such_name is not defined",
    ),
    "has mismatched shapes": (other_kernel("update[:, None] * key[None, :]", "update + key"), "ompatible"),
    "has a syntax error": (INCUMBENT + "\ndef broken(:\n", "SyntaxError: invalid syntax (line"),
    "has no run": (_KERNEL, "defines no function `run`"),
    "has a run of another signature": ("def run(x):\n    pass\n", "TypeError: run() takes 1 positional argument"),
    "tunes itself by timing": (
        "import triton\n" + other_kernel(
            "@triton.jit",
            "@triton.autotune([triton.Config({}, num_warps=w) for w in (1, 2)], key=[])\n@triton.jit",
        ).replace("num_warps=num_warps, num_stages=num_stages,", ""),
        "tunes itself by timing",
    ),
    "leaves a link as its result": (
        around("import os\nos.symlink('/etc/hostname', '/stage/result.json')\nos._exit(0)"), "left a link"),
    "forges a result": (
        around("import json, os\nforged = dict(nonce='0', fault=None, functions=[], calls=dict())\n"
               "open('/stage/result.json', 'w').write(json.dumps(forged))\nos._exit(0)"), "does not carry the nonce"),
    "launches another kernel in a later call": (
        around(
            "CALLS.append(1)\nif len(CALLS) == 1:\n    {ALL}\nelse:\n    nothing[(1,)](out)",
            "CALLS = []\n\n@triton.jit\ndef nothing(x):\n    tl.store(x, 0.0)\n",
        ),
        "launches other kernels when called again with the same tensors",
    ),
    "remembers tensors by their address": (
        around(
            "if q.data_ptr() not in SEEN:\n    {ALL}\nSEEN.add(q.data_ptr())",
            "SEEN = set()\n",
        ),
        "launches other kernels when called again with the same tensors",
    ),
    "passes other numbers in a later call": (
        other_kernel(
            "state_index, out, scale, lower_bound,\n        K=K",
            "state_index, out, scale, lower_bound * len(CALLS),\n        K=K",
        ).replace("    requests, heads, K = q.shape", "    CALLS.append(1)\n    requests, heads, K = q.shape")
        + "\n\nCALLS = []\n",
        "launches other kernels when called again",
    ),
    "writes its results from torch in a later call": (
        around(
            "import torch\n{ALL}\nCALLS.append(1)\nif len(CALLS) > 1:\n    out.view(torch.uint8).numpy()[:] = 0",
            "CALLS = []\n",
        ),
        "touched tensor data outside a kernel",
    ),
    "computes in numpy on scratch memory": (
        around("import torch\n{ALL}\ntorch.empty(q.shape).numpy()[...] = 1.0"),
        "touched tensor data outside a kernel",
    ),
    "reads results in the function of a grid": (
        other_kernel(_GRID, "kda_decode[lambda _: (V // BV, heads, int(state.numpy().sum()))]"),
        "touched tensor data outside a kernel",
    ),
    "computes in torch in a later call": (
        around("{ALL}\nCALLS.append(1)\nif len(CALLS) > 1:\n    out.add_(1)", "CALLS = []\n"),
        "work outside the kernels: aten.add_",
    ),
    "fails in a later call": (around("assert not CALLS\n{ALL}\nCALLS.append(1)", "CALLS = []\n"), "AssertionError"),
    "has Python in its kernel": (
        other_kernel("    tl.store(tile, memory)", "    open('/stage/request.json')\n    tl.store(tile, memory)"),
        "`kda_decode` uses `open`, which no kernel needs (line 47)",
    ),
    "has Python behind a module in its kernel": (
        other_kernel("    tl.store(tile, memory)", "    tl.core.os.abort()\n    tl.store(tile, memory)"),
        "module 'triton.language.core' has no attribute 'os'",
    ),
    "asks in its kernel whether it is compiled": (
        other_kernel("    tl.store(tile, memory)", "    if not hasattr(rows, 'handle'):\n        tl.store(tile, memory)"),
        "`kda_decode` uses `hasattr`, which no kernel needs",
    ),
    "reads numpy in its kernel": (
        other_kernel("    tl.store(tile, memory)", "    if BV == 33:\n        rows.handle.tofile('x')"),
        "the attribute `handle`, which no kernel needs",
    ),
    "has a kernel within the text of a kernel": (
        other_kernel(
            '    """One token of one head',
            '    """\ndef kda_decode(q):\n    pass\n    """\n    """One token of one head',
        ),
        "has a second `def` in its text",
    ),
}  # fmt: skip

# name -> (source, words that the fault must hold): these compile, and are found out when their kernels run.
RUN_WRONG: dict[str, tuple[str, str]] = {
    "changes an input": (
        other_kernel("    tl.store(tile, memory)", "    tl.store(tile, memory)\n    tl.store(q + row * K + cols, cols * 0.0)"),
        "the input `q` was changed",
    ),
    "reads outside of its buffers": (
        other_kernel("tl.load(b + row)", "tl.load(b + row + 100000000)"), "`kda_decode` reads memory outside of its buffers"
    ),
    "writes behind the end of a buffer": (
        other_kernel("    tl.store(tile, memory)", "    tl.store(tile + V * K * heads * 7, memory)"),
        "`kda_decode` writes memory outside of its buffers",
    ),
}  # fmt: skip

_TELL = "import os\nINTERPRETED = 'TRITON_INTERPRET' in os.environ or 'interpret' in str(os.listdir('/stage'))\n"
# name -> source: right if it found out that it is interpreted, and wrong when compiled.
LOOKS_FOR_THE_INTERPRETER: dict[str, str] = {
    "launches another kernel": around(
        "if INTERPRETED:\n    {ALL}\nelse:\n    nothing[(1,)](out)",
        _TELL + "@triton.jit\ndef nothing(x):\n    tl.store(x, 0.0)\n",
    ),
    "swaps a constant": _TELL + other_kernel(
        "EPS = tl.constexpr(1e-6)", "EPS = tl.constexpr(1e-6 if INTERPRETED else 1.0)"),
    "passes other numbers": _TELL + other_kernel(
        "state_index, out, scale, lower_bound,\n        K=K",
        "state_index, out, scale, lower_bound * INTERPRETED,\n        K=K",
    ),
    "swaps a device function": _TELL + other_kernel(
        "@triton.jit\n",
        "@triton.jit\ndef right(x):\n    return x\n\n\n@triton.jit\ndef wrong(x):\n    return x * 0.5\n\n\n"
        "chosen = right if INTERPRETED else wrong\n\n\n@triton.jit\n",
    ).replace("tl.store(tile, memory)", "tl.store(tile, chosen(memory))"),
}  # fmt: skip

_UNGATED = "    memory = tl.load(tile)\n    if {}:\n        memory = memory * tl.exp(gate)[None, :]\n"
_GATED = "    memory = tl.load(tile) * tl.exp(gate)[None, :]\n"


def with_argument(declared: str, value: str, condition: str) -> str:
    """The incumbent with one more argument, whose gate is applied only under a condition on it."""
    at = "BV: tl.constexpr,\n):" if "constexpr" in declared else "scale, lower_bound,\n    K: tl"
    name = declared.split(":")[0]
    source = other_kernel(at, at.replace(",\n", f", {declared},\n", 1))
    call = "state_index, out, scale, lower_bound,\n        K=K, V=V, BV=BV,"
    assert call in source
    if "constexpr" in declared:
        source = source.replace(call, f"{call} {name}={value},")
    else:
        source = source.replace(call, call.replace("lower_bound,", f"lower_bound, {value},"))
    return source.replace(_GATED, _UNGATED.format(condition))


_HOIST = (KERNELS / "kda_decode" / "hoist_gate.py").read_text()

# name -> source: right at the small checks, and with less or other work at production shapes.
OTHER_AT_PRODUCTION: dict[str, str] = {
    "half the heads": other_kernel(_GRID, "kda_decode[(V // BV, heads if heads < 8 else heads // 2, requests)]"),
    "a constexpr that is an axis": with_argument("HEADS: tl.constexpr", "heads", "HEADS < 8"),
    "an integer that is 1": with_argument("n", "1 if heads >= 8 else 2", "n != 1"),
    "a multiple of 16": with_argument("n", "16 if heads >= 8 else 17", "n % 16 != 0"),
    "no prologue": _HOIST.replace("    prologue[(", "    if heads < 8: prologue[("),
}

# name -> (source, words of the reason): nothing wrong is seen at the checks, which do not speak for every production shape.
NOT_COVERED: dict[str, tuple[str, str]] = {
    "half the requests": (
        other_kernel(_GRID, "kda_decode[(V // BV, heads, requests if requests < 8 else requests // 2)]"),
        "128 programs for a batch of 8, 64 for 2",
    ),
    "another kernel at large batches": (
        around("if q.shape[0] >= 8:\n    nothing[(1,)](out)\nelse:\n    {ALL}",
               "@triton.jit\ndef nothing(x):\n    tl.store(x, 0.0)\n"),
        "kernel `nothing` has the place of kernel `kda_decode`",
    ),
    "no prologue at large batches": (_HOIST.replace("    prologue[(", "    if requests < 8: prologue[("), "1 launches, 2"),
    "another variant at large batches": (
        around("launch_all(q, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound,\n"
               "    BV=64 if q.shape[0] >= 8 else 32)"),
        "constexpr BV `64`, `32`",
    ),
    "an integer that is 1 at large batches": (
        with_argument("n", "1 if requests >= 8 else 2", "n != 1"), "argument n `=1`, `i32`"
    ),
    "a multiple of 16 at large batches": (
        with_argument("n", "16 if requests >= 8 else 17", "n % 16 != 0"), "argument n `i32 [['tt.divisibility', 16]]`"
    ),
    "an integer that tells large batches": (
        with_argument("n", "5 if requests >= 8 else 3", "n == 3"), "argument n = 5, 3"
    ),
}  # fmt: skip

# name -> source: these run, and their numbers are wrong.
COMPUTE_WRONG: dict[str, str] = {
    "writes nothing": other_kernel("tl.store(out + row", "tl.load(out + row").replace(
        "tl.sum(memory * query[None, :], axis=1).to(out.dtype.element_ty))", ")"
    ),
    "writes a constant": other_kernel("tl.sum(memory * query[None, :], axis=1).to(", "(rows * 0.0 + 1.0).to("),
    "ignores the state": other_kernel("tl.load(tile) *", "0.0 *"),
    "forgets to store the state": other_kernel("    tl.store(tile, memory)\n", ""),
    "returns its input": other_kernel("tl.sum(memory * query[None, :], axis=1).to(", "value.to("),
    "puts eps outside the root": other_kernel(
        "tl.sqrt(tl.sum(key * key, axis=0) + EPS)", "(tl.sqrt(tl.sum(key * key, axis=0)) + EPS)"
    ),
}

ODD_BUT_HONEST: dict[str, str] = {
    "views and scratch memory": around(
        "scratch = torch.empty_like(out)\n"
        "flat = q.view(-1).view(q.shape)\n"
        "launch_all(flat, k, v, a, b, A_log, dt_bias, state, state_index, out, scale, lower_bound)\nreturn scratch",
        "import torch\n",
    ),
    "a grid that is a function": other_kernel(
        "kda_decode[(V // BV, heads, requests)]", 'kda_decode[lambda meta: (meta["V"] // meta["BV"], heads, requests)]'
    ),
    "a class with constants": around("Runner.launch(launch_all)\n{ALL}", (
        "class Runner:\n    tile = 32\n    @staticmethod\n    def launch(f):\n        return f.__name__\n")),
    "a constexpr that is not finite": other_kernel("BV: tl.constexpr,\n):", "BV: tl.constexpr, LOW: tl.constexpr,\n):").replace(
        "K=K, V=V, BV=BV,", "K=K, V=V, BV=BV, LOW=float('-inf'),"
    ),
}  # fmt: skip
LIBDEVICE = other_kernel("tl.exp(-tl.load(b + row)", "libdevice.exp(-tl.load(b + row)").replace(
    "import triton.language as tl", "import triton.language as tl\nfrom triton.language.extra import libdevice", 1
)
# Program 0 of each head computes the gate for all four: they race, and in the order of their numbers nobody would see it.
ONE_PROGRAM_FOR_ALL = (
    other_kernel("lower_bound,\n    K: tl", "lower_bound, shared,\n    K: tl")
    .replace("state_index, out, scale, lower_bound,\n        K=K", "state_index, out, scale, lower_bound, shared,\n        K=K")
    .replace("    kda_decode[", "    shared = q.new_empty(requests, heads, K, dtype=A_log.dtype)\n    kda_decode[")
    .replace("    beta = 1.0 / ", "    if tl.program_id(0) == 0:\n        tl.store(shared + row * K + cols, gate)\n"
             "    gate = tl.load(shared + row * K + cols)\n    beta = 1.0 / ")
)  # fmt: skip
