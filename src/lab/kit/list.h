/* The labs by track, number and name. */
#ifndef VT_LAB_KIT_LIST_H
#define VT_LAB_KIT_LIST_H

#include "lab/kit/lab.h"

/* The labs of a track, in order; ends with NULL. */
const lab_def *const *lab_list_of(lab_track t);
bool lab_track_find(const char *name, lab_track *out);
/* By "2", "02", "radix_cache_analysis", "02_radix_cache_analysis" or an alias; NULL: none. */
const lab_def *lab_find(lab_track t, const char *asked);
/* The same; VT_ERR_USAGE lists what there is. */
vt_status lab_find_or_fail(lab_track t, const char *asked, const lab_def **out, vt_err *err);

#endif
