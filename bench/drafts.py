#!/usr/bin/env python3
"""What drafts gain and cost: tokens/s of two servers that run in turn, one with --draft and one without, for answers that repeat
a text of the prompt, for answers that do not (drawn at temperature 1), and, with a draft model, for greedy answers to questions.

    python3 bench/drafts.py [--draft HOW] [VITRINE [ROUNDS [serve's options]]]      default: lookup build/vitrine 3 -m smollm2-135m

A round sends B equal-length requests at once to one server, then to the other. Prompts are in the prefix cache by then. Prints
the median of the rounds, the median of their quotients, and how many guesses steps verified and how many held."""
import concurrent.futures, json, os, statistics, subprocess, sys, time, urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATCHES = (1, 256), (8, 256), (64, 128)  # requests at once, tokens of each
PORTS = {"off": 18491, "on": 18492}
DRAFT = {"off": "off", "on": "lookup"}
KINDS = ["repeats", "does not"]
START_S = 600


def post(how, body):
    request = urllib.request.Request(f"http://127.0.0.1:{PORTS[how]}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return json.load(answer)


def start(program, how, options):
    p = subprocess.Popen([program, "serve", "-q", "--port", str(PORTS[how]), "--draft", DRAFT[how], *options])
    end = time.monotonic() + START_S
    while True:
        try:
            post(how, {"prompt": "x", "max_tokens": 1})
            return p
        except OSError:
            if p.poll() is not None or time.monotonic() > end:
                sys.exit(f"the server with --draft {DRAFT[how]} did not start")
            time.sleep(0.2)


def bodies(kind, batch, tokens):
    text = open(os.path.join(ROOT, "README.md"), encoding="utf-8").read()[:1200]
    begin = text[:60]
    for i in range(batch):
        body = {"max_tokens": tokens, "ignore_eos": True, "seed": i}
        if kind == "repeats":
            yield {**body, "temperature": 0, "prompt": f"{text}\n\nThe same text once more:\n\n{begin}"}
        elif kind == "greedy":
            yield {**body, "temperature": 0, "prompt": f"{text[:200]}\n\nQuestion {i % 8}: why is the sky blue?\nAnswer:"}
        else:
            yield {**body, "temperature": 1, "prompt": f"{text}\n\nA story about something else, number {i % 8}:\n\n"}


def run(how, all_bodies, pool):
    begin = time.monotonic()
    answers = list(pool.map(lambda body: post(how, body), all_bodies))
    took = time.monotonic() - begin
    tokens = sum(a["usage"]["completion_tokens"] for a in answers)
    drafts = [sum(a["timings"].get(key, 0) for a in answers) for key in ("draft_tokens", "draft_accepted")]
    return tokens / took, drafts, [a["choices"][0]["text"] for a in answers]


def measure(kind, batch, tokens, rounds, pool):
    asked = list(bodies(kind, batch, tokens))
    speed, drafts, texts = {how: [] for how in PORTS}, [0, 0], {}
    for i in range(rounds + 1):  # the first one is not counted
        for how in PORTS if i % 2 else reversed(PORTS):
            tokens_s, d, texts[how] = run(how, asked, pool)
            if i > 0:
                speed[how].append(tokens_s)
                drafts = [a + b for a, b in zip(drafts, d)]
    same = texts["off"] == texts["on"]
    off, on = (statistics.median(speed[how]) for how in PORTS)
    quotient = statistics.median(b / a for a, b in zip(speed["off"], speed["on"]))
    print(f"| {kind} | {batch} | {off:,.0f} | {on:,.0f} | {quotient:.2f} | {drafts[1]:,} of {drafts[0]:,} | "
          f"{'yes' if same else 'no'} |", flush=True)


def main():
    if sys.argv[1:2] == ["--draft"]:
        DRAFT["on"] = sys.argv[2]
        del sys.argv[1:3]
        KINDS.append("greedy")
    program = sys.argv[1] if len(sys.argv) > 1 else "build/vitrine"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    options = sys.argv[3:] or ["-m", "smollm2-135m"]
    servers = [start(program, how, options) for how in PORTS]
    try:
        print("| text | requests | off, tokens/s | drafts, tokens/s | quotient | guesses that held | same text |")
        print("|---|---|---|---|---|---|---|", flush=True)
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            for kind in KINDS:
                for batch, tokens in BATCHES:
                    measure(kind, batch, tokens, rounds, pool)
    finally:
        for p in servers:
            p.terminate()


main()
