/* Reporting how far a long piece of work is (vitrine.h: vt_progress), and being told to stop it;
 * notices (vitrine.h: vt_notice).
 *
 *   vt_options_set_progress -> a hook -> passed down by pointer -> vt_progress_report
 *
 * A piece of work names itself in a few words for people ("packing weights") and counts in any unit
 * that suits it: bytes, kernels, graphs. */
#ifndef VT_BASE_TERM_PROGRESS_H
#define VT_BASE_TERM_PROGRESS_H

#include "vitrine.h"

typedef struct vt_progress_hook {
    vt_progress call; /* NULL: no reports are wanted */
    void *user;
} vt_progress_hook;

/* Reports that `done` of `total` units are done. VT_ERR_CANCELLED if the callback asked to stop.
 * `hook` may be NULL. */
vt_status vt_progress_report(const vt_progress_hook *hook, const char *stage, int64_t done,
                             int64_t total, vt_err *err);

/* Telling the owner of the process something that fails no call (vitrine.h: vt_notice). */
typedef struct vt_notice_hook {
    vt_notice call; /* NULL: nobody wants to know */
    void *user;
} vt_notice_hook;

/* `hook` may be NULL. A sentence of more than 1,000 bytes is cut. */
void vt_notice_tell(const vt_notice_hook *hook, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
