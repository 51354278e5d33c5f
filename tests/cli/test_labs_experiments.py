#!/usr/bin/env python3
"""The experiments: each tells every item and leaves its files, by the commands of the documents; the server of the first
one is used and ended; the page of key findings is filled; a full disk and an interrupt are told."""
import atexit, resource, signal, socket

from labs import *

DRAWN = ["flame", "over_time"]
ITEMS = {
    "1_start_server": ["ready", "loaded", "address", "memory", "device"] + DRAWN,
    "2_baseline_benchmark": ["latency", "throughput", "medians", "bound"] + DRAWN,
    "3_profile_requests": ["breakdown", "concurrency", "prefix", "length", "hardware"] + DRAWN,
    "4_timeline_profile": ["kernels", "timeline", "overlap", "memory", "nsys"] + DRAWN,
    "5_tp_scaling": ["configurations", "promised", "pairs", "host", "four", "cpu_ranks"] + DRAWN,
    "6_radix_cache_analysis": ["sharing", "length", "concurrent", "eviction", "access"] + DRAWN,
}
NAMES = list(ITEMS)
PAGES = ["0" + name for name in NAMES]
FILES = {"1": ["server.log", "server.json", "memory_summary.txt"], "2": ["baseline_benchmark.json", "baseline_benchmark.log",
         "throughput_benchmark.json", "throughput_benchmark.log"],
         "3": ["profiling_results.json"], "4": ["timeline.json", "kernel_summary.txt", "memory_summary.txt"], "5": ["tp_single.json", "tp_single.log"],
         "6": ["radix_cache_results.json"]}
# The documents' commands, run inside the folder of the experiments, and what they must come to.
COMMANDS = {"bash 01_start_server.sh": "1", "bash 02_baseline_benchmark.sh": "2", "python 03_profile_with_torch.py": "3",
            "bash 04_nsys_profile.sh": "4 --nsys", "bash 05_tp_scaling.sh": "5", "python 06_radix_cache_analysis.py": "6"}
QUICK = " --quick --no-predict -q"

with socket.socket() as s:  # a port that is free now
    s.bind(("127.0.0.1", 0))
    PORT = s.getsockname()[1]

track = Track("experiments")
ran = {}


def experiment(number):
    """The result of one, which is run when first asked for, with the server that the first one left."""
    if number not in ran:
        need_model()
        if number != "1":
            experiment("1")
        command = next(c for c, words in COMMANDS.items() if words.split()[0] == number)
        # the shortest prompts that show all: most of the time is theirs
        r = track.script(command + QUICK + {"1": f" --port {PORT}", "6": " --prompt 128"}.get(number, ""))
        assert r.code == 0, r.log[-2000:] + r.text[-2000:]
        ran[number] = track.result(NAMES[int(number) - 1])
    return ran[number]


def left(name):
    """A file of the results, parsed if it is JSON."""
    text = read(track.path(name))
    return json.loads(text) if name.endswith(".json") else text


@atexit.register
def end_the_server():
    if "1" in ran and os.path.exists(track.path("server.json")):
        track.script("bash 01_start_server.sh --stop -q")


def check(number):
    """Every item, checks that hold, the files, a prediction and a knob."""
    result = experiment(number)
    missing = told(result, ITEMS[NAMES[int(number) - 1]])
    checks_hold(result)
    for name in FILES[number]:
        assert os.path.exists(track.path(name)) and name in [f["name"] for f in result["files"]], name
    assert result["knobs"] and all(k["why"] and k["expected"] is not None for k in result["knobs"]), result["knobs"]
    assert result["predictions"] and all(p["own"] is not None for p in result["predictions"]), result["predictions"]
    return result, missing


def test_the_first_one_leaves_a_server_that_the_others_use():
    result, missing = check("1")
    same(missing, set())
    server = left("server.json")
    same(server["port"], PORT, "--port")
    text = result["items"]["address"]["text"]
    assert f"port {server['port']}" in text and f"process {server['pid']}" in text, (text, server)
    assert os.path.exists(f"/proc/{server['pid']}"), server
    log = left("server.log")
    assert "ready after" in log and f"127.0.0.1:{server['port']}" in log and "of weights" in log, log[:500]
    lines = left("memory_summary.txt").splitlines()
    same(lines[0].split(), ["bytes", "what"])
    assert len(lines) == 5 and all(int(line.split()[0]) > 0 for line in lines[1:]), lines
    experiment("5")
    # The server writes a request's line after its answer has left.
    wait_until(lambda: left("server.log").count("method=POST") >= 16, "its requests are logged there")


def test_the_baseline_sends_a_hundred_requests():
    check("2")
    baseline, rates = left("baseline_benchmark.json"), left("throughput_benchmark.json")
    same((baseline["requests"], baseline["ttft"]["n"]), (100, 100))
    for spread in ("ttft", "itl", "e2e"):
        assert 0 < baseline[spread]["p50_ms"] <= baseline[spread]["p99_ms"] <= baseline[spread]["max_ms"], baseline
    same([r["concurrency"] for r in rates], [1, 4, 16])
    assert all(r["output_tokens_per_s"] > 0 for r in [baseline] + rates)
    log, logs = left("baseline_benchmark.log"), left("throughput_benchmark.log")
    assert f"100 requests of {baseline['input_tokens_asked']} tokens in" in log and "8 at once, 100 answered" in log, log
    assert f"{baseline['output_tokens']} output tokens in" in log and log.count("p50") == 3, log
    same(re.findall(r"(\d+) at once", logs), ["1", "4", "16"])


def test_the_profile_tells_parts_batches_prefix_and_lengths():
    check("3")
    profile = left("profiling_results.json")
    parts = profile["breakdown"]
    assert abs(parts["total_ms"] - sum(parts[k] for k in ("queue_ms", "steps_ms", "waits_ms", "tail_ms"))) < 2, parts
    assert profile["prefix"]["again_cached_tokens"] > 300, profile["prefix"]
    same([r["at_once"] for r in profile["concurrency"]], [1, 2, 4, 8])
    tokens = [r["prompt_tokens"] for r in profile["length"]]
    assert tokens == sorted(tokens) and tokens[-1] > 500, tokens


def test_the_timeline_has_kernels_and_opens_as_a_trace():
    result, missing = check("4")
    assert missing <= {"nsys"}
    assert len(left("timeline.json")["traceEvents"]) > 100
    lines = left("kernel_summary.txt").splitlines()
    same(lines[0].split(), ["share", "%", "total", "ns", "calls", "mean", "ns", "kernel"])
    share = 0
    for line in lines[1:]:
        percent, total, calls, mean, kernel = line.split(maxsplit=4)
        share += float(percent)
        assert abs(int(total) - int(calls) * int(mean)) <= int(calls), line
        assert kernel.split()[0] in ("prefill", "decode"), line
    assert abs(share - 100) < 1, share
    assert any("attention_decode" in line for line in lines)
    assert any("no program nsys" in i.get("missing", "") or i.get("drawing") for i in [result["items"]["nsys"]])


NSYS = """[ "$1" = profile ] && {
    while [ "$1" != --output ]; do shift; done
    echo report > "$2.nsys-rep"; exit 0
}
echo "Time (%),Total Time (ns),Instances,Style,Range"; echo "61.0,1234567,1,StartEnd,request 1"
"""


def test_nsys_leaves_its_report_where_it_is_installed():
    experiment("1")
    folder = os.path.dirname(program("nsys", NSYS))
    r = track.script("bash 04_nsys_profile.sh --gen 4" + QUICK, PATH=folder + ":" + os.environ["PATH"])
    assert r.code == 0, r.log
    result = track.result("4_timeline_profile")
    assert "1.23 ms" in result["items"]["nsys"]["drawing"], result["items"]["nsys"]
    same(left("timeline.nsys-rep"), "report\n")
    assert "timeline.nsys-rep" in [f["name"] for f in result["files"]]


def test_one_device_and_two_ranks_are_measured_and_the_others_are_named():
    result, missing = check("5")
    if result["machine"]["threads"] % 2:  # which two ranks cannot divide
        same(missing, {"pairs", "host", "four", "cpu_ranks"})
        return
    same(missing, {"pairs", "host", "four"})
    one, two = left("tp_single.json"), left("tp_2_cpu.json")
    same([one[k] for k in ("requests", "concurrency")], [two[k] for k in ("requests", "concurrency")])
    assert one["output_tokens_per_s"] > 0 and two["output_tokens_per_s"] > 0
    same(cells(result, "configurations", "configuration"), ["single: one CPU", "2_cpu: two ranks of one CPU"])
    ratio = result["items"]["configurations"]["rows"][1][2]["value"]
    assert abs(ratio / (two["output_tokens_per_s"] / one["output_tokens_per_s"]) - 1) < 1e-3, (ratio, one, two)
    assert cells(result, "promised", "ranks") == ["1", "2", "4"]
    assert "--tp" in next(k["where"] for k in result["knobs"] if k["name"] == "two ranks")
    for key, name in (("pairs", "tp_2_p2p.json"), ("host", "tp_2_host.json"), ("four", "tp_4.json")):
        assert name in result["items"][key]["missing"], key


def test_the_prefix_cache_hits_and_forgets_beside_the_running_server():
    check("6")
    cache = left("radix_cache_results.json")
    same(sorted(cache), ["by_length", "concurrent_gain", "first_ttft_ms", "found_under_pressure", "found_with_room", "hit_speedup",
                         "later_ttft_ms"])
    same([r["prefix_tokens"] for r in cache["by_length"]], [16, 64, 256])  # in proportion to --prompt 128
    assert cache["found_under_pressure"] < cache["found_with_room"], cache
    log = left("server.log")
    assert "ready after" in log.split("\n")[0] and "method=POST" in log, "the log of the server that runs is whole"


def test_key_findings_are_filled():
    for number in "123456":
        experiment(number)
    ok("lab", "experiments", "report", "--results", track.labs)
    page = read(os.path.join(track.folder, "reports", "local", "key-findings.md"))
    parts = {p.split("\n", 1)[0]: p for p in page.split("\n## ")[1:]}
    for title, lines in (("Performance baseline", ["TTFT (median)", "ITL (median)", "throughput"]),
                         ("Prefix cache", ["cache hit speed-up", "first against later", "concurrent benefit"]),
                         ("TP scaling", ["single", "TP=2, fast link", "TP=2, through the host", "TP=4"]),
                         ("Kernels", ["attention", "MLP", "norm", "other"])):
        table = [line for line in parts[title].split("\n") if line.startswith("| ")]
        for name in lines:
            line = next((x for x in table if x.startswith("| " + name)), None)
            assert line, (title, name)
            assert re.search(r"\d", line.split("|")[2]) and ("not " not in line or "tp_" in line), line
    assert "not run here yet" not in page, page


def test_the_documents_way_to_the_results_is_there():
    experiment("4")
    r = track.script("cat profiling_artifacts/kernel_summary.txt")
    same((r.code, r.text), (0, left("kernel_summary.txt")))


def test_every_command_of_the_documents_starts_its_experiment():
    track.means(COMMANDS)
    track.means({"./scripts/0" + name: name[0] for name in NAMES})
    track.means({c.replace(" ", " scripts/"): words for c, words in COMMANDS.items()})


def test_an_option_that_the_experiments_do_not_have_is_refused_by_name():
    track.refuses({"bash 01_start_server.sh --host 0.0.0.0": "--host",
                   "bash 01_start_server.sh --model-path Qwen/Qwen3-0.6B": "--model-path",
                   "bash 02_baseline_benchmark.sh --num-prompts 100": "--num-prompts",
                   "bash 05_tp_scaling.sh --tp 2": "--tp"})


def test_too_short_or_long_shared_prompts_are_refused():
    for n in ("63", "2049"):
        fails(2, f"--prompt: {n} found, expected 64 to 2048 tokens that requests share", "lab", "experiments", "6", "--prompt", n,
              "--no-predict", "--results", track.labs)


def test_an_option_that_an_experiment_does_not_use_is_told():
    experiment("1")
    r = track.script("bash 05_tp_scaling.sh --requests 2 --gen 2 --sweep" + QUICK)
    assert r.code == 0 and "--sweep was given, and this lab did not use it" in r.text, r.text


def test_nothing_is_graded_beside_a_program_that_uses_the_machine():
    experiment("1")
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            r = track.script("bash 05_tp_scaling.sh" + QUICK)
        finally:
            other.kill()
    same(r.code, 0, r.log)
    result = track.result("5_tp_scaling")
    same((result["state"], result["predictions"][0]["grade"]), ("disturbed", "not graded: the machine was busy"))


def full_disk(*args):
    """Runs the program where no file can become longer than 64 bytes."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
    p = subprocess.run([BIN, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env(),
                       timeout=LIMIT_S, preexec_fn=limit)
    return Result(p.returncode, p.stdout, p.stderr)


def sizes():
    """Of all files but the servers' logs."""
    return {f: os.stat(os.path.join(d, f)).st_size for d, _, files in os.walk(track.labs) for f in files if not f.endswith(".log")}


def test_a_full_disk_fails_the_right_lab_with_one_sentence():
    experiment("1")
    few = ["--requests", "2", "--gen", "2"]
    for name, number, file, more in (("experiments", "2", "baseline_benchmark.json", few), ("experiments", "4", "memory_summary.txt", few[2:]),
                                     ("experiments", "5", "tp_single.json", few), ("sglang", "00", "00_check_env.json", []),
                                     ("flashinfer", "04", "04_profile_rmsnorm.json", [])):
        before = sizes()
        r = full_disk("lab", name, number, "--quick", "--no-predict", "-q", "--results", track.labs, *more)
        assert r.code == 1 and r.log.startswith("vitrine: ") and r.log.count("\n") == 1 and file in r.log, (name, number, r.code, r.log)
        same(sizes(), before, f"files after {name} {number} on a full disk")


def servers_with_log(path):
    """Processes whose stderr is this file."""
    found = []
    for fd in glob.glob("/proc/[0-9]*/fd/2"):
        try:
            if os.readlink(fd) == path:
                found.append(int(fd.split("/")[2]))
        except OSError:
            pass
    return found


def test_an_interrupted_experiment_takes_its_server_along():
    need_model()
    for how in (signal.SIGTERM, signal.SIGKILL):
        d = os.path.realpath(tempfile.mkdtemp(dir=scratch()))
        log = os.path.join(d, "experiments", "results", "local", "server.log")
        lab = start("lab", "experiments", "2", "--no-predict", "--results", d)
        wait_until(lambda: os.path.exists(log) and servers_with_log(log), "the server has begun")
        pid = servers_with_log(log)[0]
        wait_until(lambda: "method=POST" in read(log), "it answers requests")
        lab.send_signal(how)
        said = lab.communicate(timeout=LIMIT_S)[1].decode()
        assert f"the lab ended early, and so does its server, process {pid}" in said, said
        wait_until(lambda: not servers_with_log(log), "the server has ended")
        assert not os.path.exists(os.path.join(os.path.dirname(log), "server.json"))


def test_an_interrupted_start_leaves_no_server():
    need_model()
    d = os.path.realpath(tempfile.mkdtemp(dir=scratch()))
    log = os.path.join(d, "experiments", "results", "local", "server.log")
    lab = start("lab", "experiments", "1", "--quick", "--no-predict", "--results", d)
    wait_until(lambda: os.path.exists(log) and servers_with_log(log), "the server has begun")
    lab.terminate()
    lab.communicate(timeout=LIMIT_S)
    wait_until(lambda: not servers_with_log(log), "no server is left")


def test_stop_ends_the_server_and_keeps_the_figures():
    first, pid = experiment("1"), left("server.json")["pid"]
    r = track.script("bash 01_start_server.sh --stop")
    assert r.code == 0 and "has ended (--stop)" in r.text, r.text + r.log
    wait_until(lambda: not servers_with_log(os.path.realpath(track.path("server.log"))), "the server has ended")
    assert not os.path.exists(track.path("server.json"))
    after = track.result("1_start_server")
    same((after["items"], after["when"], after["knobs"]), (first["items"], first["when"], first["knobs"]), pid)
    r = track.script("bash 01_start_server.sh --stop -q")
    same(r.code, 2)
    assert "left no server running" in r.log, r.log
    ran.clear()


# ---- pages ----

def test_every_experiment_has_a_page_with_all_its_parts():
    check_pages("experiments", PAGES, "## In our sources", "## What cannot be shown", 132)
    for page in pages("experiments"):
        assert "LAB experiments" in read(page), page


def test_pages_name_the_files_that_are_left():
    for page in pages("experiments"):
        number = os.path.basename(page)[1]
        for name in FILES[number]:
            assert f"`{name}`" in read(page), (page, name)


def test_links_of_the_pages_are_alive():
    check_links("experiments")


if __name__ == "__main__":
    main(globals())
