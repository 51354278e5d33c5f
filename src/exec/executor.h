/* The executor runs steps. The engine knows this interface and nothing about devices; the CPU, CUDA
 * and the simulator's fake device implement it.
 *
 *   launch(step N)    may return before the work is done; the caller leaves the step's arrays
 *                     untouched until its wait
 *   launch(step N+1)  may follow at once: its batch.token may be -1-k, "the token that slot k got
 *                     in step N"
 *   sample(step N+1)  only of a step that was launched `held`: the masks of its rows are known now
 *   wait()            waits for the oldest launched step, and fills what the CPU has to learn
 *
 * At most two steps are in flight. Page copies and frees are ordered by launch: a page freed after
 * step N was scheduled may be handed out for step N+1, because the device runs steps in order. */
#ifndef VT_EXEC_EXECUTOR_H
#define VT_EXEC_EXECUTOR_H

#include "base/term/progress.h"
#include "exec/program.h"
#include "exec/source.h"
#include "ops/batch.h"
#include "ops/sampling.h"
#include "vitrine.h"

typedef struct vt_step {
    uint64_t id;
    vt_batch batch;
    const vt_sample_row *rows; /* [batch.n_rows] */
    /* The masks of some rows follow from tokens of the step before. The forward pass runs at the
     * launch; no row is read before vt_executor.sample. */
    bool held;
} vt_step;

/* Valid until the next wait. */
typedef struct vt_step_result {
    uint64_t id;
    /* Of a program that ends in logits, else NULL: */
    const int32_t *token;  /* [n_rows]; -1: no choice (ops/sample/sample.h) */
    const float *logprob;  /* [n_rows] */
    const int32_t *top_id; /* [n_rows][VT_MAX_TOP_LOGPROBS] */
    const float *top_logprob;
    /* [n_rows, hidden], or [n_tokens, hidden]: hidden states that the program gives (vt_states); of
     * one that ends in their sums (VT_END_POOLED), and gives nothing else, [segments][2][hidden]
     * F32: sum and rest of ops/segment_sum; else NULL: */
    const void *hidden;
    vt_dtype hidden_dtype;    /* F32 or BF16 */
    int64_t begin_ns, end_ns; /* of the device's work */
} vt_step_result;

/* Memory that an executor has come to hold while it runs, because steps needed it. */
typedef struct vt_executor_held {
    int32_t graphs;           /* captured, and kept */
    uint64_t captures;        /* graphs captured so far */
    int32_t kernels;          /* compiled and loaded */
    int32_t algorithms;       /* shapes for which a library was asked for an algorithm */
    int64_t graph_host_bytes; /* what the driver keeps of host memory for the graphs: their nodes
                                 times the bytes a node, which are measured at start-up */
} vt_executor_held;

/* A rank of a tensor-parallel group: what it owns, and what it did since the executor was made. */
typedef struct vt_rank_use {
    int64_t weight_bytes, kv_bytes; /* its shard in the layout of its kernels, and its KV pages */
    int64_t wait_ns; /* waited in communication calls for peers to come: on a CPU its first worker,
                        on a GPU its kernels; negative: not measured */
    int64_t wait_steps; /* it is the wait of so many steps, the stamped ones; negative: of all */
} vt_rank_use;

/* Numbers of KV pages, and of window pages. */
typedef struct vt_kv_count {
    int32_t pages, windows;
} vt_kv_count;

typedef struct vt_executor vt_executor;
struct vt_executor {
    const char *name;
    vt_status (*launch)(vt_executor *x, const vt_step *step, vt_err *err);
    /* Lets the step that was launched last, and was held, choose its tokens. All steps before it
     * have been waited for. */
    vt_status (*sample)(vt_executor *x, vt_err *err);
    /* A held step that was never sampled is dropped by its wait: its results mean nothing. */
    vt_status (*wait)(vt_executor *x, vt_step_result *out, vt_err *err);
    void (*free)(vt_executor *x);
    /* The calls' indices in events are explained here; NULL: it runs no program. */
    const vt_program *(*program)(const vt_executor *x);
    /* How many of config.n_pages and n_windows may be used from the next launch on; only renew
     * makes either smaller. `taken` are in use now: the executor makes more in time, as far as
     * memory goes. NULL: all pages may be used from the start. */
    vt_kv_count (*pages)(vt_executor *x, vt_kv_count taken);
    /* After launch or wait failed and nothing is in flight. `lost`: every later step would fail
     * too. `renew` then makes the device's state again: KV pages and the token pool are empty, as
     * in a new executor. NULL: the device cannot be lost. */
    bool (*lost)(vt_executor *x);
    vt_status (*renew)(vt_executor *x, vt_err *err);
    /* The places where events are recorded, and the numbers that it keeps. Both fill out[0 .. max)
     * and return how many there are. */
    int32_t (*sources)(const vt_executor *x, vt_source *out, int32_t max);
    int32_t (*report)(const vt_executor *x, vt_report *out, int32_t max);
    void (*held)(const vt_executor *x, vt_executor_held *out); /* any thread; NULL: nothing */
    /* Fills out[0 .. max) and returns how many ranks there are. Any thread may call it. NULL: the
     * executor has no ranks. */
    int32_t (*ranks)(const vt_executor *x, vt_rank_use *out, int32_t max);
    int32_t n_pool_slots; /* size of the token pool */
};

typedef struct vt_executor_config {
    vt_limits limits;
    int32_t n_pages, n_pool_slots;
    int32_t n_windows; /* window pages, which batches then list apart; 0: none */
    int32_t n_states;  /* state slots, of a model with sequence state */
    vt_dtype kv_dtype;
    vt_end end;         /* what its programs end in, */
    vt_states states;   /* and hidden states that they give beside it */
    int32_t n_ranks;    /* of a tensor-parallel group; 0 counts as 1 */
    bool whole_experts; /* ranks divide the experts (vt_rank) */
    int32_t n_threads;  /* CPU: of each rank */
    bool async;         /* launch returns at once and a thread of its own runs the step */
    vt_backend backend[VT_MAX_BACKENDS]; /* [n_backends] vt_target.backend */
    int32_t n_backends;
    const vt_progress_hook *progress; /* told while the executor is made; may be NULL */
} vt_executor_config;

vt_status vt_executor_cpu_new(const vt_model *m, const vt_executor_config *config,
                              vt_executor **out, vt_err *err);

enum { VT_MAX_REPORTS = 32 };
/* The report of this key; false: the executor keeps none. */
bool vt_executor_find(const vt_executor *x, const char *key, vt_report *out);
/* Its value; `otherwise` where there is none. */
double vt_executor_value(const vt_executor *x, const char *key, double otherwise);

/* An error for a step beyond the limits: they sized the executor's memory, and the step would write
 * past its end. */
vt_status vt_step_check(const vt_limits *limits, const vt_step *step, vt_err *err);

#endif
