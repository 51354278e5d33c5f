#!/usr/bin/env python3
"""The labs of the track mini-sglang on a CPU: results that hold every item, the scripts of the documents, the pages."""
from labs import *
from labs_named import check_named

# What each lab must tell: (process, hardware).
ITEMS = {
    "00_check_env": (["compiler", "jit_ready", "cache_place", "cache", "template_parameters", "compile_flags",
                      "dependencies", "libraries", "tools", "kernels", "nccl", "troubleshooting", "ready"],
                     ["gpus", "topology"]),
    "01_test_kernels": (["order", "kernels", "tolerance"], ["state"]),
    "02_profile_index": (["variants", "warps_splits", "vector", "bytes", "sweep", "threads"],
                         ["card", "coalescing", "bandwidth", "launch_floor", "counters"]),
    "03_profile_store": (["rows", "one_launch", "async_copies", "patterns", "duplicates"],
                         ["card", "coalescing", "bandwidth", "sorting", "sorting_layers"]),
    "04_profile_attention": (["compare", "chosen", "chosen_why", "trail"],
                             ["card_prefill", "card_decode", "occupancy", "matrix_unit", "stalls"]),
    "05_profile_comm": (["sizes", "measured", "one_shot", "two_shot", "nccl", "buffer_copy", "avoid_copy", "threshold",
                         "layer_share", "pass_share"], ["card", "link", "link_peer", "skew", "sync"]),
    "06_full_pipeline": (["labs", "timeline", "trace", "nsys", "report"], ["kernels", "step", "counted", "hardware", "waits"]),
    "radix_profile_radix": (["length", "first_mismatch", "vector_width", "rows", "step_share"],
                            ["card", "l1_roof", "l2_roof", "l3_roof", "memory_roof"]),
}
# Commands of the documents, to be run inside the track's folder, and what they must come to.
COMMANDS = {
    "python scripts/00_check_env.py": "00",
    "python scripts/01_test_kernels.py": "01",
    "python scripts/02_profile_index.py": "02",
    "python scripts/02_profile_index.py --sweep": "02 --sweep",
    "python scripts/03_profile_store.py --compare-patterns": "03 --compare-patterns",
    "python scripts/04_profile_attention.py --compare": "04 --compare",
    "python scripts/04_profile_attention.py --sweep": "04 --sweep",
    "python scripts/05_profile_comm.py --analyze": "05 --analyze",
    "./scripts/06_full_pipeline.sh --quick": "06 --quick",
    "./scripts/06_full_pipeline.sh --all": "06 --all",
    "./scripts/06_full_pipeline.sh --nsys": "06 --nsys",
    "./scripts/radix_profile_radix --sweep": "radix --sweep",
}

track = Track("mini-sglang")
place, result, script = track.place, track.result, track.script


def test_every_command_of_the_documents_starts_its_lab():
    track.means(COMMANDS)
    track.means({"./scripts/" + name: name.split("_")[0] for name in ITEMS})  # and the plain names


def test_an_option_that_the_labs_do_not_have_is_refused_by_name():
    track.refuses({"python scripts/04_profile_attention.py --attention-backend flashinfer": "--attention-backend",
                   "python scripts/02_profile_index.py --tensor-parallel-size 2": "--tensor-parallel-size",
                   "./scripts/06_full_pipeline.sh --quik": "--quik"})


def test_scripts_find_the_program_in_a_build_folder_above():
    folder = os.path.join(scratch(), "build")
    os.mkdir(folder)
    shutil.copy(program("vitrine", "echo found"), folder)
    for command in ("python scripts/00_check_env.py", "./scripts/06_full_pipeline.sh"):
        p = subprocess.run([sys.executable, *command.split()[1:]] if command.startswith("python") else [command],
                           cwd=place(), env={k: v for k, v in clean_env().items() if k != "VITRINE"},
                           stdout=subprocess.PIPE, timeout=LIMIT_S)
        same((p.returncode, p.stdout.strip()), (0, b"found"), command)


def test_the_pipeline_runs_every_lab_and_each_tells_every_item():
    r = script("./scripts/06_full_pipeline.sh --quick")
    assert r.code == 0, r.text + r.log
    for name, (process, hardware) in ITEMS.items():
        lab = result(name)
        same((lab["schema"], lab["track"], lab["quick"]), ("vitrine.lab", "mini-sglang", True), name)
        told(lab, process + hardware)
        checks_hold(lab)
        assert lab["knobs"], f"{name} turns no knob"
        check_named("mini-sglang", name, lab)
        assert lab["predictions"], f"{name} predicts nothing"
    report = open(os.path.join(place(), "results", "local", "full_pipeline.txt"), encoding="utf-8").read()
    for name in ITEMS:
        assert name.startswith("06") or name.replace("_", " ", 1) in report, name


def test_the_environment_script_runs_as_the_documents_say():
    r = script("python scripts/00_check_env.py")
    assert r.code == 0 and "environment is READY" in r.text, (r.code, r.text[-2000:], r.log)


def test_the_documents_shapes_are_among_those_measured():
    def shapes(name):
        return json.dumps(result(name))
    for name, needles in {"02_profile_index": ["tokens=64 type=F16 vocab=4096 hidden=4096"],
                          "03_profile_store": ["tokens=64 kv_heads=8 head_dim=128"],
                          "04_profile_attention": ["prefill of 512", "heads=32"],
                          "05_profile_comm": ["8 MiB"],
                          "radix_profile_radix": ["1024 equal ids"]}.items():
        for n in needles:
            assert n in shapes(name), (name, n)


def test_one_kernel_can_be_asked_for_and_an_unknown_one_is_refused():
    folder = os.path.join(scratch(), "one")
    args = ["lab", "mini-sglang", "01", "--quick", "--no-predict", "--results", folder, *model()]
    lab = ok(*args, "--kernel", "rmsnorm", "--json").json
    assert lab["items"]["kernels"]["rows"], lab["items"]["kernels"]
    for row in lab["items"]["kernels"]["rows"]:
        assert "rmsnorm" in text_of(row[0]), row
    fails(2, ["--kernel warp", "prefix_match"], *args, "--quiet", "--kernel", "warp")


NCU = """while [ "$1" != --log-file ]; do shift; done
case "$*" in *rows-32b*) n=500 ;; *) n=1000 ;; esac
cat > "$2" <<END
"ID","Kernel Name","gpu__time_duration.sum","lts__t_sectors.sum","smsp__inst_executed.sum",\
"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
"","","ns","sector","inst","inst"
"0","embed_rows<stand in>","12,000","32,768","$n","6.0"
END
""".replace("\\\n", "")


def test_counters_of_the_gather_say_why_wider_vectors_gain_nothing():
    gpu = os.path.join(os.path.dirname(BIN), "release", "emulator")
    if not os.path.exists(os.path.join(gpu, "libcuda.so.1")):
        skip("no emulator here: make emulator")
    ncu = program("ncu", NCU)
    r = run("lab", "mini-sglang", "02", "--quick", "--no-predict", "--ncu", "--device", "cuda", "--json", "--results",
            os.path.join(scratch(), "ncu"),
            env={"LD_LIBRARY_PATH": gpu, "VITRINE_EMULATOR": "cc=90,memory=512",
                 "PATH": os.path.dirname(ncu) + os.pathsep + os.environ["PATH"]})
    assert r.code == 0, r.log[-2000:]
    check_named("mini-sglang", "02_profile_index", r.json)
    rows = {text_of(row[0]): [text_of(c) for c in row] for row in r.json["items"]["counters"]["rows"]}
    same((rows["rows"][3], rows["rows-32b"][3:5]), ("1.05 MB", ["1.05 MB", "500"]), "bytes of L2, instructions")
    why = {k["name"]: k["why"] for k in r.json["knobs"]}
    assert "1.05 MB of L2 where the plain form asks for 1.05 MB, 500 instructions" in why["wider vectors: 32 bytes"], why
    assert "long_scoreboard" in why["shared-memory staging"] and "long_scoreboard" in why["warp shuffles"], why


CARD_NCU = """for a in "$@"; do [ "$p" = --kernel-name ] && k=${a#regex:}; p=$a; done
while [ "$1" != --log-file ]; do shift; done
cat > "$2" <<END
"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum","lts__t_sector_hit_rate.pct",\
"sm__cycles_active.avg.pct_of_peak_sustained_elapsed","l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",\
"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active","sm__warps_active.avg.pct_of_peak_sustained_active",\
"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",\
"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
"","","ns","byte","%","%","inst","%","%","inst","inst"
"0","$k","12,000","4,194,304","12","97.5","31","41","24","6.0","2.0"
END
""".replace("\\\n", "")


# As ncu does where another program reads the counters.
FAILED_NCU = """while [ "$1" != --log-file ]; do shift; done
echo "==PROF== Connected" > "$2"; echo "==ERROR== a driver resource was unavailable" >> "$2"; exit 9
"""


def test_the_card_of_every_lab_of_a_kernel_tells_what_ncu_counted():
    gpu = os.path.join(os.path.dirname(BIN), "release", "emulator")
    if not os.path.exists(os.path.join(gpu, "libcuda.so.1")):
        skip("no emulator here: make emulator")
    for track, number, key, kernel, file in (("mini-sglang", "03", "card", "kv_store", "ncu_03_card.csv"),
                                             ("flashinfer", "04", "explanation", "rmsnorm", "ncu_04_explanation.csv"),
                                             ("flashinfer", "05", "explanation", "rope", "ncu_05_explanation.csv")):
        for good in (True, False):
            ncu = program("ncu", CARD_NCU if good else FAILED_NCU)
            folder = os.path.join(scratch(), "ncu-card")
            r = run("lab", track, number, "--quick", "--no-predict", "--ncu", "--device", "cuda", "--json", "--results", folder,
                    env={"LD_LIBRARY_PATH": gpu, "VITRINE_EMULATOR": "cc=90,memory=512",
                         "PATH": os.path.dirname(ncu) + os.pathsep + os.environ["PATH"]})
            assert r.code == 0, r.log[-2000:]
            card = " ".join(r.json["items"][key]["drawing"].split())
            if not good:
                assert "not measured here, because ncu ended with status 9: a driver resource was unavailable (see" in card and "T3" not in r.json["tier"], card
                continue
            for words in ("SMs busy 98 % of the time, matrix unit 41 % of that", "(4.19 MB moved), L2 hits 12 %",
                          "occupancy reached 24 %, 31 bank conflicts [counted by ncu]",
                          "├── stalls long_scoreboard 75 %: waits for data from memory or L2; barrier 25 %: waits for other warps",
                          "B of shared memory a CTA"):
                assert words in card, (track, number, words, card)
            assert "without counters" not in card and "T3" in r.json["tier"], (card, r.json["tier"])
            assert kernel in open(os.path.join(folder, track, "results", "local", file), encoding="utf-8").read(), file
            assert any(e["text"].startswith("ncu ") for e in r.json["events"]), r.json["events"]


def test_an_unknown_lab_is_refused():
    fails(2, ["mini-sglang", "07"], "lab", "mini-sglang", "07")


def test_nsys_is_used_where_it_is_and_its_failure_is_seen():
    for status in (0, 3):
        nsys = program("nsys", f'echo "$*"; while [ "$1" != --output ]; do [ "$1" ] || exit 1; shift; done; echo x > "$2.nsys-rep"; exit {status}')
        r = script("./scripts/06_full_pipeline.sh --quick --nsys",
                   PATH=os.path.dirname(nsys) + os.pathsep + os.environ["PATH"])
        lab = result("06_full_pipeline")
        same(r.code, 0, r.log)
        item = lab["items"]["nsys"]
        assert "full_pipeline.nsys-rep" in item["drawing"] if status == 0 else f"status {status}" in item["missing"], item
        log = open(os.path.join(place(), "results", "local", "nsys.log"), encoding="utf-8").read()
        assert "profile" in log and "--ignore-eos" in log and "/proc/self" not in log, log
        same("full_pipeline.nsys-rep" in [f["name"] for f in lab["files"]], status == 0)


def test_a_lab_that_cannot_leave_its_result_fails_the_pipeline():
    path = os.path.join(place(), "results", "local", "03_profile_store.json")
    os.remove(path)
    os.mkdir(path)
    try:
        r = script("./scripts/06_full_pipeline.sh --quick")
        assert r.code != 0, r.text
    finally:
        os.rmdir(path)


# ---- pages ----

def test_every_lab_has_a_page_with_all_its_parts():
    check_pages("mini-sglang", ITEMS)


def test_links_of_the_pages_are_alive():
    check_links("mini-sglang")


if __name__ == "__main__":
    main(globals())
