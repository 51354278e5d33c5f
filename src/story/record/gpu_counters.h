/* "gpu_counters" of a story.json: the hardware counters of a GPU, call by call, of a few steps that
 * ran apart for them (exec/cuda_vitals.c, docs/story-format.md). */
#ifndef VT_STORY_GPU_COUNTERS_H
#define VT_STORY_GPU_COUNTERS_H

#include "base/json_write.h"
#include "story/record/phases.h"

/* All counted calls of a kind in a phase. Steps count different sets of vitals, so each vital is of
 * some of the calls. */
typedef struct counted_op {
    const char *kind, *op, *impl;
    int32_t n_calls, n_whole; /* n_whole: they have a cost and counted bytes */
    double sum[VT_VITALS];    /* shares: times the call's time */
    double time[VT_VITALS];   /* of the calls that have this count */
    int32_t n[VT_VITALS];
    double warps[VT_STALLS]; /* cycles of all warps in the calls that have this stall */
    double bytes;            /* compulsory, of the n_whole calls */
    double tensor_s; /* of the same: the least time of their products, and of their bytes, */
    double memory_s; /* at the device's roofs */
} counted_op;

typedef struct counted_phase {
    const char *name;
    counted_op *op; /* [n_ops], the longest first */
    int32_t n_ops, n_steps;
    uint64_t last;
} counted_phase;

/* Sums up the counts of a GPU, of ranks the first one's, by phase and kind of op; `plan` is set for
 * each counted step. */
vt_status story_count_calls(const story_input *in, story_record *r, story_step *plan,
                            counted_phase out[STORY_PHASES], vt_err *err);
/* Bytes read and written by those that the same calls must move; NAN: not known. */
double counted_of_compulsory(const counted_op *o);
/* A vital of a call: the mean; NAN: not counted. */
double counted_mean(const counted_op *o, vt_vital vital);
/* The share of its cycles that the op's warps spent on a stall reason; NAN: not counted. */
double counted_stalled(const counted_op *o, vt_stall stall);
/* Writes the first GPU's phases, and those of the other ranks; null where nobody asked for them. */
vt_status story_put_gpu_counters(vt_json *w, const story_input *in, story_record *r,
                                 story_step *plan, const counted_phase phases[STORY_PHASES],
                                 vt_err *err);
/* Returns true if the recording has counts of some call. */
bool story_is_counted(const story_input *in);

#endif
