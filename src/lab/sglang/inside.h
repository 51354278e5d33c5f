/* The labs of the track sglang share this.
 *
 *   check_env          00    machine: memories, links; topology: sockets, GPUs, tools
 *   baseline           01    one request step by step, then several at once
 *   radix              02    the prefix cache; pressure: eviction
 *   backends           03    attention implementations
 *   timeline           04    a mixed load and its gaps
 *   attention          05    one attention kernel; ncu: counters that ncu read
 *   ranks              06    what several devices would need
 *   cost                     what a step must move and is expected to take, before it runs
 *   told                     tables and drawings made from a story */
#ifndef VT_LAB_SGLANG_INSIDE_H
#define VT_LAB_SGLANG_INSIDE_H

#include "lab/kit/lab.h"
#include "story/step.h"

extern const lab_def sglang_check_env, sglang_baseline, sglang_radix, sglang_backends,
    sglang_timeline, sglang_attention, sglang_ranks;

/* ---- what steps cost (sglang/cost.c) ---- */

/* Of one step or of the sum of several. */
typedef struct sglang_cost {
    double bytes, weights, kv, flops, attention_flops;
    double floor_s, expected_s;               /* NAN: not known, as on an emulated GPU */
    double layers_floor_s, layers_expected_s; /* the same without what no layer holds: embedding,
                                                 last norm, head and sampling */
    double attention_s;                       /* expected, of the attention calls */
    int32_t attention_calls;
} sglang_cost;

/* A step of these sequences on the engine. `measure`: the efficiencies that are not in the cache
 * yet are measured now, some 50 ms each; else expected_s may be NAN. */
vt_status sglang_cost_step(lab *l, vt_engine *e, const story_seq *seq, int32_t n, bool measure,
                           sglang_cost *out, vt_err *err);
/* All steps that compute a prompt of n tokens of which the first `cached` need no computing. */
vt_status sglang_cost_prompt(lab *l, vt_engine *e, int32_t n, int32_t cached, bool measure,
                             sglang_cost *out, vt_err *err);
/* The expected time; where it is not known the floor. */
static inline double sglang_best_s(const sglang_cost *c)
{
    return c->expected_s == c->expected_s ? c->expected_s : c->floor_s;
}

/* ---- shapes of attention (sglang/told.c) ---- */

typedef struct sglang_heads {
    int32_t heads, kv_heads, head_dim, layers, hidden;
} sglang_heads;

/* Of the lab's model. */
vt_status sglang_model_heads(lab *l, sglang_heads *out, vt_err *err);
/* The text of a case of attention (ops/case_text.h) with the lab's device's usual page size and
 * element type of K and V. */
void sglang_attention_shape(const lab *l, const sglang_heads *h, int32_t seqs, int32_t q_len,
                            int32_t kv_len, char out[160]);

/* ---- from stories (sglang/told.c) ---- */

/* Returns true if the machine withheld CPU time or clocks from so many of the phase's steps
 * ("prefill", "decode") that their times say little about the program: from a prefill step and 5 %
 * of the whole recording, or from more than a quarter of the decode steps. */
bool sglang_disturbed(const json_t *story, const char *phase);
/* The median of a column over the decode steps (no prompt tokens, at least one decode) whose number
 * of sequences is n_seqs (0: any). NAN: there is no such step. */
double sglang_decode_median(const json_t *story, const char *column, int32_t n_seqs);
/* The same of the decode steps' times. */
double sglang_decode_noise(const json_t *story, int32_t n_seqs);
/* Seconds of a decode step as it runs unwatched: on a GPU that of the steps that were not timed
 * call by call, which is slower. NAN: the story has none. */
double sglang_step_s(const json_t *story);
/* The share of its roof that a story's op reached; NAN: none, or it overlapped its neighbours and
 * took less than its roof allows. */
double sglang_of_roof(const json_t *op);
/* A stretch of a timeline in which no event lies and no phase runs, and what the story knows of its
 * cause. */
typedef struct sglang_gap {
    double at_ms, ms; /* ms 0: there is none */
    char why[512];
} sglang_gap;
/* The gap between event i of the story's timeline and those before it, if it is long enough for the
 * sum of a timeline to miss it. */
sglang_gap sglang_gap_before(const json_t *story, size_t i);
/* The request's events in the order of time with the gaps between them, as lines of at most 100
 * cells. */
void sglang_draw_timeline(vt_buf *b, const json_t *story);
/* A table of the phase's ops, the longest `most` of them, as the item `key`. */
void sglang_table_ops(lab *l, const char *key, const char *title, const json_t *phase, size_t most);
/* A table of what the steps of the recording consisted of, as the item `key`: neighbouring steps of
 * equal composition are one row. */
void sglang_table_batch(lab *l, const char *key, const char *title, const json_t *story,
                        size_t most);
/* The event's "text" and time; false: the story has no such event. */
bool sglang_event(const json_t *story, const char *event, double *ms, char text[300]);

/* ---- requests ---- */

/* A prompt of n ids whose first n_shared are those of `shared` (may be NULL) and whose rest is
 * random; malloc'ed. */
vt_status sglang_prompt(lab *l, uint64_t seed, const int32_t *shared, int32_t n_shared, int32_t n,
                        int32_t **out, vt_err *err);
/* Opens an engine with these settings, at most `max_running` requests at once, and, where the
 * settings do not name one, a moderate KV memory. */
vt_status sglang_open(lab *l, const char *const *settings, int64_t max_running, vt_engine **out,
                      vt_err *err);
/* The request of lab 06, and on what it shall run. */
typedef struct sglang_scaling_ask {
    const int32_t *rank; /* [n_ranks] numbers of ranks; those of 1 are passed over */
    int32_t n_ranks;
    const char *const *link; /* [n_links] of GPUs: values of option tp-link */
    int32_t n_links;
    const int32_t *prompt;
    int32_t n_prompt, n_gen;
    double one_s; /* a decode step on one rank */
} sglang_scaling_ask;

/* Names the GPUs of n ranks as an option does: the first n of --devices; without it the lab's GPU,
 * which stands for it and those behind. */
vt_status sglang_ranks_device(const lab *l, int32_t n, char *out, size_t size, vt_err *err);
/* Tells the items scaling, skew, transfer and fast_link (sglang/ranks_measured.c). */
void sglang_scaling(lab *l, const sglang_scaling_ask *a);
/* Frees prompts that sglang_prompt made and what lab_requests_run filled in. */
void sglang_release(lab_request *r, int32_t n);
/* Runs one request with a copy of nothing: the prompt stays the caller's. */
vt_status sglang_run_one(lab *l, vt_engine *e, const int32_t *prompt, int32_t n, int32_t n_gen,
                         lab_request *out, vt_err *err);
/* Writes text to a file in the results folder or, where `path` is given, there; and tells of it. */
vt_status sglang_write(lab *l, const char *path, const char *name, const char *what,
                       const char *text, size_t len, vt_err *err);

/* The path of this program as other programs can use it, which lab_self() is not: that name means
 * whichever process reads it. */
enum { SGLANG_PATH = 4096 };
const char *sglang_self(char out[SGLANG_PATH]);

#endif
