/* Lab flashinfer 04: RMSNorm. A sum over each row, wide loads, and what is saved where the addition
 * to the residual stream and the norm are one kernel. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/flashinfer/flashinfer.h"
#include "lab/kit/roofline.h"
#include "lab/kit/rows.h"

enum { HIDDEN = 4096, SMALL_HIDDEN = 256 };

static int32_t hidden_of(const lab *l) { return l->emulated ? SMALL_HIDDEN : HIDDEN; }
/* The call whose details are told: more rows than caches hold. */
static int32_t rows_of(const lab *l) { return l->emulated ? 16 : l->ordinal < 0 ? 2048 : 16384; }

static vt_status add_run(lab *l, lab_runs *r, int32_t tokens, vt_err *err)
{
    if (r->n == LAB_MAX_RUNS)
        return VT_OK;
    TRY(lab_run_shape(l, "rmsnorm", NULL, &r->k[r->n], err, "tokens=%d,hidden=%d", tokens,
                      hidden_of(l)));
    snprintf(r->name[r->n], sizeof r->name[0], "%d row%s of %d", tokens, vt_text_s(tokens),
             hidden_of(l));
    r->n++;
    return VT_OK;
}

/* ---- how a row is summed ---- */

/* The value of "lanes=512" in a kernel's name; 0: it is not there. */
static int32_t parameter(const char *kernel, const char *name)
{
    const char *at = strstr(kernel, name);
    return at ? (int32_t)strtol(at + strlen(name), NULL, 10) : 0;
}

static void tell_gpu_row(lab *l, const lab_kernel *k, const vt_cut *cut)
{
    vt_buf b = {0};
    int32_t lanes = parameter(k->kernel, "lanes="), vec = parameter(k->kernel, "vec="),
            threads = parameter(k->kernel, "threads="), hidden = hidden_of(l);
    int32_t warps = lanes / 32, each = lanes && vec ? (hidden / vec + lanes - 1) / lanes : 0;
    vt_buf_printf(&b,
                  "row of %d bf16\n"
                  "  %d threads share it; a thread loads %d vectors of %d elements and keeps them\n"
                  "  thread   sum of its squares, in fp32\n"
                  "  warp     5 shuffles: x += x of the lane 16, 8, 4, 2, 1 away\n",
                  hidden, lanes, each, vec);
    if (warps > 1)
        vt_buf_printf(
            &b,
            "  CTA      %d warps leave one number each in shared memory; after one barrier\n"
            "           every thread adds the %d\n",
            warps, warps);
    vt_buf_printf(&b,
                  "  scale    1 / sqrt(sum / %d + eps), then x * scale * w out of registers: x is\n"
                  "           read once. %d thread%s a CTA work on %d row%s at a time\n",
                  hidden, threads, threads == 1 ? "" : "s", lanes ? threads / lanes : 1,
                  lanes && threads / lanes > 1 ? "s" : "");
    lab_drawing(l, "row_reduction", "from the kernel that ran", &b);
    vt_buf_release(&b);
    lab_item(
        l, "vectorisation",
        "%d bytes a load (%d elements): a warp's load is %d bytes in one run. One load and one "
        "store of %d bytes for every %d elements is all that the kernel does with memory",
        cut->vector_bytes, vec, 32 * cut->vector_bytes, cut->vector_bytes, vec);
}

static void tell_cpu_row(lab *l, const vt_cut *cut)
{
    enum { SUMS = 4 };
    vt_buf b = {0};
    int32_t lanes = cut->vector_bytes / 4, hidden = hidden_of(l);
    vt_buf_printf(
        &b,
        "row of %d fp32, one worker a row\n"
        "  %d sums of %d lanes run beside each other: s0 += x[0..%d)^2, s1 += x[%d..%d)^2 ...\n"
        "  one sum alone would wait for the multiply-add before it at every step\n"
        "  (s0 + s2) + (s1 + s3), then the %d lanes: always in this order, so a row has\n"
        "  the same bits for any number of workers and in any batch\n"
        "  scale    1 / sqrt(sum / %d + eps); x is read again, from the L1 cache\n",
        hidden, SUMS, lanes, lanes, lanes, 2 * lanes, lanes, hidden);
    lab_drawing(l, "row_reduction", "as the row of this instruction set does it", &b);
    vt_buf_release(&b);
    lab_item(l, "vectorisation",
             "%d bytes a load (%d fp32): a row of %d is %d loads; its last vector is masked where "
             "the width is no multiple of %d",
             cut->vector_bytes, lanes, hidden, (hidden + lanes - 1) / lanes, lanes);
}

static vt_status tell_row(lab *l, const lab_kernel *k, vt_err *err)
{
    vt_target t;
    lab_call c;
    vt_cut cut;
    char shape[60];
    vt_size size = {.tokens = rows_of(l), .seqs = 1, .rows = rows_of(l)};
    TRY(lab_target(l, &t, err));
    snprintf(shape, sizeof shape, "tokens=1,hidden=%d", hidden_of(l));
    TRY(lab_call_make(&t, "rmsnorm", shape, &c, err));
    if (!lab_call_cut(&c, k->impl, &size, &cut)) {
        lab_missing(l, "row_reduction", "%s does not say how it cuts its work", k->impl);
        lab_missing(l, "vectorisation", "%s does not say how it cuts its work", k->impl);
    } else if (l->ordinal < 0) {
        tell_cpu_row(l, &cut);
    } else {
        tell_gpu_row(l, k, &cut);
    }
    lab_call_release(&c);
    lab_item(l, "rows", "%s", k->cut);
    return VT_OK;
}

/* ---- fused against two kernels ---- */

static void put_bytes(lab *l, const char *name, const lab_kernel *k, double bytes, double n,
                      const char *what)
{
    lab_cells(l, "%s|%.1f|%f s|%f B/s|%s", name, bytes / n, k ? k->median_s : NAN,
              k ? lab_over(bytes, k->median_s) : NAN, what);
}

/* The variant of add_rmsnorm that needs a second kernel. NULL: this device has none. */
static const char *two_kernels(lab *l, const char *shape)
{
    const char *row[16];
    vt_err err = {0};
    int32_t n = lab_kernel_rows(l, "add_rmsnorm", shape, row, 16, &err);
    for (int32_t i = 0; i < n; i++)
        if (lab_is_variant("add_rmsnorm", row[i]))
            return row[i];
    return NULL;
}

static vt_status tell_fused(lab *l, const lab_kernel *norm, vt_err *err)
{
    char shape[60];
    lab_kernel fused, apart;
    double n = (double)rows_of(l) * hidden_of(l), element = l->ordinal < 0 ? 4 : 2;
    snprintf(shape, sizeof shape, "tokens=%d,hidden=%d", rows_of(l), hidden_of(l));
    TRY(lab_run_shape(l, "add_rmsnorm", NULL, &fused, err, "%s", shape));
    const char *two = two_kernels(l, shape);
    if (two)
        TRY(lab_run_shape(l, "add_rmsnorm", two, &apart, err, "%s", shape));
    lab_table(l, "fused_add", "s = x + r; r <- s; y = norm(s), per element",
              "form|>bytes an element|>time|>bandwidth|moves");
    put_bytes(l, "fused", &fused, fused.bytes, n, "reads x, r; writes r, y");
    put_bytes(l, "two kernels", two ? &apart : NULL, fused.bytes + element * n, n,
              "reads x, r; writes r; reads r; writes y");
    put_bytes(l, "the norm alone", norm, norm->bytes, n, "reads x; writes y");
    lab_number(l, "bytes_saved", 1 - fused.bytes / (fused.bytes + element * n), VT_SHARE, "derived",
               l->ordinal < 0 ? "of the bytes of two kernels: 16 instead of 20 an element in fp32, "
                                "as 8 instead of 10 in bf16"
                              : "of the bytes of two kernels: 8 instead of 10 an element in bf16");
    double by_hand = 4 * element * n + 4.0 * hidden_of(l);
    lab_check(l, fused.bytes == by_hand,
              "the card of the fused form counts %.0f bytes; by hand 4 x %.0f an element and 4 for "
              "each weight: %.0f",
              fused.bytes, element, by_hand);
    if (two)
        lab_check(l, apart.bytes + apart.extra_bytes == by_hand + element * n,
                  "the card of two kernels counts %.0f bytes; by hand one pass more: %.0f",
                  apart.bytes + apart.extra_bytes, by_hand + element * n);
    if (two) {
        lab_turn_kernels(l, "fused add + norm", "variant of add_rmsnorm in two passes", fused.shape,
                         (apart.bytes + apart.extra_bytes) / (fused.bytes + fused.extra_bytes),
                         &apart, &fused,
                         "the sum is still on the chip, so memory is not read for it again");
        return VT_OK;
    }
    /* This row has no form in two passes: the norm, and an add at the copy roof. */
    double add_s = lab_over(3 * element * n, l->roofs.copy_bytes_per_s);
    lab_turn(l, &(lab_knob){.name = "fused add + norm",
                            .where = "add, then rmsnorm",
                            .what = "add_rmsnorm",
                            .gain = 20.0 / 16,
                            .before_s = norm->median_s + add_s,
                            .before_noise = norm->noise,
                            .after_s = fused.median_s,
                            .after_noise = fused.noise,
                            .why = "before is modelled: the norm as measured and an add of its own "
                                   "at the copy roof, because no row here takes two passes"});
    return VT_OK;
}

/* ---- hardware ---- */

static void tell_hardware(lab *l, const lab_runs *r)
{
    const lab_kernel *k = &r->k[0];
    roofline_roof roof = lab_roof(l, false);
    lab_figure(l, "bandwidth", lab_bandwidth(k), VT_BYTES_PER_S,
               "x read, y written, the weights once");
    lab_copy_share(l, "copy_share", k);
    lab_tell_occupancy(l, "occupancy", k);
    lab_tell_roofline(l, r, "roofline", &roof);
}

/* ---- the lab ---- */

static vt_status sweep(lab *l, lab_runs *r, vt_err *err)
{
    static const int32_t quick[] = {1, 512, 0}, full[] = {1, 32, 512, 0},
                         swept[] = {1, 8, 32, 128, 512, 1024, 4096, 0}, small[] = {1, 0};
    const int32_t *tokens = lab_sizes(l, small, quick, full, swept);
    for (int i = 0; tokens[i]; i++)
        TRY(add_run(l, r, tokens[i], err));
    return VT_OK;
}

/* The next narrower instruction set. */
static vt_status turn_row(lab *l, const lab_kernel *chosen, vt_err *err)
{
    char shape[60];
    lab_kernel other;
    snprintf(shape, sizeof shape, "tokens=%d,hidden=%d", rows_of(l), hidden_of(l));
    const char *row = lab_kernel_other(l, "rmsnorm", shape, chosen->impl, err);
    if (!row)
        return VT_OK;
    TRY(lab_run_shape(l, "rmsnorm", row, &other, err, "%s", shape));
    lab_turn_kernels(l, row, "VITRINE_ISA", "rmsnorm", 1, chosen, &other,
                     "the bytes are the same, and bytes are what it waits for");
    return VT_OK;
}

static vt_status run(lab *l, vt_err *err)
{
    static const char what[] = "time of the largest norm";
    lab_runs r = {.n = 0};
    char shape[60];
    snprintf(shape, sizeof shape, "tokens=%d,hidden=%d", rows_of(l), hidden_of(l));
    TRY(lab_kernel_predict(
        l, what, &(lab_kernel_ask){.op = "rmsnorm", .shape = shape},
        "x read and y written, over the measured memory roof, and a launch or a meeting", err));
    lab_note(l, "%d rows of %d", rows_of(l), hidden_of(l));
    TRY(add_run(l, &r, rows_of(l), err));
    const lab_kernel *k = &r.k[0];
    lab_outcome(l, what, k->median_s, !l->emulated && k->disturbed);
    TRY(tell_row(l, k, err));
    TRY(sweep(l, &r, err));
    lab_tell_runs(l, &r, "sizes", "call", false);
    TRY(tell_fused(l, k, err));
    tell_hardware(l, &r);
    lab_kernel_card(l, "explanation", k, "y = x * w / sqrt(mean(x^2) + eps), row by row",
                    "fuse it with what writes x or what reads y; alone it cannot move fewer bytes");
    return l->ordinal < 0 ? turn_row(l, k, err) : VT_OK;
}

const lab_def lab_flashinfer_norm = {
    .track = LAB_FLASHINFER,
    .number = "04",
    .name = "profile_rmsnorm",
    .goal = "You can say why a norm is as fast as its bytes allow and no faster, and what fusing "
            "the addition in front of it saves.",
    .about = {"Rows of 4,096 numbers are normalised: 1 row, some, and more than caches hold.",
              "Each number is read once and written once, with 4 operations in between.",
              "Then the addition to the residual stream joins in, fused and apart."},
    .alias = {"04_profile_rmsnorm.py"},
    .knobs = {{"fused add", LAB_RUNS, NULL, NULL, "the addition is fused with the norm behind it"},
              {"VITRINE_ISA", LAB_OFFERED, "what", "VITRINE_ISA"}},
    .items = {{"row_reduction", "how a row is summed", false},
              {"vectorisation", "vector width", false},
              {"rows", "rows over SMs or cores", false},
              {"sizes", "several numbers of rows", false},
              {"fused_add", "fused add + norm against two kernels", false},
              {"bytes_saved", "bytes saved by the fused form", false},
              {"bandwidth", "bandwidth", true},
              {"copy_share", "its share of the roof", true},
              {"occupancy", "occupancy and its limiter", true},
              {"roofline", "position on the roofline", true},
              {"explanation", "operation, execution, hardware, bottleneck, opportunity", true}},
    .kernels = true,
    .run = run,
};
