/* Keeps this of requests when they end: counters, the list of stories, the log, spans, and files
 * with the stories of those that were too slow (dumps.c).
 *
 *   route.c: server_note_begin ─> handler ─> web: answer ended ─> server_note_ended
 *                                   └─ a generation ─> events ─> server_saw_event
 *                                                      end    ─> server_saw_end
 *
 * A request without a generation is logged when its answer has ended. A generation is logged when
 * it is over in the engine too, because only then its counts are final: after a client has left,
 * that is one step later. All of it is on the loop's thread; what may block (writing to stderr,
 * talking to a collector) is done by the threads of log.c and otlp.c. */
#ifndef VT_SERVER_WATCH_OBSERVE_H
#define VT_SERVER_WATCH_OBSERVE_H

#include "server/inside.h"
#include "server/watch/histogram.h"
#include "server/watch/trace_context.h"

struct generation;

enum { SERVER_DUMP_PATH = 1200 };

/* Every exchange keeps this from its route to its end. */
typedef struct server_note {
    const char *path; /* the route's, or "other"; static */
    char id[SERVER_MAX_ID + 1];
    server_trace trace;
    struct generation *generation; /* NULL: it is answered without one */
    char peer[64];                 /* this and the next three: once the exchange has ended */
    int status;
    uint64_t bytes;
    bool gone;
} server_note;

/* A request has come. Also sets the answer's X-Request-Id. Without memory there is no note, and
 * nothing is logged. `path` must be static. */
void server_note_begin(vt_server *s, vt_exchange *x, const char *path);
/* vt_web_options.ended. */
void server_note_ended(void *server, vt_exchange *x, const vt_web_outcome *o);
/* An event of a generation, before its reply takes it. */
void server_saw_event(struct generation *g, int32_t prompt, const vt_event *e);
/* The generation is over, and will be freed. */
void server_saw_end(struct generation *g);

/* How a generation ended, as one word: the worst of its completions. */
typedef enum server_finish {
    SERVER_STOP,
    SERVER_LENGTH,
    SERVER_ABORT,   /* the client left, or an administrator ended it */
    SERVER_ERROR,   /* the engine or the server failed */
    SERVER_REFUSED, /* it never reached the engine */
    SERVER_FINISHES
} server_finish;
extern const char *const server_finish_names[SERVER_FINISHES];
server_finish server_finish_of(const struct generation *g);

/* A generation that is over, or a plain exchange, for the log, the list of stories and spans. Text
 * is borrowed. */
typedef struct server_record {
    const server_note *note;
    const struct generation *generation; /* NULL: none */
    const char *method, *path;
    const char *why;             /* what the web server refused it for; NULL: it did not */
    server_finish finish;        /* of a generation */
    int64_t began_ns, end_ns;    /* CLOCK_MONOTONIC */
    int64_t queue_ns, ttft_ns;   /* -1: it did not get there */
    unsigned missed;             /* limits of --slo, as bits (dumps.h) */
    char dump[SERVER_DUMP_PATH]; /* the file that its story is written to; "": to none */
} server_record;

/* Fills `out` for values of a generation that are observed now. */
void server_exemplar_of(const struct generation *g, server_exemplar *out);

/* Nanoseconds since the epoch of a time on CLOCK_MONOTONIC. */
int64_t server_wall_ns(int64_t mono_ns);

#endif
