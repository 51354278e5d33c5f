#!/usr/bin/env python3
"""What constraints cost: output tokens/s of two programs' servers that run in turn, with a regular expression on every request
and without one, drawn at temperature 1.

    python3 bench/constrained.py OLD NEW '[[1,50],[8,50],[64,128]]' [serve's options]      requests at once, tokens of each

A round asks one server, then the other; the first round is not counted. Prints the median of three for each."""
import concurrent.futures, json, statistics, subprocess, sys, time, urllib.request

PORTS = {"old": 18491, "new": 18492}
RULE = {"structured_outputs": {"regex": "[a-z ,.]{600}"}}
START_S, ROUNDS = 600, 4


def post(how, body):
    request = urllib.request.Request(f"http://127.0.0.1:{PORTS[how]}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return json.load(answer)


def start(program, how, options):
    p = subprocess.Popen([program, "serve", "-q", "--port", str(PORTS[how]), *options])
    end = time.monotonic() + START_S
    while True:
        try:
            post(how, {"prompt": "x", "max_tokens": 1})
            return p
        except OSError:
            if p.poll() is not None or time.monotonic() > end:
                sys.exit(f"the server of {program} did not start")
            time.sleep(0.2)


def measure(batch, tokens, rule, pool):
    bodies = [{"max_tokens": tokens, "ignore_eos": True, "seed": i, "temperature": 1, "prompt": f"number {i}: ", **rule}
              for i in range(batch)]
    speed = {how: [] for how in PORTS}
    for i in range(ROUNDS):
        for how in PORTS if i % 2 else reversed(PORTS):
            begin = time.monotonic()
            answers = list(pool.map(lambda body: post(how, body), bodies))
            n = sum(a["usage"]["completion_tokens"] for a in answers)
            if i > 0:
                speed[how].append(n / (time.monotonic() - begin))
    return " / ".join(f"{statistics.median(speed[how]):,.0f}" for how in PORTS)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    servers = [start(program, how, sys.argv[4:]) for program, how in zip(sys.argv[1:3], PORTS)]
    try:
        print("| requests x tokens | free, old / new | constrained, old / new |\n|---|---|---|")
        with concurrent.futures.ThreadPoolExecutor(256) as pool:
            for batch, tokens in json.loads(sys.argv[3]):
                print(f"| {batch} x {tokens} | {measure(batch, tokens, {}, pool)} | {measure(batch, tokens, RULE, pool)} |", flush=True)
    finally:
        for p in servers:
            p.terminate()


if __name__ == "__main__":
    main()
