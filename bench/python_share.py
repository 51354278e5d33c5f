#!/usr/bin/env python3
"""How much of the time the Python binding takes: the same sequences through `vitrine bench offline` and through
`LLM.generate`, in turn. To be run in an environment that has the wheel (docs/python.md):

    build/python/bin/python bench/python_share.py -m smollm2-135m

Two figures. The rates of both side by side, whose difference is as noisy as the machine; and the CPU time of the thread that
called generate, which is all that the binding does (the engine computes on its own threads), as a share of the process's.
"""
import argparse, json, os, random, statistics, subprocess, tempfile, time

import vitrine


def offline(a, lengths):
    out = subprocess.run(["vitrine", "bench", "offline", "--lengths", lengths, "--json", "-m", a.model, "--device", "cpu",
                          "--max-running", str(a.batch), "--max-context", str(a.input + a.output)],
                         check=True, capture_output=True, text=True)
    return json.loads(out.stdout)["output_tokens_per_s"]


def binding(a, llm):
    prompts = [[random.randrange(100, 2000) for _ in range(a.input)] for _ in range(a.batch)]
    wall, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
    results = llm.generate(prompts, max_tokens=a.output, ignore_eos=True)
    wall, thread, process = time.perf_counter() - wall, time.thread_time() - thread, time.process_time() - process
    tokens = sum(r.completion_tokens for r in results)
    return tokens / wall, thread / process, thread / tokens


def streams(a, llm):
    """The same with a piece of text for each token, by one thread: the dearest use of the binding."""
    prompts = [[random.randrange(100, 2000) for _ in range(a.input)] for _ in range(a.batch)]
    thread, process = time.thread_time(), time.process_time()
    open_ = [llm.stream(p, max_tokens=a.output, ignore_eos=True) for p in prompts]
    tokens = 0
    for s in open_:
        for _ in s:
            pass
        tokens += s.result.completion_tokens
    return (time.thread_time() - thread) / (time.process_time() - process), (time.thread_time() - thread) / tokens


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-m", "--model", default="smollm2-135m")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--input", type=int, default=32)
    p.add_argument("--output", type=int, default=64)
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".lengths") as f:
        f.write(f"{a.input} {a.output}\n" * a.batch)
        f.flush()
        rates, bound = [], []
        with vitrine.LLM(a.model, device="cpu", max_running=a.batch, max_context=a.input + a.output) as llm:
            binding(a, llm)
            for _ in range(a.rounds):
                rates.append(offline(a, f.name))
                bound.append(binding(a, llm))
            piecewise = streams(a, llm)
    rate, through = statistics.median(rates), statistics.median(b[0] for b in bound)
    share, each = statistics.median(b[1] for b in bound), statistics.median(b[2] for b in bound)
    print(f"batch {a.batch}, {a.input} tokens in, {a.output} out, {a.rounds} rounds in turn, medians")
    print(f"bench offline {rate:.0f} tokens/s ({min(rates):.0f}-{max(rates):.0f}), "
          f"LLM.generate {through:.0f} ({min(b[0] for b in bound):.0f}-{max(b[0] for b in bound):.0f}): {through / rate - 1:+.1%}")
    print(f"the calling thread takes {share:.2%} of the CPU time, {each * 1e6:.2f} us a token")
    print(f"streams read piece by piece: {piecewise[0]:.2%}, {piecewise[1] * 1e6:.2f} us a token")


main()
