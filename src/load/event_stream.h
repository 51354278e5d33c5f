/* Server-sent events from the bytes of a body (WHATWG HTML, "Server-sent events"; a line ends with
 * LF or CR LF). No I/O; bytes may be cut anywhere. */
#ifndef VT_LOAD_EVENT_STREAM_H
#define VT_LOAD_EVENT_STREAM_H

#include "base/buf.h"

typedef struct vt_event_stream {
    /* Called for each event that is whole: its lines of data, joined by newlines; data[len] is NUL.
     * Other fields and comments are left out. */
    void (*on_event)(void *user, const char *data, size_t len);
    void *user;
    vt_buf line, event; /* what has come of a line, and of an event. `failed`: it is too long */
} vt_event_stream;

/* No line and no event may have more than `max` bytes. */
void vt_event_stream_init(vt_event_stream *s, size_t max,
                          void (*on_event)(void *user, const char *data, size_t len), void *user);
void vt_event_stream_release(vt_event_stream *s);
/* Forgets what has come. */
void vt_event_stream_clear(vt_event_stream *s);
/* False: a line or an event is too long, and nothing more may be fed. */
bool vt_event_stream_feed(vt_event_stream *s, const char *data, size_t len);

#endif
