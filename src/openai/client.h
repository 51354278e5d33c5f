/* The client's side of the OpenAI forms: writing requests and reading what comes back, from this
 * server or another one. For load generators and tests. */
#ifndef VT_OPENAI_CLIENT_H
#define VT_OPENAI_CLIENT_H

#include "openai/error.h"

/* A message of a chat. */
typedef struct vt_openai_turn {
    const char *role; /* "system", "user", "assistant" */
    const char *text; /* [len] */
    size_t len;
} vt_openai_turn;

typedef struct vt_openai_call {
    bool chat;
    const char *model;          /* NULL: left out */
    const vt_openai_turn *turn; /* [n_turns] messages of a chat before `text`; NULL: none */
    int32_t n_turns;
    const char *text; /* [text_len] the prompt; of a chat, the user's last message */
    size_t text_len;
    const int32_t *ids; /* [n_ids] the prompt of plain completions as token ids; NULL: text */
    int32_t n_ids;
    int32_t max_tokens; /* 0: left out */
    double temperature; /* NAN: left out */
    bool ignore_eos;
    bool stream; /* piece by piece, with the usage in a last piece */
} vt_openai_call;

/* The request's body. */
void vt_openai_call_write(const vt_openai_call *call, vt_json *w);

/* The content of a reply or of one chunk of it. */
typedef struct vt_openai_piece {
    vt_buf text;        /* of all its choices, one after the other */
    int32_t n_finished; /* choices that end here */
    vt_finish finish; /* why the last of them did: VT_FINISH_STOP, _LENGTH, or _ABORT for any other
                           reason; VT_FINISH_NONE where n_finished is 0 */
    int32_t prompt_tokens, completion_tokens, cached_tokens; /* -1: not said */
    vt_openai_error error; /* http 0: none; else 500, since a piece has no status of its own */
} vt_openai_piece;

/* Reads a reply, a chunk, or an error in OpenAI's form (an object under "error") or the flat forms
 * of other servers. Release the piece in any case; it may be read into again. */
vt_status vt_openai_piece_read(const char *json, size_t len, vt_openai_piece *piece, vt_err *err);
void vt_openai_piece_release(vt_openai_piece *piece);

#endif
