#!/usr/bin/env python3
"""vitrine lab kernel: kernels of one's own. The ten steps of examples/kernels are right and free of races on the emulated
GPU; what is wrong, hangs, faults, writes elsewhere or does not compile fails with one line that says so."""
import glob, os, re, shlex, shutil, subprocess, tempfile

from tap import *

BUILD = os.environ.get("VITRINE_BUILD", os.path.abspath("build/release"))
EMULATOR = os.path.join(BUILD, "emulator")
GPU = {"LD_LIBRARY_PATH": EMULATOR, "VITRINE_CACHE": os.path.join(os.path.dirname(BUILD), "emulator-cache"),
       "VITRINE_EMULATOR": "cc=90,memory=512"}
SLOW = ["--limit", "600"]  # nothing hangs here, and the machine may be slow
KERNELS = "examples/kernels"

CUDA = """#include "lab_kernel.cuh"
#include "rmsnorm_params.h"
LAB_KERNEL(rmsnorm_params, 128)
{
    i32 t = blockIdx.x * 128 + threadIdx.x;
    if (t >= p.n_rows)
        return;
    const u16 *x = p.x + (i64)(ROWS ? p.row[t] : t) * p.x_stride;
    u16 *y = p.y + (i64)t * p.y_stride;
    float sum = 0.f;
    for (i32 i = 0; i < HIDDEN; i++)
        sum += bf16_f32(x[i]) * bf16_f32(x[i]);
    float scale = rsqrtf(sum / HIDDEN + p.eps);
    for (i32 i = 0; i < HIDDEN; i++)
        y[i] = f32_bf16(bf16_f32(x[i]) * scale * (p.weight[i] + (float)PLUS_ONE));
    /* more */
}
LAB_LAUNCH(rmsnorm_params) { launch.grid = (p.n_rows + 127) / 128; }
"""

C = """#include <math.h>
#include "vitrine_kernel.h"
VITRINE_KERNEL(rmsnorm)
{
    int64_t begin, end;
    vitrine_share(lane, call->n_rows, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = call->x + (call->row ? call->row[t] : t) * call->x_stride;
        float *y = call->y + t * call->y_stride, sum = 0;
        for (int64_t i = 0; i < call->n; i++)
            sum += x[i] * x[i];
        float scale = 1 / sqrtf(sum / (float)call->n + call->eps);
        for (int64_t i = 0; i < call->n; i++)
            y[i] = x[i] * scale * (call->weight[i] + (float)call->plus_one);
    }
    /* more */
    return 0;
}
"""


OTHERS = {
    "add_rmsnorm": """#include "lab_kernel.cuh"
#include "rmsnorm_params.h"
LAB_KERNEL(rmsnorm_params, 32)
{
    i32 t = blockIdx.x;
    const u16 *x = p.x + (i64)t * p.x_stride;
    u16 *r = p.residual + (i64)t * p.residual_stride, *y = p.y + (i64)t * p.y_stride;
    float sum = 0.f;
    for (i32 i = threadIdx.x; i < HIDDEN; i += 32) {
        float s = bf16_f32(x[i]) + bf16_f32(r[i]);
        sum += s * s;
    }
    float scale = rsqrtf(warp_sum(sum) / HIDDEN + p.eps);
    for (i32 i = threadIdx.x; i < HIDDEN; i += 32) {
        float s = bf16_f32(x[i]) + bf16_f32(r[i]);
        r[i] = f32_bf16(s);
        y[i] = f32_bf16(s * scale * (p.weight[i] + (float)PLUS_ONE));
    }
}
LAB_LAUNCH(rmsnorm_params) { launch.grid = p.n_rows; }
""",
    "silu_mul": """#include "lab_kernel.cuh"
#include "silu_mul_params.h"
LAB_KERNEL(silu_mul_params, 64)
{
    const u16 *x = p.x + (i64)blockIdx.y * p.x_stride, *y = APART ? p.up + (i64)blockIdx.y * p.up_stride : x + N;
    i32 i = blockIdx.x * 64 + threadIdx.x;
    if (i >= N)
        return;
    float gate = bf16_f32(x[i]), up = bf16_f32(y[i]);
    p.y[(i64)blockIdx.y * p.y_stride + i] = f32_bf16((GELU ? gelu_tanh(gate) : silu(gate)) * up);
}
LAB_LAUNCH(silu_mul_params) { launch.grid = (N + 63) / 64, launch.grid_y = p.n_tokens; }
""",
    "kv_store": """#include "lab_kernel.cuh"
#include "kv.cuh"
#include "kv_store_params.h"
LAB_KERNEL(kv_store_params, 32)
{
    i32 t = blockIdx.x, slot = p.slot[t];
    for (i32 i = threadIdx.x; i < KV_HEADS * HEAD_DIM; i += 32) {
        i64 to = (((i64)(slot / PAGE) * KV_HEADS + i / HEAD_DIM) * PAGE + slot % PAGE) * HEAD_DIM + i % HEAD_DIM;
        p.k_pool[to] = kv_make(bf16_f32(p.k[(i64)t * p.k_stride + i]) * p.k_inverse, kv_t());
        if (!K_ONLY)
            p.v_pool[to] = kv_make(bf16_f32(p.v[(i64)t * p.v_stride + i]) * p.v_inverse, kv_t());
    }
}
LAB_LAUNCH(kv_store_params) { launch.grid = p.n_tokens; }
"""}


def need_emulator():
    if not os.path.exists(os.path.join(EMULATOR, "libcuda.so.1")):
        skip("no emulator here: make emulator")


def planted(more="", old="/* more */", text=CUDA):
    assert old in text
    return text.replace(old, more)


class Folder:
    """A folder with kernels; so() compiles for the CPU."""

    def __enter__(self):
        self.path = tempfile.mkdtemp()
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)

    def file(self, name, content):
        path = os.path.join(self.path, name)
        with open(path, "wb") as f:
            f.write(content.encode() if isinstance(content, str) else content)
        return path

    def so(self, name, text):
        source, path = self.file(name + ".c", text), os.path.join(self.path, name + ".so")
        subprocess.run([*shlex.split(os.environ.get("CC", "gcc")), "-O1", "-shared", "-fPIC", "-Iinclude", "-o", path, source, "-lm"], check=True)
        return path


def refused(needle, path, *args, code=1, env=None):
    """The verb ends with `code` and one line on stderr; a card may be on stdout."""
    args = [*args] if "--op" in args else ["--op", "rmsnorm", *args]
    r = run("lab", "kernel", path, *args, env=env)
    assert r.code == code, f"{path}: exit {r.code}: {r.log}"
    assert r.log.startswith("vitrine: ") and r.log.count("\n") == 1, f"{path}: not one line: {r.log!r}"
    for n in [needle] if isinstance(needle, str) else needle:
        assert n in r.log, f"{path}: {r.log!r} lacks {n!r}"
    return r


def steps(op):
    found = sorted(glob.glob(f"{KERNELS}/{op}_step*.cu"))
    same([os.path.basename(f)[:len(op) + 6] for f in found], [f"{op}_step{n}" for n in range(1, 6)])
    return found


def check_step(path, op, shape):
    r = ok("lab", "kernel", path, "--op", op, "--shape", shape, "--json", *SLOW, env=GPU).json
    same((r["device"], r["emulated"], r["race_detector"], r["failure"]), ("cuda", True, True, None))
    verdicts = {c["case"]: c["verdict"] for c in r["cases"]}
    assert set(verdicts.values()) <= {"right", "skipped"} and list(verdicts.values()).count("right") >= 5, verdicts
    for c in r["cases"]:
        assert c["verdict"] == "skipped" or c["error"] <= c["tolerance"], c
        skipped_for = ("emulated", "contract", "ranks", "no row of the card takes it on a GPU")
        assert c["verdict"] != "skipped" or any(why in c["why"] for why in skipped_for), c
    return r


def test_the_five_steps_of_rmsnorm_are_right_and_do_not_race():
    """The shape has rows that several warps share, and an odd number of them."""
    need_emulator()
    if SANITIZED:
        skip("the release build does it")
    for path in steps("rmsnorm"):
        r = check_step(path, "rmsnorm", "tokens=3,hidden=8192")
        same([row["implementation"] for row in r["rows"]], ["yours", "rows"])
        same([row["cold_us"] for row in r["rows"]], [None, None])
        assert r["rows"][0]["launch"]["kernel"].startswith("lab_kernel<hidden=8192,rows=0,plus_one=0,")


def test_the_five_steps_of_index_are_right_and_do_not_race():
    need_emulator()
    if SANITIZED:
        skip("the release build does it")
    for path in steps("index"):
        r = check_step(path, "index", "tokens=9,hidden=2568,vocab=50,scaled=1")
        same(r["op"], "embed")
        same([row["implementation"] for row in r["rows"]], ["yours", "gather"])


def test_a_naive_kernel_of_every_other_op_is_right():
    need_emulator()
    if SANITIZED:
        skip("the release build does it")
    with Folder() as d:
        for op, text in OTHERS.items():
            r = ok("lab", "kernel", d.file(op + ".cu", text), "--op", op, "--json", *SLOW, env=GPU).json
            verdicts = [c["verdict"] for c in r["cases"]]
            assert verdicts.count("right") >= 3 and set(verdicts) <= {"right", "skipped"}, r["cases"]
            whys = {c["why"] for c in r["cases"] if c["verdict"] == "skipped"}
            assert all("emulated" in w or "ranks" in w or w == "no row of the card takes it on a GPU" for w in whys), whys
        refused("a race", d.file("store.cu", OTHERS["kv_store"].replace("i / HEAD_DIM)", "0)")), "--op", "store", *SLOW, env=GPU)


def test_the_card_fits_and_says_what_was_skipped():
    need_emulator()
    text = ok("lab", "kernel", steps("rmsnorm")[1], "--op", "rmsnorm", *SLOW, env=GPU).text
    assert max(len(line) for line in text.splitlines()) <= 100, text
    for part in ("CHECK", "6 of 6 cases right", "no data race", "skipped tokens=2048 hidden=4096", "TIME", "HARDWARE",
                 "ROOFLINE", "NEXT"):
        assert part in text, f"{part}: {text}"


def test_every_step_names_its_counter():
    for path in steps("rmsnorm") + steps("index"):
        text = open(path).read()
        assert "ncu --metrics " in text and "Expect" in text, path


def test_a_gpu_kernel_that_is_wrong_says_where():
    need_emulator()
    with Folder() as d:
        def bad(needle, name, text, *args):
            return refused([name + ".cu: ", *needle], d.file(name + ".cu", text), *(args or SLOW), env=GPU)

        bad(["wrong in case tokens=1 hidden=576: row 0, 0: ", "allowed 0.01"], "scale", planted("sum", "sum / HIDDEN"))
        bad(["one.cu: rmsnorm is wrong in case tokens=1 hidden=576: row 0, 5: 3, expected "], "one",
            planted("if (t == 0) y[5] = f32_bf16(3.f);"))
        bad(["wrong in case", "row 0, 575"], "short", planted("i < HIDDEN - 1; i++)\n        y", "i < HIDDEN; i++)\n        y"))
        bad(["it wrote 2 bytes behind the end of y, the first of them 6 bytes behind"], "behind",
            planted("if (t == p.n_rows - 1) y[HIDDEN + 3] = 7;"))
        bad(["it wrote 2 bytes in front of y"], "front", planted("if (t == 0) y[-2] = 7;"))
        bad(["it wrote into x, which the op only reads"], "reads", planted("((u16 *)x)[0] = 7;"))
        bad(["was ended by signal"] if not SANITIZED else ["case tokens=1 hidden=576"], "far",
            planted("if (t == 0) y[(i64)1 << 40] = 7;"))
        bad(["a race", "race.cu:"], "race", planted("__shared__ int s; s = t; __syncthreads(); if (s == -5) y[0] = 0;"))
        if not SANITIZED:  # whose emulator has other memory behind a CTA's
            bad(["shared.cu: case tokens=17 hidden=20: ", "wrote beyond its 16 bytes of shared memory"], "shared",
                planted("__shared__ int s[4]; s[threadIdx.x] = 1; if (s[threadIdx.x] == 7) y[0] = 0;"))
        bad(["did not end within 3 s"], "hang", planted("for (volatile int i = 0;;) i = 0;"), "--limit", "3")


def test_a_gpu_kernel_that_does_not_compile_or_launch_says_why():
    need_emulator()
    with Folder() as d:
        def bad(needle, name, text):
            return refused(needle, d.file(name + ".cu", text), *SLOW, env=GPU)

        bad(["syntax.cu: compiling lab_kernel<", "syntax.cu:16", "error"], "syntax", planted("this is no kernel;"))
        bad(["header.cu", "stdio.h"], "header", "#include <stdio.h>\n" + CUDA)
        bad("LAB_LAUNCH asks for a grid of 0 x 1 x 1", "grid", planted("launch.grid = 0", "launch.grid = (p.n_rows + 127) / 128"))
        bad("4096 threads, expected 1 to 1024", "threads", planted("4096", "128)\n{").replace("4096", "4096)\n{"))
        bad("needs 1048576 bytes of shared memory", "shared", planted("launch.shared_bytes = 1 << 20; launch.grid", "launch.grid"))
        bad("LAB_LAUNCH(...) { ... } is not there", "nolaunch", CUDA[:CUDA.index("LAB_LAUNCH")])
        bad("LAB_KERNEL(...) { ... } is not there", "nokernel", "int x;\n")


def test_a_gpu_kernel_fails_with_its_json_too():
    need_emulator()
    with Folder() as d:
        r = run("lab", "kernel", d.file("a.cu", planted("sum", "sum / HIDDEN")), "--op", "rmsnorm", "--json", *SLOW, env=GPU)
        same(r.code, 1)
        assert r.json["failure"].startswith("a.cu: rmsnorm is wrong in case ") and r.json["rows"] == [], r.json
        assert "wrong" in {c["verdict"] for c in r.json["cases"]}


def test_what_no_process_is_needed_for_is_refused_at_once():
    with Folder() as d:
        good = d.file("good.cu", CUDA)
        refused("No such file", os.path.join(d.path, "none.cu"))
        refused("the file is empty", d.file("empty.cu", ""))
        refused("1048577 bytes, expected at most 1048576", d.file("long.cu", CUDA + "/" * (1048577 - len(CUDA))))
        refused("zero bytes", d.file("zero.cu", CUDA + "\0"))
        refused("LAB_KERNEL", d.file("noise.cu", bytes(1 + (i * i * 7919 >> 5) % 255 for i in range(5000))))
        os.mkdir(os.path.join(d.path, "folder.cu"))
        refused("no ordinary file", os.path.join(d.path, "folder.cu"))
        os.mkfifo(os.path.join(d.path, "pipe.cu"))
        refused("no ordinary file", os.path.join(d.path, "pipe.cu"))
        refused("expected FILE.cu for a GPU or FILE.so for the CPU", d.file("a.txt", CUDA), code=2)
        refused("--device cpu: ", good, "--device", "cpu", code=2)
        refused(["--op 'norm'", "rmsnorm, add_rmsnorm, embed (index)"], good, "--op", "norm", code=2)
        refused("expected some of tokens, hidden", good, "--shape", "width=3", code=2)
        refused("--op silu_mul", d.file("b.so", "x"), "--op", "silu_mul", code=2)
        fails(2, "--op: expected the op", "lab", "kernel", good)
        fails(2, "which kernel?", "lab", "kernel", "--op", "rmsnorm")


def test_a_gpu_kernel_without_a_gpu_says_what_runs_instead():
    with Folder() as d:
        path = d.file("good.cu", CUDA)
        if "no NVIDIA driver here" not in run("lab", "kernel", path, "--op", "rmsnorm").log:
            skip("a driver is here")
        told = refused(["make emulator", "LD_LIBRARY_PATH=build/release/emulator", "a CPU runs a FILE.so", "the head of examples/kernels/rmsnorm.c says how"], path).log
        assert "--device cpu" not in told, told


def test_the_example_for_a_cpu_is_right_and_timed_beside_ours():
    """Compiled by the line that its comment gives."""
    if SANITIZED:
        skip("the release build does it")
    with Folder() as d:
        path = os.path.join(d.path, "rmsnorm.so")
        line = next(l for l in open(f"{KERNELS}/rmsnorm.c") if " gcc " in l).strip("* \n").replace("/tmp/rmsnorm.so", path)
        subprocess.run(line.split(), check=True)
        args = ["lab", "kernel", path, "--op", "rmsnorm", "--threads", "2", "--shape", "tokens=16,hidden=512", *SLOW]
        r = ok(*args, "--json").json
        same({c["verdict"] for c in r["cases"]}, {"right"})
        assert len(r["cases"]) == 9 and r["device"] == "cpu" and not r["emulated"], r
        rows = {row["implementation"]: row for row in r["rows"]}
        assert "yours" in rows and "portable" in rows and rows["yours"]["own"], rows
        same(rows["yours"]["bytes"], rows["portable"]["bytes"])
        same((rows["yours"]["warm_roof"], rows["yours"]["cold_roof"]), ("fp32", "memory"))
        assert all(row["warm_us"] > 0 and row["cold_us"] > 0 for row in rows.values()), rows
        text = ok(*args).text
        assert max(len(line) for line in text.splitlines()) <= 100, text
        assert "9 of 9 cases right" in text and "FLOP/byte" in text, text


EMBED = """#include <string.h>
#include "vitrine_kernel.h"
static float value(const vitrine_embed_call *call, int64_t i)
{
    const unsigned short *half = (const unsigned short *)call->table + i;
    const _Float16 *f16 = (const _Float16 *)call->table + i;
    unsigned bits = (unsigned)*half << 16;
    float bf16;
    memcpy(&bf16, &bits, sizeof bf16);
    return call->table_type == VITRINE_F32 ? ((const float *)call->table)[i]
           : call->table_type == VITRINE_F16 ? (float)*f16 : bf16;
}
VITRINE_KERNEL(embed)
{
    int64_t begin, end;
    vitrine_share(lane, call->n_rows, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        int32_t token = call->token[t] < 0 ? call->pool[-1 - call->token[t]] : call->token[t];
        for (int64_t i = 0; i < call->n; i++)
            call->y[t * call->y_stride + i] = value(call, token * call->table_stride + i) * call->scale;
    }
    return 0;
}
"""


def test_a_cpu_kernel_is_not_asked_for_what_only_ranks_have():
    if SANITIZED:
        skip("the release build does it")
    with Folder() as d:
        path = d.so("embed", EMBED)
        args = ["--op", "embed", "--threads", "2", *SLOW]
        r = ok("lab", "kernel", path, *args, "--shape", "tokens=3,hidden=64,vocab=9", "--json").json
        why = {c["case"]: c["why"] for c in r["cases"] if c["verdict"] == "skipped"}
        same({c["verdict"] for c in r["cases"]}, {"right", "skipped"})
        assert any("part=1" in case for case in why), r["cases"]
        for case, text in why.items():
            assert ("ranks" if "part=1" in case else "of this form") in text, (case, text)
        refused("vitrine_kernel.h has no call of this form", path, *args, "--shape", "tokens=3,part=1")


def test_a_wrong_kernels_card_ends_its_sentences():
    """Each wrong case is told to its end, with digits in which the two numbers differ."""
    with Folder() as d:
        path = d.so("near", planted("", " + call->eps", C))
        card = run("lab", "kernel", path, "--op", "rmsnorm", "--device", "cpu").out.decode()
        same(card.split("\n")[0], "near.so as rmsnorm")
        flat = re.sub(r"\s*\n│\s*", " ", card)
        wrong = re.findall(r"WRONG \S+ \S+: row \d+, \d+: (\S+), expected (\S+) \(allowed error 2e-06\)", flat)
        assert len(wrong) == 4 and all(got != want for got, want in wrong), card
        assert max(map(len, card.split("\n"))) <= 100, card


def test_a_cpu_kernel_that_is_wrong_says_where():
    with Folder() as d:
        def bad(needle, name, text, *args):
            return refused([name + ".so: ", *needle], d.so(name, text), *(args or SLOW))

        def more(statement):
            return planted(statement, text=C)

        bad(["wrong in case tokens=1 hidden=576: row 0, 0: ", "allowed error 2e-06"], "scale",
            planted("sum + call->eps", "sum / (float)call->n + call->eps", C))
        bad(["one.so: rmsnorm is wrong in case tokens=1 hidden=576: row 0, 5: 3, expected "], "one",
            more("if (begin == 0) call->y[5] = 3;"))
        # 3 rows of 1 column are 12 bytes; the pages end 64 bytes behind the operand at the latest
        bad(["behind the end of y"], "little", more("if (call->n == 1) call->y[call->n_rows] = 1;"))
        bad(["in front of y"], "front", more("call->y[-1] = 1;"))
        bad(["it returned 3, expected 0"], "three", planted("return 3;", "return 0;", C))
        bad(["did not end within 3 s"], "hang", more("for (volatile int i = 0;;) i = 0;"), "--limit", "3")
        bad(["was ended by signal 6"], "abort", more("__builtin_trap();").replace("__builtin_trap", "abort")
            .replace("#include <math.h>", "#include <math.h>\n#include <stdlib.h>"))
        if not SANITIZED:  # which has its own handler of faults
            bad(["case tokens=1 hidden=576: it wrote y, ", "behind its end"], "behind", more("call->y[call->n + 4000] = 1;"))
            bad(["it wrote x, which the op only reads"], "reads", more("((float *)call->x)[0] = 1;"))
            bad(["it read address (nil), which belongs to no operand"], "null", more("return *(volatile int *)0;"))
        bad(["its process ended in case tokens=1 hidden=576 with status 0"], "leaves",
            more("_exit(0);").replace("#include <math.h>", "#include <math.h>\n#include <unistd.h>"))


def test_a_shared_object_that_is_none_or_another_is_refused():
    with Folder() as d:
        refused("it cannot be loaded", d.file("text.so", "no library\n"))
        refused("loading it", d.file("cut.so", open(d.so("good", C), "rb").read()[:3000]))
        refused("VITRINE_KERNEL(op) { ... } of vitrine_kernel.h is not in it", d.so("other", "int x;\n"))
        refused("it implements rmsnorm, and --op is embed", d.so("norm", C), "--op", "embed")
        refused("version 7 of vitrine_kernel.h, expected 1", d.so("old", C.replace(
            '#include "vitrine_kernel.h"', '#include "vitrine_kernel.h"\n#undef VITRINE_KERNEL_ABI\n#define VITRINE_KERNEL_ABI 7')))


def test_nothing_of_a_hanging_kernel_is_left():
    with Folder() as d:
        path = d.so("stays", planted("for (volatile int i = 0;;) i = 0;", text=C))
        refused("did not end within 2 s", path, "--limit", "2")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                assert path.encode() not in open(f"/proc/{pid}/cmdline", "rb").read(), f"process {pid} is still there"
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                pass


def test_a_stray_descriptor_in_the_environment_does_no_harm():
    with Folder() as d:
        path = d.so("a", C)
        for fd in ("7", "-1", "0", "", "x", "99999999999"):
            refused("VITRINE_LAB_KERNEL_FD is no report", path, code=2, env={"VITRINE_LAB_KERNEL_FD": fd})


main(globals())
