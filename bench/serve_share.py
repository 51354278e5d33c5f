#!/usr/bin/env python3
"""What HTTP and detokenising take of an engine's time: `vitrine serve` under 64 streams of chat with a shared system message.

    bench/serve_share.py                  # SmolLM2-135M on the CPU; some minutes
    bench/serve_share.py --streams 16 --num 64 --model dummy:smollm2-135m

Printed are, for the time between two looks at /metrics with the load between them:
  engine     seconds in which the engine's steps ran on the device (vitrine:step_seconds_total{part="device"})
  publish    seconds of its thread for detokenising, stop strings and copying events (part="publish"), by the clock, so where
             all cores are busy it includes waiting for one
  loop       CPU seconds of the loop's thread: HTTP, SSE, JSON of answers, log lines
  helpers    CPU seconds of the threads that read requests: JSON, chat template, tokenising; and of the log's
share is (publish + loop + helpers) / engine; share_of_cpu is the same sum by the CPU seconds of all threads of the server, which
depends less on what else the machine does. CPU times come from /proc/PID/task/*/stat."""
import argparse, glob, json, os, re, subprocess, sys, time, urllib.request

ap = argparse.ArgumentParser()
ap.add_argument("--vitrine", default="build/vitrine")
ap.add_argument("--model", default="smollm2-135m")
ap.add_argument("--device", default="cpu")
ap.add_argument("--streams", type=int, default=64)
ap.add_argument("--num", type=int, default=192)
ap.add_argument("--prefix", type=int, default=1100)
ap.add_argument("--input", default="32")
ap.add_argument("--output", default="128")
args = ap.parse_args()

server = subprocess.Popen([args.vitrine, "serve", "-m", args.model, "--device", args.device, "--port", "0", "--log-requests", "json"],
                          stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
log = b""
while not (m := re.search(rb"(http://\S+:\d+) serves", log)):
    piece = os.read(server.stderr.fileno(), 4096)
    if not piece:
        sys.exit(log.decode())
    log += piece
url = m.group(1).decode()
drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)


def cpu():
    """{thread: CPU seconds}; the loop's thread is the program's first."""
    out = {}
    for path in glob.glob(f"/proc/{server.pid}/task/*/stat"):
        tid = path.split("/")[4]
        name, rest = re.match(r"\d+ \((.*)\) (.*)", open(path).read()).groups()
        ticks = rest.split()
        name = "loop" if tid == str(server.pid) else name
        out[name] = out.get(name, 0) + (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
    return out


def look():
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    part = dict(re.findall(r'^vitrine:step_seconds_total\{part="(\w+)"\} (\S+)$', text, re.M))
    tokens = float(re.search(r"^vitrine:generated_tokens_total (\S+)$", text, re.M).group(1))
    return time.monotonic(), {k: float(v) for k, v in part.items()}, tokens, cpu()


def load(num, seed):
    r = subprocess.run([args.vitrine, "bench", "serve", "-q", "--json", "--url", url, "--concurrency", str(args.streams), "--num", str(num),
                        "--shared-prefix", str(args.prefix), "--input", args.input, "--output", args.output, "--ignore-eos", "--seed", str(seed)],
                       stdout=subprocess.PIPE)
    return json.loads(r.stdout)


load(args.streams, 1)  # the shared prefix is cached now, and every thread has run
before = look()
r = load(args.num, 2)
after = look()
server.terminate()
code = server.wait()
wall, tokens = after[0] - before[0], after[2] - before[2]
part = {k: after[1][k] - before[1][k] for k in after[1]}
used = {k: after[3][k] - before[3].get(k, 0) for k in after[3]}
loop, helpers = used.get("loop", 0), sum(v for k, v in used.items() if k.startswith("server-"))
around = part["publish"] + loop + helpers
print(json.dumps({"model": args.model, "streams": args.streams, "requests": r["completed"], "failed": r["failed"], "wall_s": round(wall, 2),
                  "tokens": tokens, "tokens_per_s": round(tokens / wall, 1), "engine_s": round(part["device"], 2),
                  "schedule_s": round(part["schedule"], 3), "publish_s": round(part["publish"], 3), "loop_cpu_s": round(loop, 3),
                  "helpers_cpu_s": round(helpers, 3), "us_per_token": round(around / tokens * 1e6, 1),
                  "share": round(around / part["device"], 4), "share_of_cpu": round(around / sum(used.values()), 4), "threads": {k: round(v, 2) for k, v in used.items() if v >= 0.01}}))
sys.exit(0 if code == 0 and r["failed"] == 0 else 1)
