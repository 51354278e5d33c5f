/* A look into a running engine, for the live page and `vitrine top`.
 *
 *   the observer's thread                          engine
 *   live_look_take:  hold between two steps <───── step ends
 *                    copy counts, ids, page states, new trace events
 *                    release ─────────────────────> next step begins
 *                    sort, add up, cut to what fits
 *   live_look_write: JSON
 *
 * The engine is held only while data that its steps change is copied; the time that took is part of
 * the look (held_ns). The enumerators below bound a look, whatever the engine's size. A look holds
 * ids and counts, never text or tokens. */
#ifndef VT_SERVER_WATCH_LIVE_LOOK_H
#define VT_SERVER_WATCH_LIVE_LOOK_H

#include "base/json_write.h"
#include "engine/engine.h"
#include "kv/radix_runs.h"

enum {
    LIVE_CELLS = 480,     /* squares of the page map */
    LIVE_RUNNING = 96,    /* running sequences that are listed */
    LIVE_QUEUED = 48,     /* queued sequences that are listed */
    LIVE_RUNS = 40,       /* runs of pages of the prefix tree that are listed */
    LIVE_STEPS = 160,     /* steps that the history holds */
    LIVE_NEW_STEPS = 24,  /* steps that an event without the history holds */
    LIVE_PARTS = 640,     /* parts of the engine's work for steps that the history holds, */
    LIVE_NEW_PARTS = 96,  /* and those that an event without it holds */
    LIVE_STEP_SEQS = 96,  /* sequences of a step that are listed */
    LIVE_BINS = 28,       /* bins of a histogram: a quarter of a decade each, from 0.1 ms */
    LIVE_RATES = 120,     /* intervals of half a second that rates are kept for */
    LIVE_EVENTS = 1 << 14 /* trace events that a look reads at most: the newest */
};

/* Why a sequence is still in the queue. */
typedef enum live_why {
    LIVE_SOON = 0, /* nothing known keeps it waiting */
    LIVE_BATCH_FULL,
    LIVE_NO_PAGES,  /* free and evictable pages do not cover it */
    LIVE_BEHIND,    /* older ones are considered first */
    LIVE_RETRACTED, /* it ran, and gave its pages up for older ones */
    LIVE_BUDGET     /* the last step's tokens were used up by others */
} live_why;

typedef struct live_running {
    uint64_t request;
    int32_t sample, n_prompt, n_computed, n_output, n_pages, n_cached, n_most;
} live_running;

typedef struct live_queued {
    uint64_t request;
    int64_t wait_ns;
    int32_t sample, n_tokens;
    live_why why;
} live_queued;

/* Some neighbouring pages of the map. */
typedef struct live_cell {
    int32_t n_used, n_cached;
    int32_t n_shared; /* used pages that several sequences have */
    uint64_t owner;   /* the request that has most of the used pages; 0: none is known */
} live_cell;

typedef struct live_step {
    uint64_t id;
    int64_t begin_ns, end_ns;
    int32_t n_tokens, n_decode, n_seqs, n_listed;
    uint64_t request[LIVE_STEP_SEQS];
    int32_t q_len[LIVE_STEP_SEQS], kv_len[LIVE_STEP_SEQS];
} live_step;

/* A part of the engine thread's work for a step. */
typedef struct live_part {
    vt_trace_part part;
    int64_t begin_ns, end_ns;
} live_part;

/* Latencies of the last minute. */
typedef struct live_times live_times;
typedef struct live_latency {
    int32_t n, bin[LIVE_BINS];
    uint64_t request[LIVE_BINS]; /* the newest of each bin, for its story; 0: it is empty */
    double p50_s, p90_s, p99_s;  /* NAN without any */
} live_latency;

typedef struct live_look {
    vt_engine *engine;
    int64_t at_ns, held_ns;
    int64_t first_ns, held_sum_ns; /* since looks have been taken without a long pause */
    vt_engine_stats stats;
    int32_t max_running, step_tokens;
    live_running running[LIVE_RUNNING];
    int32_t n_running; /* listed; stats.n_running counts all */
    live_queued queued[LIVE_QUEUED];
    int32_t n_queued;
    live_cell cell[LIVE_CELLS];
    int32_t n_cells, pages_per_cell;
    vt_radix_run run[LIVE_RUNS];
    int32_t n_runs, all_runs, tree_pages;
    live_step step[LIVE_STEPS]; /* a ring: step[i % LIVE_STEPS] is the i-th seen */
    uint64_t n_steps, told_steps;
    live_part part[LIVE_PARTS]; /* a ring, as the steps */
    uint64_t n_parts, told_parts;
    live_latency ttft, itl;
    double output_rate[LIVE_RATES], prefill_rate[LIVE_RATES]; /* tokens/s, oldest first */
    double output_now, prefill_now;                           /* over the last two seconds */
    /* inside */
    struct live_copy *copy;
    live_times *times;
} live_look;

vt_status live_look_new(vt_engine *e, live_look **out, vt_err *err);
void live_look_free(live_look *k);
/* Waits for the end of the step under way. Not on the loop's thread. */
vt_status live_look_take(live_look *k, vt_err *err);
/* Writes members into the object that is open. With `history`, the steps are all that are kept, for
 * a watcher that has just come; else those since the look before. */
void live_look_write(const live_look *k, bool history, vt_json *w);

/* ---- live_times.c ---- */

live_times *live_times_new(void);
void live_times_request(live_times *t, const vt_request_event *e);
void live_times_step(live_times *t, const vt_step_ran *e);
/* Fills the latencies and rates. */
void live_times_tell(live_times *t, int64_t now_ns, live_look *out);

#endif
