/* The server's parts, for the files of src/server.
 *
 *   web.c        bytes to exchanges                      (knows nothing of models)
 *   routes.c     path and method -> a handler, keys; sites.c: what browsers may ask
 *   openai.c, anthropic.c, responses.c, ollama.c, native.c, tokens.c, state.c, health.c,
 *   admin.c, metrics.c, stories.c    the handlers
 *   generation.c a completion: read on a helper thread, submitted, its events told on the loop
 *   events.c     engine thread -> loop thread
 *   work.c       helper threads for whatever takes long
 *   page.c, live*.c      the live page: its files, and looks at the engine as events
 *   observe.c    what is kept of requests: metrics.c, log.c, otlp.c, stories.c, dumps.c
 *   profile.c, step_log.c    what is kept of steps
 *
 * Everything runs on the loop's thread but for what work.c runs and the engine's callbacks, which
 * do no more than copy an event (events.c). */
#ifndef VT_SERVER_INSIDE_H
#define VT_SERVER_INSIDE_H

#include "base/json_write.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "openai/json_load.h"
#include "openai/reply.h"
#include "server/api/keys.h"
#include "server/api/work.h"
#include "server/http/sites.h"
#include "server/http/web.h"
#include "server/serve.h"

typedef struct server_live server_live;

typedef struct vt_server {
    const vt_options *options;
    const vt_model *model;
    vt_engine *engine;
    const vt_serve_words *words;
    vt_web *web;
    server_work *work;
    struct server_events *events;
    server_keys keys, admin_keys;   /* the caller's */
    server_sites sites;             /* that may ask */
    struct server_metrics *metrics; /* these five: see observe.h */
    struct server_stories *stories;
    struct server_log *log;
    struct server_dumps *dumps;
    struct server_otlp *otlp;         /* NULL: no collector */
    struct server_step_log *step_log; /* NULL: steps are not logged */
    int log_form;                     /* server_log_form */
    bool log_text;                    /* prompts and answers stand in the log */
    vt_openai_defaults defaults;
    char *list_name;        /* what `vitrine list` calls the model; NULL: it is not in the cache */
    const char *model_name; /* that answers carry: option served-model-name, else the model's */
    const char *owned_by;
    double request_timeout_s; /* 0: none */
    int64_t ready_ns;         /* when it began to listen, CLOCK_MONOTONIC */
    int64_t started_s;        /* the same as seconds since the epoch */
    bool draining, cut_off;
    vt_web_timer *poll, *deadline; /* while draining */
    vt_web_timer *watch;           /* looks whether the device is lost */
    bool lost;
    struct generation *first; /* generations that are open, in a list */
    int32_t n_generations;
    uint64_t next_id;  /* of the next request, for answers' ids */
    server_live *live; /* NULL: nobody has watched yet */
} vt_server;

/* ---- callers.c ---- */

typedef enum server_access { ACCESS_OPEN, ACCESS_USER, ACCESS_ADMIN } server_access;

enum { CALLER_NO_KEY = -1, CALLER_ADMIN = SERVER_MAX_KEYS };

/* Who sends a request, by its key. */
typedef struct server_caller {
    int32_t key; /* CALLER_NO_KEY, a user's key's number, or CALLER_ADMIN and an administrator's */
    bool user, admin; /* it may do what users do, and what administrators do */
} server_caller;

/* An administrator's key opens everything. Without administrators' keys a user's key does so too
 * where it is the only one: with several, users are strangers to each other. */
server_caller server_caller_of(const vt_server *s, const vt_http_request *r);
/* Answers 401, or 403 where there is no key that would open what administrators do. */
void server_refuse_caller(const vt_server *s, vt_exchange *x, const server_caller *who,
                          server_access wanted);
/* Puts the number of the caller's key in front of *salt, a request's own salt (NULL: none), so that
 * no two keys share cached prefixes; not where there is one key or none. The new text is in
 * `arena`. False: memory is short. */
bool server_caller_salt(const vt_server *s, int32_t key, const char **salt, vt_arena *arena);

/* Has a body read on a helper thread: run(arg) there, then done(arg) on the loop's thread. Large
 * bodies wait in a queue of their own, in turns between clients: the keys, and where none is asked
 * the addresses. False: too much waits already. */
bool server_read_body(vt_server *s, const vt_exchange *x, const vt_buf *body,
                      void (*run)(void *arg), void (*done)(void *arg), void *arg);

/* Has work done likewise that takes long although its body was small, such as compiling a grammar:
 * in the turns of large bodies. `bytes`: of memory that it holds while it waits. */
bool server_take_turn(vt_server *s, const vt_exchange *x, size_t bytes, void (*run)(void *arg),
                      void (*done)(void *arg), void *arg);

/* ---- routes.c ---- */

typedef void server_handler(vt_server *s, vt_exchange *x);

typedef struct server_route {
    const char *method; /* "GET", "POST"; HEAD is answered as GET */
    const char *path;   /* a path that ends in '*' takes whatever stands there */
    server_access access;
    server_handler *handle;
} server_route;

/* The web server's handler: finds the route, checks the key, calls the handler. */
void server_route_request(void *server, vt_exchange *x);
/* False if server_route_request refuses the request whatever its body is. */
bool server_route_admit(void *server, const vt_http_request *r);

/* ---- answers ---- */

/* Answers with what `w` has written into its own text, or with 500 where memory was short. Ends and
 * releases `w`. */
void server_reply_json(vt_exchange *x, int status, vt_json *w);
/* An error in the form of the path's API: OpenAI's, Anthropic's or Ollama's. 503 gets a
 * Retry-After. */
void server_reply_error(vt_exchange *x, const vt_openai_error *e);
void server_refuse(vt_exchange *x, int status, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* {"error": {...}} for errors that the web server answers by itself. */
void server_error_body(int status, const char *message, vt_buf *out);
/* Reads a JSON object body on this thread; for small bodies. False: it was refused already. */
bool server_read_object(vt_exchange *x, json_t **out);

/* ---- handlers ---- */

/* server_rerank_v2 is Cohere's: without documents. */
server_handler server_chat, server_completions, server_messages, server_count_tokens,
    server_embeddings, server_score, server_rerank, server_rerank_v2, server_responses,
    server_ollama_chat, server_ollama_generate, server_ollama_embed, server_ollama_show,
    server_ollama_tags, server_ollama_ps, server_ollama_version, server_generate, server_tokenize,
    server_detokenize, server_models, server_model, server_health, server_health_generate,
    server_loads, server_load, server_model_info, server_tokenizer_info, server_info,
    server_version, server_show_metrics, server_flush_cache, server_abort_request,
    server_start_profile, server_stop_profile, server_story_list, server_story;

/* ---- the live page: page.c, live.c ---- */

server_handler server_page, server_live_watch;
/* Ends the observer's thread and every watcher's answer; before vt_web_free. */
void server_live_stop(vt_server *s);
/* After vt_web_free: a post of the observer may still run in there. */
void server_live_free(vt_server *s);

#endif
