#!/usr/bin/env python3
"""torch's grouped GEMM on the shapes of `bench/gpu --only experts`: the two products of one layer of Qwen3-30B-A3B's experts
in bf16, slots sorted by expert already, without gathering, activation, routing weights and sums.

    python3 bench/peers/torch_experts.py >> build/bench-gpu.jsonl       after bench/gpu, and before bench/tables

Every token has 8 different experts of 128 at random, as src/ops/moe/moe_linear.c draws them. Weights are out of the cache when
a call begins. Exit status 77 without a GPU."""
import torch

from gpu_timing import need_gpu, random, row

EXPERTS, USED, HIDDEN, FFN = 128, 8, 2048, 768
TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def main():
    need_gpu()
    peer = f"torch {torch.__version__} _grouped_mm, the two products alone"
    up, down = random(EXPERTS, 2 * FFN, HIDDEN), random(EXPERTS, HIDDEN, FFN)
    for n in TOKENS:
        slots = n * USED
        chosen = torch.rand(n, EXPERTS, device="cuda").topk(USED, dim=1).indices
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
        ends = counts.cumsum(0).to(torch.int32)
        x, h = random(slots, HIDDEN), random(slots, FFN)

        def products():
            torch._grouped_mm(x, up.transpose(1, 2), offs=ends)
            torch._grouped_mm(h, down.transpose(1, 2), offs=ends)
        used = int((counts > 0).sum())
        row(f"experts 30B-A3B bf16 {n}", peer, products, 2 * used * 3 * HIDDEN * FFN + 2 * slots * (2 * HIDDEN + 3 * FFN),
            6 * slots * HIDDEN * FFN)


main()
