/* From engine events to a reply of /v1/chat/completions or /v1/completions.
 *
 *   vt_event ── vt_openai_reply_event ──> texts and log-probabilities of n choices, usage
 *                                    └──> vt_openai_reply_write: the whole reply, at the end
 *            ── vt_openai_chunk_write ──> one piece of a streamed reply, at once */
#ifndef VT_OPENAI_REPLY_H
#define VT_OPENAI_REPLY_H

#include "openai/request.h"

typedef struct vt_openai_choice {
    vt_buf text;
    vt_buf logprobs; /* [n_tokens][1 + n_top] of vt_token_logprob: the token's own, then the top */
    int32_t n_tokens;
    vt_finish finish;
} vt_openai_choice;

typedef struct vt_openai_reply {
    const vt_model *m;
    char *id; /* "chatcmpl-..." */
    bool chat;
    int64_t created;          /* seconds since the epoch */
    int32_t n_each;           /* choices for each prompt */
    int32_t n, n_open;        /* choices of all prompts; those that have not ended */
    int32_t n_top;            /* alternatives reported for each token; -1: no log-probabilities */
    vt_openai_choice *choice; /* [n] */
    int32_t prompt_tokens, completion_tokens, cached_tokens;
    bool aborted;          /* a choice was aborted: this is no answer */
    vt_openai_error error; /* http 0: none */
} vt_openai_reply;

/* An empty reply to a request. `id` is copied after "chatcmpl-" or "cmpl-". */
vt_status vt_openai_reply_init(vt_openai_reply *reply, const vt_openai_request *request,
                               const vt_model *m, const char *id, vt_err *err);
void vt_openai_reply_release(vt_openai_reply *reply);

/* Takes an event of one of the request's prompts. When reply->n_open is 0, it was the last one. A
 * failure of the engine, or of memory, is kept in reply->error. */
void vt_openai_reply_event(vt_openai_reply *reply, int32_t prompt, const vt_event *e);

/* The whole reply as an object. `key` as in base/json_write.h. `_open` leaves the object open for
 * further members; the caller closes it. */
void vt_openai_reply_write(const vt_openai_reply *reply, vt_json *w, const char *key);
void vt_openai_reply_open(const vt_openai_reply *reply, vt_json *w, const char *key);

/* The chunk that brings event `e` of a streamed reply; the event must not be taken yet. The first
 * chunk of a chat's choice carries the role. */
void vt_openai_chunk_write(const vt_openai_reply *reply, int32_t prompt, const vt_event *e,
                           vt_json *w);
void vt_openai_chunk_open(const vt_openai_reply *reply, int32_t prompt, const vt_event *e,
                          vt_json *w);
/* The chunk without choices that ends a streamed reply where usage was asked for. */
void vt_openai_usage_chunk_write(const vt_openai_reply *reply, vt_json *w);

#endif
