/* Helper threads for work that would hold up the loop: reading bodies, templates, tokenising,
 * compiling grammars, stories.
 *
 *   short jobs ──> first in, first out ─────────────> any thread
 *   long jobs ───> in turns between their clients ──> the first thread alone, which takes them
 *                                                     before short ones
 *
 * In a turn every client has one long job run, so a client waits for at most one of each other's.
 * A short job never waits for a long one while there are two threads, however many of them
 * come, and a long one never waits for short ones. */
#ifndef VT_SERVER_API_WORK_H
#define VT_SERVER_API_WORK_H

#include "server/http/web.h"

typedef struct server_work server_work;

typedef struct server_work_limits {
    int32_t n_threads;
    int32_t max_queued; /* short jobs that may wait, and long ones; one of each client may wait
                           beyond */
    size_t max_bytes;   /* of long jobs that wait; a quarter of it for those of one client. A job
                           of any size may wait alone */
} server_work_limits;

/* A job that takes long. */
typedef struct server_long_job {
    uint64_t client; /* whose it is */
    size_t bytes;    /* of memory that it holds while it waits */
} server_long_job;

vt_status server_work_new(vt_web *w, const server_work_limits *limits, server_work **out,
                          vt_err *err);
/* Runs run(arg) on a helper thread, then done(arg) on the loop's thread. `is_long` is NULL for a
 * short job. False where too much waits already: then neither is called. */
bool server_work_add(server_work *work, const server_long_job *is_long, void (*run)(void *arg),
                     void (*done)(void *arg), void *arg);
/* Waits for what is being run. What waits in the queue is not run; its `done` is called, on this
 * thread. Call it after the loop has ended. */
void server_work_free(server_work *work);

#endif
