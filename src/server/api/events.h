/* From the engine's thread to the loop's: events are copied into a list there and told in order
 * here. */
#ifndef VT_SERVER_API_EVENTS_H
#define VT_SERVER_API_EVENTS_H

#include "server/http/web.h"
#include "vitrine.h"

typedef struct server_events server_events;

/* One engine request, as the receiver of its events. */
typedef struct server_part {
    server_events *events;
    void (*event)(struct server_part *part, const vt_event *e); /* on the loop's thread */
    void *owner;
    int32_t prompt; /* which of the owner's prompts */
    vt_request_id id;
    int64_t write_begin_ns, write_ns; /* what its events took on the loop's thread; 0: none yet */
    bool lost;                        /* an event did not fit into memory; of the engine's thread */
    struct server_event *last; /* [n] kept for the last event of each completion, in case that
                                  memory is short when it comes */
} server_part;

vt_status server_events_new(vt_web *w, vt_engine *e, server_events **out, vt_err *err);
/* On the loop's thread: adds the time since the last event was told (or, for the first one after a
 * pause, since the loop began to tell) to what the part's events took. Costs one reading of the
 * clock, which it returns. */
int64_t server_part_took(server_part *part);
/* Events that were not told are dropped. */
void server_events_free(server_events *ev);
/* Prepares a part for n completions. */
vt_status server_part_init(server_part *part, server_events *ev, int32_t n, vt_err *err);
void server_part_release(server_part *part);
/* The engine's callback; `user` is the part. */
void server_part_callback(void *user, const vt_event *e);

#endif
