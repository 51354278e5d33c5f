/* Reads the answer to a request for server-sent events, as it comes from a socket: the head of an
 * HTTP/1.x answer, a body in chunks or until the connection ends, and the events in it. For clients
 * of this server; bytes may be cut anywhere. */
#ifndef VT_SERVER_HTTP_SSE_READER_H
#define VT_SERVER_HTTP_SSE_READER_H

#include "load/event_stream.h"
#include "vitrine.h"

typedef struct vt_sse_reader {
    int status;  /* of HTTP; 0: the head has not ended */
    vt_buf body; /* of an answer that is no stream of events: its first bytes */
    bool ended;  /* the last chunk has come */
    /* inside */
    int state;
    bool chunked, events;
    size_t left; /* bytes of the chunk that have not come */
    vt_buf framing;
    vt_event_stream stream;
} vt_sse_reader;

/* No line, event or body may be longer than `max` bytes. */
void vt_sse_reader_init(vt_sse_reader *r, size_t max);
void vt_sse_reader_release(vt_sse_reader *r);
/* Takes bytes, and calls event(user, data, len) for each event that is whole; data[len] is NUL. An
 * event's lines of data are joined by newlines; its other fields are ignored. VT_ERR_FORMAT: this
 * is not such an answer; nothing more may be fed then. */
vt_status vt_sse_reader_feed(vt_sse_reader *r, const char *bytes, size_t len,
                             void (*event)(void *user, const char *data, size_t len), void *user,
                             vt_err *err);

#endif
