"""What the device tests share: running vitrine, TAP lines, and comparing two runs token by token.

A run over prompts gives, for each, a list of steps: (bytes of the token, its log-probability, the two likeliest). Two runs
that differ only in how they are computed (bf16 or int8, whole or in chunks) choose the same tokens until two candidates are
nearly equal; from the first difference on they are two texts, so nothing after it is compared. The margin of a step is the
gap between its two likeliest log-probabilities: a difference at a margin above the bound is an error, below it a tie."""
import json, math, os, re, subprocess, tempfile, time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROMPTS = os.path.join(ROOT, "tests/golden/prompts100.txt")
GOLDEN = os.path.join(ROOT, "tests/golden/prompts100.json")
MODELS = os.path.join(ROOT, "tests/golden/models")
TEXT = os.path.join(ROOT, "tests/golden/text/kjv_ruth_ecclesiastes.txt")


class Refused(Exception):
    """vitrine ended with this one line."""


class OutOfTime(Exception):
    pass


def read_prompts():
    with open(PROMPTS, encoding="utf-8") as f:
        return [line.rstrip("\n").replace("\\n", "\n") for line in f]


class Tap:
    def __init__(self):
        self.n = self.failed = self.skipped = 0

    def note(self, text):
        for line in str(text).split("\n"):
            print("# " + line, flush=True)

    def ok(self, good, what):
        self.n += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {what}", flush=True)

    def skip(self, what, why):
        self.n += 1
        self.skipped += 1
        print(f"ok {self.n} - {what} # SKIP {why}", flush=True)


class Device:
    """How to run programs, and until when. `base` are arguments for every vitrine that takes a model."""

    def __init__(self, build, model, base, end, limit):
        self.vitrine, self.parity = os.path.join(build, "vitrine"), os.path.join(build, "gpu/gpu_parity")
        self.model, self.base, self.end, self.limit = model, base, end, limit

    def run(self, argv, env=None, limit=None):
        left = min(limit or self.limit, self.end - time.monotonic())
        if left <= 1:
            raise OutOfTime("the time was up")
        try:
            return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, cwd=ROOT, timeout=left,
                                  env={**os.environ, **(env or {})})
        except subprocess.TimeoutExpired:
            raise OutOfTime(f"stopped after {left:.0f} s")

    def call(self, verb, *args, model=None, device="cuda", env=None):
        base = self.base if device == "cuda" else []
        r = self.run([self.vitrine, *verb.split(), "-m", model or self.model, "--device", device, "-q", *base, *args], env)
        if r.returncode:
            raise Refused(r.stderr.decode("utf-8", "replace").strip().split("\n")[-1] or f"exit status {r.returncode}")
        return r.stdout

    def score(self, ids, *args, **how):
        return json.loads(self.call("score", "--tokens", ",".join(map(str, ids)), "--json", *args, **how))

    def complete(self, prompts, n, *args, **how):
        """Greedy continuations of n tokens: [(steps, cached tokens)] in the order of the prompts."""
        with tempfile.TemporaryDirectory() as folder:
            src, dst = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
            with open(src, "w", encoding="utf-8") as f:
                for i, p in enumerate(prompts):
                    body = {"prompt": p, "max_tokens": n, "temperature": 0, "ignore_eos": True, "logprobs": 2}
                    f.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
            self.call("run", "--batch", src, "-o", dst, *args, **how)
            return read_results(dst, len(prompts))


def token_bytes(name):
    """The bytes of a token in the log-probabilities of completions: its text, or bytes:\\xNN... where that is no text."""
    if re.fullmatch(r"bytes:(\\x[0-9a-f]{2})+", name):
        return bytes.fromhex(name[len("bytes:"):].replace("\\x", ""))
    return name.encode()


def read_results(path, n):
    """[(steps, cached tokens)]; a step is (bytes, log-probability, the likeliest: [(bytes, log-probability)], falling)."""
    out = [None] * n
    for line in open(path, encoding="utf-8"):
        o = json.loads(line)
        body = o["response"]["body"]
        if o["response"]["status_code"] != 200:
            raise Refused(body["error"]["message"])
        l = body["choices"][0]["logprobs"]
        steps = [(token_bytes(t), p, sorted(((token_bytes(x), q) for x, q in top.items()), key=lambda x: -x[1]))
                 for t, p, top in zip(l["tokens"], l["token_logprobs"], l["top_logprobs"])]
        out[int(o["custom_id"])] = steps, body["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert None not in out, "a prompt has no result"
    return out


def margin(step):
    return step[2][0][1] - step[2][1][1]


class Comparison:
    """Agreement of the tokens of many prompts with a reference that has its margins."""

    def __init__(self, bound):
        self.bound, self.equal, self.compared, self.beyond, self.ties = bound, 0, 0, [], []

    def add(self, i, got, want, margins):
        """Bytes of the tokens."""
        for k, (a, b) in enumerate(zip(got, want)):
            if a != b:
                where = f"prompt {i}, token {k}: {a!r}, expected {b!r}, margin {margins[k]:.4f}"
                (self.beyond if margins[k] > self.bound else self.ties).append((margins[k], where))
                return
            self.compared += 1
        assert len(got) == len(want) > 0, f"prompt {i}: {len(got)} tokens, expected {len(want)}"
        self.equal += 1

    def report(self, tap, what):
        n = self.equal + len(self.ties) + len(self.beyond)
        for _, where in sorted(self.beyond + self.ties, reverse=True)[:20]:
            tap.note(f"{what}: {where}")
        widest = max([m for m, _ in self.ties + self.beyond], default=0)
        tap.ok(not self.beyond, f"{what}: {self.equal} of {n} prompts equal, {self.compared} tokens before a difference; "
               f"widest margin at one {widest:.4f}, {self.bound} allowed")


def compare_runs(bound, got, want):
    c = Comparison(bound)
    for i, ((a, _), (b, _)) in enumerate(zip(got, want)):
        c.add(i, [s[0] for s in a], [s[0] for s in b], [margin(s) for s in b])
    return c


class Errors:
    """Largest and mean difference of log-probabilities."""

    def __init__(self):
        self.n, self.sum, self.worst = 0, 0.0, 0.0

    def add(self, d):
        self.n, self.sum, self.worst = self.n + 1, self.sum + abs(d), max(self.worst, abs(d))

    @property
    def mean(self):
        return self.sum / max(self.n, 1)

    def __str__(self):
        return f"max {self.worst:.4f}, mean {self.mean:.4f} of {self.n}"


def log_softmax(row):
    top = max(row)
    total = math.log(sum(math.exp(x - top) for x in row)) + top
    return [x - total for x in row]


def against_rows(score, rows):
    """Differences between `score --top K --json` and expected log-probabilities: rows[i] maps ids to them, given the tokens
    before i; a row of None is not compared."""
    e = Errors()
    for i in range(1, len(score["tokens"])):
        if rows[i] is None:
            continue
        e.add(score["logprobs"][i] - rows[i][score["tokens"][i]])
        for t in score["top"][i]:
            e.add(t["logprob"] - rows[i][t["id"]])
    return e
