/* INDEX.md: where to begin (report/inside.h). */
#include <stdio.h>
#include <string.h>

#include "lab/kit/list.h"
#include "lab/report/inside.h"

/* "python3 scripts/00_check_env.py": how a script is started inside the track's folder. */
static void put_script(const char *alias, vt_buf *b)
{
    vt_buf_printf(b, "`%s/%s`", strstr(alias, ".py") ? "python3 scripts" : "./scripts", alias);
}

static void put_step(int n, const char *what, const lab_def *d, vt_buf *b)
{
    vt_buf_printf(b, "%d. %s: `vitrine lab %s %s --quick`", n, what, lab_track_name[d->track],
                  d->number);
    if (d->alias[0]) {
        vt_buf_puts(b, " (in this track's folder also ");
        put_script(d->alias[0], b);
        vt_buf_putc(b, ')');
    }
    vt_buf_putc(b, '\n');
}

static void quick_start(const report *r, vt_buf *b)
{
    const char *track = lab_track_name[r->track];
    const lab_def *whole = NULL;
    vt_buf_puts(b, "## Quick start\n\n");
    if (r->n < 2) {
        vt_buf_puts(b, "This program has no labs of this track.\n\n");
        return;
    }
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->lab[i]->name, "full_pipeline") == 0)
            whole = r->lab[i];
    put_step(1, "Begin", r->lab[0], b);
    put_step(2, "Then", r->lab[1], b);
    if (whole)
        put_step(3, "The whole track in one lab", whole, b);
    else
        vt_buf_printf(b, "3. The whole track: `vitrine lab %s all --quick`\n", track);
    vt_buf_printf(b,
                  "\n`vitrine lab %s all` runs what is open, `vitrine lab %s report` writes "
                  "these pages, `vitrine lab status` says what is done.\n\n",
                  track, track);
}

static void layout(const report *r, vt_buf *b)
{
    vt_buf_printf(b, "## Layout\n\n```\nlabs/%s/\n", lab_track_name[r->track]);
    vt_buf_puts(b, "├── NN_name.md    a page a lab: goal, concept, command, output, questions\n"
                   "├── scripts/      one-line wrappers under the familiar names\n"
                   "├── results/      MACHINE/NN_name.json; results/local is not committed\n"
                   "└── reports/      MACHINE/: these pages, generated from the results\n```\n\n");
    vt_buf_puts(b, "| report | what it has |\n|---|---|\n");
    for (const report_page *p = report_pages; p->name; p++)
        if (!p->experiments || r->track == LAB_EXPERIMENTS)
            vt_buf_printf(b, "| [%s](%s) | %s |\n", p->name, p->name, p->what);
    vt_buf_putc(b, '\n');
}

/* The options that a lab of its own has; a test holds that the program knows them. */
static const struct {
    const char *lab, *options;
} usages[] = {{"sglang 01", "[--requests N] [--concurrency N] [--prompt N] [--gen N]"},
              {"sglang 02", "[--pressure]"},
              {"sglang 03", "[--backends A,B] [--ncu]"},
              {"sglang 04", "[--out FILE] [--nsys]"},
              {"sglang 05", "[--kernel NAME] [--ncu]"},
              {"sglang 06", "[--ranks 1,2,4] [--devices 0,1] [--link p2p,host]"},
              {"mini-sglang 01", "[--kernel NAME]"},
              {"mini-sglang 02", "[--sweep] [--ncu]"},
              {"mini-sglang 03", "[--compare-patterns]"},
              {"mini-sglang 04", "[--compare] [--sweep] [--ncu]"},
              {"mini-sglang 05", "[--analyze]"},
              {"mini-sglang 06", "[--all] [--timeline] [--nsys]"},
              {"mini-sglang radix", "[--sweep]"},
              {"flashinfer 01", "[--kernel NAME]"},
              {"flashinfer 02", "[--sweep] [--ncu]"},
              {"flashinfer 03", "[--sweep] [--ncu]"},
              {"flashinfer 04", "[--sweep]"},
              {"flashinfer 05", "[--sweep]"},
              {"flashinfer 06", "[--cold]"},
              {"experiments 1", "[--stop]"},
              {"experiments 2", "[--requests N] [--concurrency N] [--prompt N] [--gen N]"},
              {"experiments 4", "[--nsys]"},
              {"experiments 5", "[--requests N] [--concurrency N] [--prompt N] [--gen N]"}};

static void put_usage(const lab_def *d, vt_buf *b)
{
    char name[64];
    snprintf(name, sizeof name, "%s %s", lab_track_name[d->track], d->number);
    vt_buf_printf(b, "`vitrine lab %s [--quick]", name);
    for (size_t i = 0; i < sizeof usages / sizeof *usages; i++)
        if (strcmp(usages[i].lab, name) == 0)
            vt_buf_printf(b, " %s", usages[i].options);
    vt_buf_putc(b, '`');
}

static void scripts(const report *r, vt_buf *b)
{
    vt_buf_puts(b, "## Labs and scripts\n\nA script takes the options of its lab.\n\n"
                   "| lab | what one knows afterwards | usage | as a script | result |\n"
                   "|---|---|---|---|---|\n");
    for (int i = 0; i < r->n; i++) {
        const lab_def *d = r->lab[i];
        vt_buf_printf(b, "| [%s %s](" TO_TRACK "%s%s_%s.md) | ", d->number, d->name,
                      r->track == LAB_EXPERIMENTS ? "0" : "", d->number, d->name);
        report_cell(b, d->goal);
        vt_buf_puts(b, " | ");
        put_usage(d, b);
        vt_buf_puts(b, " | ");
        for (int k = 0; k < LAB_MAX_ALIASES && d->alias[k]; k++) {
            vt_buf_puts(b, k ? ", " : "");
            put_script(d->alias[k], b);
        }
        vt_buf_puts(b, d->alias[0] ? " | " : "none | ");
        if (!r->result[i])
            vt_buf_puts(b, "not run here yet |\n");
        else
            vt_buf_printf(b, "%s, machine %s |\n",
                          json_is_true(json_object_get(r->result[i], "quick")) ? "quick" : "full",
                          report_string(r->result[i], "state"));
    }
    vt_buf_putc(b, '\n');
}

static void paths(vt_buf *b)
{
    vt_buf_puts(
        b, "## Learning paths\n\n"
           "The [plan of the labs](" TO_LABS "PLAN.md#learning-paths) has each path with its pages "
           "and questions; these are its commands.\n\n"
           "**Beginner** (an hour of reading, ten minutes of machine)\n"
           "1. `vitrine lab sglang 00 --quick`: the machine and its roofs.\n"
           "2. `vitrine lab mini-sglang 00 --quick`: is everything there?\n"
           "3. `vitrine lab mini-sglang 01 --quick`: every kernel against its reference.\n"
           "4. `vitrine lab sglang 01 --quick`: one request, step by step.\n"
           "5. Read [environment.md](environment.md), and the first section of "
           "[kernel-dev-guide.md](kernel-dev-guide.md).\n\n"
           "**Intermediate**\n"
           "1. `vitrine lab mini-sglang 02 --quick --sweep`: when is a copy launch-bound?\n"
           "2. `vitrine lab mini-sglang 03 --quick --compare-patterns`: what does order cost?\n"
           "3. `vitrine lab sglang 02 --quick`: hit, miss, eviction.\n"
           "4. Read the boxes of [analysis.md](analysis.md), then "
           "`vitrine lab sglang 04 --quick`.\n"
           "5. `vitrine lab mini-sglang 06 --quick --nsys`: the same pass under Nsight Systems, "
           "where it is installed.\n\n"
           "**Advanced**\n"
           "1. `vitrine lab mini-sglang 04 --quick --sweep`: the trail over the roofline.\n"
           "2. `vitrine lab flashinfer 02 --quick`: tiles and waves of a prompt.\n"
           "3. `vitrine lab flashinfer 03 --quick`: splits of a decode, and their merge.\n"
           "4. `vitrine lab mini-sglang 05 --quick --analyze`: where communication goes.\n"
           "5. `vitrine lab sglang 05 --quick --ncu`: counters of one kernel, where Nsight "
           "Compute is installed and allowed.\n"
           "6. Read [kernel-dev-guide.md](kernel-dev-guide.md): what was tried for each kernel, "
           "how to add one, and bring your own.\n\n");
}

static void links(vt_buf *b)
{
    vt_buf_puts(b, "## Links\n\n"
                   "Inside: [plan of the labs](" TO_LABS "PLAN.md), "
                   "[glossary](" TO_LABS "GLOSSARY.md), [kernels of your own](" TO_SOURCES
                   "docs/lab-kernel.md), "
                   "[architecture](" TO_SOURCES "ARCHITECTURE.md), "
                   "[performance](" TO_SOURCES "docs/performance.md), "
                   "[format of results](" TO_SOURCES "docs/lab-format.md), "
                   "[published numbers that cannot be](" TO_LABS "physics.md), "
                   "[what every knob brought](" TO_LABS "knobs.md).\n\n"
                   "Outside: [Nsight Systems](https://developer.nvidia.com/nsight-systems), "
                   "[Nsight Compute](https://developer.nvidia.com/nsight-compute), "
                   "[FlashInfer](https://docs.flashinfer.ai/), "
                   "[SGLang](https://docs.sglang.io/), "
                   "[RadixAttention](https://arxiv.org/abs/2312.07104), "
                   "[NCCL](https://docs.nvidia.com/deeplearning/nccl/).\n");
}

void report_index(const report *r, vt_buf *b)
{
    report_head(r, b, "index", "Where to begin, what there is, and how to read a result.");
    quick_start(r, b);
    layout(r, b);
    scripts(r, b);
    vt_buf_puts(b, "## Kernel catalogue\n\n");
    report_catalogue(b);
    paths(b);
    vt_buf_puts(b, "## Expected ranges on this machine\n\n");
    report_ranges(r, b);
    vt_buf_puts(
        b, "## How to read a result\n\n"
           "- A share has its denominator beside it: of the measured roof, of the step, of "
           "the layer.\n"
           "- *measured* came from a clock or counter, *derived* from exact bytes and "
           "FLOPs, *modelled* from both and an assumption.\n"
           "- *quick* results have fewer repetitions. A *disturbed* result's times are not graded; "
           "an *emulated* one has no times.\n"
           "- \"not measured here, because ...\" is an answer; it names what is needed.\n\n");
    report_reading(r, b);
    links(b);
}
