"""The memory of one step: the tensors that `run` is given, and the scratch that a candidate allocates, by name."""

# mypy: ignore-errors

import torch
import worker
from rebuilt import value


class Buffers:
    def __init__(self, given, poison=None):
        self.poison = poison
        self.tensors = dict(given)
        self.names = {x.untyped_storage().data_ptr(): name for name, x in given.items()}

    def scratch(self, name, size):
        """Fresh memory, full of poison: what is read before it is written shows in the results."""
        if name not in self.tensors:
            if not name.startswith("scratch_"):
                raise worker.CandidateFault(f"`{name}` is no argument of `run`")
            self.tensors[name] = torch.empty(size, dtype=torch.uint8)
            if self.poison is not None:
                self.tensors[name].fill_(self.poison)
            self.names[self.tensors[name].untyped_storage().data_ptr()] = name
        return self.tensors[name]

    def argument(self, x, functions):
        """The value of a recorded argument; a tensor is a view of its buffer."""
        if "items" in x:
            return tuple(self.argument(one, functions) for one in x["items"])
        if "tensor" not in x:
            return value(x, functions)
        view = x["tensor"]
        whole = self.scratch(view["buffer"], view["bytes"])
        flat = whole.view(-1).view(torch.uint8).view(getattr(torch, view["dtype"]))
        return flat.as_strided(view["shape"], view["stride"], view["offset"])

    def place(self, tensor):
        """(name, bytes, offset in bytes) of the memory behind a tensor."""
        storage = tensor.untyped_storage()
        return self.names[storage.data_ptr()], storage.nbytes(), tensor.data_ptr() - storage.data_ptr()
