#!/usr/bin/env python3
"""FlashInfer's kernels on the shapes of bench/gpu, one JSON line a row and variant under the same row names.

    python3 bench/peers/flashinfer_kernels.py [rows] [decode] [prefill] [sampling] > build/flashinfer.jsonl
    bench/gpu --peers build/flashinfer.jsonl

Needs flashinfer-python (0.6.6 and 0.7.2.post1 were used); it compiles its modules at the first call, a minute or more each.
Where a row has several variants (fa2 and fa3, with tensor cores and without) bench/gpu takes the best. Exit status 77 without
a GPU or FlashInfer."""
import statistics, sys, time

import torch

from gpu_timing import first_call, need_gpu, random, row

PAGE, DIM, KV_HEADS, HIDDEN, INNER, VOCAB = 16, 128, 8, 4096, 12288, 151936
SECTIONS = ("rows", "decode", "prefill", "sampling")
TOKENS = (1, 256, 16384)
bf16, int32 = torch.bfloat16, torch.int32


def load():
    try:
        import flashinfer
    except ImportError:
        print("flashinfer is not installed", file=sys.stderr)
        sys.exit(77)
    return flashinfer, "FlashInfer " + flashinfer.__version__


def rows(fi, peer):
    """Norms, rope and silu. A row's figure at one token holds about 2 us of events; ours in a graph does not."""
    weight, head_weight, table = random(HIDDEN), random(DIM), torch.randn(40960, DIM, device="cuda")
    for n in TOKENS:
        x, residual, out = random(n, HIDDEN), random(n, HIDDEN), torch.empty(n, HIDDEN, device="cuda", dtype=bf16)
        heads, gate, mid = random(n, 32, DIM), random(n, 2 * INNER), torch.empty(n, INNER, device="cuda", dtype=bf16)
        qkv, position = random(n, 48 * DIM), torch.randint(0, 40960, (n,), device="cuda", dtype=int32)
        q, k = qkv[:, :32 * DIM], qkv[:, 32 * DIM:40 * DIM]
        calls = (
            ("rmsnorm", lambda: fi.rmsnorm(x, weight, 1e-6, out=out), 2 * n * HIDDEN * 2 + HIDDEN * 2),
            ("add+rmsnorm", lambda: fi.fused_add_rmsnorm(x, residual, weight, 1e-6), 4 * n * HIDDEN * 2 + HIDDEN * 2),
            ("q-head norm", lambda: fi.rmsnorm(heads, head_weight, 1e-6, out=heads), 2 * n * 32 * DIM * 2),
            ("rope", lambda: fi.apply_rope_with_cos_sin_cache_inplace(
                positions=position, query=q, key=k, head_size=DIM, cos_sin_cache=table), 2 * n * 40 * DIM * 2 + 516 * n),
            ("silu", lambda: fi.silu_and_mul(gate, out=mid), 3 * n * INNER * 2))
        for name, call, size in calls:
            if n == TOKENS[0]:
                first_call(name, peer, call)
            row(f"{name} {n}", peer, call, size)
        append(fi, peer, n)


def append(fi, peer, n):
    """append_paged_kv_cache: one new token each up to 256, else sequences of 256."""
    seqs = n if n <= 256 else n // 256
    each, before = n // seqs, 0 if n > 256 else 512
    pages = -(-(before + each) // PAGE)
    cache = tuple(torch.zeros(seqs * pages, PAGE, KV_HEADS, DIM, device="cuda", dtype=bf16) for _ in range(2))
    ids = torch.randperm(seqs * pages, device="cuda").to(int32)
    start = torch.arange(seqs + 1, device="cuda", dtype=int32) * pages
    last = torch.full((seqs,), (before + each - 1) % PAGE + 1, device="cuda", dtype=int32)
    seq = torch.arange(seqs, device="cuda", dtype=int32).repeat_interleave(each)
    position = (torch.arange(each, device="cuda", dtype=int32) + before).repeat(seqs)
    k, v = random(n, KV_HEADS, DIM), random(n, KV_HEADS, DIM)
    row(f"store random {n}", peer, lambda: fi.append_paged_kv_cache(k, v, seq, position, cache, ids, start, last),
        4 * n * KV_HEADS * DIM * 2)


def paged(seqs, length):
    """(cache, page ids, starts, length of last pages); the last two on the host."""
    pages = -(-length // PAGE)
    cache = tuple(random(seqs * pages, PAGE, KV_HEADS, DIM) for _ in range(2))
    ids = torch.randperm(seqs * pages, device="cuda").to(int32)
    return (cache, ids, torch.arange(seqs + 1, dtype=int32) * pages,
            torch.full((seqs,), (length - 1) % PAGE + 1, dtype=int32))


def plan_row(name, peer, plan):
    """Median microseconds of the host's plan, until the device has it."""
    times = []
    for _ in range(11):
        begin = time.perf_counter()
        plan()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e6)
    print(f'{{"row": "{name}", "method": "host", "peer": "{peer}", "us": {statistics.median(times):.1f}}}', flush=True)


def decode(fi, peer):
    workspace = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    shapes = [(32, n, length) for n, length in ((1, 1024), (1, 4096), (1, 32768), (8, 4096), (32, 4096), (64, 2048),
                                                (128, 1024), (256, 512))]
    shapes += [(16, 1, 1024), (16, 32, 4096), (16, 128, 1024), (16, 256, 512), (16, 256, 896), (40, 32, 4096), (40, 256, 512)]
    for heads, n, length in shapes:
        cache, ids, start, last = paged(n, length)
        q = random(n, heads, DIM)
        out = torch.empty_like(q)
        for cores in (False, True):
            if not cores and heads // KV_HEADS not in (1, 2, 4, 8):
                continue
            w = fi.BatchDecodeWithPagedKVCacheWrapper(workspace, kv_layout="NHD", use_tensor_cores=cores, backend="fa2")

            def plan():
                w.plan(start, ids, last, heads, KV_HEADS, DIM, PAGE, q_data_type=bf16, kv_data_type=bf16, data_type=bf16)
            kind = f"{peer}, {'tensor' if cores else 'CUDA'} cores"
            first_call(f"decode {heads}/{KV_HEADS} {n} x {length}", kind, lambda: (plan(), w.run(q, cache)))
            plan_row(f"plan decode {heads}/{KV_HEADS} {n} x {length}", kind, plan)
            row(f"decode {heads}/{KV_HEADS} {n} x {length}", kind, lambda: w.run(q, cache, out=out),
                2 * n * length * KV_HEADS * DIM * 2)


def prefill(fi, peer):
    workspace = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    for heads in (32, 16):
        for n, length in ((1, 2048), (1, 4096), (1, 8192), (8, 2048), (64, 256)):
            cache, ids, start, last = paged(n, length)
            q = random(n * length, heads, DIM)
            out, q_start = torch.empty_like(q), torch.arange(n + 1, dtype=int32) * length
            for backend in ("fa2", "fa3"):
                try:
                    w = fi.BatchPrefillWithPagedKVCacheWrapper(workspace, kv_layout="NHD", backend=backend)
                    w.plan(q_start.cuda(), start.cuda(), ids, last.cuda(), heads, KV_HEADS, DIM, PAGE, causal=True,
                           q_data_type=bf16, kv_data_type=bf16)
                    first_call(f"prefill {heads}/{KV_HEADS} {n} x {length}", f"{peer} {backend}", lambda: w.run(q, cache))
                except Exception as e:
                    print(f"{backend}: {e!r}"[:300], file=sys.stderr)
                    continue
                row(f"prefill {heads}/{KV_HEADS} {n} x {length}", f"{peer} {backend}", lambda: w.run(q, cache, out=out),
                    flops=4 * n * heads * DIM * length * (length + 1) // 2)
    

def sampling(fi, peer):
    """softmax(logits, temperature) and top-k, top-p sampling of its result: two kernels for what is one row of ours."""
    for n in (1, 32, 256):
        logits, temperature = torch.randn(n, VOCAB, device="cuda"), torch.full((n,), 0.6, device="cuda")
        k, p = torch.full((n,), 50, device="cuda", dtype=int32), torch.full((n,), 0.9, device="cuda")

        def both():
            probs = fi.sampling.softmax(logits, temperature, enable_pdl=True)
            return fi.sampling.top_k_top_p_sampling_from_probs(probs, k, p)
        first_call(f"sample {n}", peer, both)
        row(f"sample {n}", peer + ", softmax + top-k top-p", both, 4 * n * VOCAB)


def main():
    wanted = sys.argv[1:] or list(SECTIONS)
    if not set(wanted) <= set(SECTIONS):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        sys.exit(2)
    need_gpu()
    fi, peer = load()
    for name in wanted:
        globals()[name](fi, peer)


if __name__ == "__main__":
    main()
