/* Helper threads for work that would hold up the loop: reading large bodies, templates,
 * tokenising, stories. */
#ifndef VT_SERVER_WORK_H
#define VT_SERVER_WORK_H

#include "server/web.h"

typedef struct server_work server_work;

vt_status server_work_new(vt_web *w, int32_t n_threads, int32_t max_queued, server_work **out,
                          vt_err *err);
/* Runs run(arg) on a helper thread, then done(arg) on the loop's thread. False where too much waits
 * already: then neither is called. */
bool server_work_add(server_work *work, void (*run)(void *arg), void (*done)(void *arg), void *arg);
/* Waits for what is being run. What waits in the queue is not run; its `done` is called, on this
 * thread. Call it after the loop has ended. */
void server_work_free(server_work *work);

#endif
