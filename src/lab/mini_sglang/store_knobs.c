/* Knobs of lab 03 of the track mini-sglang: the store in two launches, by asynchronous copies, in
 * the order of its slots, beside the norm, and with smaller elements. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "lab/mini_sglang/mini_sglang.h"

/* ---- rows and variants ---- */

static const struct {
    const char *impl, *name, *why, *why_not; /* why_not: what a device without it lacks */
} variants[] = {
    {"k-then-v", "K and V in two launches",
     "a second launch for V costs a launch more, and moves no byte less",
     "a CPU's row has no form that stores V in a second call"},
    {"async", "asynchronous copies",
     "cp.async stages bytes in shared memory without registers; a copy that uses each byte once "
     "gains nothing from staging it",
     "a CPU has no asynchronous copies: loads and stores of its cores overlap by themselves"},
    {"by-slot", "tokens in order of slots",
     "sequential slots are in order already; the order costs a token number read beside each slot",
     "a CPU's row has no plan that orders the tokens; the knob 'sorted slots' hands them in "
     "order"}};

enum { VARIANTS = sizeof variants / sizeof *variants };

static void turn_rows(lab *l, const mini_rows *r)
{
    char name[80], where[80];
    for (int i = 0; i < VARIANTS; i++) {
        const lab_kernel *k = mini_rows_find(r, variants[i].impl);
        snprintf(where, sizeof where, "variant %s of kv_store", variants[i].impl);
        if (k)
            mini_turn_kernels(l, variants[i].name, where, &r->k[0], k, variants[i].why);
        else
            lab_turn_missing(l, variants[i].name, where, r->k[0].shape, 1,
                             l->ordinal < 0 ? variants[i].why_not
                                            : "the card has no such variant for this GPU");
    }
    for (int32_t i = 1; i < r->n; i++) {
        bool variant = false;
        for (int v = 0; v < VARIANTS; v++)
            variant |= strcmp(r->k[i].impl, variants[v].impl) == 0;
        if (variant)
            continue;
        snprintf(name, sizeof name,
                 l->ordinal < 0 ? "wider vectors, not %.20s" : "vectors, not %.20s", r->k[i].impl);
        snprintf(where, sizeof where, "row %.40s of kv_store", r->k[0].impl);
        mini_turn_kernels(l, name, where, &r->k[i], &r->k[0],
                          "the same bytes in fewer instructions");
    }
}

/* The row that sorts: its host plan orders the tokens by slot, and the kernel reads them in that
 * order. Only a GPU has it. */
static vt_status turn_by_slot(lab *l, const lab_kernel *before, vt_err *err)
{
    char shape[160];
    lab_kernel after;
    if (l->ordinal < 0)
        return VT_OK;
    snprintf(shape, sizeof shape,
             "tokens=64,kv_heads=8,head_dim=128,kv_type=bf16,page=64,slots=random");
    vt_status status = lab_kernel_run(
        l, &(lab_kernel_ask){.op = "kv_store", .shape = shape, .impl = "by-slot"}, &after, err);
    if (status == VT_ERR_UNSUPPORTED || status == VT_ERR_USAGE)
        return VT_OK;
    TRY(status);
    lab_turn_kernels(l, "sorted scatter", "variant by-slot of kv_store, random slots", after.shape,
                     before->bytes / (after.bytes + after.extra_bytes), before, &after,
                     "writes are in order, reads no more; the bytes are the same");
    return VT_OK;
}

/* FP8 halves what is written. */
static vt_status turn_type(lab *l, const lab_kernel *before, vt_err *err)
{
    char shape[160];
    lab_kernel after;
    snprintf(shape, sizeof shape, "tokens=64,kv_heads=8,head_dim=128,kv_type=fp8,page=%d",
             l->ordinal >= 0 ? 64 : 16);
    TRY(lab_kernel_run(l, &(lab_kernel_ask){.op = "kv_store", .shape = shape}, &after, err));
    lab_turn_kernels(l, "KV cache in FP8", "--kv-dtype fp8", before->shape,
                     before->bytes / after.bytes, before, &after,
                     "half the bytes are written, and each value is scaled and "
                     "rounded to 8 bits, which takes instructions");
    return VT_OK;
}

/* ---- the store and the norm ---- */

/* The norms of q and k and the store of V do not depend on each other, so one launch may have parts
 * of a grid for each. The variant "apart" has a launch for norm and rope and one for the store. */
static vt_status turn_norm(lab *l, vt_err *err)
{
    static const char name[] = "store beside the norm", where[] = "variant apart of rope_store";
    char shape[160];
    const char *row[MINI_MAX_ROWS], *apart = NULL;
    lab_kernel one, two;
    vt_err why;
    snprintf(shape, sizeof shape,
             "tokens=64,heads=%d,kv_heads=8,head_dim=128,kv_type=%s,page=%d,norm=1",
             l->emulated ? 8 : 32, l->ordinal >= 0 ? "bf16" : "f16", l->ordinal >= 0 ? 64 : 16);
    int32_t n = lab_kernel_rows(l, "rope_store", shape, row, MINI_MAX_ROWS, &why);
    for (int32_t i = n; i-- > 0;) /* the first: that of the widest instruction set */
        apart = strncmp(row[i], "apart", 5) == 0 ? row[i] : apart;
    lab_turn_missing(l, "store fused with next norm", "no form: the data flow forbids it",
                     "kv_store and the norm after attention", NAN,
                     "attention reads what is stored, and the next norm reads what attention "
                     "makes: one launch of both would have to wait inside for attention");
    TRY(lab_kernel_run(l, &(lab_kernel_ask){.op = "rope_store", .shape = shape}, &one, err));
    if (!apart) {
        lab_turn_missing(l, name, where, shape, NAN, "this device has no variant of two calls");
        return VT_OK;
    }
    TRY(lab_kernel_run(l, &(lab_kernel_ask){.op = "rope_store", .shape = shape, .impl = apart},
                       &two, err));
    mini_turn_kernels(l, name, where, &two, &one,
                      l->ordinal < 0 ? "one call does the norms of q and k, the rotation and the "
                                       "store: k is not written and read again, and the workers "
                                       "meet once less"
                                     : "parts of one grid do the norms of q, those of k, and the "
                                       "store of V side by side: k is not written and read again, "
                                       "and there is one launch less");
    return VT_OK;
}

vt_status mini_turn_store(lab *l, const mini_rows *r, const lab_kernel *random, vt_err *err)
{
    turn_rows(l, r);
    TRY(turn_by_slot(l, random, err));
    TRY(turn_norm(l, err));
    return turn_type(l, &r->k[0], err);
}
