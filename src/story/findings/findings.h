/* Findings: rules that look at a story's sums and say what follows. Each names its rule, its
 * evidence and its threshold; a rule that does not apply says nothing. */
#ifndef VT_STORY_FINDINGS_H
#define VT_STORY_FINDINGS_H

#include "base/json_write.h"
#include "story/record/gpu_counters.h"
#include "story/record/machine.h"
#include "story/record/phases.h"
#include "story/findings/slow.h"

/* Two neighbours of which the second reads what the first has just written. */
typedef struct fusion {
    const char *from, *to; /* kinds; NULL: there is no candidate */
    int32_t n;             /* such pairs in a step */
    double bytes;          /* that pass from the first to the second, in all pairs of a step */
    double s;     /* of a step: what both ways of these bytes take, and one launch a pair */
    int32_t call; /* the first of the pairs */
} fusion;

/* Facts that single rules look at (findings_more.c). NAN: not known. */
typedef struct story_more {
    fusion fusion[STORY_PHASES];
    double exposed_s; /* a decode step: work of the engine's thread that the device did not hide */
    uint64_t exposed_step; /* the step with most of it */
    int32_t n_stolen;      /* the request's decode steps with a chunk of another's prompt */
    double stolen_s;       /* what these took beyond steps of decodes alone */
    uint64_t stolen_step;  /* the longest of them */
    int32_t lost_tokens;   /* that were cached when the request was retracted and gone afterwards */
    double lost_s;         /* the steps that computed them again */
    uint64_t lost_step;
    int32_t n_slope;                        /* steps that the next three come from */
    double slope_s, slope_bytes_s, kv_mean; /* a token of context: measured, by its bytes; mean */
    double kv_span;                         /* from the shortest to the longest context */
    double cold_s, cold_usual_s;            /* the first decode step, and the typical one */
    uint64_t cold_step;
} story_more;

void story_find_more(const story_input *in, const story_record *r, story_step *plan,
                     const phase phases[STORY_PHASES], story_more *out);

/* The rules look at these, beside the phases. NAN where it is not known. */
typedef struct story_facts {
    double total_s, queue_s, steps_s, waits_s, tail_s;
    double ttft_s, itl_p50_s, itl_p99_s;
    double calm_p50_s, calm_p99_s; /* of the gaps in which no disturbed step ended; NAN: too few */
    story_machine machine;
    double *gap_s;              /* [n_gaps] between tokens */
    int32_t n_gaps, n_left_out; /* of the percentiles */
    slow_tokens slow;
    story_more more;
    const counted_phase *counted; /* [STORY_PHASES] hardware counters */
} story_facts;

/* Writes "findings", ordered by what each could bring (docs/story-format.md). */
void story_findings(vt_json *w, const story_input *in, const story_record *r,
                    const phase phases[STORY_PHASES], const story_facts *f);

#endif
