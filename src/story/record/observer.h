/* Measures what recording costs, from the request itself. */
#ifndef VT_STORY_OBSERVER_H
#define VT_STORY_OBSERVER_H

#include "base/json_write.h"
#include "story/record/phases.h"

/* Steps whose op calls were recorded, each beside one whose calls were not. Shares of the median
 * unrecorded step; NAN: too few pairs. */
typedef struct observer_tax {
    int32_t n_pairs;
    double off_s;             /* the median unrecorded step */
    double tax;               /* the median difference, */
    double tax_low, tax_high; /* and its 95 % interval */
} observer_tax;

vt_status story_measure_tax(const story_input *in, story_record *r, observer_tax *out, vt_err *err);
/* Writes "observer". */
void story_put_observer(vt_json *w, const story_input *in, const observer_tax *t, const phase *d);

#endif
