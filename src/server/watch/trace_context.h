/* Reads what a client says of a request so that several programs' records can be joined:
 * X-Request-Id and W3C Trace Context (https://www.w3.org/TR/trace-context/). */
#ifndef VT_SERVER_WATCH_TRACE_CONTEXT_H
#define VT_SERVER_WATCH_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

enum { SERVER_MAX_ID = 64 };

/* Lower-case hexadecimal digits. */
typedef struct server_trace {
    char trace_id[33], span_id[17];
    char parent_id[17]; /* the caller's span; empty: this span is the trace's first */
    bool sampled;       /* false: the caller does not want this trace to be recorded */
} server_trace;

/* Takes over X-Request-Id (NULL: the client sent none) if it is 1 to SERVER_MAX_ID letters, digits
 * and the marks - _ . : / + = @; otherwise writes a new one made of `fresh`. */
void server_request_id(const char *header, uint64_t fresh, char out[SERVER_MAX_ID + 1]);
/* Continues the trace of a traceparent header, or begins a new one where it is NULL or not well
 * formed. `fresh`: three numbers that no other request gets. */
void server_trace_begin(const char *traceparent, const uint64_t fresh[3], server_trace *out);

#endif
