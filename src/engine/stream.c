/* Streaming text with stop strings (engine/stream.h).
 *
 * After each token `held` is searched for every stop string; the earliest match wins, and if two
 * begin at the same place the one that is listed first. If none is found, the longest end of `held`
 * that begins some stop string stays back. `held` is short (a token and the longest stop string),
 * so plain searching is enough: an Aho-Corasick automaton would save nothing and cost an
 * allocation for each request. */
#include "engine/stream.h"

#include <string.h>

#include "base/err.h"

enum { PIECE_BYTES = 1024 }; /* room for one token's text; longer pieces make the buffer grow */

vt_status vt_stream_init(vt_stream *s, const vt_tokenizer *t, const char *const *stop,
                         int32_t n_stop, int32_t unsearched, bool special, vt_err *err)
{
    *s = (vt_stream){
        .stop = stop, .n_stop = n_stop, .unsearched = unsearched, .has_text = t != NULL};
    vt_buf_init(&s->held, 0);
    if (!t)
        return VT_OK;
    vt_detok_init(&s->detok, t);
    s->detok.keep_special = special;
    static const char room[PIECE_BYTES + VT_MAX_STOP_BYTES];
    size_t longest = 0;
    for (int32_t i = 0; i < n_stop; i++)
        longest = strlen(stop[i]) > longest ? strlen(stop[i]) : longest;
    if (!vt_buf_add(&s->held, room, PIECE_BYTES + longest)) {
        vt_stream_release(s);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a request's text");
    }
    vt_buf_clear(&s->held);
    return VT_OK;
}

void vt_stream_release(vt_stream *s) { vt_buf_release(&s->held); }

/* The length of the longest end of `held` that begins a stop string without being all of it. */
static size_t held_back(const vt_stream *s)
{
    size_t longest = 0;
    for (int32_t i = 0; i < s->n_stop; i++) {
        size_t len = strlen(s->stop[i]), most = len - 1 < s->held.len ? len - 1 : s->held.len;
        for (size_t k = most; k > longest; k--)
            if (memcmp(s->held.data + s->held.len - k, s->stop[i], k) == 0)
                longest = k;
    }
    return longest;
}

/* Looks for the earliest stop string and cuts `held` before it. */
static bool find_stop(vt_stream *s)
{
    const char *first = NULL;
    for (int32_t i = 0; i < s->n_stop; i++) {
        const char *at = memmem(s->held.data, s->held.len, s->stop[i], strlen(s->stop[i]));
        if (at && (!first || at < first)) {
            first = at;
            s->found = i;
        }
    }
    if (!first)
        return false;
    s->held.len = (size_t)(first - s->held.data);
    s->ready = s->held.len;
    s->stopped = true;
    return true;
}

bool vt_stream_feed(vt_stream *s, int32_t id)
{
    if (!s->has_text || s->stopped)
        return false;
    vt_detok_feed(&s->detok, id, &s->held);
    if (s->unsearched > 0) {
        s->unsearched--;
        s->ready = s->held.len;
        return false;
    }
    if (s->held.len > 0 && s->n_stop > 0 && find_stop(s))
        return true;
    s->ready = s->held.len - (s->n_stop > 0 ? held_back(s) : 0);
    return false;
}

bool vt_stream_finish(vt_stream *s)
{
    if (!s->has_text || s->stopped)
        return false;
    vt_detok_finish(&s->detok, &s->held);
    if (s->held.len > 0 && s->n_stop > 0 && find_stop(s))
        return true;
    s->ready = s->held.len;
    return false;
}

void vt_stream_taken(vt_stream *s)
{
    size_t rest = s->held.len - s->ready;
    if (rest > 0)
        memmove(s->held.data, s->held.data + s->ready, rest);
    s->held.len = rest;
    s->ready = 0;
}
