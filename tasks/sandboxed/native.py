"""Holds a candidate that runs on CPU: loads it once, then calls its `run` each time the parent asks, on shared memory.

Argument: the number of the shared memory's file descriptor. Standard input is a socket to the parent. What was loaded is
reported before the first line of it runs. Nothing here is trusted afterwards: the parent reads clock and results itself.
"""

# mypy: ignore-errors

import hashlib
import json
import math
import mmap
import os
import socket
import sys

sys.path.insert(0, os.path.dirname(__file__))

import numpy  # noqa: F401 - loaded before the candidate, as in the engine
import torch
import worker

MOST_BYTES = 1 << 20
LIBRARY = worker.CANDIDATE.with_suffix(".cpp.so")


def view(memory, tensor):
    """The tensor at its place in the shared memory."""
    dtype = getattr(torch, tensor["dtype"])
    count = math.prod(tensor["shape"])
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=tensor["offset"]).view(tensor["shape"])


def loaded(request):
    """sha256 of what the candidate is made of, then the candidate's function and its arguments for each workload."""
    digests = [hashlib.sha256(x.read_bytes()).hexdigest() for x in (worker.CANDIDATE, LIBRARY) if x.exists()]
    return {"loaded": digests, "nonce": request["nonce"]}


def serve(channel, memory, request):
    entry = worker.load_entry(request["entry"])
    calls = [[x["value"] if "value" in x else view(memory, x) for x in call["arguments"]] for call in request["calls"]]
    channel.send(b"ready")
    while asked := channel.recv(8):
        entry(*calls[int(asked)], **request["launch"])
        channel.send(b"done")


def main():
    channel, fd = socket.socket(fileno=0), int(sys.argv[1])
    memory = mmap.mmap(fd, os.fstat(fd).st_size)
    os.close(fd)
    torch.set_num_threads(1)
    request = json.loads(channel.recv(MOST_BYTES))
    channel.send(json.dumps(loaded(request)).encode())
    channel.recv(8)  # until the parent has looked at this process
    try:
        with torch.inference_mode():
            serve(channel, memory, request)
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is the result
        channel.send(b"fault " + worker.describe(error).encode()[:2000])


main()
