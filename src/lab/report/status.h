/* All that is learned when all labs are done: the criteria of the tracks, done or open. */
#ifndef VT_LAB_REPORT_STATUS_H
#define VT_LAB_REPORT_STATUS_H

#include "lab/kit/lab.h"

enum { LAB_CRITERION_FILES = 4 };

typedef struct lab_criterion {
    lab_track track;
    const char *words; /* in the words of the systems' own learning plan */
    const char *ours;  /* what answers it here */
    /* The labs whose results show it, "sglang 02"; NULL: no more. "sglang 06:fast_link": that item
     * must have been measured. */
    const char *lab[LAB_CRITERION_FILES];
} lab_criterion;

extern const lab_criterion lab_criteria[]; /* ends with words NULL */

/* Finds out whether it is done by the results of the options' machine, and why: the files that show
 * it, or what is missing. A damaged result file is VT_ERR_FORMAT. */
vt_status lab_criterion_state(const vt_options *o, const lab_criterion *c, bool *done, vt_buf *why,
                              vt_err *err);
/* The criteria of a track, or with LAB_TRACKS of all, as text or as JSON. */
vt_status lab_status(const vt_options *o, lab_track only, bool json, const vt_term *term,
                     vt_buf *out, vt_err *err);

#endif
