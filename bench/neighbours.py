#!/usr/bin/env python3
"""How much requests without a constraint slow down when others in their batch have one.

    bench/neighbours.py PROGRAM MODEL [schema|regex] [REQUESTS] [TOKENS] [CONSTRAINED] [ROUNDS] [THREADS]

A server is asked REQUESTS (16) at once for TOKENS (64) tokens each at temperature 1. CONSTRAINED of them (half) have a constraint and the others
are free, then all are free, in turn. The regular expression leaves a choice at every token; the schema (default) has names that are forced, and which a
step computes several tokens of at once; what is compared is the time of a token of the same requests, which are free in both. Prints the median of the rounds
(5) and of their ratios, and the least CPU time of the server that a token of all requests took in a round, which
other work on the machine changes least with THREADS 1 (default: all cores); the first round is not counted."""
import concurrent.futures, glob, json, statistics, subprocess, sys, time, urllib.request

PORT, START_S = 18493, 300
RULES = {"regex": {"structured_outputs": {"regex": "[a-z ,.]{600}"}}, "schema": {"structured_outputs": {"json": {"type": "array", "minItems": 500, "items": {"type": "object", "properties": {
    "name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}}}}}}}}


def post(body):
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return json.load(answer)


def start(program, model, running, threads):
    p = subprocess.Popen([program, "serve", "-m", model, "-q", "--port", str(PORT), "--max-running", str(running), "--threads", threads])
    end = time.monotonic() + START_S
    while True:
        try:
            post({"prompt": "x", "max_tokens": 1})
            return p
        except OSError:
            if p.poll() is not None or time.monotonic() > end:
                sys.exit("the server did not start")
            time.sleep(0.2)


def cpu_ms(pid):
    """CPU time of all threads of a process so far."""
    return sum(int(open(path).read().split()[0]) for path in glob.glob(f"/proc/{pid}/task/*/schedstat")) / 1e6


def token_ms(pool, pid, requests, tokens, constrained, rule):
    """Milliseconds of a token of those that are always free: by the clock, and CPU time of the server."""
    begin = cpu_ms(pid)
    bodies = [{"max_tokens": tokens, "ignore_eos": True, "seed": i, "temperature": 1, "prompt": f"number {i}: ",
               **(rule if i >= requests - constrained else {})} for i in range(requests)]
    answers = list(pool.map(post, bodies))
    for a in answers:
        assert a["usage"]["completion_tokens"] == tokens, a
    clock = statistics.mean(a["timings"]["predicted_per_token_ms"] for a in answers[:requests - constrained])
    return clock, (cpu_ms(pid) - begin) / tokens


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    kind, *numbers, threads = sys.argv[3:] + ["schema", "16", "64", "0", "5", "auto"][len(sys.argv) - 3:]
    requests, tokens, constrained, n_rounds = map(int, numbers)
    constrained = constrained or requests // 2
    server = start(sys.argv[1], sys.argv[2], requests, threads)
    try:
        with concurrent.futures.ThreadPoolExecutor(requests) as pool:
            rounds = []
            for i in range(n_rounds + 1):
                both = {c: token_ms(pool, server.pid, requests, tokens, constrained, RULES[kind] if c else {}) for c in ((True, False) if i % 2 else (False, True))}
                rounds.append((both[False], both[True]))
        free, mixed = zip(*((a[0], b[0]) for a, b in rounds[1:]))
        least = [min(r[i][1] for r in rounds[1:]) for i in (0, 1)]
        ratios = sorted(b / a for a, b in zip(free, mixed))
        print(f"{kind}: {requests} requests of {tokens} tokens: {statistics.median(free):.2f} ms a token where all are free, {statistics.median(mixed):.2f} ms "
              f"where {constrained} are constrained; {100 * (statistics.median(ratios) - 1):+.1f} % ({100 * (ratios[0] - 1):+.1f} to {100 * (ratios[-1] - 1):+.1f}); "
              f"CPU time, the least of {n_rounds} rounds: {least[0]:.2f} and {least[1]:.2f} ms, {100 * (least[1] / least[0] - 1):+.1f} %")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
