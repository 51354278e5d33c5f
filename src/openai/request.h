/* A request body of /v1/chat/completions or /v1/completions, as an engine request.
 *
 *   JSON object ── vt_openai_request_read ──> vt_request_params (sampling, stops, prompt ids)
 *                                         └─> vt_openai_error: which field, and why
 *
 * Names beyond OpenAI's are those of vLLM: top_k, min_p, repetition_penalty, ignore_eos, priority,
 * allowed_token_ids, stop_token_ids, cache_salt, chat_template_kwargs.
 *
 * A field that is not in the table of request.c is refused by name, because a sampling field that
 * is silently ignored gives other answers than the client wants. A field that is null counts as not
 * given. */
#ifndef VT_OPENAI_REQUEST_H
#define VT_OPENAI_REQUEST_H

#include <jansson.h>

#include "base/mem.h"
#include "openai/error.h"

/* What holds where a request does not say. */
typedef struct vt_openai_defaults {
    float temperature, top_p, min_p;
    int32_t top_k;
    int32_t max_tokens; /* 0: OpenAI's: the whole context for chat, 16 for completions */
    bool ignore_eos;
    bool has_seed; /* false: the engine chooses a seed for each request */
    uint64_t seed;
    bool literal_content;                    /* special tokens inside messages stay text */
    bool may_stream;                         /* false: "stream": true is refused */
    const struct vt_template_limits *limits; /* of rendering a chat template; NULL: the usual */
    const char *model_alias; /* a further name that "model" may have, such as what option model
                                says; NULL: none */
} vt_openai_defaults;

/* OpenAI's values: temperature 1, top_p 1, nothing else. literal_content is true. */
void vt_openai_defaults_init(vt_openai_defaults *d);

typedef struct vt_openai_prompt {
    const int32_t *ids; /* [n] */
    int32_t n;
} vt_openai_prompt;

/* Plain completions may bring several prompts. Each is an engine request of its own with the same
 * parameters; vt_openai_request_select sets which one `p` is. */
typedef struct vt_openai_request {
    bool chat;                /* else plain completions */
    bool stream;              /* the reply is wanted piece by piece */
    bool include_usage;       /* and the usage in a last piece */
    vt_request_params p;      /* of the first prompt; ready to submit but for callback and user */
    int32_t n_prompts;        /* at least 1 */
    vt_openai_prompt *prompt; /* [n_prompts] */
    vt_arena arena;           /* everything above */
} vt_openai_request;

enum { VT_OPENAI_MAX_CHOICES = 4096 }; /* prompts times n */

/* Reads `body`, which is only borrowed. `out` needs a release in any case. */
vt_status vt_openai_request_read(const json_t *body, bool chat, const vt_model *m,
                                 const vt_openai_defaults *d, vt_openai_request *out,
                                 vt_openai_error *e);
void vt_openai_request_select(vt_openai_request *r, int32_t prompt);
void vt_openai_request_release(vt_openai_request *r);

/* ---- messages.c ---- */

/* The variables of a chat template from "messages" and "chat_template_kwargs" (NULL: not given).
 * A content that is a list of text parts becomes one string, the parts joined by newlines, since
 * most templates expect a string. A new object, or NULL with `e` filled. */
json_t *vt_openai_template_variables(const json_t *messages, json_t *kwargs, vt_openai_error *e);

#endif
