/* Asking the rows of a card about a call without running it: which row is chosen, and how a row
 * cuts the call. No data is moved, so the GPU that is asked about need not be there.
 *
 *     vt_target t;
 *     lab_call c;
 *     TRY(lab_target(l, &t, err));
 *     TRY(lab_call_make(&t, "attention_prefill", "seqs=1,q_len=2,kv_len=2,heads=32", &c, err));
 *     vt_size size = {.tokens = 512, .seqs = 1, .prefills = 1};
 *     lab_call_cut(&c, NULL, &size, &cut);
 *     lab_call_release(&c);
 *
 * The shape gives heads, types and the like. `size` replaces the number of tokens and sequences, so
 * a small shape can stand for a large call. */
#ifndef VT_LAB_KIT_ROWS_H
#define VT_LAB_KIT_ROWS_H

#include "lab/kit/lab.h"
#include "ops/case_text.h"
#include "ops/op.h"

/* The lab's device as the rows of a card see it, with limits that every shape of a lab fits. */
vt_status lab_target(lab *l, vt_target *out, vt_err *err);
/* A GPU of device/hardware.h ("h200") that need not be here. */
vt_status lab_target_named(const char *name, vt_target *out, vt_err *err);

typedef struct lab_call {
    const vt_op *op;
    vt_target target;
    void *args;            /* of the target's types; only the host may follow its pointers */
    const vt_batch *batch; /* of the args; NULL: the op has none */
    vt_case shape;
    vt_arena arena;
} lab_call;

/* The args of the shape (ops/case_text.h), in the types that they have on the target. */
vt_status lab_call_make(const vt_target *t, const char *op, const char *shape, lab_call *out,
                        vt_err *err);
void lab_call_release(lab_call *c); /* *c may be all zeros */
/* The row or variant of this name; NULL: the one that a program would take for this size. NULL if
 * there is none, or if it does not take the call. size NULL: that of the args. */
const vt_impl *lab_call_row(const lab_call *c, const char *impl, const vt_size *size);
/* Tells how that row cuts the call. False: there is no such row, or it does not say. */
bool lab_call_cut(const lab_call *c, const char *impl, const vt_size *size, vt_cut *out);

/* The same for one prompt of n tokens, none of which is cached. The items are those that the row's
 * plan makes, where describe() says the most that it could make. */
bool lab_prompt_cut(const lab_call *c, const char *impl, int32_t n, vt_cut *out);
/* A border between two numbers of waves: the first n above `from`, at most `limit`, at which a
 * prompt of n tokens needs a wave more than one of n - 1. 0: there is none. */
int32_t lab_wave_border(const lab_call *c, const char *impl, int32_t from, int32_t limit);

#endif
