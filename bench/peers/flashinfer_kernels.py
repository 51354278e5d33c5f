#!/usr/bin/env python3
"""FlashInfer's kernels on the shapes of bench/gpu, one JSON line a row and variant under the same row names.

    python3 bench/peers/flashinfer_kernels.py [--build] [rows] [decode] [prefill] [sampling] >> build/bench-gpu.jsonl

Needs flashinfer-python (0.6.6 and 0.7.2.post1 were used), which compiles a module at its first call, up to 90 seconds each.
--build does only that: start it for each section at once, in the background, before anything is timed. Where a row has
several variants (fa2 and fa3, with tensor cores and without, pages of 16 and of 64 tokens) the fastest counts. Exit status 77
without a GPU or FlashInfer."""
import statistics, sys, time

import torch

import gpu_timing
from gpu_timing import first_call, need_gpu, random, row

PAGES, DIM, KV_HEADS, HIDDEN, INNER, VOCAB = (16, 64), 128, 8, 4096, 12288, 151936
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


def shapes_of(shapes):
    """The first alone where nothing but compiling is wanted: a module serves all of them."""
    return list(shapes)[:1] if gpu_timing.only_build else shapes


def rows(fi, peer):
    """Norms, rope and silu. About 2 us of a figure are the events', as in our rows that are timed cold."""
    weight, head_weight, table = random(HIDDEN), random(DIM), torch.randn(40960, DIM, device="cuda")
    for n in shapes_of(TOKENS):
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
    page = PAGES[0]
    pages = -(-(before + each) // page)
    cache = tuple(torch.zeros(seqs * pages, page, KV_HEADS, DIM, device="cuda", dtype=bf16) for _ in range(2))
    ids = torch.randperm(seqs * pages, device="cuda").to(int32)
    start = torch.arange(seqs + 1, device="cuda", dtype=int32) * pages
    last = torch.full((seqs,), (before + each - 1) % page + 1, device="cuda", dtype=int32)
    seq = torch.arange(seqs, device="cuda", dtype=int32).repeat_interleave(each)
    position = (torch.arange(each, device="cuda", dtype=int32) + before).repeat(seqs)
    k, v = random(n, KV_HEADS, DIM), random(n, KV_HEADS, DIM)
    if gpu_timing.only_build:
        first_call("store random", peer, lambda: fi.append_paged_kv_cache(k, v, seq, position, cache, ids, start, last))
    row(f"store random {n}", peer, lambda: fi.append_paged_kv_cache(k, v, seq, position, cache, ids, start, last),
        4 * n * KV_HEADS * DIM * 2)


def paged(lengths, page):
    """(cache, page ids, starts, length of last pages) of sequences of these lengths; the last two on the host."""
    pages = torch.tensor([-(-n // page) for n in lengths])
    total = int(pages.sum())
    cache = tuple(random(total, page, KV_HEADS, DIM) for _ in range(2))
    ids = torch.randperm(total, device="cuda").to(int32)
    start = torch.cat([torch.zeros(1, dtype=torch.int64), pages.cumsum(0)]).to(int32)
    return cache, ids, start, torch.tensor([(n - 1) % page + 1 for n in lengths], dtype=int32)


def plan_row(name, peer, plan):
    """Median microseconds of the host's plan, until the device has it."""
    times = []
    for _ in range(11):
        begin = time.perf_counter()
        plan()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e6)
    print(f'{{"row": "{name}", "method": "host", "peer": "{peer}", "us": {statistics.median(times):.1f}}}', flush=True)


def decode_shapes():
    """(row, query heads, lengths)"""
    for heads, shapes in ((32, ((1, 1024), (1, 4096), (1, 32768), (8, 4096), (32, 4096), (64, 2048), (128, 1024), (256, 512))),
                          (16, ((1, 1024), (32, 4096), (128, 1024), (256, 512), (256, 896))), (40, ((32, 4096), (256, 512)))):
        for n, length in shapes:
            yield f"{heads}/{KV_HEADS} {n} x {length}", heads, [length] * n
    for heads in (32, 16):
        yield f"{heads}/{KV_HEADS} 64 of 100 to 4006", heads, [100 + 62 * i for i in range(64)]


def decode(fi, peer):
    workspace = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    for name, heads, lengths in shapes_of(decode_shapes()):
        q = random(len(lengths), heads, DIM)
        out = torch.empty_like(q)
        for page in PAGES:
            cache, ids, start, last = paged(lengths, page)
            for cores in (False, True):
                if not cores and heads // KV_HEADS not in (1, 2, 4, 8):
                    continue
                w = fi.BatchDecodeWithPagedKVCacheWrapper(workspace, kv_layout="NHD", use_tensor_cores=cores, backend="fa2")

                def plan():
                    w.plan(start, ids, last, heads, KV_HEADS, DIM, page, q_data_type=bf16, kv_data_type=bf16, data_type=bf16)
                kind = f"{peer}, {'tensor' if cores else 'CUDA'} cores, pages of {page}"
                first_call(f"decode {name}", kind, lambda: (plan(), w.run(q, cache)))
                if page == PAGES[0] and not gpu_timing.only_build:
                    plan_row(f"plan decode {name}", kind, plan)
                row(f"decode {name}", kind, lambda: w.run(q, cache, out=out), 2 * sum(lengths) * KV_HEADS * DIM * 2)


def prefill_shapes():
    """(row, query heads, new tokens of each sequence, tokens of each)"""
    for heads in (32, 16):
        for n, length in ((1, 2048), (1, 4096), (1, 8192), (8, 2048), (64, 256)):
            yield f"{heads}/{KV_HEADS} {n} x {length}", heads, [length] * n, [length] * n
        mixed = [146 * (i + 1) for i in range(7)]
        yield f"{heads}/{KV_HEADS} 7 of 146 to 1022", heads, mixed, mixed
        yield f"{heads}/{KV_HEADS} 64 behind 8192", heads, [64], [8192 + 64]


def prefill(fi, peer):
    workspace = torch.zeros(256 << 20, dtype=torch.uint8, device="cuda")
    for name, heads, new, lengths in shapes_of(prefill_shapes()):
        q = random(sum(new), heads, DIM)
        out = torch.empty_like(q)
        q_start = torch.tensor([sum(new[:i]) for i in range(len(new) + 1)], dtype=int32)
        pairs = sum(q_n * (n - q_n) + q_n * (q_n + 1) // 2 for q_n, n in zip(new, lengths))
        for page in PAGES:
            cache, ids, start, last = paged(lengths, page)
            for backend in ("fa2", "fa3"):
                kind = f"{peer} {backend}, pages of {page}"
                try:
                    w = fi.BatchPrefillWithPagedKVCacheWrapper(workspace, kv_layout="NHD", backend=backend)
                    w.plan(q_start.cuda(), start.cuda(), ids, last.cuda(), heads, KV_HEADS, DIM, page, causal=True,
                           q_data_type=bf16, kv_data_type=bf16)
                    first_call(f"prefill {name}", kind, lambda: w.run(q, cache))
                except Exception as e:
                    print(f"{kind}: {e!r}"[:300], file=sys.stderr)
                    continue
                row(f"prefill {name}", kind, lambda: w.run(q, cache, out=out), flops=4 * heads * DIM * pairs)


def sampling(fi, peer):
    """softmax(logits, temperature) and top-k, top-p sampling of its result: two kernels for what is one row of ours."""
    for n in shapes_of((1, 32, 256)):
        logits, temperature = torch.randn(n, VOCAB, device="cuda"), torch.full((n,), 0.6, device="cuda")
        k, p = torch.full((n,), 50, device="cuda", dtype=int32), torch.full((n,), 0.9, device="cuda")

        def both():
            probs = fi.sampling.softmax(logits, temperature, enable_pdl=True)
            return fi.sampling.top_k_top_p_sampling_from_probs(probs, k, p)
        first_call(f"sample {n}", peer, both)
        row(f"sample {n}", peer + ", softmax + top-k top-p", both, 4 * n * VOCAB)


def main():
    gpu_timing.only_build = "--build" in sys.argv
    wanted = [a for a in sys.argv[1:] if a != "--build"] or list(SECTIONS)
    if not set(wanted) <= set(SECTIONS):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        sys.exit(2)
    need_gpu()
    fi, peer = load()
    for name in wanted:
        globals()[name](fi, peer)


if __name__ == "__main__":
    main()
