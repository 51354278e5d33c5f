/* A completion that is being generated: from a body to an answer, or to nothing where the client
 * leaves.
 *
 *   loop                helper thread        loop                    engine
 *   generation_start ─> read: JSON, ──────> submit ────────────────> steps
 *                       template, tokens     form->event <─ copies ── callbacks
 *                                            form->end: the answer is whole
 *
 * A grammar that the engine does not know is compiled in between, which may take a second: it waits
 * for a turn of its own (work.h), so that the thread reads other requests meanwhile.
 *
 * It ends when it has been read and every completion has told its last event, whether or not the
 * client is still there. */
#ifndef VT_SERVER_API_GENERATION_H
#define VT_SERVER_API_GENERATION_H

#include "engine/constraint/grammar.h"
#include "server/api/events.h"
#include "server/inside.h"

typedef struct generation generation;

/* How a kind of request is read and answered. */
typedef struct generation_form {
    const char *name; /* for logs and metrics: "chat", "completions", "generate" */
    vt_openai_form api;
    bool probe; /* the server asks itself: it is not counted as a request */
    /* On a helper thread: turns g->body into g->request. Fills g->error on failure. */
    void (*read)(generation *g);
    /* On the loop's thread, with the client there. `event`: before the reply takes the event.
     * `end`: after the last one; or g->error has an error: the answer has not begun, or is a
     * stream. */
    void (*event)(generation *g, int32_t prompt, const vt_event *e);
    /* May be NULL. `told`: after the reply took the event, if it did so without an error. */
    void (*told)(generation *g, int32_t prompt, const vt_event *e);
    void (*end)(generation *g);
    /* The following may be NULL. On a helper thread: turns the body into one of api's; a new object,
     * or NULL with `e` filled. The reply is taken apart (vt_openai_reply.splits). */
    json_t *(*translate)(const json_t *body, vt_openai_error *e);
    /* With `translate`: tells what is wrong with its object in the names of the body. */
    void (*own_names)(vt_openai_error *e);
    void (*forget)(generation *g); /* releases g->own; may be NULL. Always called once, at last */
} generation_form;

/* Of one answer, in nanoseconds of CLOCK_MONOTONIC; 0: not reached. */
typedef struct generation_times {
    int64_t began, whole; /* the request's first byte, and all of it */
    int64_t parsed, rendered, tokenised;
    int64_t submitted, admitted, first_token,
        last_token; /* of its first completion that got there */
    int64_t end;
} generation_times;

/* When the device had made the tokens of one completion. */
typedef struct generation_made {
    int64_t first_ns, last_ns; /* 0: none yet */
    int32_t n_later;           /* tokens after those of the first event */
    vt_buf gaps;               /* int64_t nanoseconds each, where the client wants them */
} generation_made;

struct generation {
    generation *next, *prev;
    vt_server *server;
    vt_exchange *x; /* NULL: the client has gone */
    int32_t key;    /* whose it is: server_caller.key */
    const generation_form *form;
    char id[VT_OPENAI_MAX_ID + 1]; /* of the answer and the log: the client's X-Request-Id or
                                      "rid", else "1f3c..." */
    vt_buf body;
    vt_openai_request request;
    vt_openai_reply reply;
    vt_openai_error error;
    server_part *part; /* [request.n_prompts] */
    int32_t n_submitted;
    bool cancelled; /* by generation_cancel; also read by the helper thread */
    bool gone;      /* also read by the helper thread */
    bool streaming; /* the head of the stream has been sent */
    int32_t n_chunks, n_retracted;
    int32_t draft_tokens, draft_accepted; /* of its sequences that have ended */
    int32_t n_masks, n_new_masks, forced_tokens;
    int64_t mask_ns, slowest_mask_ns;
    generation_times at;
    struct server_note *note; /* of its exchange; NULL: memory was short */
    bool tells_gaps;          /* the client sent X-Vitrine-Story: 1 */
    bool counted_first;       /* its time to the first token stands in the metrics */
    generation_made *made;    /* [reply.n]; or NULL */
    int64_t longest_gap_ns;   /* between two tokens of one completion; 0: there were none */
    char *log_prompt;         /* the prompt's beginning, with option log-text; else NULL */
    vt_grammar *grammar;      /* of the request, prepared; NULL: it has none. A reference */
    bool must_compile;        /* the grammar is new to the engine, and has not been compiled yet */
    json_t *given;            /* with form->translate: the body, without its messages. Owned */
    void *own;                /* the form's */
};

/* Takes the exchange over. NULL: it was refused, or has been answered already. */
generation *generation_start(vt_server *s, vt_exchange *x, const generation_form *form);
/* Ends its completions in the engine, as soon as it is there; its client is told. */
void generation_cancel(generation *g);
/* The exchange belongs to the caller again, who answers it; nobody waits for the generation any
 * more, which ends in the engine. */
void generation_give_up(generation *g);
/* Returns true if `name` is its X-Request-Id, or its answer's id with or without "chatcmpl-" or
 * "cmpl-". */
bool generation_is_named(const generation *g, const char *name);
bool server_answer_is_named(const char *answer, const char *name);
/* Ends generations whose client was given up: at the end of a drain. */
void generation_abort_all(vt_server *s);

/* Forgets them all, once the engine has none of their requests any more. */
void generation_release_all(vt_server *s);

/* ---- for forms ---- */

/* The usual `read`: JSON, then the fields and prompts of form->api. */
void generation_read(generation *g);

/* Sends "data: <json>\n\n" of an SSE stream, beginning it where it has not begun. Ends and releases
 * `w`, which has a text of its own. */
void generation_send(generation *g, vt_json *w);
/* The same with "event: <name>" in front, and as a line of JSON without anything around it. */
void generation_send_event(generation *g, const char *name, vt_json *w);
void generation_send_line(generation *g, vt_json *w);
/* The error as an object's member, as OpenAI tells it in a stream. */
void generation_send_error(generation *g);
/* "data: [DONE]" and the end of the answer. */
void generation_send_done(generation *g);
/* "timings" of the answer, an object in llama-server's shape with what else is known. */
void generation_write_timings(const generation *g, vt_json *w, const char *key);
/* The header Server-Timing, for answers in one piece. */
void generation_headers(generation *g, bool whole);

#endif
