/* Knobs of lab 02 of the track mini-sglang: what each variant of the gather does differently, what
 * ncu counts of it, and what fewer workers, another table and dependent launches bring. */
#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "lab/mini_sglang/mini_sglang.h"
#include "lab/profilers/ncu_run.h"

/* A variant of the gather. Its knob is held against the row that the engine runs: a gain over a row
 * that nobody runs is none. */
typedef struct variant {
    const char *impl, *name;
    bool counted; /* ncu shows why it gains nothing */
    const char *why;
} variant;

static const variant variants[] = {
    {"rows", "a warp a row", true,
     "who copies changes, and not how many bytes: a warp a row starts fewer threads than a thread "
     "a vector"},
    {"rows-2", "two warps a row", false,
     "another number of warps a row changes who copies, not how many bytes"},
    {"rows-4", "four warps a row", false,
     "another number of warps a row changes who copies, not how many bytes"},
    {"rows-adaptive", "dynamic thread count", false,
     "threads and warps a row are chosen by the rows: a small batch spreads over more SMs; the "
     "launch stays"},
    {"rows-full", "more resident warps", false,
     "more resident warps hide latency where a kernel runs long enough to need them"},
    {"rows-32b", "wider vectors: 32 bytes", true,
     "a wider load moves the same bytes in fewer instructions, and instructions are not what "
     "limits a copy"},
    {"rows-keep-y", "L2 hint: keep y", false,
     "a hint to L2 pays where what is kept is read before it is evicted: the next kernel reads y"},
    {"rows-keep-table", "L2 hint: keep the table", false,
     "a hint to L2 pays where a row comes again before it is evicted"},
    {"rows-staged", "shared-memory staging", true,
     "shared memory pays where a byte is used again; a gather uses each byte once"},
    {"rows-shuffle", "warp shuffles", true,
     "a shuffle saves loads of the token id, which all lanes of a warp read in one transaction "
     "anyway"}};

enum { VARIANTS = sizeof variants / sizeof *variants };

/* ---- counters ---- */

typedef struct counted {
    lab_counters c[VARIANTS];
    bool read[VARIANTS];
    char why[LAB_NCU_WHY];
} counted;

/* One run of ncu for each variant whose lack of a gain a counter explains. */
static void count_variants(lab *l, const mini_rows *r, const char *shape, counted *n)
{
    char csv[64];
    snprintf(n->why, sizeof n->why, "no variant of the gather is here");
    lab_flag(l, "ncu"); /* asked for even where no variant is here */
    for (int i = 0; i < VARIANTS; i++) {
        const variant *v = &variants[i];
        snprintf(csv, sizeof csv, "ncu_embed_%s.csv", v->impl);
        n->read[i] = v->counted && mini_rows_find(r, v->impl) &&
                     lab_ncu_read(l,
                                  &(lab_kernel_ask){.op = "embed", .shape = shape, .impl = v->impl},
                                  "embed", csv, &n->c[i], n->why);
    }
}

static void tell_counters(lab *l, const counted *n)
{
    bool told = false;
    for (int i = 0; i < VARIANTS; i++) {
        const lab_counters *c = &n->c[i];
        if (!n->read[i])
            continue;
        if (!told)
            lab_table(l, "counters", "64 rows of 4096, read by ncu",
                      "variant|>time|>from memory|>asked of L2|>instructions|largest wait|>share");
        told = true;
        lab_cells(l, "%s|%f s|%f B|%f B|%f|%s|%f share", variants[i].impl, c->time_s, c->dram_bytes,
                  c->l2_bytes, c->instructions, lab_ncu_stall_name(c->largest),
                  c->stall[c->largest] / c->stalled);
    }
    if (!told)
        lab_missing(l, "counters", "%s",
                    l->ordinal < 0 ? "a CPU has none of these variants, and no "
                                     "counters that ncu could read"
                                   : n->why);
}

/* Writes what the counter of this variant says beside that of the plain form. */
static void put_counted(vt_buf *b, const counted *n, int i)
{
    if (!variants[i].counted)
        return;
    if (!n->read[i] || !n->read[0]) {
        vt_buf_printf(b, ". By counter: not measured here, because %s", n->why);
        return;
    }
    vt_text_printf(b,
                   ". By counter: %f B of L2 where the plain form asks for %f B, %.3g instructions "
                   "instead of %.3g, and %.0f %% of the waits are %s",
                   n->c[i].l2_bytes, n->c[0].l2_bytes, n->c[i].instructions, n->c[0].instructions,
                   100 * n->c[i].stall[n->c[i].largest] / n->c[i].stalled,
                   lab_ncu_stall_name(n->c[i].largest));
}

/* ---- knobs ---- */

static void turn_variants(lab *l, const mini_rows *r, const counted *n)
{
    for (int i = 0; i < VARIANTS; i++) {
        const variant *v = &variants[i];
        char where[80];
        vt_buf why = {0};
        const lab_kernel *after = mini_rows_find(r, v->impl), *before = &r->k[0];
        if (!after || after == before)
            continue;
        snprintf(where, sizeof where, "variant %s of embed", v->impl);
        vt_buf_puts(&why, v->why);
        put_counted(&why, n, i);
        mini_turn_kernels(l, v->name, where, before, after, why.data ? why.data : v->why);
        vt_buf_release(&why);
    }
}

/* A token alone on all workers, who must meet, and on one, who need not. */
static vt_status turn_workers(lab *l, vt_err *err)
{
    static const char name[] = "dynamic thread count", where[] = "--threads",
                      shape[] = "tokens=1,type=f16,vocab=4096,hidden=4096";
    const lab_kernel_ask ask = {.op = "embed", .shape = shape};
    lab_kernel all, one;
    double meeting_s = mini_launch_s(l);
    if (l->threads < 2) {
        lab_turn_missing(l, name, where, shape, 1, "there is one worker here (--threads 1)");
        return VT_OK;
    }
    TRY(lab_kernel_run(l, &ask, &all, err));
    TRY(mini_one_worker(l, &ask, &one, err));
    lab_turn_kernels(l, name, where, all.shape, all.expected_s / (all.expected_s - meeting_s), &all,
                     &one,
                     "a row is not split, so one worker copies it either way; what "
                     "one worker alone saves is the meeting");
    return VT_OK;
}

/* A CPU has rows for instruction sets: the knob is the width of their vectors. */
static vt_status turn_cpu(lab *l, const mini_rows *r, vt_err *err)
{
    static const char *const none[][3] = {
        {"L2 hints", "variants rows-keep-y and rows-keep-table of embed",
         "the CPU's rows give its caches no hints; both are variants of the GPU's kernel"},
        {"shared-memory staging", "variant rows-staged of embed",
         "a CPU has no memory that a program fills itself; its L1 does so by itself"},
        {"warp shuffles", "variant rows-shuffle of embed",
         "a CPU has no warps: a worker reads the id of its row once"}};
    for (int32_t i = 1; i < r->n; i++) {
        char name[80], where[80];
        snprintf(name, sizeof name, "wider vectors, not %.20s", r->k[i].impl);
        snprintf(where, sizeof where, "row %.40s of embed", r->k[0].impl);
        mini_turn_kernels(l, name, where, &r->k[i], &r->k[0],
                          "the same bytes in fewer instructions: it gains until the bytes are what "
                          "the loads wait for");
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        lab_turn_missing(l, none[i][0], none[i][1], r->k[0].shape, 1, none[i][2]);
    return turn_workers(l, err);
}

/* The type of the table is a choice of whoever quantised the model: fewer bytes are read, and the
 * values have to be made again from them. */
static vt_status turn_type(lab *l, const lab_kernel *before, vt_err *err)
{
    char shape[160];
    lab_kernel after;
    snprintf(shape, sizeof shape, "tokens=64,type=q8_0,vocab=4096,hidden=4096");
    TRY(lab_kernel_run(l, &(lab_kernel_ask){.op = "embed", .shape = shape}, &after, err));
    lab_turn_kernels(l, "table in Q8_0", "the model's file", before->shape,
                     before->bytes / after.bytes, before, &after,
                     "fewer bytes are read, as many are written, and each value is "
                     "multiplied by its block's scale");
    return VT_OK;
}

/* With programmatic dependent launch a kernel begins while the one before it ends. */
static vt_status turn_pdl(lab *l, const char *shape, const lab_kernel *before, vt_err *err)
{
    lab_kernel after;
    static const char name[] = "programmatic dependent launch", where[] = "VITRINE_CUDA_PDL";
    if (l->ordinal < 0 || l->emulated) {
        lab_turn_missing(l, name, where, before->shape, NAN,
                         l->emulated ? "an emulated GPU runs one kernel after the other"
                                     : "a CPU launches no kernels");
        return VT_OK;
    }
    vt_status status = lab_kernel_run(
        l, &(lab_kernel_ask){.op = "embed", .shape = shape, .method = "pdl"}, &after, err);
    if (status == VT_ERR_UNSUPPORTED) {
        lab_turn_missing(l, name, where, before->shape, NAN, "this GPU has no dependent launch");
        return VT_OK;
    }
    TRY(status);
    double saved = l->roofs.kernel_s - l->roofs.kernel_pdl_s;
    lab_turn_kernels(l, name, where, before->shape, before->median_s / (before->median_s - saved),
                     before, &after,
                     "the launch of the next kernel overlaps the end of this one; the "
                     "expected gain is the difference of two empty kernels");
    return VT_OK;
}

vt_status mini_turn_index(lab *l, const mini_rows *r, const char *shape, vt_err *err)
{
    counted n = {.why = ""};
    count_variants(l, r, shape, &n);
    tell_counters(l, &n);
    if (l->ordinal < 0)
        TRY(turn_cpu(l, r, err));
    else
        turn_variants(l, r, &n);
    TRY(turn_type(l, &r->k[0], err));
    return turn_pdl(l, shape, &r->k[0], err);
}
