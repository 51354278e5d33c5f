/* Findings: rules that look at a story's sums and say what follows. Each names its rule, its
 * evidence and its threshold; a rule that does not apply says nothing. */
#ifndef VT_STORY_FINDINGS_H
#define VT_STORY_FINDINGS_H

#include "base/json_write.h"
#include "story/phases.h"
#include "story/slow.h"

/* What the rules look at, beside the phases. NAN where it is not known. */
typedef struct story_facts {
    double total_s, queue_s, steps_s, waits_s, tail_s;
    double ttft_s, itl_p50_s, itl_p99_s;
    double *gap_s;              /* [n_gaps] between tokens */
    int32_t n_gaps, n_left_out; /* of the percentiles */
    slow_tokens slow;
} story_facts;

/* Writes "findings", a list of {"id", "rule", "text", "threshold", "evidence"}. */
void story_findings(vt_json *w, const story_input *in, const phase phases[STORY_PHASES],
                    const story_facts *f);

#endif
