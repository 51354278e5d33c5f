/* A completion's text as it is made: token ids go in, whole characters come out, and no byte of a
 * stop string is ever given out.
 *
 *   ids -> vt_detok -> held: "... and the EN"  -> out: "... and the "    (the stop may be "END")
 *
 * Text that may be the beginning of a stop string is held back until more text decides it. A stop
 * string is found wherever it lies, across the borders of tokens too. */
#ifndef VT_ENGINE_STREAM_H
#define VT_ENGINE_STREAM_H

#include "base/buf.h"
#include "text/tokenizer/tokenizer.h"

enum { VT_MAX_STOPS = 64, VT_MAX_STOP_BYTES = 1024 };

typedef struct vt_stream {
    vt_detok detok;
    vt_buf held;             /* bytes not given out yet */
    size_t ready;            /* how many of the first of them may be given out */
    const char *const *stop; /* [n_stop], borrowed */
    int32_t n_stop;
    int32_t unsearched; /* ids still to come in whose text no stop string is looked for */
    bool has_text;      /* false without a tokenizer: no text, no stop strings */
    bool stopped;       /* a stop string was met; held ends where it began */
    int32_t found;      /* which one, once stopped */
} vt_stream;

/* `stop` must outlive the stream. No stop string is looked for in the text of the first
 * `unsearched` ids. `special`: special tokens are text too. Reserves what its steps will need. */
vt_status vt_stream_init(vt_stream *s, const vt_tokenizer *t, const char *const *stop,
                         int32_t n_stop, int32_t unsearched, bool special, vt_err *err);
void vt_stream_release(vt_stream *s);
/* Takes in one id. True if a stop string is complete now: no more ids may follow. */
bool vt_stream_feed(vt_stream *s, int32_t id);
/* No more ids come: everything that was held back may be given out. True if the detokenizer's rest
 * completed a stop string. */
bool vt_stream_finish(vt_stream *s);
/* The caller has given out the first s->ready bytes of s->held. */
void vt_stream_taken(vt_stream *s);

#endif
