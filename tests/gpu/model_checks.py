"""Whole models on the device: each function is a section of tests/gpu/run and takes (device, tap, options)."""
import concurrent.futures, math, os, random, struct, subprocess, sys, tempfile

from device import *

# Bounds, and the reasons for them. A bf16 activation or KV row is rounded to 8 bits; transformers in bf16 is 0.041 per token
# from its own fp32 on SmolLM2. TIE: transformers in bf16 leaves the fp32 text of 56 of the 100 prompts; the widest margin at
# which it does so is 0.3493 (section smollm2, one H200). We leave 38, with a widest margin of 0.2744.
TIE = 0.35          # margin at which another arithmetic may choose another token
MEAN, WORST = 0.06, 0.6   # log-probabilities of the tiny models, whose attention is much sharper than a real one's
PERPLEXITY = 0.01   # relative
E4M3_MEAN, E4M3_WORST = 0.15, 1.2  # where activations are rounded to E4M3, too: 4 bits in place of 8
BESIDE = 4          # tiny models at a time: most of their time is the start of a process, and compiling
VECTOR = 0.06       # numbers of a vector, of its largest: the bound of tests/unit/test_cuda_logits.c
# Experts: where the router's choices are nearly equal, bf16 activations take another expert, which changes the answer at that
# position only. tiny-moe has four such positions of 199 on the emulated GPU (0.2 to 0.4 apart, all others below 0.1), and one
# that is 2.07 apart on an H200.
# In the prompts that begin with these ids the router's second and third best logits are nearly equal at one position (fp32):
# 0.045 apart in the last layer of the first, 0.023 in that of the second, 0.005 in the first layer of the third. Bf16
# activations may take the other expert, which changes the answer there, and where that is not the last layer also at later
# positions. Positions [from, to) are not compared. glm4moelite-latents is 1.5 apart on an H100 where the margin is 0.007. In the second
# prompt of deepseekv3-groups, which also chooses groups, transformers in bf16 is up to 1.6 from its own fp32, at many positions.
# gemma4-experts is 1.354 apart on an H100: the other of two experts that are 0.0003 apart, in layer 1 of position 7, makes 1.375 in fp32.
ROUTER_TIES = {("qwen3moe-norm-mixed", (11, 54, 20, 58)): (4, 5), ("gpt-oss-sinks", (37, 3, 7, 33)): (18, 19),
               ("gpt-oss-mxfp4", (33, 38, 24, 41)): (3, 27), ("gpt-oss-mxfp4-BF16.gguf", (33, 38, 24, 41)): (3, 27)}
for file in ("", "-BF16.gguf"):
    ROUTER_TIES["glm4moelite-latents" + file, (22, 32, 23, 0)] = 25, 26
    ROUTER_TIES["gemma4-experts" + file, (43, 48, 35, 31)] = 7, 27
    ROUTER_TIES["deepseekv3-groups" + file, (32, 1, 30, 18)] = 8, 9
    ROUTER_TIES["deepseekv3-groups" + file, (39, 22, 12, 37)] = 1, 27


# ---- greedy text ----

def greedy(d, tap, o):
    """100 prompts against the CPU's portable kernels, which compute in fp32 (tests/golden/prompts100.json)."""
    n = 6 if o.tiny else 40
    prompts = pick_prompts(o)
    if not o.golden:
        want = d.complete(prompts, n, device="cpu", env={"VITRINE_ISA": "portable"})
        compare_runs(TIE, d.complete(prompts, n), want).report(tap, "greedy text, CUDA and CPU")
        return
    golden = json.load(open(GOLDEN, encoding="utf-8"))["prompts"][::o.every]
    c = Comparison(TIE)
    for i, ((steps, _), g) in enumerate(zip(d.complete(prompts, n), golden)):
        c.add(i * o.every, [s[0] for s in steps], [t.encode("latin-1") for t in g["tokens"]], g["margins"])
    c.report(tap, "greedy text, CUDA and CPU")


def pick_prompts(o):
    prompts = read_prompts()
    return [p[:12] for p in prompts[:4]] if o.tiny else prompts[::o.every]


# ---- the tiny models of every architecture ----

def fixtures():
    for name in sorted(os.listdir(MODELS)):
        path = os.path.join(MODELS, name)
        if os.path.isdir(path):
            yield name, path, os.path.join(path, "golden.bin")
        elif name.endswith(".gguf"):
            own = path[:-5] + ".bin"
            yield name, path, own if os.path.exists(own) else os.path.join(path[:-5].rsplit("-", 1)[0], "golden.bin")


def read_golden(path):
    with open(path, "rb") as f:
        n, vocab = struct.unpack("<ii", f.read(8))
        for _ in range(n):
            length, = struct.unpack("<i", f.read(4))
            ids = struct.unpack(f"<{length}i", f.read(4 * length))
            yield ids, [struct.unpack(f"<{vocab}f", f.read(4 * vocab)) for _ in range(length)]


def logits_of(d, o, name, path, golden):
    """Errors of one model's log-probabilities against transformers in fp32, or why the model is refused."""
    e = Errors()
    try:
        for ids, rows in read_golden(golden):
            if len(ids) < 2 or (o.tiny and len(ids) > 9):
                continue
            want = [None] + [log_softmax(r) for r in rows[:-1]]
            for i in range(*ROUTER_TIES.get((name, tuple(ids[:4])), (0, 0))):
                want[i] = None
            got = d.score(ids, "--top", "20", "--max-context", "64", "--kv-memory", "64M", model=path)
            part = against_rows(got, want)
            e.n, e.sum, e.worst = e.n + part.n, e.sum + part.sum, max(e.worst, part.worst)
    except Refused as r:
        return str(r)
    return e


def logits(d, tap, o, every=1):
    """Log-probabilities of every model under tests/golden/models against transformers in fp32, BESIDE models at a time."""
    models = list(fixtures())[::every]
    with concurrent.futures.ThreadPoolExecutor(1 if o.tiny else BESIDE) as pool:
        for (name, _, _), e in zip(models, pool.map(lambda m: logits_of(d, o, *m), models)):
            if isinstance(e, str):
                tap.ok(False, f"logits of {name}: refused: {e}")
                continue
            good = e.n > 0 and e.mean <= MEAN and e.worst <= WORST
            tap.ok(good, f"logits of {name}: {e}; {MEAN} mean, {WORST} max allowed")


def embeddings(d, tap, o):
    """Vectors of every encoder and of Qwen3, and scores of rankers, against transformers in fp32; on an emulated GPU of one text each."""
    golden = os.path.join(ROOT, "tests/golden")
    def ask(model, ids, *args):
        told = d.call("embed", "--tokens", ",".join(map(str, ids)), "--json", "--kv-memory", "8M", "--max-context", str(len(ids)),
                      *args, model=model)
        return json.loads(told)["embedding"]
    for name in ("bert", "xlm_roberta", "modernbert", "embeddinggemma", "qwen3"):
        path, worst, n = os.path.join(golden, "embedding", name), 0, 0
        for want in json.load(open(os.path.join(path, "vectors.json")))[-1 if o.tiny else 0:]:
            for how in ("last",) if o.tiny else ("mean", "cls", "last"):
                if how in want:
                    far = max(abs(a - b) for a, b in zip(ask(path, want["ids"], "--pooling", how), want[how]))
                    worst, n = max(worst, far / max(map(abs, want[how]))), n + 1
        tap.ok(n > 0 and worst <= VECTOR, f"embeddings of {name}: {n} vectors, {100 * worst:.1f} % of the largest number at most; "
               f"{100 * VECTOR:.0f} % allowed")
    for name in ("xlm_roberta", "qwen3"):
        path = os.path.join(golden, "rank", name)
        pairs = json.load(open(os.path.join(path, "pairs.json")))[-1 if o.tiny else 0:]
        worst = max(abs(ask(path, p["ids"], "--pooling", "rank", "--unscaled")[0] - p["logit"]) for p in pairs)
        tap.ok(worst <= MEAN, f"scores of {name}: {worst:.4f} from transformers' logits at most; {MEAN} allowed")


def architectures(d, tap, o):
    """Random models of every architecture in shapes that a GPU takes: CUDA against the CPU's portable kernels."""
    n, n_more = (40, 4) if o.tiny else (200, 24)
    rng = random.Random(9)
    ids = [rng.randrange(500) for _ in range(n)]
    prompts = [ids[:5], ids[7:30], ids]
    room = ["--max-context", "256", "--kv-memory", "8M"]
    portable = {"device": "cpu", "env": {"VITRINE_ISA": "portable"}}
    for shape in ("tiny", "tiny-llama", "tiny-mistral", "tiny-qwen2", "tiny-gemma3", "tiny-moe"):
        with tempfile.TemporaryDirectory(dir=o.scratch) as folder:
            random_model(shape, "bf16", folder)
            try:
                got = d.score(ids, "--top", "20", *room, model=folder)
            except Refused as r:
                tap.ok(False, f"random {shape}: refused: {r}")
                continue
            want = d.score(ids, "--top", "20", *room, model=folder, **portable)
            apart = sorted(abs(a - b) for a, b in zip(got["logprobs"][1:], want["logprobs"][1:]))
            ties = n // 50 if "moe" in shape else 0  # positions where another expert may be taken
            worst, mean = apart[-1 - ties], sum(apart) / len(apart)
            tap.ok(mean <= MEAN and worst <= WORST, f"random {shape}, CUDA and CPU: log-probabilities max {apart[-1]:.4f}, mean "
                   f"{mean:.4f}" + (f", all but {ties} at most {worst:.4f}" if ties else "") + f"; {MEAN} mean, {WORST} max allowed")
            compare_runs(TIE, d.complete(prompts, n_more, *room, model=folder),
                         d.complete(prompts, n_more, *room, model=folder, **portable)).report(tap, f"random {shape}, greedy")


def random_model(shape, kind, folder):
    """The path to load."""
    tool = os.path.join(ROOT, "tools/fixtures/random_model.py")
    return subprocess.run([sys.executable, tool, shape, kind, folder], check=True, capture_output=True,
                          text=True).stdout.strip()


# ---- one answer, however it is computed ----

def modes(d, tap, o):
    """The same prompts with and without overlap, graphs, programmatic launches, in chunks, and from the cache."""
    n, prompts = (4, pick_prompts(o)[:3]) if o.tiny else (32, pick_prompts(o)[::4] + read_prompts()[-3:])
    want = d.complete(prompts, n)
    chunk, running = ("5", "2") if o.tiny else ("48", "16")
    for what, args, env in (("--no-overlap", ["--no-overlap"], None), ("--no-graphs", ["--no-graphs"], None),
                            ("VITRINE_CUDA_PDL=0", [], {"VITRINE_CUDA_PDL": "0"}),
                            ("VITRINE_CUDA_ONE_GRAPH=1", [], {"VITRINE_CUDA_ONE_GRAPH": "1"}),
                            (f"--token-budget {chunk} --max-running {running}",
                             ["--token-budget", chunk, "--max-running", running], None),
                            ("--no-prefix-cache", ["--no-prefix-cache"], None),
                            ("--max-running 1", ["--max-running", "1"], None)):
        compare_runs(TIE, d.complete(prompts, n, *args, env=env), want).report(tap, f"modes: {what}")
    twice = d.complete([p for p in prompts for _ in range(2)], n, "--max-running", "1")
    hits = sum(cached > 0 for _, cached in twice[1::2])
    compare_runs(TIE, twice[1::2], twice[::2]).report(tap, "modes: from the cache and cold")
    tap.ok(hits == len(prompts), f"modes: {hits} of {len(prompts)} second prompts came from the cache")


def deterministic(d, tap, o):
    """--deterministic: tokens and log-probabilities (to the 6 digits a batch result has) whatever else is in the batch,
    however a prompt is cut, and behind a cached prefix."""
    n, prompts = (4, pick_prompts(o)) if o.tiny else (32, pick_prompts(o)[:32])
    prompts += [] if o.tiny else [" ".join(read_prompts())[:1500]]  # several chunks of attention
    args = ["--deterministic", "--no-prefix-cache"]
    chunk = "5" if o.tiny else "48"
    want = d.complete(prompts, n, *args, "--max-running", "64")
    order = list(range(len(prompts)))
    random.Random(1).shuffle(order)
    third = order[::3]
    for what, chosen, more in (("alone, --max-running 1", order, ["--max-running", "1"]),
                               ("--max-running 7, shuffled", order, ["--max-running", "7"]),
                               ("64 at once, shuffled", order, ["--max-running", "64"]),
                               ("a third of them, shuffled", third, ["--max-running", "64"]),
                               (f"prompts in chunks, --token-budget {chunk}", order,
                                ["--token-budget", chunk, "--max-running", "4"]),
                               ("no graphs, no overlap", order, ["--no-graphs", "--no-overlap"]),
                               ("each twice, from the cache", [i for i in order for _ in range(2)], None)):
        got = d.complete([prompts[i] for i in chosen], n, *args[:1 if more is None else 2], *(more or ["--max-running", "1"]))
        other = [i for i, g in zip(chosen, got) if g[0] != want[i][0]]
        for i in other[:5]:
            a, b = got[chosen.index(i)][0], want[i][0]
            k = next(k for k in range(n) if a[k] != b[k])
            tap.note(f"prompt {i}, token {k}: {a[k][:2]}, expected {b[k][:2]}")
        tap.ok(not other, f"deterministic: {what}: {len(chosen) - len(other)} of {len(chosen)} prompts bitwise equal")
        if more is None:
            hits = sum(cached > 0 for _, cached in got[1::2])
            tap.ok(hits > 0, f"deterministic: {hits} of {len(order)} second prompts came from the cache")


# ---- numbers ----

def perplexity(d, tap, o):
    """The committed text, window 512, CUDA and CPU; the same with FP8 KV."""
    with tempfile.TemporaryDirectory() as folder:
        path, window = TEXT, "512"
        if o.tiny:
            path, window = os.path.join(folder, "text"), "32"
            with open(path, "w") as f:
                f.write(open(TEXT).read()[:100])
        kinds = {"": (), ", FP8 KV": ("--kv-dtype", "fp8")}
        found = {kind: {dev: score_text(d, path, window, dev, more=more) for dev in ("cpu", "cuda")}
                 for kind, more in kinds.items()}
    for kind, p in found.items():
        apart = math.log(p["cuda"] / p["cpu"])
        tap.ok(abs(apart) <= PERPLEXITY, f"perplexity{kind}: CUDA {p['cuda']:.4f}, CPU {p['cpu']:.4f}, "
               f"{100 * apart:+.2f} %, {100 * PERPLEXITY:.0f} % allowed")


def quantised(d, tap, o):
    """Random weights as BF16, FP8 with block scales and Q4_K, experts too: CUDA against the CPU's portable kernels."""
    rng = random.Random(5)
    ids = [rng.randrange(500) for _ in range(12 if o.tiny else 200)]
    for shape, kind in (("tiny", "bf16"), ("tiny", "fp8"), ("tiny", "q4_k"), ("tiny-moe-k", "q4_k"), ("tiny-moe-k", "fp8")):
        with tempfile.TemporaryDirectory(dir=o.scratch) as folder:
            path = random_model(shape, kind, folder)
            args = ["--top", "20", "--max-context", "256", "--kv-memory", "4M"]
            want = d.score(ids, *args, model=path, device="cpu", env={"VITRINE_ISA": "portable"})
            ways = [("", (), MEAN, WORST)]
            if kind == "fp8":  # linears of many tokens round activations, passes do not
                ways = [(" by passes", ("--linear-backend", "passes"), MEAN, WORST), ("", (), E4M3_MEAN, E4M3_WORST)]
            for how, more, mean, worst in ways:
                what = f"random {shape} {kind} model{how}"
                try:
                    got = d.score(ids, *args, *more, model=path)
                except Refused as r:
                    tap.ok(False, f"{what}: refused: {r}")
                    continue
                e = Errors()
                for i in range(1, len(ids)):
                    e.add(got["logprobs"][i] - want["logprobs"][i])
                tap.ok(e.mean <= mean and e.worst <= worst, f"{what}, CUDA and CPU: log-probabilities {e}; "
                       f"{mean} mean, {worst} max allowed")


def smollm2_fp8(d, tap, o):
    """SmolLM2's weights as BF16, FP8 with a scale a matrix and with block scales: what the rounding costs, CUDA and CPU."""
    cache = os.environ.get("VITRINE_CACHE", os.path.expanduser("~/.cache/vitrine"))
    gguf, kinds = os.path.join(cache, "models/SmolLM2-135M-Instruct.Q4_1.gguf"), ("bf16", "fp8", "fp8-block")
    if o.tiny or not os.path.exists(gguf):
        tap.skip("SmolLM2 as FP8", "an emulated GPU is too slow for it" if o.tiny else "SmolLM2 is not in the cache")
        return
    with tempfile.TemporaryDirectory(dir=o.scratch) as folder:
        made = subprocess.run([sys.executable, os.path.join(ROOT, "tools/fixtures/smollm2_fp8.py"), gguf, folder],
                              capture_output=True, text=True)
        if made.returncode:
            tap.skip("SmolLM2 as FP8", made.stderr.strip().split("\n")[-1])
            return
        cpu, cuda = ({k: score_text(d, TEXT, "512", dev, os.path.join(folder, k)) for k in kinds} for dev in ("cpu", "cuda"))
    for k in kinds:
        apart = math.log(cuda[k] / cpu[k])
        tap.ok(abs(apart) <= PERPLEXITY, f"SmolLM2 as {k}: perplexity CUDA {cuda[k]:.4f}, CPU {cpu[k]:.4f}, "
               f"{100 * apart:+.2f} %; to its BF16 {100 * (cuda[k] / cuda['bf16'] - 1):+.2f} %")


def score_text(d, path, window, device, model=None, more=()):
    return json.loads(d.call("score", "--text", path, "--window", window, "--json", *more, device=device,
                             model=model))["perplexity"]


def level80(d, tap, o):
    """The kernels of sm_80 (mma.sync, cp.async), which every other GPU runs."""
    before = os.environ.get("VITRINE_CUDA_LEVEL")
    os.environ["VITRINE_CUDA_LEVEL"] = "80"
    try:
        logits(d, tap, o, every=6 if o.tiny else 1)  # each compiles kernels of its shapes for the emulated GPU
        prompts, n = (pick_prompts(o)[:2], 4) if o.tiny else (pick_prompts(o)[::5], 40)
        at80 = d.complete(prompts, n)
        os.environ["VITRINE_CUDA_LEVEL"] = ""
        compare_runs(TIE, at80, d.complete(prompts, n)).report(tap, "greedy text at level 80 and at the device's own")
    finally:
        os.environ.pop("VITRINE_CUDA_LEVEL")
        if before is not None:
            os.environ["VITRINE_CUDA_LEVEL"] = before
