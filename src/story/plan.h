/* A program that is only costed: what a step of given sequences has to move and to compute, call by
 * call.
 *
 * Built from a model's description (nothing is packed, no cache is allocated, no weight is read),
 * so it works for dummy models of any size. `explain` prints it; a story sets measured times beside
 * it. */
#ifndef VT_STORY_PLAN_H
#define VT_STORY_PLAN_H

#include "device/roofs.h"
#include "exec/program.h"

/* A sequence's share of a step: q_len new tokens, after which its context is kv_len tokens long. */
typedef struct story_seq {
    int32_t q_len, kv_len;
    int32_t n_rows;       /* logit rows it asks for: 1 where a token is chosen */
    int32_t shared_pages; /* a decode's: that another one has as well, as in VT_TRACE_STEP_SEQ */
} story_seq;

typedef struct story_plan story_plan;

typedef struct story_plan_config {
    vt_device_kind device; /* whose program */
    vt_isa level;          /* of a CPU */
    vt_dtype kv_dtype;
    int32_t page_size;
    int32_t max_tokens, max_seqs, max_context; /* of any step that will be bound */
} story_plan_config;

vt_status story_plan_new(const vt_model *m, const story_plan_config *c, story_plan **out,
                         vt_err *err);
void story_plan_free(story_plan *p);
const vt_program *story_plan_program(const story_plan *p);

/* Sets the step. Sequences with q_len 1 whose context is longer are decodes, and come first in the
 * batch. */
vt_status story_plan_bind(story_plan *p, const story_seq *seq, int32_t n, vt_err *err);
/* Compulsory cost of a call under the bound step, and what its implementation moves beyond it. */
bool story_plan_cost(const story_plan *p, int32_t call, vt_cost *compulsory, vt_cost *extra);

/* How many active calls behind this one run in its launch: rope and the kv_store behind it are one
 * on a GPU. */
int32_t story_plan_further(const story_plan *p, int32_t call);

/* The least time the cost can take under the roofs, and which one sets it. */
typedef enum story_bound {
    STORY_BOUND_MEMORY,
    STORY_BOUND_FP32,
    STORY_BOUND_BF16,
    STORY_BOUND_INT8,
    STORY_BOUNDS
} story_bound;
double story_floor_s(const vt_cost *c, const vt_roofs *r, story_bound *bound);
const char *story_bound_name(story_bound b);

/* The kind of a call: its label without the layer ("L07.linear.qkv" -> "linear.qkv"). */
const char *story_call_kind(const vt_call *c);

#endif
