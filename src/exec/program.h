/* The program: a forward pass as a flat list of op calls.
 *
 *   page_copy |
 *   embed
 *   per layer: rmsnorm, linear qkv, rope_store, attention_decode, attention_prefill,
 *             linear o, rmsnorm, linear gate+up, linear down
 *   rmsnorm of the wanted rows, linear head | sample          (or it ends there: vt_end)
 *
 * A program is built once from the architecture description, with symbolic sizes; binding a batch
 * sets the sizes. The list can be printed, costed without running, run by the CPU team, launched on
 * a stream or captured into a graph. Ops are fused by emitting one call for both. Every call's args
 * point into the program (tensors, batch), so binding changes tensors and no call.
 *
 * Which implementation runs a call may depend on the step's size. A call lists its choices
 * (vt_choice), which are made when the program is built. Some implementations need a plan that the
 * host computes for every step; the program lists these plans, and calls share one where they can.
 */
#ifndef VT_EXEC_PROGRAM_H
#define VT_EXEC_PROGRAM_H

#include "exec/weights.h"
#include "kv/cache.h"
#include "ops/comm.h"
#include "ops/op.h"
#include "ops/sampling.h"

/* A call runs in steps that have this. */
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
    int16_t *plan;     /* [n_choices] index in the program's plans; -1: that choice needs none */
    int16_t n_choices;
    int16_t layer;   /* -1: outside the layers */
    uint8_t when;    /* vt_when */
    uint8_t readers; /* so many calls behind it alone read what it makes: it is left out where all
                        of them make that themselves (vt_impl.makes_before) */
    char label[40];  /* "L07.linear.qkv" */
} vt_call;

/* One plan of a step. It is made from `args`, the arguments of the first call that uses it, and all
 * calls with an equal key share it. */
typedef struct vt_program_plan {
    const vt_host_plan *plan;
    const void *args;
    uint64_t key;
    uint8_t when;  /* vt_when of its calls */
    bool windowed; /* they read window pages: it is made from vt_program_windowed of the batch */
} vt_program_plan;

enum { VT_MAX_PLANS = 16 };

/* The end of a program, for the rows that are wanted. Embeddings are pooled from hidden states
 * (engine/embedding.h). */
typedef enum vt_end {
    VT_END_LOGITS, /* logits, and a sampled token */
    VT_END_POOLED  /* sums of the last layer's output after the final norm, one of the rows of each
                      sequence that has some (ops/segment_sum); there is no head */
} vt_end;

/* Hidden states that a program which ends in logits gives beside them. */
typedef enum vt_states {
    VT_STATES_NONE,
    VT_STATES_ROWS,   /* after the final norm */
    VT_STATES_TOKENS, /* the same of all tokens; of a model with an EAGLE-3 head, what that reads
                         (vt_aux) */
    VT_STATES_STREAM  /* of all tokens, before the final norm: the next input of such a head */
} vt_states;

typedef struct vt_program_config {
    vt_target target;
    vt_dtype activation; /* F32 on CPU, BF16 on CUDA */
    vt_end end;
    vt_states states;
    bool describe; /* the program will not run: allocate no activations */
    /* The group that the program is a rank of, which outlives it; NULL: it runs alone. The weights
     * and the cache are the rank's shard (exec/ranks.h). */
    vt_comm_rank *comm;
} vt_program_config;

typedef struct vt_program {
    vt_arena arena;
    vt_target target;
    vt_dtype activation;
    vt_batch batch;            /* the bound batch */
    vt_batch windowed;         /* the same as layers with a window see it: with their pages */
    vt_size size;              /* and its size */
    const vt_sample_row *rows; /* the bound rows of logits, in host memory: how to sample each */
    int32_t *token_pool;
    vt_tensor *buffer[VT_COMM_SLOTS]; /* of a rank: what its peers read */
    vt_call *call;
    /* [0, n_before) page copies, [n_before, n_forward) the forward pass, [n_forward, n_calls)
     * sampling */
    int32_t n_before, n_forward, n_calls;
    vt_program_plan plan[VT_MAX_PLANS];
    int32_t n_plans;
    vt_tensor **symbolic; /* tensors whose dim[0] follows the batch */
    int32_t n_symbolic;
    vt_comm_rank *comm; /* the rank that it is; NULL: it runs alone */
    unsigned n_comm;    /* communication calls; they are numbered from 1 */
    /* The program of the next rank on the same device, whose calls have the same order; NULL: this
     * is the last, or the only one. What a step moves and computes is the sum over them. */
    const struct vt_program *next_rank;
    vt_tensor *hidden;       /* [rows, hidden], after the final norm */
    const vt_tensor *states; /* the hidden states that results have: `hidden`, those of all tokens,
                                the sums of segments ([rows, 2 * hidden] F32), or NULL */
    vt_tensor *before;       /* of an MTP head: batch.hidden; or NULL */
    vt_tensor *logits;       /* [rows, vocab] fp32 */
    vt_tensor *token, *logprob, *top_id, *top_logprob; /* results of sampling */
    size_t activation_bytes;
    void *memory;
} vt_program;

/* Builds the program of a model. On the CPU the program allocates the memory of its activations. On
 * CUDA their data pointers are offsets until the caller, once, places them in activation_bytes of
 * device memory (vt_program_place). target.workspace_bytes of the result is the most that any of
 * its calls needs. Fails if a backend that the user named can run no call. */
vt_status vt_program_build(const vt_model *m, const vt_weights *w, const vt_kv_cache *kv,
                           const vt_program_config *config, vt_program **out, vt_err *err);
void vt_program_place(vt_program *p, void *memory);
void vt_program_free(vt_program *p);
/* Sets the tensors' sizes; the arrays of `batch` and `rows` are borrowed until the next bind. For a
 * padded step `size` is the bucket's, and `batch` is the one that the device sees. */
void vt_program_bind(vt_program *p, const vt_batch *batch, const vt_size *size,
                     const vt_sample_row *rows);

/* Returns the batch as layers with a window see it: with their pages, if it lists these apart. */
vt_batch vt_program_windowed(const vt_batch *batch);

/* Returns true if a step of this size runs the call. */
bool vt_call_active(const vt_call *c, const vt_size *size);
/* Which of the call's choices a step of this size takes. */
int32_t vt_call_choice(const vt_call *c, const vt_size *size);
static inline const vt_impl *vt_call_impl(const vt_call *c, const vt_size *size)
{
    return c->choice[vt_call_choice(c, size)].impl;
}
/* Sets used[i] to whether any call that a step of this size runs needs plan i. */
void vt_program_plans_used(const vt_program *p, const vt_size *size, bool used[VT_MAX_PLANS]);

#endif
