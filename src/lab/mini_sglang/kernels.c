/* Lab 01 of the track mini-sglang: every kernel against its reference, in the order in which a
 * forward pass calls them.
 *
 *   program (exec/describe.h)          cases                        checks
 *   L00.rmsnorm.attn  x 30     -->     rmsnorm tokens=1 ...   -->   got | reference
 *   L00.linear.qkv    x 30     -->     linear tokens=1 ...          |got - want| <= tolerance
 *   ...
 *
 * The order and the shapes are those of the lab's model in a prefill and in a decode step. Cards
 * that this model does not call follow, on a shape of their own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "lab/mini_sglang/mini_sglang.h"

enum { MAX_KERNELS = 64, SHAPE = 200 };

/* A call of the pass; calls of other layers with the same op and shape are counted with it. */
typedef struct kernel {
    const vt_op *op;
    char label[48], shape[SHAPE];
    int32_t prefill, decode; /* how often a step of each kind calls it */
    lab_kernel k;
    bool ran;
    char why[160]; /* why it did not run */
} kernel;

typedef struct kernels {
    kernel at[MAX_KERNELS];
    int32_t n;
    const char *only; /* --kernel; NULL: all */
} kernels;

/* ---- what to check ---- */

static kernel *find(kernels *all, const vt_op *op, const char *shape)
{
    for (int32_t i = 0; i < all->n; i++)
        if (all->at[i].op == op && strcmp(all->at[i].shape, shape) == 0)
            return &all->at[i];
    return NULL;
}

static kernel *add(kernels *all, const vt_op *op, const char *label, const char *shape)
{
    kernel *k = find(all, op, shape);
    if (k || all->n == MAX_KERNELS)
        return k;
    k = &all->at[all->n++];
    *k = (kernel){.op = op};
    snprintf(k->label, sizeof k->label, "%s", label);
    snprintf(k->shape, sizeof k->shape, "%s", shape);
    return k;
}

/* Adds the calls of the step that is set, in the program's order. */
static void add_step(kernels *all, const mini_pass *p, bool prefill)
{
    char shape[SHAPE];
    const vt_program *program = p->described.program;
    for (int32_t i = 0; i < program->n_calls; i++) {
        const vt_call *c = &program->call[i];
        bool copies = strcmp(c->op->name, "page_copy") == 0;
        if (!mini_pass_shape(p, i, shape, sizeof shape))
            continue;
        kernel *k = add(all, c->op, story_call_kind(c), shape);
        if (!k)
            continue;
        size_t used = strlen(k->label);
        if (!strstr(k->label, story_call_kind(c))) /* norms of a layer are alike */
            vt_append(k->label, sizeof k->label, &used, ", %s", story_call_kind(c));
        k->prefill += prefill && !copies;
        k->decode += !prefill && !copies;
    }
}

/* The look-up of the prompt comes before every pass; cards that the model does not use come
 * last. */
static void add_outside(kernels *all, bool before)
{
    char shape[SHAPE];
    for (int32_t i = 0; vt_ops[i]; i++) {
        const vt_op *op = vt_ops[i];
        bool lookup = strcmp(op->name, "prefix_match") == 0, met = false;
        for (int32_t k = 0; k < all->n; k++)
            met |= all->at[k].op == op;
        if (lookup == before && !met && mini_case_text(op, shape, sizeof shape))
            add(all, op, lookup ? "scheduler: look-up" : "not called", shape);
    }
}

static vt_status collect(lab *l, kernels *all, vt_err *err)
{
    mini_pass p;
    int32_t prefill = l->emulated ? 16 : l->quick ? 64 : 512, context = l->emulated ? 65 : 513;
    TRY(mini_pass_open(l, &p, err));
    add_outside(all, true);
    vt_status status = mini_pass_set(&p, 1, prefill, prefill, err);
    if (status == VT_OK) {
        add_step(all, &p, true);
        status = mini_pass_set(&p, 1, 1, context, err);
    }
    if (status == VT_OK)
        add_step(all, &p, false);
    add_outside(all, false);
    mini_pass_close(&p);
    return status;
}

static vt_status read_only(const lab *l, kernels *all, vt_err *err)
{
    vt_buf names = {0};
    all->only = lab_text(l, "kernel");
    if (!all->only || vt_op_find(all->only))
        return VT_OK;
    for (int32_t i = 0; vt_ops[i]; i++)
        vt_buf_printf(&names, "%s%s", i ? ", " : "", vt_ops[i]->name);
    vt_status status = vt_fail(err, VT_ERR_USAGE, "--kernel %s: expected one of %s", all->only,
                               names.data ? names.data : "the cards");
    vt_buf_release(&names);
    return status;
}

/* ---- running ---- */

static bool wanted(const kernels *all, const kernel *k)
{
    return !all->only || strcmp(all->only, k->op->name) == 0;
}

static vt_status run_all(lab *l, kernels *all, vt_err *err)
{
    for (int32_t i = 0; i < all->n; i++) {
        kernel *k = &all->at[i];
        if (!wanted(all, k))
            continue;
        lab_note(l, "%s, %s", k->op->name, k->shape);
        vt_status status = lab_kernel_run(
            l, &(lab_kernel_ask){.op = k->op->name, .shape = k->shape}, &k->k, err);
        k->ran = status == VT_OK;
        if (status == VT_ERR_UNSUPPORTED)
            snprintf(k->why, sizeof k->why, "no row here");
        else if (status == VT_ERR_MEMORY && l->emulated)
            snprintf(k->why, sizeof k->why, "too large");
        else if (status != VT_OK)
            return status;
    }
    return VT_OK;
}

static void tell_order(lab *l, const kernels *all)
{
    lab_table(l, "order", "the calls of a forward pass in their order",
              "call|>prefill|>decode|shape");
    for (int32_t i = 0; i < all->n; i++) {
        const kernel *k = &all->at[i];
        bool named = k->prefill || k->decode || strcmp(k->label, k->op->name) == 0;
        lab_cell(l, named ? "%s" : "%s: %s", k->label, k->op->name);
        lab_cells(l, "%d|%d|%.42s%s", k->prefill, k->decode, k->shape,
                  strlen(k->shape) > 42 ? "..." : "");
    }
}

static void tell_kernels(lab *l, const kernels *all)
{
    lab_table(l, "kernels", "every kernel against its reference",
              "call|row|step|>error|>allowed|result|>time|>of roof|bound");
    for (int32_t i = 0; i < all->n; i++) {
        const kernel *k = &all->at[i];
        if (!wanted(all, k))
            continue;
        lab_cells(l, "%s|%s|%s", k->prefill || k->decode ? k->label : k->op->name,
                  k->ran ? k->k.impl : "none",
                  k->prefill && k->decode ? "both"
                  : k->prefill            ? "prefill"
                  : k->decode             ? "decode"
                                          : "-");
        lab_cell(l, k->ran && isfinite(k->k.error) ? "%.0e" : "-", k->k.error);
        lab_cell(l, k->ran && isfinite(k->k.tolerance) ? "%.0e" : "-", k->k.tolerance);
        lab_cells(l, "%s|%f s|%f share|%s",
                  !k->ran                 ? k->why
                  : !isfinite(k->k.error) ? "not checked"
                  : k->k.ok               ? "right"
                                          : "WRONG",
                  k->ran ? k->k.median_s : NAN, k->ran ? k->k.of_roof : NAN,
                  k->ran && k->k.bound ? k->k.bound : "-");
    }
}

static void tell_tolerances(lab *l, const kernels *all)
{
    enum { COLUMN = 28 };
    const vt_op *told[MAX_KERNELS];
    vt_buf b = {0};
    int32_t n = 0;
    for (int32_t i = 0; i < all->n; i++) {
        const kernel *k = &all->at[i];
        size_t start = b.len;
        bool again = false;
        for (int32_t t = 0; t < n; t++)
            again |= told[t] == k->op;
        if (again || !wanted(all, k))
            continue;
        told[n++] = k->op;
        vt_buf_printf(&b, "%-18s %.0e", k->op->name, k->ran ? k->k.tolerance : k->op->tolerance);
        vt_text_pad(&b, start, COLUMN);
        vt_text_wrap(&b, k->op->tolerance_reason, COLUMN, VT_TERM_WIDTH - 4);
        vt_buf_putc(&b, '\n');
    }
    lab_drawing(l, "tolerance", "op, largest |got - want| / (1 + |want|), and why", &b);
    vt_buf_release(&b);
}

static const char step_time[] = "time of a decode step's kernels, each run alone";

/* Before anything runs: the time of a decode step if its kernels ran alone, one after the other. */
static void predict_step(lab *l, const kernels *all)
{
    double sum = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < all->n; i++) {
        const kernel *k = &all->at[i];
        double s;
        vt_err err;
        if (!wanted(all, k) || !k->decode)
            continue;
        lab_kernel_ask ask = {.op = k->op->name, .shape = k->shape};
        if (lab_kernel_expect(l, &ask, &s, &err) != VT_OK)
            continue; /* it will not run either */
        sum += k->decode * s;
        n += k->decode;
    }
    lab_predict(l, step_time, n ? sum : NAN, VT_SECONDS,
                l->emulated ? "times mean nothing on an emulated GPU"
                : n         ? "for each call the launch, and its bytes or FLOPs at the roof; "
                              "weights are cut to 8 M elements, so this is less than a step of the "
                              "model"
                            : "--kernel left no kernel of a decode step");
}

static void tell_step(lab *l, const kernels *all)
{
    double measured = 0;
    bool disturbed = false;
    const kernel *most = NULL;
    int32_t n = 0;
    for (int32_t i = 0; i < all->n; i++) {
        const kernel *k = &all->at[i];
        if (!k->ran || !k->decode)
            continue;
        measured += k->decode * k->k.median_s;
        disturbed |= k->k.disturbed;
        n += k->decode;
        if (!most || k->decode * k->k.median_s > most->decode * most->k.median_s)
            most = k;
    }
    if (!most || !isfinite(measured)) {
        lab_outcome(l, step_time, NAN, false);
        lab_missing(l, "state",
                    l->emulated ? "times mean nothing on an emulated GPU"
                                : "--kernel left no kernel of a decode step");
        return;
    }
    lab_outcome(l, step_time, measured, disturbed);
    char of_roof[80] = "faster than any measured roof";
    if (isfinite(most->k.of_roof))
        snprintf(of_roof, sizeof of_roof, "at %.0f %% of its %s roof", 100 * most->k.of_roof,
                 most->k.bound);
    lab_item(l, "state",
             "%d calls of a decode step take %f s alone; %s takes most of it, %.0f %%, %s. Weights "
             "are cut to 8 M elements here, the head's above all: a step of the model, which lab "
             "06 times, takes longer",
             n, measured, most->label, 100 * most->decode * most->k.median_s / measured, of_roof);
}

/* Turns the row of the kernel that took longest: the next one of the card in its place. */
static vt_status turn_row(lab *l, const kernels *all, vt_err *err)
{
    const kernel *most = NULL;
    lab_kernel after;
    char where[96];
    for (int32_t i = 0; i < all->n; i++)
        if (all->at[i].ran && all->at[i].decode && (!most || all->at[i].k.bytes > most->k.bytes))
            most = &all->at[i];
    if (!most)
        return VT_OK;
    const char *op = most->op->name, *row = lab_kernel_other(l, op, most->shape, most->k.impl, err);
    if (!row)
        return VT_OK;
    TRY(lab_kernel_run(l, &(lab_kernel_ask){.op = op, .shape = most->shape, .impl = row}, &after,
                       err));
    snprintf(where, sizeof where, "%s %s", strcmp(op, "linear") == 0 ? "--linear-backend" : "row",
             row);
    lab_turn_kernels(l, row, where, most->k.shape,
                     (most->k.bytes + most->k.extra_bytes) / (after.bytes + after.extra_bytes),
                     &most->k, &after,
                     "the same bytes; the engine's order of rows says which one "
                     "moves them faster");
    return VT_OK;
}

static vt_status run(lab *l, vt_err *err)
{
    kernels *all = calloc(1, sizeof *all);
    if (!all)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d kernels", MAX_KERNELS);
    vt_status status = read_only(l, all, err);
    if (status == VT_OK)
        status = collect(l, all, err);
    if (status == VT_OK) {
        predict_step(l, all);
        status = run_all(l, all, err);
    }
    if (status == VT_OK) {
        tell_order(l, all);
        tell_kernels(l, all);
        tell_tolerances(l, all);
        tell_step(l, all);
        status = turn_row(l, all, err);
    }
    free(all);
    return status;
}

const lab_def mini_test_kernels = {
    .track = LAB_MINI_SGLANG,
    .number = "01",
    .name = "test_kernels",
    .goal =
        "You know which kernels a forward pass calls in which order, and that each one computes "
        "what its reference computes.",
    .about = {"The program of the model is listed for a prefill and for a decode step.",
              "Each kernel then runs alone on its shape, with random data.",
              "Its results are compared with a plain reference, element by element."},
    .alias = {"01_test_kernels.py", NULL},
    .knobs = {{"--linear-backend", LAB_OFFERED, "linear.head", "--linear-backend"},
              {"row ", LAB_OFFERED, NULL, LAB_BY_CARD}},
    .items = {{"order", "the order in which a forward pass calls its kernels", false},
              {"kernels", "every kernel against its reference", false},
              {"tolerance", "how far a result may be from the reference, and why", false},
              {"state", "what a decode step's kernels take, and what binds the longest", true}},
    .kernels = true,
    .run = run,
};
