/* Findings: rules that look at a story's sums and say what follows. Each names its rule, its
 * evidence and its threshold; a rule that does not apply says nothing. */
#ifndef VT_STORY_FINDINGS_H
#define VT_STORY_FINDINGS_H

#include <jansson.h>

#include "story/phases.h"

/* What the rules look at, beside the phases. NAN where it is not known. */
typedef struct story_facts {
    double total_s, queue_s, steps_s, waits_s, tail_s;
    double ttft_s, itl_p50_s, itl_p99_s;
    int32_t n_gaps;    /* between tokens */
    double recorder_s; /* cost of recording, per decode step */
} story_facts;

/* A JSON array of {"id", "severity", "rule", "text", "evidence", "threshold"}; NULL when out of
 * memory. */
json_t *story_findings(const story_input *in, const phase phases[STORY_PHASES],
                       const story_facts *f);

#endif
