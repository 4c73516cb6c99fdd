#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Half round trips of NCCL's send and recv, by PyTorch, between the first two GPUs, one process each.

Prints a line for each size: bytes and microseconds. The CPU waits at the end only: each message waits
for the one before it on the GPU.
"""

import argparse
import importlib.util
import os
import sys
import tempfile
import time


def is_here():
    """Whether there are PyTorch with NCCL, and two GPUs."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch
    import torch.distributed

    return torch.cuda.device_count() >= 2 and torch.distributed.is_nccl_available()


def rank_run(rank, options, store):
    """One of the two processes."""
    import torch
    import torch.distributed

    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=2)
    for size in options.sizes:
        message = torch.empty(size, dtype=torch.uint8, device="cuda")
        for turn in range(options.warmup + options.rounds):
            if turn == options.warmup:
                torch.cuda.synchronize()
                torch.distributed.barrier()
                torch.cuda.synchronize()
                begin = time.perf_counter()
            for direction in (0, 1):
                if rank == direction:
                    torch.distributed.send(message, 1 - rank)
                else:
                    torch.distributed.recv(message, 1 - rank)
        torch.cuda.synchronize()
        if rank == 0:
            taken = time.perf_counter() - begin
            print(f"{size} {taken / options.rounds / 2 * 1e6:.4f}", flush=True)
    torch.distributed.destroy_process_group()


def main():
    """Parse the options, and start both processes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only look whether it can run")
    parser.add_argument("--sizes", default="8,1048576", help="bytes, with commas between")
    parser.add_argument("--rounds", type=int, default=1000, help="that are timed")
    parser.add_argument("--warmup", type=int, default=100, help="rounds before those")
    options = parser.parse_args()
    options.sizes = [int(size) for size in options.sizes.split(",")]
    here = is_here()
    if options.check or not here:
        if not options.check:
            print("nccl_latency: needs PyTorch with NCCL, and two GPUs", file=sys.stderr)
        return 0 if here else 1
    import torch.multiprocessing

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_run, (options, os.path.join(folder, "store")), nprocs=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
