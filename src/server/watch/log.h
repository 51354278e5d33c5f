/* The server's lines on stderr. A thread of its own writes them, so that a terminal or a pipe that
 * does not take them holds nothing up: lines beyond a bound are dropped, counted, and the count is
 * said as soon as there is room. */
#ifndef VT_SERVER_WATCH_LOG_H
#define VT_SERVER_WATCH_LOG_H

#include "server/watch/observe.h"

typedef enum server_log_form { SERVER_LOG_OFF, SERVER_LOG_TEXT, SERVER_LOG_JSON } server_log_form;

typedef struct server_log server_log;

vt_status server_log_new(int fd, server_log **out, vt_err *err);
/* Writes what waits, for a second at most. */
void server_log_free(server_log *l);
/* Queues a line, which gets its newline here. Any thread. */
void server_log_line(server_log *l, const char *text, size_t len);

/* One line about a request. `text`: with the beginning of its prompt and of its first answer. */
void server_log_format(const server_record *r, server_log_form form, bool text, vt_buf *out);

#endif
