#!/usr/bin/env python3
"""cuBLAS, through torch, on the shapes of `bench/gpu --only gemm,gemv`: y = x W^T in bf16, without activation or residual.

    python3 bench/peers/torch_gemm.py >> build/bench-gpu.jsonl       after bench/gpu, and before bench/tables

One weight matrix and one x, in device memory and out of the cache when a call begins, as bench/gpu_kernels.c has them. Also
torch's copy, index_select, two index_copy_ (its way to store K and V) and argmax. Exit status 77 without a GPU."""
import torch

from gpu_timing import need_gpu, random, row

LAYERS = {"0.6B qkv": (4096, 1024), "0.6B o": (1024, 2048), "0.6B gate+up": (6144, 1024), "0.6B down": (1024, 3072),
          "0.6B head": (151936, 1024), "8B qkv": (6144, 4096), "8B o": (4096, 4096), "8B gate+up": (24576, 4096),
          "8B down": (4096, 12288), "8B head": (151936, 4096)}
TOKENS = (1, 8, 64, 256, 2048, 8192)


def copy():
    source, to = random(1 << 28), random(1 << 28)
    row("copy 512 MiB", "torch", lambda: to.copy_(source), 2 * source.numel() * 2)


def gather_and_scatter():
    table = random(151936, 4096)
    for n in (1, 256, 16384):
        ids, out = torch.randint(0, 151936, (n,), device="cuda"), torch.empty(n, 4096, device="cuda", dtype=torch.bfloat16)
        row(f"index 4096 {n}", "torch index_select", lambda: torch.index_select(table, 0, ids, out=out), 2 * n * 4096 * 2)
        k, v, pool = random(n, 1024), random(n, 1024), [random(max(n, 64), 1024) for _ in range(2)]
        slots = torch.randperm(n, device="cuda")

        def store():
            pool[0].index_copy_(0, slots, k)
            pool[1].index_copy_(0, slots, v)
        row(f"store random {n}", "two index_copy_ of torch", store, 4 * n * 1024 * 2)


def main():
    need_gpu()
    peer = f"cuBLAS, torch {torch.__version__}"
    copy()
    gather_and_scatter()
    for name, (rows, cols) in LAYERS.items():
        weight = random(rows, cols)
        for n in TOKENS:
            if "head" in name and n > 256:
                continue
            x, y = random(n, cols), torch.empty(n, rows, device="cuda", dtype=torch.bfloat16)
            row(f"linear {name} {n}", peer, lambda: torch.mm(x, weight.t(), out=y), 2 * (rows * cols + n * (rows + cols)),
                2 * n * rows * cols)
    for n in (1, 32, 256):
        logits = torch.randn(n, 151936, device="cuda")
        row(f"greedy {n}", "torch argmax", lambda: logits.argmax(-1), 4 * logits.numel())


main()
