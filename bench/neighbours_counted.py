#!/usr/bin/env python3
"""What one constrained request adds to the steps of its neighbours, in instructions: the same on a busy machine as on a quiet one.

    bench/neighbours_counted.py PROGRAM [MODEL] [KIND ...]      needs valgrind; two runs of about a minute for each kind

`run --batch` answers 8 requests at temperature 1 on one thread, under cachegrind, once with 4 and once with 20 tokens each; the difference,
divided by 16, is a step. All requests are free, or the last one has the constraint of a KIND. The masks of a repeat that is counted are those
of its first steps, which nothing has made before. AVX2, because valgrind knows no AVX-512."""
import json, os, re, subprocess, sys, tempfile

REQUESTS, SHORT, LONG = 8, 4, 20
TEXT = {"type": "string", "minLength": 300, "maxLength": 500}
KINDS = {
    "regex": {"regex": "[a-z ,.]{600}"},
    "words": {"regex": "([a-z]{1,200} ){1,300}[.]{100}"},
    "text": {"json": TEXT},
    "pattern": {"json": {"type": "string", "pattern": "^[A-Z][a-z ]{300,500}[.]$"}},
    "schema": {"json": {"type": "array", "minItems": 500, "items": {"type": "object", "properties": {
        "name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}}}}}}}


def instructions(program, model, rule, tokens, folder):
    requests, answers = os.path.join(folder, "in.jsonl"), os.path.join(folder, f"{tokens}.jsonl")
    with open(requests, "w", encoding="utf-8") as f:
        for i in range(REQUESTS):
            body = {"prompt": f"number {i}: ", "max_tokens": tokens, "ignore_eos": True, "seed": i, "temperature": 1}
            if rule and i == REQUESTS - 1:
                body["structured_outputs"] = rule
            f.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
    out = subprocess.run(["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", program, "run", "-q", "-m", model,
                          "--threads", "1", "--batch", requests, "-o", answers], env={**os.environ, "VITRINE_ISA": "avx2"}, capture_output=True, text=True)
    refs = re.search(r"I +refs: +([\d,]+)", out.stderr)
    if out.returncode != 0 or not refs:
        sys.exit(out.stderr)
    with open(answers, encoding="utf-8") as f:
        for line in f:
            usage = json.loads(line)["response"]["body"].get("usage", {})
            if usage.get("completion_tokens") != tokens:
                sys.exit(f"expected {tokens} tokens of each request: {line}")
    return int(refs[1].replace(",", ""))


def step(program, model, rule):
    with tempfile.TemporaryDirectory() as folder:
        return (instructions(program, model, rule, LONG, folder) - instructions(program, model, rule, SHORT, folder)) / (LONG - SHORT)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program, model, *kinds = sys.argv[1:] + ["smollm2-135m"][len(sys.argv) - 2:]
    free = step(program, model, None)
    print(f"all {REQUESTS} free: {free / 1e6:.1f} million instructions a step", flush=True)
    for kind in kinds or KINDS:
        one = step(program, model, KINDS[kind])
        print(f"one with {kind}: {one / 1e6:.1f} million, {100 * (one / free - 1):+.2f} %", flush=True)


if __name__ == "__main__":
    main()
