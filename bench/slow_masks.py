#!/usr/bin/env python3
"""What grammars whose masks take long cost the streams beside them.

    bench/slow_masks.py PROGRAM MODEL [--requests 8] [--ends 250] [--alternatives 900]

Starts `PROGRAM serve -m MODEL`, reads one stream alone, and the same beside requests with such grammars: behind one letter each of
ENDS lexemes may end, and ALTERNATIVES follow each, so that one mask takes hundreds of thousands of steps. Prints the largest gap between two
tokens of the stream, alone and beside them, and how many masks were late."""
import argparse, json, re, socket, subprocess, threading, time, urllib.error, urllib.request


def post(base, body):
    request = urllib.request.Request(f"{base}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=300)


def stream_gaps(base):
    """Seconds between the pieces of an answer."""
    gaps, last = [], None
    body = {"prompt": "Once upon a time", "max_tokens": 400, "stream": True, "ignore_eos": True, "temperature": 0}
    for line in post(base, body):
        if line.startswith(b"data: {"):
            now = time.monotonic()
            gaps += [now - last] if last else []
            last = now
    return gaps


def grammar(n, ends, alternatives):
    parts = " | ".join(f'"a{n}" "b"{{0,{i + 1}}} s' for i in range(ends))
    return f'root ::= "7" ({parts})\ns ::= "y"' + "".join(f' | "c{i}" s "d"' for i in range(alternatives))


def ask(base, text, n):
    try:
        post(base, {"prompt": "x", "max_tokens": 40, "guided_grammar": text, "temperature": 1, "seed": n}).read()
    except urllib.error.HTTPError as e:
        if e.code != 400:  # larger ones are refused once they take too much
            raise


def tell(what, gaps):
    gaps = sorted(gaps)
    print(f"{what}: largest gap {1e3 * gaps[-1]:.1f} ms, median {1e3 * gaps[len(gaps) // 2]:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("model")
    for name, value in (("--requests", 8), ("--ends", 250), ("--alternatives", 900)):
        parser.add_argument(name, type=int, default=value)
    args = parser.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    base = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([args.program, "serve", "-m", args.model, "--port", str(port), "--max-context", "2048"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{base}/health", timeout=1)
                break
            except OSError:
                time.sleep(0.1)
        tell("alone", stream_gaps(base))
        others = [threading.Thread(target=ask, args=(base, grammar(n, args.ends, args.alternatives), n)) for n in range(args.requests)]
        for t in others:
            t.start()
        tell("beside", stream_gaps(base))
        for t in others:
            t.join()
        metrics = urllib.request.urlopen(f"{base}/metrics").read().decode()
        late = re.search(r"^vitrine:late_masks_total (\d+)", metrics, re.M)
        print(f"late masks: {late.group(1) if late else 'not counted'}")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
