/* The program: a forward pass as a flat list of op calls.
 *
 *   page_copy |
 *   embed
 *   per layer: rmsnorm, linear qkv, rope_store, attention_decode, attention_prefill,
 *             linear o, rmsnorm, linear gate+up, linear down
 *   rmsnorm of the wanted rows, linear head | sample
 *
 * Built once from the architecture description with symbolic sizes; binding a batch sets the sizes.
 * The list can be printed, costed without running, run by the CPU team, launched on a stream or
 * captured into a graph. Fusion is a choice of what to emit. Every call's args point into the
 * program (tensors, batch), so binding touches a dozen tensors and no call.
 *
 * A call keeps the rows that run it by size (vt_choice), chosen when the program is built. The host
 * work of those rows is the program's list of plans: calls that can share one do. */
#ifndef VT_EXEC_PROGRAM_H
#define VT_EXEC_PROGRAM_H

#include "exec/weights.h"
#include "kv/cache.h"
#include "ops/op.h"
#include "ops/sample/sample.h"

/* What a step must have for a call to run. */
typedef enum vt_when {
    VT_WHEN_TOKENS,
    VT_WHEN_DECODE,
    VT_WHEN_PREFILL,
    VT_WHEN_ROWS,
    VT_WHEN_COPIES
} vt_when;

typedef struct vt_call {
    const vt_op *op;
    void *args;        /* the op's own struct, in the program's arena */
    vt_choice *choice; /* [n_choices] by size */
    int16_t *plan;     /* [n_choices] index in the program's plans; -1: the row has none */
    int16_t n_choices;
    int16_t layer;  /* -1: outside the layers */
    uint8_t when;   /* vt_when */
    char label[40]; /* "L07.linear.qkv" */
} vt_call;

/* One plan of a step: made for `args`, the first call's that uses it, and shared by all others. */
typedef struct vt_program_plan {
    const vt_host_plan *plan;
    const void *args;
    uint64_t key;
    uint8_t when; /* of its calls */
} vt_program_plan;

enum { VT_MAX_PLANS = 8 };

typedef struct vt_program_config {
    vt_target target;
    vt_dtype activation; /* F32 on CPU, BF16 on CUDA */
    bool describe;       /* the program is only looked at: no memory */
} vt_program_config;

typedef struct vt_program {
    vt_arena arena;
    vt_target target;
    vt_dtype activation;
    vt_batch batch;            /* the bound batch */
    vt_size size;              /* and its size */
    const vt_sample_row *rows; /* the bound rows of logits, in host memory: how to sample each */
    int32_t *token_pool;
    vt_call *call;
    /* [0, n_before) page copies, [n_before, n_forward) the forward pass, [n_forward, n_calls)
     * sampling */
    int32_t n_before, n_forward, n_calls;
    vt_program_plan plan[VT_MAX_PLANS];
    int32_t n_plans;
    vt_tensor **symbolic; /* tensors whose dim[0] follows the batch */
    int32_t n_symbolic;
    vt_tensor *logits;                                 /* [rows, vocab] fp32 */
    vt_tensor *token, *logprob, *top_id, *top_logprob; /* results of sampling */
    size_t activation_bytes;
    void *memory;
} vt_program;

/* On the CPU the program brings its activations' memory. On CUDA their data are offsets until the
 * caller places them in activation_bytes of device memory (vt_program_place, once). The target's
 * workspace_bytes of the result are what its rows ask for. Fails where a backend fits no call. */
vt_status vt_program_build(const vt_model *m, const vt_weights *w, const vt_kv_cache *kv,
                           const vt_program_config *config, vt_program **out, vt_err *err);
void vt_program_place(vt_program *p, void *memory);
void vt_program_free(vt_program *p);
/* Sets the tensors' sizes; the arrays of `batch` and `rows` are borrowed until the next bind. A
 * padded step has the bucket's size, and the batch that the device sees. */
void vt_program_bind(vt_program *p, const vt_batch *batch, const vt_size *size,
                     const vt_sample_row *rows);

/* The size of a step that is not padded. */
vt_size vt_size_of(const vt_batch *batch);
/* Whether a step of this size runs the call at all. */
bool vt_call_active(const vt_call *c, const vt_size *size);
/* Which of the call's choices a step of this size takes. */
int32_t vt_call_choice(const vt_call *c, const vt_size *size);
static inline const vt_impl *vt_call_impl(const vt_call *c, const vt_size *size)
{
    return c->choice[vt_call_choice(c, size)].impl;
}
/* Marks used[i] for every plan that an active call of a step of this size wants. */
void vt_program_plans_used(const vt_program *p, const vt_size *size, bool used[VT_MAX_PLANS]);

#endif
