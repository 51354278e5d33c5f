/* One answer to one completion request: bytes from the server in, times and counts out. No I/O and
 * no clock, so that recorded and hostile bytes can be replayed through it.
 *
 *   HTTP (http_reply.h) ─> event stream ─> pieces (openai/client.h) ─> vt_load_result
 */
#ifndef VT_LOAD_ANSWER_H
#define VT_LOAD_ANSWER_H

#include "base/buf.h"
#include "load/event_stream.h"
#include "load/http_reply.h"
#include "openai/client.h"

enum {
    VT_LOAD_MAX_EVENT = 4 << 20, /* most bytes of one event of a stream */
    VT_LOAD_MAX_REPLY = 16 << 20 /* most bytes of an answer that is no stream */
};

/* How a request ended. */
typedef enum vt_load_end {
    VT_LOAD_OPEN,     /* it has not */
    VT_LOAD_OK,       /* a whole answer */
    VT_LOAD_CONNECT,  /* no connection */
    VT_LOAD_CUT,      /* the server closed before the answer was whole */
    VT_LOAD_HTTP,     /* a status other than 200 */
    VT_LOAD_REPORTED, /* the answer has status 200 and tells an error in its body */
    VT_LOAD_FORMAT,   /* not HTTP, not an event stream, or not OpenAI's JSON */
    VT_LOAD_TIMEOUT,
    VT_LOAD_N_ENDS
} vt_load_end;

const char *vt_load_end_name(vt_load_end end); /* "ok", "connect", "cut" ... */

typedef struct vt_load_result {
    vt_load_end end;
    int status;                         /* of HTTP; 0: none came */
    int64_t due_ns, begin_ns;           /* when it should have been sent, and when it was */
    int64_t first_ns, last_ns, end_ns;  /* first and last piece of text, whole answer; 0: none */
    int32_t n_pieces;                   /* that have text */
    int32_t prompt, completion, cached; /* tokens as the server counts them; -1: it does not */
    float longest_gap_s;                /* between two pieces of text; 0: fewer than two */
    int32_t session, turn, max_tokens;
    char why[96]; /* of a failure: one sentence */
} vt_load_result;

typedef struct vt_load_answer {
    vt_http_reply http;
    vt_load_result *result; /* is filled in */
    bool stream;            /* an event stream is expected */
    bool keep_text;         /* `text` is kept, for the next turn of a chat */
    vt_buf text;
    /* Tells each gap between two pieces of text; may be NULL. */
    void (*on_gap)(void *user, float seconds);
    void *user;

    /* Its own. */
    vt_event_stream events;
    vt_buf body;
    vt_openai_piece piece;
    int64_t now_ns;
    bool done, finished; /* "[DONE]" and a finish_reason have come */
} vt_load_answer;

void vt_load_answer_init(vt_load_answer *a);
void vt_load_answer_release(vt_load_answer *a);
/* For the next request. `result` keeps what the caller has set. */
void vt_load_answer_begin(vt_load_answer *a, vt_load_result *result, bool stream);
/* Bytes that came at `now_ns`. Returns true when the request has ended (result->end is set). */
bool vt_load_answer_feed(vt_load_answer *a, const char *data, size_t len, int64_t now_ns);
/* The server has closed the connection; the request has ended after this. */
void vt_load_answer_closed(vt_load_answer *a, int64_t now_ns);
/* Ends the request for a reason of the client's. */
void vt_load_answer_fail(vt_load_answer *a, vt_load_end end, int64_t now_ns, const char *why);

#endif
