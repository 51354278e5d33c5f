/* --log-steps FILE: a line of JSON for each step, appended to a file. The engine's recorder has the
 * steps already: a timer reads what is new ten times a second, so that steps are not slowed down.
 * What the recorder has overwritten by then is counted in a line. All on the loop's thread but for
 * the writing (log.h). */
#ifndef VT_SERVER_WATCH_STEP_LOG_H
#define VT_SERVER_WATCH_STEP_LOG_H

#include "server/inside.h"

typedef struct server_step_log server_step_log;

/* Opens the file, which its owner alone may read where it is new. */
vt_status server_step_log_new(vt_server *s, const char *path, server_step_log **out, vt_err *err);
/* Begins to read steps; when the loop is there. */
vt_status server_step_log_start(server_step_log *l, vt_err *err);
/* Reads the last steps, when the engine has stopped, while the loop is there. NULL is allowed. */
void server_step_log_stop(server_step_log *l);
/* Writes what waits, for a second at most, and closes the file. NULL is allowed. */
void server_step_log_free(server_step_log *l);

#endif
