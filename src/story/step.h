/* Computes what a step of given sequences must move and compute, for each call of a program.
 *
 * The program is an engine's own or a described one (exec/describe.h). It is only read, never
 * bound, so a story can be told while the engine runs. `explain` prints these costs; a story puts
 * measured times beside them. */
#ifndef VT_STORY_STEP_H
#define VT_STORY_STEP_H

#include "device/roofs/roofs.h"
#include "exec/program.h"

/* A sequence's part of a step: q_len new tokens, after which its context is kv_len tokens long. */
typedef struct story_seq {
    int32_t q_len, kv_len;
    int32_t n_rows;       /* rows of logits it asks for: 1 where a token is chosen */
    int32_t shared_pages; /* as in vt_step_seq (base/trace.h) */
    int32_t adapter;      /* the sequence's (vt_batch.adapter); 0: none */
    bool drafted;         /* a decode whose new tokens behind the first are guesses */
} story_seq;

typedef struct story_step story_step;

/* Makes room for steps of up to max_tokens tokens in max_seqs sequences. The program is
 * borrowed. */
vt_status story_step_new(const vt_program *p, int32_t max_tokens, int32_t max_seqs,
                         story_step **out, vt_err *err);
void story_step_free(story_step *s);
const vt_program *story_step_program(const story_step *s);

/* Sets how many replicas of the program run at once on this CPU, each with weights and threads of
 * its own: 1 in a new step. It changes what is expected of calls, not what they cost. */
void story_step_set_replicas(story_step *s, int32_t n);
/* The ranks on the device of the program, and the replicas. */
int32_t story_step_ranks(const story_step *s);
int32_t story_step_replicas(const story_step *s);

/* Sets the sequences. A sequence with one new token and a longer context is a decode, and on a GPU
 * one with guesses; decodes come first in the batch. */
vt_status story_step_set(story_step *s, const story_seq *seq, int32_t n, vt_err *err);
const vt_size *story_step_size(const story_step *s);
/* The batch that costs are counted for: lengths without tokens and pages. */
const vt_batch *story_step_batch(const story_step *s);
/* The row that runs a call in this step; NULL: the step does not run the call. */
const vt_impl *story_step_impl(const story_step *s, int32_t call);
/* The compulsory cost of a call in this step, and what its row moves beyond it, of all ranks on the
 * device together. False: the step does not run the call. */
bool story_step_cost(const story_step *s, int32_t call, vt_cost *compulsory, vt_cost *extra);
/* Bytes of all calls of the step together. */
typedef struct story_step_bytes {
    int64_t streamed; /* weights and KV that are read */
    int64_t all;      /* everything that is read or written */
} story_step_bytes;

story_step_bytes story_step_sum(const story_step *s);

/* The limit that sets the least time of a call. `cache`: its activations pass a cache. `launch`: it
 * has less work than starting a call costs, which is a GPU's launch or the meeting of a CPU's
 * workers. */
typedef enum story_bound {
    STORY_BOUND_MEMORY,
    STORY_BOUND_FP32,
    STORY_BOUND_BF16,
    STORY_BOUND_INT8,
    STORY_BOUND_FP8,
    STORY_BOUND_CACHE,
    STORY_BOUND_LAUNCH,
    STORY_BOUNDS
} story_bound;

/* The least time that the roofs allow for the cost. Activations that fit a cache are counted at
 * that cache's roof. */
double story_work_s(const vt_cost *c, const vt_roofs *r, story_bound *bound);
/* The least time of a call: that of its work, or that of a call without any. */
double story_floor_s(const vt_cost *c, const vt_roofs *r, story_bound *bound);
const char *story_bound_name(story_bound b);

/* The kind of a call: its label without the layer ("L07.linear.qkv" -> "linear.qkv"). */
const char *story_call_kind(const vt_call *c);

#endif
