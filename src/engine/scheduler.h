/* The scheduler: it decides which tokens the next step works on. It is a pure function of its state
 * and of the time it is handed: no I/O, no threads, no allocation after vt_sched_init.
 *
 *   vt_sched_add ──> queue ──admit──> running ──finish──> DONE ──> out[], dead[]
 *                      ^───retract──────┤
 *                      └──── MASKED <───┘ the mask of its next token takes long
 *
 *   loop:  plan = vt_sched_plan(now)  -> device ...  result -> vt_sched_commit(plan, result)
 *
 * At most two plans are alive, and they are committed in the order in which they were made. A plan
 * may be made while the step before it is in flight. The tokens that the earlier step will sample
 * are then "pending": the plan names them by their slot in the device's token pool. Where a
 * constraint has to see a pending token first, the step is held: it chooses its tokens when
 * vt_sched_mask has filled in the masks. A step holds
 * the decodes first (one token each), then decodes with drafts (engine/draft.h), then chunks of
 * prefill, oldest first, all under the token budget; a decode never waits for a prefill or a draft.
 *
 * Ownership: the engine owns requests; the scheduler points to them from vt_sched_add until they
 * are in dead[]. The radix tree owns pages; a running sequence holds references to them.
 * docs/engine.md is the contract. */
#ifndef VT_ENGINE_SCHEDULER_H
#define VT_ENGINE_SCHEDULER_H

#include "exec/executor.h"
#include "engine/draft.h"
#include "engine/request.h"
#include "engine/step_time.h"
#include "kv/radix.h"

typedef enum vt_policy { VT_POLICY_FCFS = 0, VT_POLICY_LPM, VT_POLICY_PRIORITY } vt_policy;

enum {
    VT_PLANS = 2,      /* one in flight, one being made */
    VT_LOOKAHEAD = 64, /* queued sequences that a step considers for admission; under lpm also how
                          many younger ones may be admitted before an older one */
    VT_TENANTS = 1024,
    VT_MAX_FAULTS = 2 /* how often a sequence is tried again after a device fault */
};

/* The most state slots for each sequence that may run: its own, and two snapshots; and how many
 * sequences have slots for their guesses at a time. Where many run, few steps have guesses. */
enum { VT_SCHED_STATES = 3, VT_SCHED_GUESSING = 8 };

typedef struct vt_sched_config {
    vt_limits limits; /* max_tokens is the token budget, max_seqs the running limit */
    int32_t n_pages;
    int32_t n_states; /* state slots, at least max_seqs beside n_guess_states; 0: the model has
                               no sequence state */
    int32_t n_guess_states; /* how many of them may hold states behind guesses */
    int32_t state_interval; /* tokens of a prompt from one snapshot on its way to the next, a
                               multiple of the page size; 0: there are none on its way */
    int32_t n_windows;  /* window pages (kv/radix.h), at least vt_sched_windows_least; 0: all layers
                               use the same pages */
    int32_t window;     /* tokens that layers with a window see, counting the token itself */
    int32_t max_queued; /* sequences */
    vt_policy policy;
    bool prefix_cache;
    bool types;    /* the model tells the two texts of a pair apart */
    bool adapters; /* it has adapters: batches say which one a sequence has */
    bool whole;    /* a step has all of a sequence's tokens or none: tokens see those behind them */
    const int32_t *eos; /* [n_eos] borrowed */
    int32_t n_eos;
    int64_t target_gap_ns; /* no step with decodes shall take longer, as far as the size of its
                              prefill chunks can see to it; 0: the token budget alone bounds it */
    bool forced;           /* a token that a constraint leaves no choice of is guessed */
    int32_t n_hidden;      /* numbers of a hidden state, for a drafter that learns them */
    vt_drafter drafter;    /* .draft NULL: none is guessed but for that */
} vt_sched_config;

/* One sequence in a plan. */
typedef struct vt_plan_entry {
    vt_seq *seq;
    int32_t q_len, kv_len;
    int32_t row;         /* its first row of sampling in the step */
    int32_t n_scored;    /* rows that score prompt tokens, or whose states are pooled */
    int32_t scored_from; /* the position of the first of them */
    bool samples;        /* it has 1 + n_drafted more rows, which choose tokens */
    int32_t n_drafted;   /* its last tokens, which were guessed */
    bool ends_prompt;    /* after this step the whole prompt is computed */
    bool held;           /* the mask of its choice follows from a token of the plan before */
    bool dropped;        /* that mask did not come in time: what it chooses is not used */
} vt_plan_entry;

typedef struct vt_plan {
    vt_step step;     /* points at the arrays below */
    int32_t *second;  /* NULL: no model with types of texts */
    int32_t *adapter; /* NULL: no model with adapters */
    int32_t *token, *position, *seq_of, *slot, *q_start, *kv_len, *page_start, *page_ids,
        *row_token, *state_from, *state_to, *state_behind;
    int32_t *window_slot, *window_page_ids; /* NULL: no window pages */
    vt_sample_row *row;
    vt_page_copy *copy, *window_copy;
    vt_plan_entry *entry; /* [batch.n_seqs] */
    bool in_flight;       /* launched, and neither committed nor lost to a fault */
    int64_t draft_ns;     /* a device worked on its guesses */
    bool draft_trial;     /* among its guesses are such of a few sequences that try */
    int32_t n_running;    /* sequences that ran when it was made */
} vt_plan;

/* Something to publish about a sequence: scores, new tokens, its end, or several of these. */
typedef struct vt_output {
    vt_seq *seq;
    int32_t row; /* its first row in the step's result; of a sequence that is pooled its segment */
    int32_t n_scored, scored_from;
    int32_t from, n; /* seq->token[from .. from + n) are new; their rows follow the scored ones */
    bool silent;     /* the last of them is a stop token: it has no text */
} vt_output;

typedef struct vt_sched_stats {
    uint64_t steps, decode_tokens, prefill_tokens, admitted, retracted, finished, faults;
    uint64_t draft_tokens, draft_accepted; /* guesses that a step verified, and those that held */
    uint64_t forced_tokens; /* that a constraint left no choice of, and that were guessed for it */
    uint64_t late_masks;    /* that took long, so that another thread made them */
    int64_t draft_ns;       /* devices worked on guesses that drafters prepared */
} vt_sched_stats;

typedef struct vt_sched {
    vt_sched_config config;
    vt_radix radix;
    vt_seq **queue; /* [n_queue] in the policy's order, in queue_room */
    int32_t n_queue, queue_cap;
    vt_seq **queue_room; /* [2 * queue_cap] */
    vt_seq **running;    /* [max_seqs] in order of admission */
    int32_t n_running;
    int32_t *free_slot, n_free_slots;
    bool no_room; /* the last plan left a sequence in the queue for want of pages */
    vt_plan plan[VT_PLANS];
    uint64_t next_step; /* id of the next plan, from 1 */
    uint64_t next_order;
    int64_t next_deadline;
    vt_output *out; /* to publish; the engine sets n_out = 0 when that is done */
    int32_t n_out;
    vt_seq **retracted; /* by the last plan, for the trace */
    int32_t n_retracted;
    vt_seq **late;            /* MASKED since the engine set n_late = 0: it has their masks made, */
    int32_t n_late, n_masked; /* of all n_masked */
    vt_drafted *drafted;      /* [max_seqs] scratch of a plan */
    vt_draft_record draft_record;
    int32_t draft_trials;   /* sequences that may still try in the plan being made */
    int32_t n_guess_states; /* state slots that hold states behind guesses of steps in flight */
    vt_req **dead;          /* every sequence done and out of flight: the engine may free them */
    int32_t n_dead;
    int32_t *match_page;   /* [pages of max_context] scratch of an admission */
    int32_t *match_window; /* [pages of max_context] likewise; NULL: no window pages */
    vt_arena arena;        /* holds every array here */
    vt_sched_stats stats;
    vt_step_time step_time;
} vt_sched;

/* Returns how many state slots of `slot` bytes an engine has: one for each sequence that may run,
 * and up to two more for each, for snapshots, as long as all are within half of `bytes`. */
int64_t vt_sched_states(int64_t bytes, size_t slot, int32_t max_seqs);
/* Returns how many more an engine that drafts has, for the states behind guesses: those of a few
 * sequences at a time, as long as they are within a quarter of `bytes`, or of one sequence. */
int64_t vt_sched_guess_states(int64_t bytes, size_t slot, int32_t max_seqs);
/* The window pages that a sequence alone needs to go on, with drafts, and one to copy from. */
int32_t vt_sched_windows_least(int32_t window, int32_t page_size);
vt_status vt_sched_init(vt_sched *s, const vt_sched_config *c, vt_err *err);
void vt_sched_release(vt_sched *s);
/* Sets how many of config.n_pages and n_windows have memory behind them. A number may shrink only
 * while all of its pages are free: before the first step, and after vt_sched_fault. */
void vt_sched_set_pages(vt_sched *s, vt_kv_count n);

/* Puts a request's sequences into the queue. The engine sees to it that at most max_queued wait. */
void vt_sched_add(vt_sched *s, vt_req *r);
/* The next step, or NULL if there is nothing to compute now. Expired deadlines end here. */
vt_plan *vt_sched_plan(vt_sched *s, int64_t now_ns);
/* Gives the rows of a plan whose step is held their masks. The plan before it was committed. */
void vt_sched_mask(vt_plan *p);
/* Takes in the result of a plan's step: new tokens, ends, outputs to publish, late masks. */
void vt_sched_commit(vt_sched *s, vt_plan *p, const vt_step_result *result);
/* The mask of a sequence that was in late[] is there (vt_constrained_finish): it goes back into the
 * queue, or ends. */
void vt_sched_masked(vt_sched *s, vt_seq *q);
/* Ends a sequence wherever it is, without an output: the caller tells the owner. Does nothing if it
 * is DONE. */
void vt_sched_finish(vt_sched *s, vt_seq *seq, vt_end_reason end);
/* The device failed: drops the steps in flight, puts every running sequence back into the queue (or
 * ends it with an error after VT_MAX_FAULTS), and empties the prefix cache. */
void vt_sched_fault(vt_sched *s);
/* Ends every sequence, for the device is lost. Nothing is in flight, and vt_sched_fault has been
 * called. */
void vt_sched_lose_all(vt_sched *s);
static inline bool vt_sched_idle(const vt_sched *s)
{
    return s->n_running == 0 && s->n_queue == 0 && s->n_masked == 0;
}

/* Verifies all invariants of docs/engine.md from scratch; for tests. */
vt_status vt_sched_check(const vt_sched *s, vt_err *err);

#endif
