"""Named GPUs, and how many programs of a kernel fit on one of their multiprocessors (SMs).

Numbers of SMs and bandwidths are the vendor's, for the whole GPU; nothing here was measured.
"""

from tasks.records import Record

# Per SM, the same for sm_90 and sm_100.
MAX_WARPS = 64
MAX_PROGRAMS = 32
REGISTERS = 65536
REGISTER_GRANULE = 8
SHARED_BYTES = 233472
RESERVED_SHARED_BYTES = 1024


class Gpu(Record):
    """`bandwidth_bytes_s` of HBM. `source` names where both figures are published."""

    name: str
    arch: int
    sms: int
    bandwidth_bytes_s: float
    source: str


H200 = Gpu(name="H200", arch=90, sms=132, bandwidth_bytes_s=4.8e12, source="NVIDIA H200 data sheet")
B200 = Gpu(name="B200", arch=100, sms=148, bandwidth_bytes_s=8e12, source="NVIDIA HGX B200 data sheet")
GPUS = (H200, B200)


class Occupancy(Record):
    """Programs that fit on one SM, and the resource that allows no more. 0 if not even one fits."""

    programs: int
    limited_by: str


def gpu_of(arch: int) -> Gpu | None:
    """The GPU that stands for an architecture."""
    return next((gpu for gpu in GPUS if gpu.arch == arch), None)


def occupancy(num_warps: int, registers: int, shared_bytes: int) -> Occupancy:
    """`registers` per thread, `shared_bytes` per program."""
    held = -(-registers // REGISTER_GRANULE) * REGISTER_GRANULE * 32 * num_warps
    fits = {
        "registers": REGISTERS // max(1, held),
        "shared memory": SHARED_BYTES // (shared_bytes + RESERVED_SHARED_BYTES),
        "warps": MAX_WARPS // num_warps,
        "programs": MAX_PROGRAMS,
    }
    least = min(fits, key=lambda name: fits[name])
    return Occupancy(programs=fits[least], limited_by=least)


def waves(gpu: Gpu, programs: int, per_sm: int) -> float | None:
    """How often the GPU is filled: below 1, some of it stays empty. None if a program does not fit."""
    return programs / (gpu.sms * per_sm) if per_sm else None


def floor_us(gpu: Gpu, moved_bytes: float) -> float:
    """Microseconds below which nothing that moves so many bytes can end: an estimate from the vendor's bandwidth."""
    return 1e6 * moved_bytes / gpu.bandwidth_bytes_s
