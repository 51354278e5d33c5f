/* Counting the vitals of ranges: of whatever runs on a GPU between two calls of the host.
 *
 *   vt_ranges_open          once: finds out what can be counted here (about a second)
 *   vt_ranges_begin(set)    before the work: from here on the GPU is watched, and slower
 *     vt_ranges_push(name)
 *       ... launches ...
 *     vt_ranges_pop
 *   vt_ranges_end           waits for the work and reads the counters of every range
 *
 * The stream must be empty at each push, and again at each pop: what runs across either is counted
 * on both sides or on none. Ranges do not nest. The calls come from one thread, with the GPU's
 * context current. Outside of begin and end nothing is watched. */
#ifndef VT_DEVICE_CUPTI_RANGES_H
#define VT_DEVICE_CUPTI_RANGES_H

#include "device/cupti/vitals.h"

typedef struct vt_ranges vt_ranges;

/* A range's name, and its vitals; NAN: not counted. */
typedef void vt_ranges_seen(void *user, const char *name, const double value[VT_VITALS]);

/* Room for `most` ranges between begin and end. The error says why nothing can be counted. */
vt_status vt_ranges_open(const vt_cuda *gpu, int32_t most, vt_ranges **out, vt_err *err);
void vt_ranges_close(vt_ranges *r);
const vt_vital_sets *vt_ranges_sets(const vt_ranges *r);

/* Watches the GPU for one of vt_ranges_sets. */
vt_status vt_ranges_begin(vt_ranges *r, int32_t set, vt_err *err);
vt_status vt_ranges_push(vt_ranges *r, const char *name, vt_err *err);
vt_status vt_ranges_pop(vt_ranges *r, vt_err *err);
/* Tells `seen` of every range. Watching ends, also if it fails; does nothing without a begin. */
vt_status vt_ranges_end(vt_ranges *r, vt_ranges_seen *seen, void *user, vt_err *err);

#endif
