/* kernel-dev-guide.md: where the code is, how to profile it, how to add a kernel
 * (report/inside.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/report/inside.h"
#include "ops/op.h"

static void overview(vt_buf *b)
{
    vt_buf_puts(
        b, "## Overview\n\nAn op is declared in one place, its card; everything else follows from "
           "it.\n\n```\n"
           "card (src/ops/OP/OP.c)\n"
           "├── cost        exact bytes and FLOPs    -> explain, story, roofline, expectations\n"
           "├── reference   plain scalar C           -> every row is compared with it\n"
           "├── cases       shapes to try            -> tests, bench kernels, labs\n"
           "├── impls       rows, best first         -> what an engine runs\n"
           "└── variants    rows that only labs run  -> what was tried and why it stayed out\n"
           "```\n\n```\n"
           "a call --> vt_op_select --> row --> plan on the host --> parameters --> launch\n"
           "                                                            |\n"
           "                            kernel (.cu, without headers) --+-- NVRTC, cubin cache\n"
           "```\n\n");
}

static void rows_of(const vt_impl *const *rows, const char *title, vt_buf *b)
{
    int n = 0;
    vt_buf_printf(b, "- %s: ", title);
    for (; rows && *rows; rows++, n++)
        vt_buf_printf(b, "%s`%s` (%s%s)", n ? ", " : "", (*rows)->name,
                      (*rows)->device == VT_DEVICE_CUDA ? "GPU" : "CPU",
                      (*rows)->library ? ", a library" : "");
    vt_buf_puts(b, n ? "\n" : "none\n");
}

/* "- card: [src/ops/embed/embed.c: embed_op](...)": a file, and a name that stands in it. */
static void position(const char *what, const char *file, const char *name, vt_buf *b)
{
    vt_buf_printf(b, "- %s: [src/ops/%s: %s](" TO_SOURCES "src/ops/%s)\n", what, file, name, file);
}

static void positions(const report_kernel *k, vt_buf *b)
{
    char name[64];
    position("contract", k->header, k->args, b);
    snprintf(name, sizeof name, "%s_op", k->op);
    position("card", k->card, name, b);
    if (!k->kernel)
        return;
    /* a kernel has the name of its file */
    const char *base = strrchr(k->kernel, '/');
    base = base ? base + 1 : k->kernel;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(base, "."), base);
    position("kernel", k->kernel, name, b);
}

/* Returns true if a knob of these results is this variant: by its name, or "variant NAME of OP". */
static bool is_timed(const report *r, const vt_op *op, const char *variant)
{
    char where[160];
    snprintf(where, sizeof where, "variant %s of %s", variant, op->name);
    for (int i = 0; i < r->n; i++) {
        size_t at;
        json_t *k;
        json_array_foreach(json_object_get(r->result[i], "knobs"), at, k)
        {
            if (strcmp(report_string(k, "name"), variant) == 0 ||
                strcmp(report_string(k, "where"), where) == 0)
                return isfinite(report_number(k, "gain"));
        }
    }
    return false;
}

/* Variants for this device that no knob of these results has timed; returns how many. */
static int put_untimed(const report *r, const vt_op *op, vt_buf *b)
{
    int n = 0;
    vt_device_kind device = r->roofs.is_gpu ? VT_DEVICE_CUDA : VT_DEVICE_CPU;
    for (const vt_impl *const *v = op->variants; v && *v; v++) {
        if ((*v)->device != device || is_timed(r, op, (*v)->name))
            continue;
        vt_buf_printf(b, "%s`%s`", n++ ? ", " : "Next: these results have not timed the variants ",
                      (*v)->name);
    }
    if (n)
        vt_buf_printf(b, "; `vitrine bench kernels %s --variants` does.\n\n", op->name);
    return n;
}

/* The first part of "mini-sglang 02". */
static bool is_of_track(const report *r, const report_kernel *k)
{
    size_t n = strcspn(k->lab, " ");
    return strlen(lab_track_name[r->track]) == n &&
           memcmp(lab_track_name[r->track], k->lab, n) == 0;
}

static void tried_and_next(const report *r, const report_kernel *k, const vt_op *op, vt_buf *b)
{
    if (!is_of_track(r, k)) {
        int n = (int)strcspn(k->lab, " ");
        report_knobs(r, k, b);
        vt_buf_printf(b,
                      "Next: the lab of this kernel is of another track; what it tried is in "
                      "[its guide](" TO_LABS "%.*s/reports/%s/kernel-dev-guide.md#%s).\n\n",
                      n, k->lab, r->machine, k->op);
        return;
    }
    if (report_knobs(r, k, b) == 0)
        vt_buf_printf(b,
                      "no knob of this kernel is in these results; `vitrine lab %s` turns what "
                      "there is\n\n",
                      k->lab);
    if (put_untimed(r, op, b) == 0)
        vt_buf_printf(b,
                      "Next: no variant for this device is left; time other shapes with `vitrine "
                      "bench kernels %s --shape`, or bring a kernel of your own: `vitrine lab "
                      "kernel FILE --op %s`.\n\n",
                      k->op, k->op);
}

static void one_kernel(const report *r, const report_kernel *k, vt_buf *b)
{
    const vt_op *op = vt_op_find(k->op);
    if (!op)
        return;
    vt_buf_printf(b, "### %s\n\n%s.\n\n", k->op, op->what);
    positions(k, b);
    rows_of(op->impls, "rows", b);
    rows_of(op->variants, "variants", b);
    vt_buf_printf(b, "- allowed difference from the reference: %.1e, because %s\n", op->tolerance,
                  op->tolerance_reason);
    vt_buf_printf(b,
                  "- measure: `vitrine bench kernels %s`, on a GPU with `--device cuda`; lab: "
                  "`vitrine lab %s`\n\nTried, verdict, next:\n\n",
                  k->op, k->lab);
    tried_and_next(r, k, op, b);
}

static void profiling(vt_buf *b)
{
    vt_buf_puts(
        b, "## Profiling\n\n```sh\n"
           "# bytes, FLOPs, the row and the expected time of every call, before anything runs\n"
           "vitrine explain --model dummy:qwen3-0.6b --hardware h200\n"
           "# one kernel, its shapes, its rows; cold caches, a graph, a graph with PDL\n"
           "vitrine bench kernels attention_decode --device cuda\n"
           "# a request, op by op\n"
           "vitrine run --model dummy:qwen3-0.6b --story hello\n"
           "# the timeline of the host and the GPU\n"
           "nsys profile --trace=cuda,nvtx,osrt --sample=none -o vitrine_timeline \\\n"
           "    vitrine bench latency --model dummy:qwen3-0.6b --device cuda\n"
           "# counters of one kernel\n"
           "ncu --section MemoryWorkloadAnalysis --section Occupancy --section WarpStateStats \\\n"
           "    --target-processes all -o vitrine_kernel \\\n"
           "    vitrine bench kernels attention_decode --device cuda\n"
           "```\n\n"
           "| metric to read | what it answers |\n|---|---|\n"
           "| `dram__bytes_read.sum`, `dram__bytes_write.sum` | bytes really moved: divide by the "
           "card's bytes |\n"
           "| `lts__t_sector_hit_rate.pct` | what the L2 served |\n"
           "| `sm__warps_active.avg.pct_of_peak_sustained_active` | occupancy as achieved |\n"
           "| `sm__inst_executed_pipe_tensor.sum` | whether the matrix unit works |\n"
           "| `smsp__inst_executed_op_local_ld.sum`, `..._st.sum` | spills |\n"
           "| `smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active` | waiting for "
           "global memory |\n"
           "| `smsp__average_warps_issue_stalled_barrier_per_issue_active` | waiting at barriers "
           "|\n\n");
}

static void adding(vt_buf *b)
{
    vt_buf_puts(
        b,
        "## How to add a kernel\n\n"
        "1. Write down bytes and FLOPs of the call, and which roof that makes the limit: "
        "`vitrine explain` shows what the card says.\n"
        "2. Write the kernel in `src/ops/OP/NAME.cu`, without headers; its parameters are one "
        "struct that the host file shares. Its first comment says shapes, grid, bytes and the "
        "roof.\n"
        "3. Write the row in `src/ops/OP/NAME_cuda.c`: `supports`, `suits`, `describe` (how the "
        "work is cut), `run`.\n"
        "4. Add it to the card's `impls`, at the place where it should be chosen.\n"
        "5. Run every case against the reference: `vitrine bench kernels OP --device cuda`, and "
        "on the emulated GPU for races (`make emulator`).\n"
        "6. Measure it beside the row that was there. Keep it where it is faster; say why in the "
        "comment.\n\n"
        "## How to add a variant\n\nA variant is a row of the card's `variants` list. The engine "
        "never chooses it; the parity test, `vitrine bench kernels OP --variants` and the labs run "
        "it. It is the place for an idea that does not pay here, with its measured verdict.\n\n"
        "## How to bring a kernel of your own\n\n`vitrine lab kernel FILE.cu --op NAME` compiles "
        "it, "
        "checks it on every case of the op, times it beside the rows above and prints its card "
        "([docs/lab-kernel.md](" TO_SOURCES "docs/lab-kernel.md)).\n");
}

void report_guide(const report *r, vt_buf *b)
{
    report_head(r, b, "guide for developers of kernels",
                "Where the code is, how to profile it, what was tried, how to add a kernel.");
    overview(b);
    profiling(b);
    vt_buf_puts(b, "## Kernels\n\n");
    for (const report_kernel *k = report_kernels; k->op; k++)
        one_kernel(r, k, b);
    adding(b);
}
