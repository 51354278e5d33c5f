#!/usr/bin/env python3
"""tests/gpu/run, bench/gpu and bench/tables: what they print and refuse without a GPU, what their comparisons find, which tables
they make, and a short run of the first two on the emulated GPU where it is built."""
import glob, importlib.machinery, importlib.util, re, tempfile

from tap import *

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/gpu"))
sys.dont_write_bytecode = True
BUILD = os.path.abspath(os.environ.get("VITRINE_BUILD", "build/release"))
EMULATOR = os.path.join(BUILD, "emulator")
PATIENCE = ["--limit", str(LIMIT_S), "--budget", str(LIMIT_S)]  # the suite's limit, not the scripts' own
PROGRAMS = [os.path.join(BUILD, "gpu", p) for p in ("gpu_parity", "gpu_kernels", "gpu_order", "gpu_ranks")]


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


def load_script(name, folder="bench"):
    loader = importlib.machinery.SourceFileLoader("script_" + name, os.path.join(ROOT, folder, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("script_" + name, loader))
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


def test_conversations_on_sequence_state_are_measured_beside_the_other_rule():
    """bench/turns.py: its model of the rule by hand, and a small trace on a real server."""
    turns = load_script("turns.py")
    rule = turns.Rule(4)
    said = list(range(10))
    same(rule.cached(said, [20, 21, 22]), 0)  # keeps the states at 8 and, of the answer, at 12
    same(rule.cached(said + [20, 21] + [30] * 5, [40]), 12)
    same(rule.cached(said[:9] + [50] * 3, [40]), 8)
    same(rule.cached(said[:8], [40]), 0)  # the last token is computed anew, and no state is at 4
    r = script("bench/turns.py", BIN, "--model", "tests/golden/models/qwen35-delta", "--turns", "3",
               "--conversations", "2", "--system", "60", "--answer", "6", "--block", "16", "--message", "20")
    same(r.returncode, 0, r.stderr)
    rows = [[int(x.replace(",", "")) for x in l.split("|")[2:6]] for l in r.stdout.split("\n")[2:5]]
    same(len(rows), 3)
    for prompt, *computed in rows[1:]:
        assert all(0 < n < prompt / 2 for n in computed), r.stdout


def test_without_a_gpu_the_scripts_skip():
    need_programs()
    with tempfile.TemporaryDirectory() as folder:
        hidden = {"CUDA_VISIBLE_DEVICES": ""}
        for args in (["tests/gpu/run"], ["bench/gpu", "--out", os.path.join(folder, "b")]):
            r = script(*args, *PATIENCE, "--build", BUILD, "--only", "roof" if "bench" in args[0] else "parity", env=hidden)
            assert r.returncode == 77 and "skip" in (r.stdout + r.stderr).lower(), (r.returncode, r.stdout, r.stderr)


def test_random_shapes_are_others_at_each_run_and_their_seeds_are_printed():
    run, lines = load_script("run", "tests/gpu"), []
    run.parity_lines = lambda d, tap, o, what, args, env: lines.append((what, args, env["VITRINE_CUDA_LEVEL"]))
    for seed in ([], [], ["--seed", "21"]):
        run.parity_random(None, None, run.parse(["--list", *seed]))
    seeds = [args[args.index("--seed") + 1] for _, args, _ in lines]
    same([level for _, _, level in lines], ["90", "80"] * 3)
    same(seeds[4:], ["21", "22"])
    assert len(set(seeds[:4])) == 4, seeds
    assert all(f"seed {seed}," in what for seed, (what, _, _) in zip(seeds, lines)), lines


def test_a_family_of_sections_has_one_name():
    bench = load_script("gpu")
    names, unknown = bench.select("offline,steps-8b")
    same((names, unknown), (["offline-0.6b", "offline-8b", "offline-14b", "steps-8b"], None))
    same(bench.select("steps-8b,step")[1], "step")
    same(bench.select("")[0], list(bench.SECTIONS))


def test_lengths_of_the_offline_workload_are_those_of_its_seed():
    bench = load_script("gpu")
    sums = [tuple(map(sum, zip(*bench.lengths(seed)))) for seed in range(3)]
    same(sums, [(142827, 133966), (149935, 156222), (147434, 140460)], "as Mini-SGLang's bench.py draws them")
    lines = open(os.path.join(ROOT, "bench/peers/offline_256.lengths"), encoding="utf-8").read().splitlines()[1:]
    same(lines, [f"{i} {o}" for i, o in bench.lengths(0)])


def test_every_row_of_the_tables_is_one_that_is_measured():
    need_programs()
    rows = load_script("gpu").figures.read_rows()
    same(len({(r["row"], r["method"]) for r in rows}), len(rows), "rows and distinct rows")
    listed = subprocess.run([PROGRAMS[1], "--list"], capture_output=True, text=True, check=True).stdout
    ours = {line.split("\t")[1] for line in listed.splitlines()}
    tables = load_script("tables").TABLES
    for r in rows:
        assert not r["method"] or r["row"] in ours or r["row"].startswith("jit:"), r
        assert not r["method"] or r["unit"] in ("us", "s", "TB/s", "GB/s", "TFLOP/s"), r
        assert r["table"] in tables, r


def test_programs_refuse_what_is_none_of_their_options():
    need_programs()
    parity, kernels, order, ranks = PROGRAMS
    for argv in ([kernels, "--only", "nosuch"], [kernels, "--nosuch"], [kernels, "--row", "("], [order, "--nosuch"], [parity, "--nosuch"],
                 [parity, "--op"], [parity, "--shard", "2/2"], [parity, "--shard", "1/2x"], [parity, "--random", "0"],
                 [parity, "--seed", "x"], [ranks, "--ranks", "2x"], [ranks, "--ranks", "9"], [ranks, "--link", "wire"]):
        r = subprocess.run(argv, capture_output=True, text=True)
        assert r.returncode == 2 and r.stderr and not r.stdout, (argv, r)
    r = subprocess.run([parity, "--list", "--random", "2", "--seed", "7", "--op", "linear"], capture_output=True, text=True)
    same((r.returncode, len(r.stdout.splitlines())), (0, 2))
    r = subprocess.run([kernels, "--list", "--only", "prefill,decode", "--row", "16/8 (1|32) x 4096$"], capture_output=True, text=True)
    same([line.split("\t")[1] for line in r.stdout.splitlines()], ["prefill 16/8 1 x 4096", "decode 16/8 32 x 4096", "decode fp8 16/8 32 x 4096"])


def test_list_of_cases_names_the_ops_with_rows_for_a_gpu():
    """The sanitizer's sections run what --list names: every op with a kernel, and none that has rows for a CPU alone."""
    need_programs()
    listed = {line.split("\t")[0] for line in
              subprocess.run([PROGRAMS[0], "--list"], capture_output=True, text=True, check=True).stdout.splitlines()}
    with_kernels = set()
    for folder in glob.glob(os.path.join(ROOT, "src/ops/*/")):
        text = "".join(open(path, encoding="utf-8").read() for path in glob.glob(folder + "*.c"))
        if "CUDA_ROW(" in text:
            with_kernels |= set(re.findall(r"^const vt_op (\w+)_op = ", text, re.M))
    same(listed, with_kernels)


def test_a_section_that_breaks_is_a_row_and_the_others_go_on():
    bench = load_script("gpu")
    bench.SECTIONS = {"broken": lambda b: b.put("x", None, "ms", "how"), "good": lambda b: b.put("y", 2.0, "ms", "how")}
    with tempfile.TemporaryDirectory() as folder:
        b = bench.Bench(bench.parse(["--list", "--out", os.path.join(folder, "out")]))
        for name in bench.SECTIONS:
            bench.run_section(b, name)
        b.log.close()
        lines = bench.figures.read_lines([b.path])
    same([(o["row"], o.get("value")) for o in lines], [("section broken", None), ("y", 2.0)])
    assert "TypeError" in lines[0]["error"], lines
    same(b.failed, 1)


def test_rows_before_a_limit_count():
    bench = load_script("gpu")
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "gpu_kernels")
        with open(program, "w") as f:
            f.write("""#!/bin/sh
echo '{"section": "gemv", "row": "linear 8B o 64", "method": "cold", "us": 18.5, "ran": "cublaslt"}'
printf '{"section": "gemv", "row": "cut off'
exec sleep 60
""")
        os.chmod(program, 0o755)
        b = bench.Bench(bench.parse(["--list", "--limit", "2", "--out", os.path.join(folder, "out")]))
        b.options.kernels = program
        bench.kernels(b, "gemv")
        b.log.close()
        lines = bench.figures.read_lines([b.path])
    same([o["row"] for o in lines], ["kernels: gemv", "linear 8B o 64"])
    assert "stopped after 2 s" in lines[0]["error"] and b.failed == 1, lines


def test_the_table_of_cpu_programs_has_every_round():
    ours = [{"prefill_tokens_per_s": 100.0 + i, "decode_tokens_per_s": 10.0, "commit": "c0ffee"} for i in range(3)]
    theirs = [[{"n_prompt": 512, "n_gen": 0, "avg_ts": 50.5, "build_commit": "abc"},
               {"n_prompt": 0, "n_gen": 64, "avg_ts": 5.0 + i, "build_commit": "abc"}] for i in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        for file, values in (("m.gguf.vitrine", ours), ("m.gguf.peer", theirs), ("other.gguf.vitrine", ours)):
            with open(os.path.join(folder, file), "w") as f:
                f.write("\n".join(json.dumps(v, indent=1) for v in values))
        r = script("bench/peers/llama_table.py", folder, "2", "3", "vitrine peer", "/models/m.gguf", "/models/other.gguf")
    assert "| prefill: vitrine c0ffee | prefill: peer abc | decode: vitrine c0ffee | decode: peer abc |" in r.stdout, r.stdout + r.stderr
    assert "| m | 101.0 (100.0-102.0) | 50.5 (50.5-50.5), 2.00 | 10.0 (10.0-10.0) | 6.0 (5.0-7.0), 1.67 |" in r.stdout, r.stdout
    assert "| other | 101.0 (100.0-102.0) | none | 10.0 (10.0-10.0) | none |" in r.stdout, r.stdout


MEASURED = [{"row": "offline qwen3-0.6b", "method": "", "value": 1234.5, "unit": "tok/s", "low": 1200.0, "high": 1300.0, "n": 3},
            {"row": "step qwen3-8b batch 1", "method": "", "error": "it broke"},
            {"row": "sample 32", "method": "cold", "us": 99.0, "gb_per_s": 1.0},
            {"row": "sample 32", "method": "cold", "us": 20.25, "gb_per_s": 1.0},
            {"row": "sample 32", "method": "cold", "error": "the second call broke"},
            {"row": "sample 32", "method": "cold", "peer": "peer A", "us": 9.0},
            {"row": "sample 32", "method": "cold", "peer": "peer B", "us": 7.0},
            {"row": "sample 32", "method": "cold", "peer": "peer C", "us": 8.0},
            {"row": "linear 8B o 64", "method": "cold", "us": 18.5, "ran": "cublaslt"},
            {"row": "linear 8B o 64", "method": "cold", "peer": "cuBLAS", "us": 18.0},
            {"row": "no such row", "method": "", "value": 1.0, "unit": "ms"}]


def test_table_shows_failures_and_what_was_not_measured():
    lines = load_script("gpu").table(MEASURED, "a heading").split("\n")
    find = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    same(lines[0], "a heading")
    assert "| 1,234 (1,200-1,300) |" in find["offline qwen3-0.6b"], find["offline qwen3-0.6b"]
    assert "it broke" in find["step qwen3-8b batch 1"]
    assert "| 20.25 | 7 (peer B) |" in find["sample 32"] and "two kernels" in find["sample 32"], find["sample 32"]
    assert "| cublaslt | ours adds the residual |" in find["linear 8B o 64"], find["linear 8B o 64"]
    assert "not measured" in find["offline qwen3-14b"] and "turns" not in find["offline qwen3-14b"]
    assert "| 1 ms |" in find["no such row"]


def test_a_figure_that_is_not_measured_again_keeps_its_run():
    tables = load_script("tables")
    store = {}
    old = [{"row": "linear 8B o 64", "method": "cold", "us": 40.0}, {"row": "sample 1", "method": "cold", "us": 5.0}]
    same(tables.take(store, old, "an old run"), 2)
    same(tables.take(store, MEASURED, "a new run"), 5)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures.tsv")
        tables.save(store, path)
        same(tables.load(path), store)
    text = tables.fill("<!-- bench/tables runs -->\n<!-- end -->\n<!-- bench/tables rows -->\nold\n<!-- end -->\n"
                       "<!-- bench/tables linears -->\n<!-- end -->\n<!-- bench/tables readme -->\n<!-- end -->\n", store)
    assert "Measured: a new run but where a letter stands: [a] an old run." in text, text
    assert "| sample 1 | us | 5 [a] |" in text and "\nold\n" not in text, text
    assert "18.5 cublaslt / 18 |" in text and "1,234 (1,200-1,300)" in text, text
    same(tables.fill(text, store), text, "making the tables again changes nothing")
    try:
        tables.fill("<!-- bench/tables nosuch -->\n<!-- end -->", store)
    except ValueError as e:
        assert "nosuch" in str(e) and "linears" in str(e)
    else:
        raise AssertionError("an unknown table passes")


def test_the_documents_hold_the_tables_of_the_figures():
    same(script("bench/tables", "check").returncode, 0, "bench/tables write was not run")
    r = script("bench/tables", "take", "x.jsonl")
    assert r.returncode == 2 and "--run" in r.stderr, r.stderr


def test_random_models_for_peers_load():
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("q8_0", "q4_0", "q4_k"):
            path = os.path.join(folder, kind + ".gguf")
            same(script("bench/peers/random_gguf.py", "tiny", kind, path).stdout.strip(), path)
            o = ok("run", "-m", path, "--device", "cpu", "--raw", "hello", "-n", "3", "--ignore-eos", "--json").json
            same(len(o["tokens"] if "tokens" in o else o["output_tokens"]), 3, kind)
        for shape, layers in (("lfm2-350m", "3"), ("qwen3.5-0.8b", "4"), ("granite-4.0-h-micro", "6")):  # attention and state
            path = os.path.join(folder, "part.gguf")
            script("bench/peers/random_gguf.py", shape, "q4_0", path, layers)
            o = ok("score", "-m", path, "--device", "cpu", "--tokens", "1,2,3", "--json").json
            same(len(o["logprobs"]), 3, shape)


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


def test_emulated_gpu_passes_sections():
    r = script("tests/gpu/run", "--tiny", "--only", "greedy,perplexity,ranks-sanitizer", "--build", BUILD, *PATIENCE, env=emulated())
    assert r.returncode == 0 and r.stdout.count("ok ") == 4, r.stdout + r.stderr


def test_counters_that_ncu_does_not_share_are_a_failure():
    env = emulated()
    import ncu_agreement
    head = ",".join(f'"{k}"' for k in ("ID", "Kernel Name", *ncu_agreement.METRICS.values()))
    with tempfile.TemporaryDirectory() as folder:
        # an ncu that sees three launches of the norm as the emulated CUPTI does, but for what stands in OCCUPANCY
        rows = "\n".join(f'"{i}","rmsnorm","2,000","1,00{i},000","20,000","12.5","$OCCUPANCY"' for i in range(3))
        path = os.path.join(folder, "ncu")
        with open(path, "w", encoding="utf-8") as f:
            units = ",".join(['""'] * 7)
            f.write(f"#!/bin/sh\necho '==PROF== Connected'\ncat <<END\n{head}\n{units}\n{rows}\nEND\n")
        os.chmod(path, 0o755)
        for occupancy, code, says in (("51", 0, "more than 5 % apart: nothing"), ("60", 1, "more than 5 % apart: occupancy")):
            found = {**env, "PATH": folder + ":" + os.environ["PATH"], "OCCUPANCY": occupancy}
            r = script("tests/gpu/run", "--tiny", "--only", "ncu", "--build", BUILD, *PATIENCE, env=found)
            assert r.returncode == code and says in r.stdout and "| 1.02 MB | 1.02 MB | 0.00 % |" in r.stdout, r.stdout + r.stderr


def test_emulated_gpu_fills_rows_of_the_bench():
    env = emulated()
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "b")
        r = script("bench/gpu", "--tiny", "--only", "roof,plan,first-token", "--build", BUILD, "--out", out, *PATIENCE,
                   env=env)
        assert r.returncode == 0, r.stdout + r.stderr
        rows = {(o.get("row"), o.get("method")) for o in map(json.loads, open(out + ".jsonl"))}
        table = open(out + ".md").read()
        r = script("bench/gpu", "--tiny", "--append", "--only", "plan", "--build", BUILD, "--out", out, *PATIENCE, env=env)
        both = open(out + ".md").read()
    assert both.count("bench/gpu --only") == 2 and "copy 512 MiB | TB/s" in both and r.returncode == 0, both
    assert {("copy 512 MiB", "cold"), ("first token qwen3-0.6b 128", ""), ("plan decode 32/8 32 x 4096", "host")} <= rows
    assert "| first token qwen3-0.6b 128 | ms |" in table


main(globals())
