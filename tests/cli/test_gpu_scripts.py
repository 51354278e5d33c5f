#!/usr/bin/env python3
"""tests/gpu/run and bench/gpu: what they print and refuse without a GPU, what their comparisons find, and a short run of both
on the emulated GPU where it is built."""
import glob, importlib.machinery, importlib.util, re, tempfile

from tap import *

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/gpu"))
sys.dont_write_bytecode = True
BUILD = os.path.abspath(os.environ.get("VITRINE_BUILD", "build/release"))
EMULATOR = os.path.join(BUILD, "emulator")
PATIENCE = ["--limit", str(LIMIT_S), "--budget", str(LIMIT_S)]  # the suite's limit, not the scripts' own
PROGRAMS = [os.path.join(BUILD, "gpu", p) for p in ("gpu_parity", "gpu_kernels", "gpu_order")]


def script(*args, env=None):
    r = subprocess.run([sys.executable, *args], capture_output=True, text=True, cwd=ROOT, env=clean_env(env), timeout=LIMIT_S)
    assert "Traceback" not in r.stderr, r.stderr
    return r


def need_programs():
    if SANITIZED or not all(map(os.path.exists, PROGRAMS)):
        skip("the GPU programs are not built here")


def emulated():
    need_programs()
    if not os.path.exists(os.path.join(EMULATOR, "libcuda.so.1")):
        skip("the emulated GPU is not built here")
    return {"LD_LIBRARY_PATH": EMULATOR, "VITRINE_CACHE": os.path.join(os.path.dirname(BUILD), "emulator-cache")}


def bench_module():
    loader = importlib.machinery.SourceFileLoader("bench_gpu", os.path.join(ROOT, "bench/gpu"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_gpu", loader))
    loader.exec_module(module)
    return module


def test_sections_are_listed_and_unknown_ones_refused():
    for path, some in (("tests/gpu/run", ("parity", "racecheck")), ("bench/gpu", ("offline", "sampling"))):
        r = script(path, "--list")
        same(r.returncode, 0)
        assert all(name in r.stdout for name in some), r.stdout
        r = script(path, "--only", some[0] + ",nosuch", "--build", BUILD)
        assert r.returncode == 2 and "'nosuch'" in r.stderr and some[1] in r.stderr, r.stderr


def test_programs_that_are_not_built_are_named():
    for path in ("tests/gpu/run", "bench/gpu"):
        r = script(path, "--build", "/nowhere")
        assert r.returncode == 2 and "/nowhere/" in r.stderr and "gpu-programs" in r.stderr, r.stderr


def test_without_a_gpu_the_scripts_skip():
    need_programs()
    with tempfile.TemporaryDirectory() as folder:
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        for args in (["tests/gpu/run"], ["bench/gpu", "--out", os.path.join(folder, "b")]):
            r = script(*args, *PATIENCE, "--build", BUILD, "--only", "roof" if "bench" in args[0] else "parity", env=hidden)
            assert r.returncode == 77 and "skip" in (r.stdout + r.stderr).lower(), (r.returncode, r.stdout, r.stderr)


def test_every_kernel_row_of_the_peers_is_one_of_ours():
    need_programs()
    bench = bench_module()
    peers = bench.read_peers(os.path.join(ROOT, "bench/peers/h200.tsv"))
    same(len({p[:2] for p in peers}), len(peers), "rows and distinct rows")
    listed = subprocess.run([PROGRAMS[1], "--list"], capture_output=True, text=True, check=True).stdout
    ours = {line.split("\t")[1] for line in listed.splitlines()}
    for row, method, unit, *_ in peers:
        assert not method or row in ours or row.startswith("jit:"), row
        assert not method or unit in bench.SCALE, unit


def test_programs_refuse_what_is_none_of_their_options():
    need_programs()
    parity, kernels, order = PROGRAMS
    for argv in ([kernels, "--only", "nosuch"], [kernels, "--nosuch"], [order, "--nosuch"], [parity, "--nosuch"],
                 [parity, "--op"], [parity, "--shard", "2/2"], [parity, "--shard", "1/2x"], [parity, "--random", "0"],
                 [parity, "--seed", "x"]):
        r = subprocess.run(argv, capture_output=True, text=True)
        assert r.returncode == 2 and r.stderr and not r.stdout, (argv, r)
    r = subprocess.run([parity, "--list", "--random", "2", "--seed", "7", "--op", "linear"], capture_output=True, text=True)
    same((r.returncode, len(r.stdout.splitlines())), (0, 2))


def test_list_of_cases_names_the_ops_with_rows_for_a_gpu():
    """The sanitizer's sections run what --list names: every op with a kernel, and none that has rows for a CPU alone."""
    need_programs()
    listed = {line.split("\t")[0] for line in
              subprocess.run([PROGRAMS[0], "--list"], capture_output=True, text=True, check=True).stdout.splitlines()}
    with_kernels = set()
    for folder in glob.glob(os.path.join(ROOT, "src/ops/*/")):
        text = "".join(open(path, encoding="utf-8").read() for path in glob.glob(folder + "*.c"))
        if "VT_DEVICE_CUDA" in text:
            with_kernels |= set(re.findall(r"^const vt_op (\w+)_op = ", text, re.M))
    same(listed, with_kernels)


def test_a_section_that_breaks_is_a_row_and_the_others_go_on():
    bench = bench_module()
    bench.SECTIONS = {"broken": lambda b: b.put("x", None, "ms", "how"), "good": lambda b: b.put("y", 2.0, "ms", "how")}
    with tempfile.TemporaryDirectory() as folder:
        b = bench.Bench(bench.parse(["--list", "--out", os.path.join(folder, "out")]))
        for name in bench.SECTIONS:
            bench.run_section(b, name)
        b.log.close()
    assert "TypeError" in b.rows["section broken", ""]["error"], b.rows
    same(b.rows["y", ""]["value"], 2.0)


def test_table_shows_failures_and_what_was_not_measured():
    bench = bench_module()
    with tempfile.TemporaryDirectory() as folder:
        peers = os.path.join(folder, "peers.jsonl")
        with open(peers, "w") as f:
            for us in (9.0, 7.0):
                f.write(json.dumps({"row": "sample 32", "method": "cold", "peer": f"peer of {us}", "us": us}) + "\n")
        b = bench.Bench(bench.parse(["--list", "--out", os.path.join(folder, "out"), "--peers", peers]))
        b.smi = "a GPU"
        b.put("offline qwen3-0.6b", 1234.5, "tok/s", "vitrine bench offline")
        b.fail("step qwen3-8b batch 1", "it broke")
        b.rows["sample 32", "cold"] = {"json": {"us": 20.25}, "how": "gpu_kernels"}
        b.log.close()
        lines = bench.table(b, [[1980, 3201, 90]], ["offline"]).split("\n")
    find = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    assert "| 1,234 |" in find["offline qwen3-0.6b"] and "21628" in find["offline qwen3-0.6b"], find
    assert "it broke" in find["step qwen3-8b batch 1"]
    assert "20.25" in find["sample 32"] and "7 (peer of 7.0, same run)" in find["sample 32"], find["sample 32"]
    assert "not measured" in find["offline qwen3-14b"]
    assert "1980 MHz" in lines[0], lines[0]


def test_comparisons_find_what_is_beyond_the_bound():
    import device
    steps = [(b"a", -0.1, [(b"a", -0.1), (b"b", -2.5)]), (b"c", -0.7, [(b"c", -0.7), (b"d", -0.8)])]
    other = [steps[0], (b"d", -0.7, [(b"d", -0.7), (b"c", -0.75)])]
    wrong = [(b"b", -0.1, [(b"b", -0.1), (b"a", -2.5)]), steps[1]]
    for got, equal, ties, beyond in ((steps, 1, 0, 0), (other, 0, 1, 0), (wrong, 0, 0, 1)):
        c = device.compare_runs(0.25, [(got, 0)], [(steps, 0)])
        same((c.equal, len(c.ties), len(c.beyond)), (equal, ties, beyond))
    for short in ([], steps[:1]):
        try:
            device.compare_runs(0.25, [(short, 0)], [(steps, 0)])
        except AssertionError as e:
            assert "tokens, expected 2" in str(e), e
        else:
            raise AssertionError(f"a text of {len(short)} tokens passes for one of two")
    score = {"tokens": [0, 1], "logprobs": [None, -1.0], "top": [[], [{"id": 0, "logprob": -0.5}]]}
    e = device.against_rows(score, [None, [-0.5, -1.25]])
    same((e.n, e.worst, e.mean), (2, 0.25, 0.125))
    same(len(device.read_prompts()), 100)
    golden = json.load(open(device.GOLDEN, encoding="utf-8"))["prompts"]
    same((len(golden), {len(g["tokens"]) for g in golden}), (100, {40}))


def test_emulated_gpu_passes_the_quantised_section():
    r = script("tests/gpu/run", "--tiny", "--only", "quantised", "--build", BUILD, *PATIENCE, env=emulated())
    assert r.returncode == 0 and r.stdout.count("ok ") == 5, r.stdout + r.stderr


def test_emulated_gpu_fills_rows_of_the_bench():
    env = emulated()
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "b")
        r = script("bench/gpu", "--tiny", "--only", "roof,plan,first-token", "--build", BUILD, "--out", out, *PATIENCE,
                   env=env)
        assert r.returncode == 0, r.stdout + r.stderr
        rows = {(o.get("row"), o.get("method")) for o in map(json.loads, open(out + ".jsonl"))}
        table = open(out + ".md").read()
    assert {("copy 512 MiB", "cold"), ("first token qwen3-0.6b 128", ""), ("plan decode 32/8 32 x 4096", "host")} <= rows
    assert "| first token qwen3-0.6b 128 | ms |" in table


main(globals())
