#!/usr/bin/env python3
"""The labs of the track sglang: each tells every item, its scripts and pages are alive, other tools are wrapped."""
from labs import *
from labs_named import check_named

BUILD = os.environ.get("VITRINE_BUILD", "build/release")
GPU = {"LD_LIBRARY_PATH": os.path.join(BUILD, "emulator"), "VITRINE_EMULATOR": "cc=90,memory=512",
       "VITRINE_CACHE": os.path.join(os.path.dirname(BUILD), "emulator-cache")}
# Each named thing of the rows of the plan: the process, then the hardware.
ITEMS = {
    "00_check_env": ["topology", "gpus", "links", "groups", "crossings", "memory_roofs", "compute_roofs", "interconnect",
                     "peer_links", "tiers"],
    "01_baseline_perf": ["tokenise", "match", "plan", "steps", "prefill", "layer_ops", "itl_slope", "batch", "transition",
                         "latency", "phase_shares", "flips", "counted", "hardware", "waits"],
    "02_radix_cache_analysis": ["hit_miss", "cold_warm", "length_gain", "causal", "concurrent", "eviction", "tree_before",
                                "tree_after", "pressure", "skipped", "access_hit", "access_miss"],
    "03_backend_comparison": ["chosen", "plan_cost", "same_inputs", "engines", "whole_engine", "stalls", "occupancy",
                              "roof_share", "where_wins"],
    "04_timeline_profile": ["load", "steps", "gaps", "slowest_step", "overlap", "kernel_order", "trace", "html",
                            "nsys"],
    "05_attention_deep_dive": ["tiles", "work", "roles", "card", "occupancy", "roofline", "stalls", "counters"],
    "06_tp_scaling": ["flow", "prediction", "share", "scaling", "skew", "transfer", "link_roof", "sync", "fast_link", "buffers"],
}
# What a CPU cannot show; every other item is told there.
MISSING_ON_CPU = {"gpus", "links", "groups", "peer_links", "counted", "hardware", "waits", "pressure", "stalls", "counters", "nsys", "skew", "transfer", "fast_link",
                  "sync", "interconnect", "scaling"}


def lab(number, d, *args, env=None):
    """Runs a lab with one thread, which other programs of a busy machine disturb least."""
    name = next(n for n in ITEMS if n.startswith(number))
    r = run("lab", "sglang", number, "--quick", "--no-predict", "--again", "--threads", "1", "--results", d, *args, env=env)
    path = os.path.join(d, "sglang", "results", "local", name + ".json")
    return r, json.load(open(path)) if os.path.exists(path) else None


def check_lab(number, *args, env=None, knobs=True):
    need_model()
    name = next(n for n in ITEMS if n.startswith(number))
    with tempfile.TemporaryDirectory() as d:
        r, result = lab(number, d, *args, env=env)
        assert r.code == 0, r.log[-3000:] + r.text[-3000:]
        missing = told(result, ITEMS[name])
        assert missing <= MISSING_ON_CPU, missing
        check_named("sglang", name, result)
        checks_hold(result)
        for k in result["knobs"]:
            assert k["why"] and k["verdict"], k
        assert result["knobs"] or not knobs, "no knob was turned"
        assert all(len(line) <= 100 for line in r.text.split("\n")), [s for s in r.text.split("\n") if len(s) > 100]
        return result


def test_check_env_tells_every_item():
    result = check_lab("00")
    roofs = result["roofs"]
    low = roofs["memory_bytes_per_s"]["value"] < 0.97 * roofs["copy_bytes_per_s"]["value"]
    same(any(f["rule"] == "roofs.doubt" for f in result["findings"]),
         low or any(r["tag"] == "disturbed" for r in roofs.values()), "a roof that may be too low is told")


def test_measured_speeds_fail_no_lab():
    """Other programs and sanitizers make caches seem slower than memory: no check compares measured speeds."""
    with tempfile.TemporaryDirectory() as d:
        r, result = lab("00", d, "-m", DUMMY)
        same(r.code, 0, r.text)
        assert result["checks"] and not any("faster" in c["text"] for c in result["checks"]), r.text


def test_baseline_tells_every_item_and_its_options_hold():
    result = check_lab("01", "--prompt", "40", "--gen", "6", "--requests", "3", "--concurrency", "2")
    same([r[1] for r in rows(result["items"]["latency"])], ["1", "1", "3"])
    most = max(int(r[1]) + int(r[2]) for r in rows(result["items"]["batch"]) if r[1].isdigit())
    same(most, 2, "sequences in a step with --concurrency 2")
    assert "40 prompt tokens" in result["items"]["steps"]["drawing"], result["items"]["steps"]


def test_radix_tells_hits_and_evictions():
    result = check_lab("02")
    items = result["items"]
    same([r[1] for r in rows(items["cold_warm"])], ["0", "1023"])
    half = next(r for r in rows(items["causal"]) if r[0].startswith("512"))
    same(half[1:3], ["25 %", "50 %"])
    gone = sum(int(r[1]) for r in rows(items["eviction"]))
    assert gone > 0, items["eviction"]
    assert items["tree_before"]["drawing"] != items["tree_after"]["drawing"]
    assert "0 free" in items["tree_after"]["drawing"], items["tree_after"]["drawing"]


def test_backends_are_compared_by_name():
    result = check_lab("03", "--backends", "portable,fa2", knobs=False)
    runs = {r[1] for r in rows(result["items"]["same_inputs"])}
    same(runs, {"portable"})
    assert any("fa2" in f["text"] for f in result["findings"]), result["findings"]
    assert result["items"]["whole_engine"]["rows"], "no level of a whole engine ran"


# `nsys profile` runs the program and leaves a report, or where NSYS_LEAVES says so the stream that it is made of; `nsys stats` prints a CSV.
NSYS = """[ "$1" = profile ] && {
    echo "$*" > "$NSYS_ASKED"
    while [ "$1" != --output ]; do shift; done
    echo report > "$2.${NSYS_LEAVES:-nsys-rep}"; shift 2; exec "$@" > /dev/null
}
case "$*" in
*nvtx_sum*) cat <<END
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range
90.0,9000000,1,9000000.0,9000000.0,9000000,9000000,0.0,StartEnd,:request 1
6.0,600000,1,600000.0,600000.0,600000,600000,0.0,PushPop,:step 1
4.0,400000,1,400000.0,400000.0,400000,400000,0.0,PushPop,:step 2
3.0,300000,3,100000.0,100000.0,100000,100000,0.0,PushPop,:L00.linear.qkv
2.0,200000,2,100000.0,100000.0,100000,100000,0.0,PushPop,:L01.linear.qkv
END
;;
*) echo "SKIPPED: there is no kernel" ;;
esac
"""


def test_timeline_writes_a_trace_and_wraps_nsys():
    with tempfile.TemporaryDirectory() as d:
        program("nsys", NSYS, d)
        out = os.path.join(d, "trace.json")
        asked = os.path.join(d, "asked")
        result = check_lab("04", "--nsys", "--out", out, env={"PATH": d + ":" + os.environ["PATH"], "NSYS_ASKED": asked})
        lines = [" ".join(line.split()) for line in result["items"]["nsys"]["drawing"].splitlines()]
        for line in ("timeline.nsys-rep: 7 B; nsys-ui opens it. nsys stats says of it:", "request 1 9.00 ms, 9.00 ms each",
                     "step 2 1.00 ms, 500 us each", "linear.qkv 5 500 us, 100 us each"):
            assert line in lines, (line, lines)
        said = open(asked, encoding="utf-8").read()
        for word in ("--trace=nvtx ", "--sample=none", "--cpuctxsw=none", "--capture-range=nvtx", "--nvtx-capture=request 1"):
            assert word in said, (word, said)
        assert "/proc/self" not in said, said
        trace = json.load(open(out))
        assert len(trace["traceEvents"]) > 100
        steps = rows(result["items"]["steps"])
        assert any(int(r[1]) and int(r[2]) for r in steps if r[1].isdigit()), "no step mixes decodes and a prompt"


def test_a_trace_that_nsys_cannot_make_a_report_of_is_kept():
    """As the nsys in Nsight Compute's folder does: it says that it has no importer, ends with 0 and leaves NAME.qdstrm."""
    need_model()
    with tempfile.TemporaryDirectory() as d:
        program("nsys", NSYS, d)
        r, result = lab("04", d, "--nsys", env={"PATH": d + ":" + os.environ["PATH"], "NSYS_ASKED": os.devnull, "NSYS_LEAVES": "qdstrm"})
        same(r.code, 0, r.log)
        text = result["items"]["nsys"]["text"]
        for words in ("made no report of it: it has no importer", "nsys-ui of Nsight Systems opens the file", "QdstrmImporter -i timeline.qdstrm makes timeline.nsys-rep"):
            assert words in text, (words, text)
        assert "timeline.qdstrm" in [f["name"] for f in result["files"]], result["files"]


def test_an_importer_beside_nsys_makes_the_report():
    """Nsight Compute has one in a folder where its nsys does not look."""
    need_model()
    with tempfile.TemporaryDirectory() as d:
        for folder in ("target", "host"):
            os.mkdir(os.path.join(d, folder))
        program("nsys", NSYS, os.path.join(d, "target"))
        program("QdstrmImporter", 'echo "$0: libdw.so.1: cannot open shared object file"; exit 127', os.path.join(d, "host"))
        env = {"PATH": os.path.join(d, "target") + ":" + os.environ["PATH"], "NSYS_ASKED": os.devnull, "NSYS_LEAVES": "qdstrm"}
        _, result = lab("04", d, "--nsys", env=env)
        assert "made no report of it: QdstrmImporter: libdw.so.1: cannot open" in result["items"]["nsys"]["text"], result["items"]["nsys"]
        program("QdstrmImporter", 'cp "$2" "$4"', os.path.join(d, "host"))
        r, result = lab("04", d, "--nsys", env=env)
        same(r.code, 0, r.log)
        assert "timeline.nsys-rep: 7 B" in result["items"]["nsys"]["drawing"], result["items"]["nsys"]
        files = [f["name"] for f in result["files"]]
        assert "timeline.nsys-rep" in files and "timeline.qdstrm" not in files, files


def test_a_failing_nsys_is_a_missing_item():
    need_model()
    with tempfile.TemporaryDirectory() as d:
        program("nsys", "exit 3\n", d)
        r, result = lab("04", d, "--nsys", env={"PATH": d + ":" + os.environ["PATH"]})
        same(r.code, 0, r.log)
        assert "status 3" in result["items"]["nsys"]["missing"], result["items"]["nsys"]


def test_a_full_disk_fails_the_lab():
    need_model()
    with tempfile.TemporaryDirectory() as d:
        r, _ = lab("04", d, "--out", "/dev/full")
        assert r.code != 0 and "/dev/full" in r.log, (r.code, r.log)


def test_attention_tells_every_item():
    result = check_lab("05")
    assert "FLOP/byte" in result["items"]["roofline"]["drawing"]


def test_ranks_are_predicted_from_bytes():
    result = check_lab("06", "--ranks", "1,2,8", "--link", "host")
    items = result["items"]
    same({r[2] for r in rows(items["prediction"])}, {"2", "8"})
    assert any(r[0] == "8 MB" for r in rows(items["prediction"]))
    same(items["flow"]["drawing"].count("ALL-REDUCE"), 2)
    assert "8 ranks need a thread each" in items["scaling"]["missing"], items["scaling"]


def test_two_ranks_run_the_request_where_two_threads_are():
    items = check_lab("06", "--ranks", "1,2,8", "--threads", "2")["items"]
    same([r[0] for r in rows(items["scaling"])], ["1", "2"], "8 ranks need 8 threads")
    assert "waits" in items["skew"]["text"] and "B/s" in items["transfer"]["text"], items


def test_wrong_options_are_refused_by_name():
    need_model()
    with tempfile.TemporaryDirectory() as d:
        for number, option, value in (("06", "--ranks", "0"), ("06", "--link", "x"), ("05", "--kernel", "rope"),
                                      ("06", "--ranks", "2,"), ("06", "--link", ""), ("06", "--devices", "x"),
                                      ("03", "--backends", "fa9"), ("03", "--backends", "fa2"), ("03", "--backends", ""),
                                      ("03", "--backends", "fa2,fa2,fa2,fa2,fa2")):
            r, result = lab(number, d, option, value)
            assert r.code == 2 and option in r.log and result is None, (option, r.code, r.log)


NCU = """while [ "$1" != --log-file ]; do shift; done
cat > "$2" <<'END'
==PROF== Connected
"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum","%s","%s"
"","","ns","byte","inst","inst"
"0","attention_decode<stand in>","12,000","4,194,304","6.0","2.0"
END
""" % tuple(f"smsp__average_warps_issue_stalled_{r}_per_issue_active.ratio" for r in ("long_scoreboard", "barrier"))


def test_ncu_is_wrapped_and_its_counters_are_told():
    if not os.path.exists(os.path.join(BUILD, "emulator", "libcuda.so.1")):
        skip("no emulator here: make emulator")
    with tempfile.TemporaryDirectory() as d:
        program("ncu", NCU, d)
        r, result = lab("05", d, "--ncu", "--kernel", "attention_decode", "--device", "cuda",
                        env={**GPU, "PATH": d + ":" + os.environ["PATH"]})
        assert r.code == 0, r.log[-2000:] + r.text[-2000:]
        told(result, ITEMS["05_attention_deep_dive"])
        stalls = rows(result["items"]["stalls"])
        same([(row[0], row[2]) for row in stalls], [("long_scoreboard", "75 %"), ("barrier", "25 %")])
        same(rows(result["items"]["counters"])[1][1], "4.19 MB")
        assert any(f["rule"] == "stall.largest" and "long_scoreboard" in f["text"] for f in result["findings"])


# ---- the folder ----

track = Track("sglang")
# Commands of the documents, and what they must come to.
COMMANDS = {
    "python scripts/00_check_env.py": "00",
    "python scripts/01_baseline_perf.py": "01",
    "python scripts/02_radix_cache_analysis.py": "02",
    "python scripts/03_backend_comparison.py": "03",
    "bash scripts/04_nsys_profile.sh": "04 --nsys",
    "bash scripts/05_ncu_attention.sh": "05 --ncu",
    "bash scripts/06_tp_scaling.sh": "06",
}


def test_every_command_of_the_documents_starts_its_lab():
    track.means(COMMANDS)
    track.means({"./scripts/" + name: name[:2] for name in ITEMS})  # and the plain names


def test_an_option_that_the_labs_do_not_have_is_refused_by_name():
    track.refuses({"python scripts/03_backend_comparison.py --attention-backend flashinfer": "--attention-backend",
                   "python scripts/01_baseline_perf.py --num-prompts 100": "--num-prompts",
                   "bash scripts/06_tp_scaling.sh --tp 2": "--tp"})


def test_a_script_runs_its_lab():
    r = track.script("python scripts/00_check_env.py --quick")
    assert r.code == 0 and "LAB sglang 00 check_env" in r.text, (r.code, r.text, r.log)


def test_without_the_program_a_script_says_how_to_get_it():
    r = track.script("./scripts/00_check_env", VITRINE="", PATH="/usr/bin:/bin")
    same((r.code, "set VITRINE=" in r.log), (127, True), r.log)


def test_pages_have_every_part():
    check_pages("sglang", ITEMS, "## In our sources", "## What cannot be shown", 200)


def test_links_of_pages_are_alive():
    check_links("sglang")


main(globals())
