/* Reporting how far a long piece of work is (vitrine.h: vt_progress), and being told to stop it.
 *
 *   vt_options_set_progress -> a hook -> passed down by pointer -> vt_progress_report
 *
 * The work says what it does in a few words for people ("packing weights") and counts in whatever
 * unit it has: bytes, kernels, graphs. */
#ifndef VT_BASE_PROGRESS_H
#define VT_BASE_PROGRESS_H

#include "vitrine.h"

typedef struct vt_progress_hook {
    vt_progress call; /* NULL: nobody wants to know */
    void *user;
} vt_progress_hook;

/* `done` of `total` are done. VT_ERR_CANCELLED if the callback asked to stop. `hook` may be
 * NULL. */
vt_status vt_progress_report(const vt_progress_hook *hook, const char *stage, int64_t done,
                             int64_t total, vt_err *err);

#endif
