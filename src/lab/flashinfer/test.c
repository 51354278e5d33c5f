/* Lab flashinfer 01: every row of this track's cards against the reference, and which row serves
 * which shape. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "lab/flashinfer/flashinfer.h"
#include "lab/kit/rows.h"

/* ---- every row against the reference ---- */

typedef struct test_shape {
    const char *op, *shape;
} test_shape;

/* Small shapes: a usual one of each card, and an odd one that only the row for any shape takes. */
static const test_shape shapes[] = {
    {"attention_prefill", "seqs=2,q_len=40,kv_len=80,heads=8,kv_heads=4,head_dim=64,page=16"},
    {"attention_prefill", "seqs=1,q_len=20,kv_len=33,heads=3,kv_heads=1,head_dim=20,page=7"},
    {"attention_decode", "seqs=3,kv_len=300,heads=8,kv_heads=4,head_dim=64,page=16"},
    {"attention_decode", "seqs=2,kv_len=65,heads=3,kv_heads=1,head_dim=20,page=7"},
    {"rmsnorm", "tokens=17,hidden=1024"},
    {"rmsnorm", "tokens=5,hidden=1027"},
    {"add_rmsnorm", "tokens=17,hidden=1024"},
    {"rope", "tokens=9,heads=8,kv_heads=4,head_dim=64,norm=1"},
    {"rope", "tokens=9,heads=2,kv_heads=2,head_dim=24,interleaved=1"},
    {"rope_store", "tokens=9,heads=8,kv_heads=4,head_dim=64,page=16"},
    {"kv_store", "tokens=9,kv_heads=4,head_dim=64,page=16"},
};

enum { N_SHAPES = sizeof shapes / sizeof *shapes, MAX_ROWS = 24 };

typedef struct totals {
    int32_t rows, wrong;
    double worst; /* error over tolerance */
} totals;

static vt_status test_rows(lab *l, const test_shape *s, totals *sum, vt_err *err)
{
    const char *row[MAX_ROWS];
    int32_t n = lab_kernel_rows(l, s->op, s->shape, row, MAX_ROWS, err);
    char chosen[64] = "";
    TRY(lab_kernel_chosen(l, s->op, s->shape, chosen, sizeof chosen, err));
    for (int32_t i = 0; i < n; i++) {
        lab_kernel k;
        TRY(lab_run_shape(l, s->op, row[i], &k, err, "%s", s->shape));
        sum->rows++;
        sum->wrong += !k.ok;
        if (k.tolerance > 0 && k.error / k.tolerance > sum->worst)
            sum->worst = k.error / k.tolerance;
        lab_cells(l, "%s|%s%s|%s|%.1e|%.1e|%f s", i == 0 ? s->op : "", row[i],
                  strcmp(row[i], chosen) == 0 ? " *" : "", k.ok ? "ok" : "WRONG", k.error,
                  k.tolerance, k.median_s);
    }
    return VT_OK;
}

/* The cards that --kernel names; all where it is not given. */
static bool is_wanted(const lab *l, const char *op)
{
    const char *only = lab_text(l, "kernel");
    return !only || strstr(op, only);
}

static vt_status test_all(lab *l, totals *sum, vt_err *err)
{
    bool any = false;
    for (int i = 0; i < N_SHAPES; i++)
        any |= is_wanted(l, shapes[i].op);
    if (!any)
        return vt_fail(err, VT_ERR_USAGE,
                       "--kernel %s: this track has attention_prefill, attention_decode, rmsnorm, "
                       "add_rmsnorm, rope, rope_store and kv_store",
                       lab_text(l, "kernel"));
    lab_table(l, "correctness", "* is the row that an engine takes for the shape",
              "card|row|result|>error|>allowed|>time");
    for (int i = 0; i < N_SHAPES; i++)
        if (is_wanted(l, shapes[i].op)) {
            lab_note(l, "%s, %s", shapes[i].op, shapes[i].shape);
            TRY(test_rows(l, &shapes[i], sum, err));
        }
    return VT_OK;
}

/* ---- which row serves which shape ---- */

typedef struct question {
    const char *op, *what, *shape;
    int32_t level; /* 0: of the GPU */
    bool deterministic;
    const char *why;
} question;

#define HEADS "kv_len=2,heads=32,kv_heads=8,"

static const question questions[] = {
    {"attention_prefill", "heads of 128, pages of 64", HEADS "head_dim=128,page=64", 0, false,
     "TMA boxes and wgmma tiles fit"},
    {"attention_prefill", "pages of 8", HEADS "head_dim=128,page=8", 0, false,
     "a page of 8 is no TMA box"},
    {"attention_prefill", "heads of 80", HEADS "head_dim=80,page=64", 0, false,
     "80 is no swizzled tile"},
    {"attention_prefill", "heads of 20", HEADS "head_dim=20,page=64", 0, false,
     "20 is no multiple of 16"},
    {"attention_prefill", "a GPU of level 80", HEADS "head_dim=128,page=64", 80, false,
     "no wgmma before level 90"},
    {"attention_decode", "heads of 128, pages of 64", HEADS "head_dim=128,page=64", 0, false,
     "KV ranges for all SMs"},
    {"attention_decode", "pages of 1", HEADS "head_dim=128,page=1", 0, false,
     "it reads rows, not boxes"},
    {"attention_decode", "--deterministic", HEADS "head_dim=128,page=64", 0, true,
     "a fixed order of sums"},
    {"attention_decode", "heads of 20", HEADS "head_dim=20,page=64", 0, false,
     "20 is no multiple of 16"},
    {"rmsnorm", "rows of 4,096", "hidden=4096", 0, false, "one row for all widths"},
    {"rope", "half-split, heads of 128", "head_dim=128", 0, false, "vectors of 8 fit"},
    {"rope", "heads of 600", "head_dim=600", 0, false, "beyond 512 one warp is too few"},
};

/* "16: small, more: fa3", of a card's choices. */
static void put_choices(vt_buf *b, const vt_choice *c, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (c[i].upto == INT32_MAX)
            vt_buf_printf(b, "%s%s", n == 1 ? "" : "more: ", c[i].impl->name);
        else
            vt_buf_printf(b, "up to %d: %s, ", c[i].upto, c[i].impl->name);
    }
    if (n == 0)
        vt_buf_puts(b, "none");
}

static vt_status choose(const vt_target *t, const char *op, const char *shape, vt_buf *b,
                        int32_t *n, vt_err *err)
{
    enum { MOST = 4096 };
    vt_choice choice[VT_MAX_CHOICES];
    lab_call c;
    TRY(lab_call_make(t, op, shape, &c, err));
    *n = vt_op_choose(c.op, c.args, &c.target, MOST, choice);
    put_choices(b, choice, *n);
    lab_call_release(&c);
    return VT_OK;
}

static vt_status tell_gpu_choices(lab *l, const vt_target *gpu, const char *name, vt_err *err)
{
    char title[120];
    snprintf(title, sizeof title, "on %s, asked of the cards", name);
    lab_table(l, "variant_selection", title, "card|shape|any size runs as|why");
    for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
        const question *q = &questions[i];
        vt_target t = *gpu;
        vt_buf b = {0};
        int32_t n;
        t.level = q->level ? q->level : t.level;
        t.deterministic = q->deterministic;
        if (!is_wanted(l, q->op))
            continue;
        TRY(choose(&t, q->op, q->shape, &b, &n, err));
        lab_cells(l, "%s|%s|%s|%s", q->op, q->what, b.data ? b.data : "none", q->why);
        vt_buf_release(&b);
    }
    return VT_OK;
}

/* On a CPU the instruction set decides, and never the size. */
static vt_status tell_cpu_choices(lab *l, const vt_target *cpu, vt_err *err)
{
    vt_buf b = {0};
    int32_t sizes = 0;
    for (int i = 0; i < N_SHAPES; i++) {
        const test_shape *s = &shapes[i];
        int32_t n;
        if (i > 0 && strcmp(s->op, shapes[i - 1].op) == 0)
            continue;
        vt_buf_printf(&b, "%-18s", s->op);
        for (int isa = VT_ISA_PORTABLE; isa <= (int)vt_cpu_get()->best; isa++) {
            vt_target t = *cpu;
            vt_buf name = {0};
            t.isa = (vt_isa)isa;
            TRY(choose(&t, s->op, s->shape, &name, &n, err));
            vt_buf_printf(&b, "  %s: %-9s", vt_isa_name((vt_isa)isa), name.data ? name.data : "");
            vt_buf_release(&name);
            sizes += n != 1;
        }
        vt_buf_putc(&b, '\n');
    }
    lab_check(l, sizes == 0,
              "on a CPU each card has one row for all sizes (%d have several): a token's bits must "
              "not depend on what else is in the batch",
              sizes);
    lab_drawing(l, "cpu_selection", "instruction set: row, at every size", &b);
    vt_buf_release(&b);
    return VT_OK;
}

static vt_status tell_choices(lab *l, vt_err *err)
{
    vt_target here, gpu;
    vt_limits limits = {.n_workers = l->threads};
    vt_target cpu = vt_target_cpu(vt_cpu_get()->level, &limits);
    TRY(lab_target(l, &here, err));
    if (l->ordinal < 0)
        TRY(lab_target_named("h200", &gpu, err));
    TRY(tell_gpu_choices(
        l, l->ordinal < 0 ? &gpu : &here,
        l->ordinal < 0 ? "an H200 (none is here; choosing is host work)" : "this GPU", err));
    return tell_cpu_choices(l, &cpu, err);
}

/* ---- a knob: the next row ---- */

static vt_status turn_row(lab *l, vt_err *err)
{
    static const char op[] = "attention_decode",
                      shape[] = "seqs=3,kv_len=300,heads=8,kv_heads=4,head_dim=64,page=16";
    char chosen[64];
    lab_kernel before, after;
    TRY(lab_kernel_chosen(l, op, shape, chosen, sizeof chosen, err));
    const char *row = lab_kernel_other(l, op, shape, chosen, err);
    if (!row)
        return VT_OK;
    TRY(lab_run_shape(l, op, chosen, &before, err, "%s", shape));
    TRY(lab_run_shape(l, op, row, &after, err, "%s", shape));
    lab_turn_kernels(l, row, l->ordinal < 0 ? "VITRINE_ISA" : "--deterministic", op, 1, &before,
                     &after,
                     "both rows read the same bytes; what they differ in is how many "
                     "instructions that takes");
    return VT_OK;
}

/* ---- the lab ---- */

static vt_status run(lab *l, vt_err *err)
{
    totals sum = {.worst = 0};
    static const char what[] = "the largest error, as a share of its tolerance";
    lab_predict(l, what, NAN, VT_SHARE,
                "rounding errors have bounds, not expectations; the tolerance is the bound");
    TRY(test_all(l, &sum, err));
    lab_outcome(l, what, sum.worst, false);
    lab_item(l, "summary",
             "%d calls of rows and variants were compared with the reference, a plain loop in "
             "double on the host: %d differ by more than is allowed",
             sum.rows, sum.wrong);
    lab_item(
        l, "tolerance",
        "an error is |got - want| / (1 + |want|). Copies and stores must be equal. Sums in fp32 "
        "may differ by what their order of additions rounds%s",
        l->ordinal < 0 ? "" : "; results in bf16 by their own rounding, 0.01 at most");
    TRY(tell_choices(l, err));
    return is_wanted(l, "attention_decode") ? turn_row(l, err) : VT_OK;
}

const lab_def lab_flashinfer_test = {
    .track = LAB_FLASHINFER,
    .number = "01",
    .name = "test_kernels",
    .goal = "You know which kernels this track has, that each is right on this machine, and which "
            "one serves which shape.",
    .about = {"Small calls of attention, norms, rope and the KV store run on every row that takes "
              "them.",
              "Each result is compared with a plain reference on the host.",
              "Then the cards are asked which row they would take for other shapes."},
    .alias = {"01_test_kernels.py"},
    .knobs = {{"VITRINE_ISA", LAB_OFFERED, "what", "VITRINE_ISA"},
              {"--deterministic", LAB_OFFERED, "attention_decode", "--deterministic"}},
    .items = {{"correctness", "every row and variant against the reference", false},
              {"summary", "how many", false},
              {"tolerance", "what is allowed, and why", false},
              {"variant_selection", "which row serves which shape", false},
              {"cpu_selection", "which row serves which instruction set", false}},
    .kernels = true,
    .run = run,
};
