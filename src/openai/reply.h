/* From engine events to a reply of /v1/chat/completions or /v1/completions.
 *
 *   vt_event ── vt_openai_reply_event ──> texts and log-probabilities of n choices, usage
 *                                    └──> vt_openai_reply_write: the whole reply, at the end
 *            ── vt_openai_chunk_write ──> one piece of a streamed reply, at once */
#ifndef VT_OPENAI_REPLY_H
#define VT_OPENAI_REPLY_H

#include "openai/request.h"

typedef struct vt_openai_tool_call {
    char *id, *name;
    vt_buf arguments;  /* never NULL once the call has ended */
    bool ended, whole; /* whole: `arguments` is a JSON object */
} vt_openai_tool_call;

/* An event added this to a choice: bytes of vt_openai_choice.fresh, which are text, reasoning or
 * arguments of a call, or a call's beginning or end. Also a part of the whole: then of `reasoning`
 * or `content`, or a call. */
typedef struct vt_openai_delta {
    vt_piece_kind kind;
    int32_t call;
    size_t at, n;
} vt_openai_delta;

typedef struct vt_openai_choice {
    vt_buf text;
    vt_buf ids;      /* [n_tokens] of int32_t */
    vt_buf logprobs; /* [n_tokens][1 + n_top] of vt_token_logprob: the token's own, then the top */
    vt_buf vector;   /* of float: of a request to embed */
    int32_t n_tokens;
    vt_finish finish;
    vt_end_reason end_reason;
    /* Where the answer is taken apart (vt_openai_reply.splits). */
    vt_answer_reader *reader;
    vt_buf content, reasoning; /* of `text` */
    vt_openai_tool_call *call; /* [n_calls] */
    int32_t n_calls;
    unsigned reasoning_names; /* VT_REASONING_... */
    const json_t *call_ids;   /* those that calls of the conversation have; borrowed */
    vt_buf fresh,
        pieces;   /* of the last event: bytes, and vt_openai_delta [] that point into them */
    vt_buf parts; /* vt_openai_delta []: the choice so far, neighbours of one kind joined */
    int32_t reasoning_tokens;
    bool single;      /* nothing behind the first call is kept */
    bool begun, lost; /* its first chunk was written; memory was short */
    int32_t stop;     /* which stop string ended it; -1: none */
    int32_t prompt_tokens, completion_tokens, cached_tokens, n_retracted; /* once it has ended */
} vt_openai_choice;

/* A prompt, where the reply repeats or scores it. */
typedef struct vt_openai_prompt_part {
    vt_buf text;   /* with echo */
    int32_t first; /* its first token, which no event brings */
    bool bos;      /* that token was put in front of the text */
    vt_buf rows;   /* [n_rows][1 + n_prompt_top] of vt_token_logprob: tokens 1, 2 ... */
    int32_t n_rows;
} vt_openai_prompt_part;

typedef struct vt_openai_reply {
    const char *grammar_field; /* of the request; NULL: none */
    const vt_model *m;
    char *id;    /* "chatcmpl-..." */
    char *model; /* as the reply calls it */
    bool named;  /* one function had to be called */
    bool splits; /* reasoning and calls are taken out of the text */
    json_t *tools, *call_ids;
    int32_t reasoning_tokens;
    bool chat, echo, include_usage, continuous_usage;
    int64_t created;          /* seconds since the epoch */
    int32_t n_each;           /* choices for each prompt */
    int32_t n, n_open;        /* choices of all prompts; those that have not ended */
    int32_t n_top;            /* alternatives reported for each token; -1: no log-probabilities */
    int32_t n_prompt_top;     /* kept for each token of the prompt; -1: none */
    int32_t n_prompt_shown;   /* of these, in "prompt_logprobs"; -1: no such member */
    vt_openai_choice *choice; /* [n] */
    vt_openai_prompt_part *prompt; /* [n / n_each] */
    char **stop;                   /* [n_stop] the request's stop strings */
    int32_t n_stop;
    int32_t *stop_ids; /* [n_stop_ids] its stop_token_ids that are no end of its own */
    int32_t n_stop_ids;
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
/* Returns true if an event brings scores of the prompt, and no token of an answer: no chunk tells
 * it. */
bool vt_openai_is_score(const vt_event *e);
/* The chunks of a reply that splits, whose event was taken: one for piece i of the choice's last
 * event, unless the piece only ends a call, and one that ends the choice, left open for further
 * members. */
int32_t vt_openai_n_pieces(const vt_openai_choice *c);
vt_openai_delta vt_openai_piece_at(const vt_openai_choice *c, int32_t i);
int32_t vt_openai_n_parts(const vt_openai_choice *c);
vt_openai_delta vt_openai_part_at(const vt_openai_choice *c, int32_t i);
/* The bytes of a part that is no call. */
const char *vt_openai_part_text(const vt_openai_choice *c, const vt_openai_delta *part);
void vt_openai_piece_chunk_write(vt_openai_reply *reply, int32_t prompt, const vt_event *e,
                                 int32_t i, vt_json *w);
void vt_openai_end_chunk_open(vt_openai_reply *reply, int32_t prompt, const vt_event *e,
                              vt_json *w);
/* The chunk without choices that ends a streamed reply where usage was asked for. */
void vt_openai_usage_chunk_write(const vt_openai_reply *reply, vt_json *w);

/* ---- split.c ---- */

/* Sets up and releases the readers of a reply that splits. */
bool vt_openai_split_init(vt_openai_reply *reply, const vt_openai_request *request);
void vt_openai_split_release(vt_openai_choice *c);
/* Takes the text of an event apart. False: memory was short. */
bool vt_openai_split_event(vt_openai_reply *reply, vt_openai_choice *c, const vt_event *e);
/* The members "content", "tool_calls" and of the reasoning of a whole message. */
void vt_openai_split_write(const vt_openai_choice *c, vt_json *w);
/* Writes reasoning under each of its names. */
void vt_openai_write_reasoning(const vt_openai_choice *c, const char *bytes, size_t n, vt_json *w);
/* "finish_reason" of a choice: "tool_calls" where it ended with some that it chose to make. */
const char *vt_openai_finish_name(const vt_openai_reply *reply, const vt_openai_choice *c,
                                  vt_finish finish);
/* Writes the arguments of a call as an object: in the place of what is none, an object that has it
 * as a string. */
void vt_openai_write_arguments(const vt_openai_tool_call *call, vt_json *w, const char *key);

/* ---- /generate ---- */

/* {"text", "output_ids", "meta_info": {...}} of choice i as SGLang writes it, of what has come so
 * far; left open in meta_info, so that the caller closes two objects. `id` is the request's. */
void vt_generate_choice_open(const vt_openai_reply *reply, const vt_openai_request *request,
                             int32_t i, const char *id, vt_json *w);

/* ---- embeddings.c ---- */

/* A vector as a list of numbers. */
void vt_openai_vector_write(const vt_buf *vector, vt_json *w, const char *key);
/* The whole answer of /v1/embeddings. */
void vt_openai_embeddings_write(const vt_openai_reply *reply, const vt_openai_request *request,
                                vt_json *w, const char *key);

/* ---- rank.c ---- */

/* The whole answer of /v1/score, in the order of the pairs. */
void vt_openai_scores_write(const vt_openai_reply *reply, vt_json *w);
/* The whole answer of /v1/rerank: the best documents first, with their texts or without. */
void vt_openai_ranks_write(const vt_openai_reply *reply, const vt_openai_request *request,
                           bool documents, vt_json *w);

/* ---- logprobs.c ---- */

/* The bytes of one token. */
void vt_openai_piece_of(const vt_openai_reply *reply, int32_t id, vt_buf *piece);
/* Takes the rows of an event, each with n_top alternatives, into `rows`. */
bool vt_openai_add_rows(vt_buf *rows, const vt_event *e, int32_t n_top);
/* The member "logprobs" of a choice: `rows` are [n][1 + n_top]. */
void vt_openai_write_logprobs(const vt_openai_reply *reply, const void *rows, int32_t n,
                              vt_json *w);
/* The same of a whole choice of plain completions; with echo, its prompt comes first. */
void vt_openai_write_choice_logprobs(const vt_openai_reply *reply, int32_t choice, vt_json *w);
/* The member "prompt_logprobs" in vLLM's form. */
void vt_openai_write_prompt_logprobs(const vt_openai_reply *reply, int32_t prompt, vt_json *w);

#endif
