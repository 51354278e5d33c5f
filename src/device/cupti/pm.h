/* A GPU's counters over time, by CUPTI's PM sampling: the hardware writes down at equal intervals
 * how busy its parts were, whatever runs on it. Nothing is launched differently, and no step waits.
 *
 *   vt_pm_open     once: finds out what can be sampled here
 *   vt_pm_start    from here on the hardware writes samples into a ring of its own
 *     vt_pm_drain  every now and then: takes out what came since
 *   vt_pm_stop
 *
 * The samples are of the whole GPU: other processes are in them too. Reading one takes some 7 us of
 * a CPU for each metric, so a thread of its own should drain. The calls must not overlap. While it
 * samples, ranges (ranges.h) cannot be counted on this GPU. */
#ifndef VT_DEVICE_CUPTI_PM_H
#define VT_DEVICE_CUPTI_PM_H

#include "base/trace.h"
#include "device/cupti/config.h"

typedef struct vt_pm_row {
    const char *key;       /* "sm", in a story */
    const char *what;      /* for people */
    const char *metric[2]; /* CUPTI's names, the better one first; NULL: there is no other */
    bool percent;          /* else bytes of the interval, which a sample holds a second */
} vt_pm_row;

extern const vt_pm_row vt_pm_rows[VT_PM_LANES];

/* The lanes that are sampled, and why the others are not. */
typedef struct vt_pm_set {
    const char *metric[VT_PM_LANES]; /* without gaps */
    vt_pm_lane is[VT_PM_LANES];      /* metric[i] is this lane */
    int32_t n;
    char why_not[VT_PM_LANES][160]; /* by lane; "": it is sampled */
} vt_pm_set;

typedef struct vt_pm vt_pm;

/* The error says why nothing can be sampled. */
vt_status vt_pm_open(const vt_cuda *gpu, vt_pm **out, vt_err *err);
void vt_pm_close(vt_pm *p);
const vt_pm_set *vt_pm_sampled(const vt_pm *p);

/* `interval_ns`: an A100 counts cycles in its place, so that the intervals are about as long. */
vt_status vt_pm_start(vt_pm *p, int64_t interval_ns, vt_err *err);
/* Reads the samples that lie in [from_ns, to_ns) of the host's clock and drops the others; tells
 * `seen` of each. */
typedef void vt_pm_seen(void *user, const vt_pm_event *e);
vt_status vt_pm_drain(vt_pm *p, int64_t from_ns, int64_t to_ns, vt_pm_seen *seen, void *user,
                      vt_err *err);
/* Does nothing if it was not started. */
vt_status vt_pm_stop(vt_pm *p, vt_err *err);

#endif
