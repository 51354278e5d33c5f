/* Spans of requests to an OpenTelemetry collector: OTLP over HTTP, as JSON, with the attributes of
 * the GenAI semantic conventions (https://opentelemetry.io/docs/specs/otlp/, and
 * open-telemetry/semantic-conventions-genai, which is still in development).
 *
 * A thread of its own sends batches. Spans that wait are bounded; those beyond the bound are
 * dropped. What could not be sent is not tried again: it is counted, and said at most once a
 * minute. */
#ifndef VT_SERVER_WATCH_OTLP_H
#define VT_SERVER_WATCH_OTLP_H

#include "server/watch/log.h"

typedef struct server_otlp server_otlp;

typedef struct server_otlp_counts {
    uint64_t sent, dropped, failed; /* spans */
} server_otlp_counts;

/* `endpoint` is http://HOST[:PORT][/PATH]; the port is 4318 and the path /v1/traces where it says
 * none. The host is looked up here, and again where it cannot be reached. */
vt_status server_otlp_new(const char *endpoint, server_log *log, server_otlp **out, vt_err *err);
/* Sends what waits, for two seconds at most. */
void server_otlp_free(server_otlp *o);
/* Queues the span of a generation. */
void server_otlp_add(server_otlp *o, const server_record *r);
void server_otlp_get_counts(server_otlp *o, server_otlp_counts *out);

/* http://HOST[:PORT][/PATH] in its parts. */
typedef struct server_endpoint {
    char host[256], port[8], path[512];
} server_endpoint;
vt_status server_endpoint_read(const char *text, server_endpoint *out, vt_err *err);

#endif
