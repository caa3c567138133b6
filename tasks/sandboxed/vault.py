"""Memory for tensors that a candidate can pass to kernels and cannot touch itself: work in numpy would not be counted.

Pages are inaccessible while the candidate's Python runs; touching them is a SIGSEGV. Against attacks on this module from
within the process it is no defence.
"""

# mypy: ignore-errors

import ctypes
import mmap
from contextlib import contextmanager

import torch

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_CLOSED, _OPEN = 0, mmap.PROT_READ | mmap.PROT_WRITE


class Vault:
    def __init__(self):
        self.given, self.allocated, self.known, self.closed = [], [], set(), False

    def empty(self, shape, dtype, stride=None, keep=None):
        """A tensor on pages of its own. `keep` is the list that holds it; by default that of the candidate's scratch."""
        meta = torch.empty_strided(shape, stride, device="meta", dtype=dtype) if stride else torch.empty(
            shape, device="meta", dtype=dtype)  # fmt: skip
        size = meta.untyped_storage().nbytes()
        if size == 0:
            return torch.empty(shape, dtype=dtype)
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        tensor = torch.frombuffer(memory, dtype=dtype).as_strided(meta.shape, meta.stride())
        (self.allocated if keep is None else keep).append(tensor)
        self.known.add(tensor.untyped_storage().data_ptr())
        self._protect(tensor, _CLOSED if self.closed else _OPEN)
        return tensor

    def give(self, tensors):
        """Copies of `tensors` in protected memory, in place of those that were given before."""
        self.given = []
        return {name: self.empty(x.shape, x.dtype, keep=self.given).copy_(x) for name, x in tensors.items()}

    def holds(self, tensor):
        return tensor.numel() == 0 or tensor.untyped_storage().data_ptr() in self.known

    def _protect(self, tensor, access):
        storage = tensor.untyped_storage()
        if _libc.mprotect(storage.data_ptr(), storage.nbytes(), access) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def set(self, closed):
        for tensor in (*self.given, *self.allocated):
            self._protect(tensor, _CLOSED if closed else _OPEN)
        self.closed = closed

    @contextmanager
    def closing(self, closed=True):
        before = self.closed
        self.set(closed)
        try:
            yield
        finally:
            self.set(before)
