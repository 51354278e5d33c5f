/* vitrine: the public C API.
 *
 *     vt_options -> vt_model -> vt_engine -> requests -> events, stories
 *
 * Ownership: a call that fills an out-parameter gives it to the caller, who frees it with the
 * matching
 * `_free`. Arguments are borrowed for the length of the call unless it says otherwise. On failure
 * the out-parameters are untouched and `err` (may be NULL) holds one sentence that says what and
 * why. Threads: a model is read-only once open and may be shared. An engine belongs to one thread,
 * except vt_engine_submit and vt_engine_abort, which any thread may call. There are no globals.
 */
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

/* ---- errors ---- */

typedef enum vt_status {
    VT_OK = 0,
    VT_ERR_USAGE,       /* an option, argument or request field is wrong */
    VT_ERR_IO,          /* a file or socket could not be read or written */
    VT_ERR_FORMAT,      /* a file's bytes break its format */
    VT_ERR_MODEL,       /* the file is well-formed but describes a model we do not run */
    VT_ERR_MEMORY,      /* out of memory, or beyond a stated limit */
    VT_ERR_NO_PAGES,    /* the KV pool has no free page; internal to the engine */
    VT_ERR_DEVICE,      /* the device or its driver failed */
    VT_ERR_UNSUPPORTED, /* known, and not there (yet) */
    VT_ERR_BUSY,        /* the queue is full: try again later */
    VT_ERR_CANCELLED
} vt_status;

typedef struct vt_err {
    vt_status status;
    char message[512]; /* one sentence, no newline */
} vt_err;

/* ---- options: the same keys as the command line's long options, without the dashes ---- */

typedef struct vt_options vt_options;

/* All keys at their defaults, then overridden by their VITRINE_... environment twins. */
VT_API vt_status vt_options_new(vt_options **out, vt_err *err);
VT_API vt_status vt_options_set(vt_options *o, const char *key, const char *value, vt_err *err);
/* The value as text, owned by `o`; NULL if there is no such key. */
VT_API const char *vt_options_get(const vt_options *o, const char *key);
VT_API void vt_options_free(vt_options *o);

/* ---- model: architecture, weights, tokenizer, chat template ---- */

typedef struct vt_model vt_model;

/* Opens option `model`: a path, a name from the cache, or dummy:NAME. Weights are mapped, not
 * copied. */
VT_API vt_status vt_model_open(const vt_options *o, vt_model **out, vt_err *err);
VT_API void vt_model_free(vt_model *m);
VT_API const char *vt_model_name(const vt_model *m);
VT_API int32_t vt_model_vocab_size(const vt_model *m);
VT_API int32_t vt_model_max_context(const vt_model *m);

enum { VT_TOKENIZE_SPECIAL = 1, VT_TOKENIZE_ADD_BOS = 2 };

/* Token ids of text[0..len). `*ids` is malloc'ed; free it with vt_free. */
VT_API vt_status vt_tokenize(const vt_model *m, const char *text, size_t len, unsigned flags,
                             int32_t **ids, size_t *n_ids, vt_err *err);
/* The bytes of ids, NUL-terminated for convenience (the length counts). Free with vt_free. */
VT_API vt_status vt_detokenize(const vt_model *m, const int32_t *ids, size_t n_ids, char **text,
                               size_t *len, vt_err *err);
/* The chat template applied to {"messages": [...], ...} (JSON text); free with vt_free. */
VT_API vt_status vt_render_chat(const vt_model *m, const char *json, size_t json_len,
                                bool add_generation_prompt, char **text, size_t *len, vt_err *err);

enum { VT_CHAT_OPEN_TURN = 1, VT_CHAT_LITERAL = 2 };

/* The same, tokenised with special tokens on. VT_CHAT_OPEN_TURN: add_generation_prompt is true.
 * VT_CHAT_LITERAL: spellings of special tokens inside the caller's strings stay text, so that a
 * message cannot end its own turn; every other id is the same as without it. Fails where strings
 * hold such spellings and the template changes them so that the two cannot be told apart. `*ids`
 * is malloc'ed; free it with vt_free. */
VT_API vt_status vt_encode_chat(const vt_model *m, const char *json, size_t json_len,
                                unsigned flags, int32_t **ids, size_t *n_ids, vt_err *err);
VT_API void vt_free(void *p);

/* ---- engine ---- */

typedef struct vt_engine vt_engine;
typedef uint64_t vt_request_id;

typedef enum vt_finish {
    VT_FINISH_NONE = 0,
    VT_FINISH_STOP,
    VT_FINISH_LENGTH,
    VT_FINISH_ABORT,
    VT_FINISH_ERROR
} vt_finish;

typedef struct vt_token_logprob {
    int32_t id;
    float logprob; /* natural logarithm, of the unscaled distribution (temperature 1) */
} vt_token_logprob;

/* What the engine tells about a request, one call per published token and one at the end.
 * Everything pointed to is valid only during the callback. */
typedef struct vt_event {
    vt_request_id request;
    int32_t sample;        /* 0 .. n-1: which of the n completions */
    const int32_t *tokens; /* new token ids, n_tokens of them (may be 0 at the end) */
    int32_t n_tokens;
    const char *text; /* new text, whole UTF-8 characters only, text_len bytes */
    size_t text_len;
    const vt_token_logprob *logprobs;     /* [n_tokens] of the chosen tokens, or NULL */
    const vt_token_logprob *top_logprobs; /* [n_tokens][n_top], or NULL; ids are -1 where
                                             fewer tokens could be chosen */
    int32_t n_top;
    vt_finish finish; /* VT_FINISH_NONE while it goes on */
    int32_t prompt_tokens, completion_tokens, cached_tokens;
    const char *error; /* with VT_FINISH_ERROR: one sentence */
} vt_event;

/* Called from the thread that runs the step. Must not call into the engine, except
 * vt_engine_abort. */
typedef void (*vt_callback)(void *user, const vt_event *event);

typedef struct vt_logit_bias {
    int32_t id;
    float bias; /* added to its logit; -infinity: never, infinity is refused */
} vt_logit_bias;

/* A request. vt_request_init fills the defaults; every pointer is copied by vt_engine_submit. */
typedef struct vt_request_params {
    const int32_t *prompt; /* [n_prompt] token ids, n_prompt >= 1 */
    int32_t n_prompt;
    int32_t max_tokens;       /* >= 1, or 0 with prompt_logprobs: only score the prompt */
    int32_t n;                /* completions that share the prompt; 1 */
    float temperature;        /* 0: greedy */
    int32_t top_k;            /* 0: off */
    float top_p, min_p;       /* 1, 0: off */
    float repetition_penalty; /* 1: off */
    float presence_penalty, frequency_penalty;
    uint64_t seed;
    bool has_seed; /* false: seeded from the request id and the engine's seed */
    bool ignore_eos;
    const char *const *stop; /* [n_stop] stop strings; the text before one is kept, it is not */
    int32_t n_stop;
    const int32_t *stop_ids; /* [n_stop_ids] further stop tokens */
    int32_t n_stop_ids;
    const vt_logit_bias *logit_bias;
    int32_t n_logit_bias;
    const int32_t *allowed; /* [n_allowed] only these ids may be chosen; NULL: all. An end token
                               that is not among them cannot be chosen either: such a completion
                               ends by its length or a stop string */
    int32_t n_allowed;
    int32_t logprobs;       /* -1: none; 0: of the chosen token; k: and of the k most likely */
    bool prompt_logprobs;   /* score the prompt: one event per chunk before the first token */
    int32_t priority;       /* higher first under policy=priority */
    const char *cache_salt; /* tenants with different salts share no prefix; NULL */
    double timeout_s;       /* 0: none */
    vt_callback callback;
    void *user;
} vt_request_params;

VT_API void vt_request_init(vt_request_params *p);

/* The model must outlive the engine. Packs weights and reserves all memory the steps will use. */
VT_API vt_status vt_engine_new(const vt_model *m, const vt_options *o, vt_engine **out,
                               vt_err *err);
VT_API void vt_engine_free(vt_engine *e);

VT_API vt_status vt_engine_submit(vt_engine *e, const vt_request_params *p, vt_request_id *id,
                                  vt_err *err);
/* Ends a request wherever it is; its last event says VT_FINISH_ABORT. Unknown ids are ignored. */
VT_API void vt_engine_abort(vt_engine *e, vt_request_id id);

/* One step on this thread. *idle is true when there was nothing to do. */
VT_API vt_status vt_engine_step(vt_engine *e, bool *idle, vt_err *err);
/* The loop on a thread of its own, until vt_engine_stop. */
VT_API vt_status vt_engine_start(vt_engine *e, vt_err *err);
VT_API void vt_engine_stop(vt_engine *e);

/* The story of a request as story.json text; id 0: the whole recording. Free with vt_free. */
VT_API vt_status vt_engine_story(vt_engine *e, vt_request_id id, char **json, size_t *len,
                                 vt_err *err);

#ifdef __cplusplus
}
#endif
#endif
