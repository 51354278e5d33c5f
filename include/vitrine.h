/* vitrine: the public C API.
 *
 *     vt_options -> vt_model -> vt_engine -> requests -> events, stories
 *
 * Ownership. A call that fills an out-parameter gives the result to the caller, who frees it with
 * the matching `_free`; texts and ids from vt_tokenize, vt_detokenize, vt_render_chat and
 * vt_engine_story with vt_free. Arguments are borrowed for the length of the call unless the
 * comment says otherwise.
 *
 * Errors. A call that can fail returns a vt_status. On failure its out-parameters are untouched,
 * and `err` (may be NULL) holds one sentence that says what was wrong and what was expected. A NULL
 * where a pointer is needed is VT_ERR_USAGE, not a crash; a `_free` takes NULL and does nothing.
 * A handle that was freed must not be used again: nothing can check that.
 *
 * Threads. Options belong to one thread at a time. A model is read-only once it is open and may be
 * shared by threads and engines. Any thread may call vt_engine_submit, vt_engine_abort,
 * vt_engine_get_stats and vt_engine_story at any time; the comments of an engine's other functions
 * say which thread may call them. There are no globals.
 *
 * Growth. A later version may append fields to vt_request_params, vt_stats, vt_event and
 * vt_progress_info, and values to the enumerations. A program that was compiled against an older
 * header keeps working: it says how large its structs are (vt_request_init, vt_engine_get_stats).
 * It must not make vt_event or vt_progress_info itself, nor depend on their sizes. */
#ifndef VITRINE_H
#define VITRINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define VT_API __attribute__((visibility("default")))
#else
#define VT_API
#endif

#define VT_VERSION_MAJOR 0
#define VT_VERSION_MINOR 1
#define VT_VERSION_PATCH 0

/* "0.1.0", static storage. */
VT_API const char *vt_version(void);
/* For bindings: the bytes of the library's own struct of that name ("vt_event"), 0 for a name that
 * this header does not declare. A binding that was made from an older header finds them equal or
 * larger. */
VT_API size_t vt_struct_size(const char *name);

/* ---- errors ---- */

typedef enum vt_status {
    VT_OK = 0,
    VT_ERR_USAGE,       /* an option, argument or request field is wrong */
    VT_ERR_IO,          /* a file or socket could not be read or written */
    VT_ERR_FORMAT,      /* a file's bytes break its format */
    VT_ERR_MODEL,       /* the file is well-formed but describes a model we do not run */
    VT_ERR_MEMORY,      /* out of memory, or beyond a stated limit */
    VT_ERR_NO_PAGES,    /* the KV pool has no free page; no public function returns it */
    VT_ERR_DEVICE,      /* the device or its driver failed */
    VT_ERR_UNSUPPORTED, /* a known thing that this version or this device does not have */
    VT_ERR_BUSY,        /* the queue is full: try again later */
    VT_ERR_CANCELLED,   /* a progress callback asked to stop */
    VT_ERR_CONTEXT,     /* a prompt is longer than the context or the KV cache */
    VT_ERR_GRAMMAR      /* a grammar is wrong, too large to be followed, or allows no token */
} vt_status;

typedef struct vt_err {
    vt_status status;
    char message[512]; /* one sentence, no newline */
} vt_err;

/* ---- options: named values that say how to load a model and make an engine ---- */

typedef struct vt_options vt_options;

/* All keys at their defaults, then overridden by the environment: VITRINE_TOKEN_BUDGET sets
 * token-budget. VT_ERR_USAGE names a variable whose value is wrong. */
VT_API vt_status vt_options_new(vt_options **out, vt_err *err);
/* Keys are the long options of `vitrine run --help` under "Common options", without the dashes:
 * "model", "device", "threads", "kv-memory", "max-running" and so on. The value is the text one
 * would type there; a flag takes "true" or "false". It is copied. VT_ERR_USAGE for an unknown key
 * or a wrong value, VT_ERR_UNSUPPORTED for a value that this version does not have yet. */
VT_API vt_status vt_options_set(vt_options *o, const char *key, const char *value, vt_err *err);
/* The value as text, owned by `o` until the key is set again; NULL if vt_options_set knows no such
 * key. */
VT_API const char *vt_options_get(const vt_options *o, const char *key);
/* Models and engines that were made with them go on without them. */
VT_API void vt_options_free(vt_options *o);

/* How far a vt_model_open or vt_engine_new is. Valid only during the callback. */
typedef struct vt_progress_info {
    const char *stage;   /* for people: "opening the model", "packing weights", ... */
    int64_t done, total; /* of this stage, in bytes or pieces; total is at least 1 */
} vt_progress_info;

/* Return false to stop: the call then fails with VT_ERR_CANCELLED as soon as it can. Comes from the
 * calling thread or from one that works for it, one call at a time. Must not use the options, the
 * model or the engine. */
typedef bool (*vt_progress)(void *user, const vt_progress_info *info);
/* Every later vt_model_open and vt_engine_new with `o` reports to `progress`; NULL: no reports. */
VT_API vt_status vt_options_set_progress(vt_options *o, vt_progress progress, void *user,
                                         vt_err *err);

/* Something that the owner of the process should know and that fails no call, in one sentence: the
 * GPU's context was lost and made again, cached kernels were refused. Comes from the thread that
 * called vt_engine_new, or from the one that runs the engine's steps. Must not use the engine. The
 * sentence is valid only during the callback. */
typedef void (*vt_notice)(void *user, const char *sentence);
/* Every later vt_engine_new with `o`, and the engine that it makes, report to `notice`; NULL: no
 * reports. */
VT_API vt_status vt_options_set_notice(vt_options *o, vt_notice notice, void *user, vt_err *err);

/* ---- model: architecture, weights, tokenizer, chat template ---- */

typedef struct vt_model vt_model;

/* Opens option `model`: a path, a name from the cache, or dummy:NAME. Weights are mapped, not
 * copied, so the file must stay as it is while the model is open. VT_ERR_IO if there is no such
 * file, VT_ERR_FORMAT if it is damaged, VT_ERR_MODEL if its architecture is not supported. */
VT_API vt_status vt_model_open(const vt_options *o, vt_model **out, vt_err *err);
/* Every engine made of it must have been freed. */
VT_API void vt_model_free(vt_model *m);
/* The next six return what belongs to the model. */
VT_API const char *vt_model_name(const vt_model *m);
VT_API int32_t vt_model_vocab_size(const vt_model *m);  /* ids are 0 .. vocab_size - 1 */
VT_API int32_t vt_model_max_context(const vt_model *m); /* tokens */
VT_API int32_t vt_model_bos(const vt_model *m);         /* the token that begins a text; -1: none */
/* The tokens that end a completion: *n of them, n may not be NULL. NULL if there are none. */
VT_API const int32_t *vt_model_eos(const vt_model *m, int32_t *n);
/* The id of the token that the vocabulary spells text[0..len), such as "<|im_end|>". A space or a
 * byte may be spelt otherwise there ("\u0120" in byte-level vocabularies): vt_tokenize is for
 * ordinary text. -1 if there is no such token, or the model has no tokenizer. */
VT_API int32_t vt_model_find_token(const vt_model *m, const char *text, size_t len);
/* True if the id is a special token: a marker such as BOS or <|im_start|>, not text. */
VT_API bool vt_model_token_is_special(const vt_model *m, int32_t id);

/* The text that the model's files (sentence-transformers) put in front of a text to embed, by name,
 * such as "query". NULL as the name: what is put there without being asked for, often "". NULL if
 * there is no prompt of that name. */
VT_API const char *vt_model_prompt(const vt_model *m, const char *name);

/* ADD_BOS and ADD_EOS put in front of the text, and behind it, what the model's files want there. A
 * prompt that an answer continues has nothing behind it; a text that is embedded may. */
enum { VT_TOKENIZE_SPECIAL = 1, VT_TOKENIZE_ADD_BOS = 2, VT_TOKENIZE_ADD_EOS = 4 };

/* Token ids of text[0..len). `*ids` is malloc'ed; free it with vt_free. */
VT_API vt_status vt_tokenize(const vt_model *m, const char *text, size_t len, unsigned flags,
                             int32_t **ids, size_t *n_ids, vt_err *err);
/* The text of ids[0..n_ids), special tokens included, of *len bytes and a NUL after them (bytes
 * that are no UTF-8 become U+FFFD). Free it with vt_free. VT_ERR_USAGE for an id that the model
 * does not have, VT_ERR_MODEL for a model without a tokenizer. */
VT_API vt_status vt_detokenize(const vt_model *m, const int32_t *ids, size_t n_ids, char **text,
                               size_t *len, vt_err *err);
/* The chat template applied to {"messages": [...], ...} (JSON text); free with vt_free. */
VT_API vt_status vt_render_chat(const vt_model *m, const char *json, size_t json_len,
                                bool add_generation_prompt, char **text, size_t *len, vt_err *err);
/* The same, asking stop(context) every few thousand steps of the template: true ends the rendering
 * with VT_ERR_CANCELLED. */
VT_API vt_status vt_render_chat_until(const vt_model *m, const char *json, size_t json_len,
                                      bool add_generation_prompt, bool (*stop)(void *context),
                                      void *context, char **text, size_t *len, vt_err *err);

enum { VT_CHAT_OPEN_TURN = 1, VT_CHAT_LITERAL = 2 };

/* The same, tokenised with special tokens on. VT_CHAT_OPEN_TURN: add_generation_prompt is true.
 * VT_CHAT_LITERAL: spellings of special tokens inside the caller's strings stay text, so that a
 * message cannot end its own turn; every other id is the same as without it. Fails where strings
 * hold such spellings and the template changes them so that the two cannot be told apart. `*ids`
 * is malloc'ed; free it with vt_free. */
VT_API vt_status vt_encode_chat(const vt_model *m, const char *json, size_t json_len,
                                unsigned flags, int32_t **ids, size_t *n_ids, vt_err *err);
/* Frees what vt_tokenize, vt_detokenize, vt_render_chat or vt_engine_story gave; NULL is fine. */
VT_API void vt_free(void *p);

/* ---- engine ---- */

typedef struct vt_engine vt_engine;
typedef uint64_t vt_request_id;

/* Why a completion ended. */
typedef enum vt_finish {
    VT_FINISH_NONE = 0, /* it goes on */
    VT_FINISH_STOP,     /* an end token, one of stop_ids, or a stop string */
    VT_FINISH_LENGTH,   /* max_tokens, the context or the KV cache is full */
    VT_FINISH_ABORT,    /* vt_engine_abort, or vt_engine_free */
    VT_FINISH_ERROR     /* event.end_reason says which, event.error in words */
} vt_finish;

/* The same more closely; vt_end_reason_name has the words. */
typedef enum vt_end_reason {
    VT_END_NONE = 0,          /* it goes on */
    VT_END_STOP_TOKEN,        /* stop: an end token, or one of stop_ids */
    VT_END_STOP_STRING,       /* stop: event.stop says which */
    VT_END_MAX_TOKENS,        /* length */
    VT_END_CONTEXT,           /* length: prompt and answer fill the context */
    VT_END_KV_CACHE,          /* length: they fill the whole KV cache */
    VT_END_PROMPT,            /* length: a prompt to embed, or with max_tokens 0, is computed */
    VT_END_ABORT,             /* abort */
    VT_END_TIMEOUT,           /* error: timeout_s have passed */
    VT_END_GRAMMAR_TOO_LARGE, /* error: following the grammar takes too many states or memory */
    VT_END_NOTHING_ALLOWED,   /* error: grammar and `allowed` leave no token */
    VT_END_NO_CANDIDATE, /* error: the logits of all allowed tokens are -infinity or no number */
    VT_END_NOT_NUMBERS,  /* error: logits, or hidden states of a vector, are no numbers */
    VT_END_MEMORY,       /* error: out of memory for the answer */
    VT_END_DEVICE_FAULT, /* error: its steps failed again and again */
    VT_END_DEVICE_LOST,  /* error: the device is lost, and could not be made again */
    VT_END_INTERNAL      /* error: a mistake of this program */
} vt_end_reason;
enum { VT_END_REASONS = VT_END_INTERNAL + 1 };

/* "stop_token", "timeout" and so on: the enumerator in small letters, as stories and metrics have
 * it. Static storage; NULL for a number that is none of them. */
VT_API const char *vt_end_reason_name(vt_end_reason reason);

typedef struct vt_token_logprob {
    int32_t id;
    float logprob; /* natural logarithm, of the unscaled distribution (temperature 1) */
} vt_token_logprob;

/* The engine tells this about a request, in one call for each published token (with option draft,
 * for each step's tokens), the last of which says how the completion ended. Everything that it
 * points to is valid only during the callback. */
typedef struct vt_event {
    vt_request_id request;
    int32_t sample;        /* 0 .. n-1: which of the n completions */
    const int32_t *tokens; /* [n_tokens] new token ids; n_tokens may be 0 at the end */
    int32_t n_tokens;
    const char *text; /* [text_len] new text, whole UTF-8 characters only, no NUL after it */
    size_t text_len;
    const vt_token_logprob *logprobs;     /* [n_tokens] of the chosen tokens, or NULL */
    const vt_token_logprob *top_logprobs; /* [n_tokens][n_top], or NULL; ids are -1 where
                                             fewer tokens could be chosen */
    int32_t n_top;
    vt_finish finish; /* VT_FINISH_NONE while it goes on */
    int32_t prompt_tokens, completion_tokens;
    int32_t cached_tokens;  /* prompt tokens that the prefix cache had */
    const char *error;      /* with VT_FINISH_ERROR: one sentence; else NULL */
    int64_t made_ns;        /* with tokens: when the device had made them, on CLOCK_MONOTONIC */
    int64_t arrived_ns;     /* when the request came: params.arrived_ns, else its submission */
    int64_t admitted_ns;    /* when this completion left the queue for the first time; 0: not yet */
    int32_t n_chunks;       /* steps that computed prompt tokens of it so far */
    int32_t n_retracted;    /* times that it was put back into the queue */
    int32_t stop;           /* which of the request's stop strings ended it; -1: none of them */
    int32_t draft_tokens;   /* guesses that steps have verified for it so far (option draft) */
    int32_t draft_accepted; /* how many of them were right */
    const float *vector;    /* [n_vector] with the end of a request to embed; else NULL */
    int32_t n_vector;
    /* masks of a constrained answer so far; those that had to be made; the time that all took, and
     * the slowest */
    int32_t n_masks, n_new_masks;
    int64_t mask_ns, slowest_mask_ns;
    int32_t
        forced_tokens; /* those that a constraint left no choice of, and that were not waited for
                              one by one */
    vt_end_reason end_reason; /* VT_END_NONE while it goes on */
} vt_event;

/* Called from the thread that runs the step. It may call vt_engine_abort, vt_engine_submit and
 * vt_engine_wrote, and read the statistics; vt_engine_step, vt_engine_wait, vt_engine_start and
 * vt_engine_story answer VT_ERR_USAGE there, and vt_engine_free must not be called. */
typedef void (*vt_callback)(void *user, const vt_event *event);

typedef struct vt_logit_bias {
    int32_t id;
    float bias; /* added to its logit; -infinity: never chosen; infinity is refused */
} vt_logit_bias;

/* An answer has to follow this; docs/structured.md says what each kind understands and refuses. */
typedef enum vt_grammar_kind {
    VT_GRAMMAR_FREE = 0,    /* any text */
    VT_GRAMMAR_JSON_SCHEMA, /* JSON by a JSON Schema */
    VT_GRAMMAR_JSON_STRICT, /* the same, but objects that list properties have no others unless they
                               say so */
    VT_GRAMMAR_JSON_OBJECT, /* any JSON object; the text is not read */
    VT_GRAMMAR_REGEX,       /* the whole answer, in ECMA-262's syntax */
    VT_GRAMMAR_CHOICE,      /* one of a JSON list of strings */
    VT_GRAMMAR_GBNF,        /* llama.cpp's notation */
    VT_GRAMMAR_CALLS        /* tool calls: {"form", "several", "tools": [{"name", "parameters"}]};
                               with "optional": true any text may come instead of them */
} vt_grammar_kind;

/* Where an answer has reasoning between <think> and </think>, or between thought_open and
 * thought_close of the request. */
typedef enum vt_thought {
    VT_THOUGHT_NONE = 0, /* nothing is looked for */
    VT_THOUGHT_MAYBE,    /* the answer may begin with <think> */
    VT_THOUGHT_BEGUN     /* the prompt ends behind <think> */
} vt_thought;

/* A request. vt_request_init fills in the defaults, which stand after each field here; whatever a
 * pointer points to is copied by vt_engine_submit. A count without its array is VT_ERR_USAGE. */
typedef struct vt_request_params {
    size_t struct_size;       /* set by vt_request_init */
    const int32_t *prompt;    /* [n_prompt] token ids, n_prompt >= 1 */
    int32_t n_prompt;         /* 0: must be set */
    int32_t max_tokens;       /* 128; >= 1, or 0 with prompt_logprobs: only score the prompt */
    int32_t n;                /* 1; completions that share the prompt, at most 128 */
    float temperature;        /* 0: always the likeliest token; at most 100 */
    int32_t top_k;            /* 0: off */
    float top_p, min_p;       /* 1, 0: off; both in 0 .. 1 */
    float repetition_penalty; /* 1: off; 0.01 .. 100 */
    float presence_penalty, frequency_penalty; /* 0: off; -100 .. 100 */
    uint64_t seed;                             /* 0; used if has_seed */
    bool has_seed;           /* false: seeded from the request id and the engine's seed */
    bool ignore_eos;         /* false; true: the model's end tokens do not end it */
    const char *const *stop; /* [n_stop] strings of 1 to 1024 bytes, at most 64 of them. The
                                completion ends before the first one that occurs: its bytes and what
                                follows are not published */
    int32_t n_stop;
    const int32_t *stop_ids; /* [n_stop_ids] further end tokens, at most 64 */
    int32_t n_stop_ids;
    const vt_logit_bias *logit_bias; /* [n_logit_bias], at most 1024 */
    int32_t n_logit_bias;
    const int32_t *allowed; /* [n_allowed] only these ids may be chosen; NULL: all. An end token
                               that is not among them cannot be chosen either: such a completion
                               ends by its length or a stop string */
    int32_t n_allowed;
    int32_t logprobs;       /* -1: none; 0: of the chosen token; k <= 20: and of the k likeliest */
    bool prompt_logprobs;   /* false; true: score the prompt, one event for each chunk of it before
                               the first token, with top_logprobs as `logprobs` says */
    int32_t priority;       /* 0; higher first under policy=priority */
    const char *cache_salt; /* NULL; at most 144 bytes. Requests with different salts share no
                               prefix and cannot tell by time what others asked */
    double timeout_s;       /* 0: none; then the request ends with VT_FINISH_ERROR */
    vt_callback callback;   /* NULL: none */
    void *user;             /* handed to the callback */
    int32_t min_tokens;     /* 0; <= max_tokens. Before that many tokens no end token can be chosen
                               and no stop string is looked for */
    /* For its story, on CLOCK_MONOTONIC: when its first byte came, when it was read, when its chat
     * template was rendered, and when it was tokenised. 0: not known. */
    int64_t arrived_ns, parsed_ns, rendered_ns, tokenised_ns;
    const char *grammar;  /* NULL; a schema, an expression or a grammar, as grammar_kind says. It is
                             compiled by vt_engine_submit unless the engine has it already. The
                             grammar says where an answer may end: ignore_eos and min_tokens do not
                             hold, and answers close their brackets before max_tokens ends them */
    int32_t grammar_kind; /* 0, a vt_grammar_kind */
    int32_t thought;      /* 0, a vt_thought. The grammar holds behind the thought */
    int32_t max_thought;  /* 0: any number; tokens after which a thought is closed by force. Needs
                             `thought` */
    /* For an engine with option pooling, and only there: the prompt becomes a vector, which comes
     * with the last event (VT_FINISH_LENGTH). No token is chosen, so max_tokens and the sampling
     * fields mean nothing; n, prompt_logprobs, logprobs, grammar and stop must be as
     * vt_request_init leaves them. */
    bool embed;         /* false */
    bool unscaled;      /* false: the vector is scaled to length 1 */
    int32_t dimensions; /* 0: all; else only the vector's first so many numbers (of models that
                           were trained so that these suffice), which are then scaled */
    bool special_text;  /* false; true: the text of events has special tokens in it too, but for
                           those that end the answer */
    const char *thought_open, *thought_close; /* NULL: <think> and </think>; at most 63 bytes */
    /* For an engine whose option pooling is rank, and only there; with `embed`. The prompt is a
     * pair of texts, the vector one number: how well they fit. `unscaled`: the model's logit, else
     * the score that its files make of it: its sigmoid unless they say otherwise. */
    bool rank;           /* false */
    int32_t second;      /* 0; where in the prompt the second text begins, of a model that tells the
                       texts of a pair apart by types */
    const char *adapter; /* NULL: none; else the name of one that option lora gave. Requests of
                            different adapters share no prefix */
} vt_request_params;

/* For the wrapper below and for bindings: `size` is the caller's sizeof(vt_request_params). */
VT_API void vt_request_init_size(vt_request_params *p, size_t size);
static inline void vt_request_init(vt_request_params *p) { vt_request_init_size(p, sizeof *p); }

/* The model must outlive the engine. Packs or uploads the weights and reserves all memory that the
 * steps will use. VT_ERR_USAGE for options that do not fit each other or the model, VT_ERR_MEMORY,
 * VT_ERR_DEVICE and VT_ERR_UNSUPPORTED as the device says. */
VT_API vt_status vt_engine_new(const vt_model *m, const vt_options *o, vt_engine **out,
                               vt_err *err);
/* Stops the loop, ends what is still open with VT_FINISH_ABORT (callbacks come from this call), and
 * frees the engine. No other call of this engine may be under way. */
VT_API void vt_engine_free(vt_engine *e);

/* Any thread. `id` may be NULL. VT_ERR_USAGE names the field that is wrong or says why the request
 * can never run; VT_ERR_CONTEXT: the prompt is too long; VT_ERR_GRAMMAR; VT_ERR_MEMORY;
 * VT_ERR_BUSY: max-queued sequences wait already, and nothing was done. The callback may come
 * before this call returns. */
VT_API vt_status vt_engine_submit(vt_engine *e, const vt_request_params *p, vt_request_id *id,
                                  vt_err *err);
/* Any thread. Ends a request in any state, before the next step's results are published. Its last
 * event says VT_FINISH_ABORT. An unknown id, or one that has ended, is ignored. */
VT_API void vt_engine_abort(vt_engine *e, vt_request_id id);
/* Any thread. For its story: the request's text was given to whoever reads it, as n_bytes in pieces
 * from begin_ns to end_ns on CLOCK_MONOTONIC; writing these pieces took spent_ns. The engine cannot
 * see that, because its callbacks may only hand the text on. Told once, after the last piece. */
VT_API void vt_engine_wrote(vt_engine *e, vt_request_id id, int64_t begin_ns, int64_t end_ns,
                            int64_t spent_ns, int64_t n_bytes);

/* Stepping by hand, on one thread at a time:
 *
 *     for (;;) {
 *         bool idle;
 *         vt_engine_step(e, &idle, &err);          callbacks come from here
 *         if (idle)
 *             vt_engine_wait(e, 1000, NULL, &err); sleeps until another thread submits
 *     }
 *
 * One step: plans, launches, and waits for the step before it. *idle (idle may be NULL) is true
 * when nothing is left to do. VT_ERR_USAGE while the loop runs, on a second thread, or in a
 * callback. VT_ERR_DEVICE: the step failed; its requests are tried again or end with
 * VT_FINISH_ERROR, and the engine can be stepped on. If the GPU's context was lost with the step
 * and could be made again, the call returns VT_OK and the requests go on. */
VT_API vt_status vt_engine_step(vt_engine *e, bool *idle, vt_err *err);
/* Sleeps until there is something to do, at most timeout_ms (negative: for ever). *ready (ready may
 * be NULL) is true if there is. Returns at once while requests are open. VT_ERR_USAGE as for
 * vt_engine_step. */
VT_API vt_status vt_engine_wait(vt_engine *e, int32_t timeout_ms, bool *ready, vt_err *err);
/* Or the loop on a thread of its own, until vt_engine_stop. VT_ERR_USAGE if it runs already. */
VT_API vt_status vt_engine_start(vt_engine *e, vt_err *err);
/* Returns when the step under way has ended; requests stay open, and start or step goes on with
 * them. In a callback it only asks the loop to end. Start and stop belong to one thread. */
VT_API void vt_engine_stop(vt_engine *e);

/* ---- inbox: events kept for a thread that asks for them ----
 *
 * For bindings and for callers who would rather ask than be called: no code of theirs runs on the
 * engine's thread. The loop runs (vt_engine_start), and then
 *
 *     vt_inbox_new(false, &inbox, &err);
 *     vt_inbox_submit(inbox, engine, &request, &id, &err);    as many requests as you like
 *     while (vt_inbox_take(inbox, -1, &event, &err) == VT_OK && event)
 *         ...                                                 event->request, event->text, ... */

typedef struct vt_inbox vt_inbox;

/* `whole`: a completion is handed out once, when it has ended. Otherwise whatever has come since it
 * was last taken. */
VT_API vt_status vt_inbox_new(bool whole, vt_inbox **out, vt_err *err);
/* Requests of it that are open go on, and nobody hears of them; vt_engine_abort ends them. */
VT_API void vt_inbox_free(vt_inbox *in);
/* vt_engine_submit, whose callback and user must be NULL. Any thread. */
VT_API vt_status vt_inbox_submit(vt_inbox *in, vt_engine *e, const vt_request_params *p,
                                 vt_request_id *id, vt_err *err);
/* *event: the tokens, text and log-probabilities of one completion that have come since they were
 * last taken, joined, with the newest numbers; the scores of a prompt come first, in an event of
 * their own. It is valid until the next call with this inbox. NULL after timeout_ms (negative: no
 * limit) without news, and at once when every completion's end has been taken. One thread at a
 * time. */
VT_API vt_status vt_inbox_take(vt_inbox *in, int32_t timeout_ms, const vt_event **event,
                               vt_err *err);
/* A descriptor for poll and event loops: readable while vt_inbox_take would return an event. It
 * belongs to the inbox, and only vt_inbox_take reads it. VT_ERR_IO: the process has no more. */
VT_API vt_status vt_inbox_fd(vt_inbox *in, int *fd, vt_err *err);

/* Numbers about an engine, as of its last step. Counters only grow. */
typedef struct vt_stats {
    int32_t page_size; /* tokens in a KV page */
    /* KV pages: used by running sequences, kept by the prefix cache, free; they add up to `pages`,
     * which on CUDA grows while memory lasts */
    int32_t pages, pages_used, pages_cached, pages_free;
    int32_t running, queued; /* sequences now: in the batch, waiting */
    uint64_t requests;       /* accepted */
    uint64_t finished_stop, finished_length, finished_abort, finished_error; /* sequences */
    uint64_t steps;                                                          /* forward passes */
    uint64_t prefill_tokens;  /* computed in chunks of prompts */
    uint64_t decode_tokens;   /* computed one at a time */
    uint64_t output_tokens;   /* published */
    uint64_t retractions;     /* sequences put back into the queue because KV pages ran out */
    uint64_t device_failures; /* steps that failed */
    /* prompt tokens: looked up in the prefix cache, found in whole pages, found in part of a
     * page */
    uint64_t cache_lookup_tokens, cache_hit_tokens, cache_copied_tokens;
    uint64_t cache_evicted_pages;
    int64_t schedule_ns, device_ns, publish_ns; /* time spent planning, computing, calling back */
    uint64_t device_recoveries; /* times that the GPU's context was lost and made again */
    uint64_t draft_tokens, draft_accepted; /* guesses that steps verified (option draft), and those
                                              that were right */
} vt_stats;

/* For the wrapper below and for bindings: `size` is the caller's sizeof(vt_stats). */
VT_API vt_status vt_engine_get_stats_size(vt_engine *e, vt_stats *out, size_t size, vt_err *err);
/* Any thread. */
static inline vt_status vt_engine_get_stats(vt_engine *e, vt_stats *out, vt_err *err)
{
    return vt_engine_get_stats_size(e, out, sizeof *out, err);
}

/* The story of a request as story.json text of *len bytes; id 0: the whole recording. Free it with
 * vt_free. Every engine records. VT_ERR_USAGE for a request that the recording does not hold (any
 * more). Any thread; a running loop is held between two steps meanwhile, which can take a
 * second when the machine's roofs are measured for the first time. */
VT_API vt_status vt_engine_story(vt_engine *e, vt_request_id id, char **json, size_t *len,
                                 vt_err *err);

#ifdef __cplusplus
}
#endif
#endif
