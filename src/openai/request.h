/* A request body of /v1/chat/completions, /v1/completions or /v1/embeddings, as an engine request;
 * and those of the native endpoints /generate (SGLang's names), /tokenize and /detokenize (vLLM's).
 *
 *   JSON object ── vt_openai_request_read ──> vt_request_params (sampling, stops, prompt ids)
 *                                         └─> vt_openai_error: which field, and why
 *
 * Names beyond OpenAI's are those of vLLM: top_k, min_p, repetition_penalty, ignore_eos, priority,
 * allowed_token_ids, stop_token_ids, cache_salt, chat_template_kwargs, prompt_logprobs, echo,
 * add_generation_prompt, add_special_tokens. docs/server.md has the whole list; a test compares it
 * with the table.
 *
 * A field that is not in the table of request.c is refused by name, because a sampling field that
 * is silently ignored gives other answers than the client wants. A field that is null counts as not
 * given. */
#ifndef VT_OPENAI_REQUEST_H
#define VT_OPENAI_REQUEST_H

#include <jansson.h>

#include "base/mem.h"
#include "openai/error.h"
#include "text/answer/answer.h"

/* The names under which answers give a chat's reasoning: bits. */
enum { VT_REASONING_CONTENT = 1, VT_REASONING_BARE = 2 };

/* These hold where a request does not say. */
typedef struct vt_openai_defaults {
    float temperature, top_p, min_p;
    int32_t top_k;
    int32_t max_tokens; /* 0: OpenAI's: the whole context for chat, 16 for completions */
    bool ignore_eos;
    int32_t max_prompt; /* tokens of a prompt: a text that is sure to make more is refused before it
                           is tokenised; 0: no limit. /tokenize has one of its own */
    int32_t max_answers; /* prompts times n: more could never run; 0: VT_OPENAI_MAX_CHOICES */
    bool has_seed;       /* false: the engine chooses a seed for each request */
    uint64_t seed;
    bool literal_content;                    /* special tokens inside messages stay text */
    vt_call_form call_form;                  /* of tool calls; VT_CALLS_NONE: the template's */
    unsigned reasoning_names;                /* VT_REASONING_...; 0: reasoning_content */
    bool may_stream;                         /* false: "stream": true is refused */
    const struct vt_template_limits *limits; /* of rendering a chat template; NULL: the usual */
    const char *model_alias; /* a further name that "model" may have, such as what option model
                                says; NULL: none */
    const char *list_name;   /* another one, such as what `vitrine list` calls it; NULL: none */
    const char *model_name;  /* what answers call the model, and a name that "model" may have;
                                NULL: its own name */
} vt_openai_defaults;

/* OpenAI's values: temperature 1, top_p 1, nothing else. literal_content is true. */
void vt_openai_defaults_init(vt_openai_defaults *d);

typedef struct vt_openai_prompt {
    const int32_t *ids; /* [n] */
    int32_t n;
    bool bos;         /* ids[0] was put in front of a text */
    const char *text; /* [text_len] with `echo`: what the answer repeats; of a pair of texts, the
                         second; else NULL */
    size_t text_len;
    int32_t second; /* vt_request_params.second */
} vt_openai_prompt;

typedef enum vt_openai_form {
    VT_OPENAI_CHAT,
    VT_OPENAI_COMPLETIONS,
    VT_OPENAI_GENERATE,
    VT_OPENAI_TOKENIZE,
    VT_OPENAI_DETOKENIZE,
    VT_OPENAI_EMBEDDINGS,
    VT_OPENAI_RERANK,
    VT_OPENAI_SCORE,
    VT_OPENAI_FORMS
} vt_openai_form;

/* Plain completions may bring several prompts. Each is an engine request of its own with the same
 * parameters; vt_openai_request_select sets which one `p` is. */
typedef struct vt_openai_request {
    bool chat;                 /* VT_OPENAI_CHAT, or a /tokenize of messages */
    bool stream;               /* the reply is wanted piece by piece */
    bool include_usage;        /* and the usage in a last piece */
    bool continuous_usage;     /* and the usage so far in every piece */
    bool echo;                 /* the answer begins with the prompt */
    json_t *tools;             /* that the model was offered; NULL: none. Owned */
    json_t *call_ids;          /* {id: true} of the calls in the conversation. Owned */
    vt_call_form call_form;    /* of the model's answers; VT_CALLS_NONE: none that is known */
    bool calls;                /* calls are read in that form; false: they stay text */
    bool single_call;          /* an answer has one call at most: what follows is left out */
    bool named;                /* one function had to be called */
    vt_thought_form thoughts;  /* that are taken out of the answer */
    unsigned reasoning_names;  /* VT_REASONING_... */
    bool began_inside;         /* the prompt ends inside of a thought */
    bool pieces;               /* the answer is wanted as parts even if it is text alone */
    int32_t n_top;             /* log-probabilities of the answer's tokens: with so many
                                 alternatives each; -1: none */
    int32_t n_prompt_top;      /* the same of the prompt's tokens, in their own member */
    bool list;                 /* several prompts were given as a list, perhaps a list of one */
    int32_t logprob_start;     /* /generate: the first position of the prompt that is scored */
    bool logprob_text;         /* /generate: tokens have their text beside their id */
    bool token_strings;        /* /tokenize: likewise */
    int32_t top_n;             /* /v1/rerank: documents that are told; 0: all */
    bool return_documents;     /* /v1/rerank: with their texts */
    bool base64;               /* /v1/embeddings: vectors as base64 of little-endian floats */
    const char *id;            /* that the client gave the request; NULL: none */
    const char *grammar_field; /* that set p.grammar; NULL: none did */
    const char *model_name;    /* for the answer; borrowed from the defaults or the model */
    vt_request_params p;       /* of the first prompt; ready to submit but for callback and user */
    int32_t n_prompts;         /* at least 1 */
    vt_openai_prompt *prompt;  /* [n_prompts] */
    vt_arena arena;            /* everything above */
} vt_openai_request;

enum {
    VT_OPENAI_MAX_CHOICES = 4096,      /* prompts times n */
    VT_OPENAI_MAX_CONVERTED = 1 << 20, /* tokens that /tokenize and /detokenize answer */
    VT_OPENAI_MAX_ID = 128             /* characters of a client's id for its request */
};

/* Reads `body`, which is only borrowed. `out` needs a release in any case. */
vt_status vt_openai_request_read(const json_t *body, bool chat, const vt_model *m,
                                 const vt_openai_defaults *d, vt_openai_request *out,
                                 vt_openai_error *e);
/* The same for any form. Of VT_OPENAI_TOKENIZE and _DETOKENIZE only the prompts matter. */
vt_status vt_openai_request_read_as(const json_t *body, vt_openai_form form, const vt_model *m,
                                    const vt_openai_defaults *d, vt_openai_request *out,
                                    vt_openai_error *e);
void vt_openai_request_select(vt_openai_request *r, int32_t prompt);
void vt_openai_request_release(vt_openai_request *r);

/* Returns true if the model goes by that name: answers' name for it, its own, what option model
 * said, with or without the folders in front of it and ".gguf" behind. "" is whatever is served. */
bool vt_openai_is_model(const vt_model *m, const vt_openai_defaults *d, const char *name);

/* The field that a sentence of the engine such as "min_tokens is 5, expected ..." is about, as that
 * form of request calls it; NULL: none. */
const char *vt_openai_field_of(const char *sentence, vt_openai_form form);

/* Turns the engine's error about a request's grammar into one that names the field. Returns
 * VT_ERR_USAGE. */
vt_status vt_openai_refuse_grammar(vt_openai_error *e, const vt_err *why,
                                   const vt_openai_request *r, const vt_model *m);

/* Turns the engine's error about submitting a request into one that names the field. Returns
 * VT_ERR_USAGE. */
vt_status vt_openai_refuse_submit(vt_openai_error *e, const vt_err *why, vt_openai_form form,
                                  const vt_openai_request *r, const vt_model *m);

/* For the documentation's test: field number i of a form, with what is done with it ("honoured",
 * "accepted without effect", or the values that are accepted, as a JSON list); false behind the
 * last one. */
bool vt_openai_field_at(vt_openai_form form, size_t i, const char **name, const char **what);

/* ---- messages.c ---- */

/* Checks "tools", a list of functions: names, descriptions and parameters. */
vt_status vt_openai_check_tools(const json_t *tools, vt_openai_error *e);
/* Refuses what is no effort of a thought. `said`: what the sentence calls it. */
vt_status vt_openai_check_effort(const json_t *v, const char *param, const char *said,
                                 vt_openai_error *e);

/* The variables of a chat template from "messages" and "chat_template_kwargs" (NULL: not given).
 * A content that is a list of text parts becomes one string, the parts joined by newlines, since
 * most templates expect a string. The role "developer" becomes "system" where the source of the
 * chat template (NULL: none) does not know it. A new object, or NULL with `e` filled. */
json_t *vt_openai_template_variables(const json_t *messages, json_t *kwargs, const char *template,
                                     vt_openai_error *e);

#endif
