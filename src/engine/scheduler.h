/* The scheduler: which tokens the next step works on. A pure function of its state and the clock it
 * is handed: no I/O, no threads, no allocation after vt_sched_init.
 *
 *   vt_sched_add ──> queue ──admit──> running ──finish──> DONE ──> out[], dead[]
 *                      ^───retract──────┘
 *
 *   loop:  plan = vt_sched_plan(now)  -> device ...  result -> vt_sched_commit(plan, result)
 *
 * At most two plans are alive, and they are committed in the order they were made. A plan may be
 * made while the one before it is in flight: tokens that one will sample are then "pending", named
 * by their token pool slot. A step holds the decodes first (one token each), then chunks of
 * prefill, oldest first, all under the token budget; a decode never waits for a prefill.
 *
 * Who owns what: the engine owns requests; the scheduler points to them from vt_sched_add until
 * they are in dead[]. Pages are the radix tree's; a running sequence holds references.
 * docs/engine.md is the contract. */
#ifndef VT_ENGINE_SCHEDULER_H
#define VT_ENGINE_SCHEDULER_H

#include "exec/executor.h"
#include "engine/request.h"
#include "kv/radix.h"

typedef enum vt_policy { VT_POLICY_FCFS = 0, VT_POLICY_LPM, VT_POLICY_PRIORITY } vt_policy;

enum {
    VT_PLANS = 2, /* one in flight, one being made */
    VT_LOOKAHEAD =
        64, /* queued sequences considered for admission in a step; under lpm also the number of
                            younger ones that may go first */
    VT_TENANTS = 1024,
    VT_MAX_FAULTS = 2 /* a sequence is tried again after a device fault, this often */
};

typedef struct vt_sched_config {
    vt_limits limits; /* max_tokens is the token budget, max_seqs the running limit */
    int32_t n_pages;
    int32_t max_queued; /* sequences */
    vt_policy policy;
    bool prefix_cache;
    const int32_t *eos; /* [n_eos] borrowed */
    int32_t n_eos;
} vt_sched_config;

/* A sequence's part of a plan. */
typedef struct vt_share {
    vt_seq *seq;
    int32_t q_len, kv_len;
    int32_t row;      /* its first row of the step */
    int32_t n_scored; /* rows that score the prompt, positions scored_from ... */
    int32_t scored_from;
    bool samples;     /* one more row, that chooses a token */
    bool ends_prompt; /* the prompt is computed with this step */
} vt_share;

typedef struct vt_plan {
    vt_step step; /* points at the arrays below */
    int32_t *token, *position, *seq_of, *slot, *q_start, *kv_len, *page_start, *page_ids,
        *row_token;
    vt_sample_row *row;
    vt_page_copy *copy;
    vt_share *share; /* [batch.n_seqs] */
    bool in_flight;  /* planned and neither committed nor lost */
} vt_plan;

/* Something to publish. A sequence that is DONE has its last output here. */
typedef struct vt_output {
    vt_seq *seq;
    int32_t row; /* of the step's result */
    int32_t n_scored, scored_from;
    int32_t token; /* the new token, also in seq->token; -1: none */
    bool silent;   /* a stop token: no text */
} vt_output;

typedef struct vt_sched_stats {
    uint64_t steps, decode_tokens, prefill_tokens, admitted, retracted, finished, faults;
} vt_sched_stats;

typedef struct vt_sched {
    vt_sched_config config;
    vt_radix radix;
    vt_seq **queue; /* [queue_cap] in the policy's order */
    int32_t n_queue, queue_cap;
    vt_seq **running; /* [max_seqs] in order of admission */
    int32_t n_running;
    int32_t *free_slot, n_free_slots;
    vt_plan plan[VT_PLANS];
    uint64_t next_step; /* id of the next plan, from 1 */
    uint64_t next_order;
    int64_t next_deadline;
    vt_output *out; /* to publish; the engine sets n_out = 0 when that is done */
    int32_t n_out;
    vt_seq **retracted; /* by the last plan, for the trace */
    int32_t n_retracted;
    vt_req **dead; /* every sequence done and out of flight: the engine may free them */
    int32_t n_dead;
    int32_t *match_page; /* [pages of max_context] scratch of an admission */
    vt_arena arena;      /* holds every array here */
    vt_sched_stats stats;
} vt_sched;

vt_status vt_sched_init(vt_sched *s, const vt_sched_config *c, vt_err *err);
void vt_sched_release(vt_sched *s);
/* So many of config.n_pages are there now; fewer than before only at the start. */
void vt_sched_set_pages(vt_sched *s, int32_t n);

/* Enters a request's sequences. The engine keeps those that wait within max_queued. */
void vt_sched_add(vt_sched *s, vt_req *r);
/* The next step, or NULL if there is nothing to compute now. Expired deadlines end here. */
vt_plan *vt_sched_plan(vt_sched *s, int64_t now_ns);
/* What a plan's step gave. */
void vt_sched_commit(vt_sched *s, vt_plan *p, const vt_step_result *result);
/* Ends a sequence wherever it is; telling its owner is the caller's business. No-op if DONE. */
void vt_sched_finish(vt_sched *s, vt_seq *seq, vt_finish finish, const char *error);
/* The device failed: nothing of the steps in flight counts. Every running sequence is tried
 * again, or ends with an error after VT_MAX_FAULTS; the prefix cache is emptied. */
void vt_sched_fault(vt_sched *s);
static inline bool vt_sched_idle(const vt_sched *s) { return s->n_running == 0 && s->n_queue == 0; }

/* All invariants, from scratch; for tests. */
vt_status vt_sched_check(const vt_sched *s, vt_err *err);

#endif
