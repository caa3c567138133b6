"""A driver for Triton's JIT on a machine without a GPU: it answers what is asked before a compilation, and no more."""

# mypy: ignore-errors

import torch
import worker
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

THREADS_PER_WARP = 32
MAX_SHARED_BYTES = 232448


class Binaries:
    """Stands for the CUDA driver where nothing is loaded."""

    def unload_module(self, module):
        return None

    def get_device_properties(self, device):
        return {
            "max_shared_mem": MAX_SHARED_BYTES, "max_num_regs": 65536, "multiprocessor_count": 132, "warpSize": 32,
            "sm_clock_rate": 1980000, "mem_clock_rate": 3201000, "mem_bus_width": 6144,
        }  # fmt: skip


class OfflineDriver(DriverBase):
    def __init__(self, arch, binaries=None):
        self.target = GPUTarget("cuda", arch, THREADS_PER_WARP)
        self.utils = binaries or Binaries()

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
