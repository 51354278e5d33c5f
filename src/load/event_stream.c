#include "load/event_stream.h"

#include <string.h>

void vt_event_stream_init(vt_event_stream *s, size_t max,
                          void (*on_event)(void *user, const char *data, size_t len), void *user)
{
    *s = (vt_event_stream){.on_event = on_event, .user = user};
    vt_buf_init(&s->line, max);
    vt_buf_init(&s->event, max);
}

void vt_event_stream_release(vt_event_stream *s)
{
    vt_buf_release(&s->line);
    vt_buf_release(&s->event);
}

void vt_event_stream_clear(vt_event_stream *s)
{
    vt_buf_clear(&s->line);
    vt_buf_clear(&s->event);
}

/* "data: x" adds to the event, an empty line ends it. */
static void take_line(vt_event_stream *s, const char *line, size_t n)
{
    if (n > 0 && line[n - 1] == '\r')
        n--;
    if (n == 0 && s->event.len > 0) {
        s->on_event(s->user, s->event.data, s->event.len);
        vt_buf_clear(&s->event);
    }
    if (n < 5 || memcmp(line, "data:", 5) != 0)
        return;
    size_t skip = n > 5 && line[5] == ' ' ? 6 : 5;
    if (s->event.len > 0)
        vt_buf_putc(&s->event, '\n');
    vt_buf_add(&s->event, line + skip, n - skip);
}

bool vt_event_stream_feed(vt_event_stream *s, const char *data, size_t len)
{
    while (len > 0 && !s->line.failed && !s->event.failed) {
        const char *lf = memchr(data, '\n', len);
        size_t n = lf ? (size_t)(lf - data) : len;
        if (lf && s->line.len == 0 && n <= s->line.max) {
            take_line(s, data, n); /* the usual case: the line is whole */
        } else if (vt_buf_add(&s->line, data, n) && lf) {
            take_line(s, s->line.data, s->line.len);
            vt_buf_clear(&s->line);
        }
        n += lf ? 1 : 0;
        data += n;
        len -= n;
    }
    return !s->line.failed && !s->event.failed;
}
