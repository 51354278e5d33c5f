/* Reading the members of a request body: what request.c's table of fields is made of. Only for the
 * files of src/openai. */
#ifndef VT_OPENAI_FIELDS_H
#define VT_OPENAI_FIELDS_H

#include "engine/request.h"
#include "openai/request.h"

/* The kinds of body that a field may stand in. */
enum {
    CHAT = 1,     /* /v1/chat/completions */
    TEXT = 2,     /* /v1/completions */
    GENERATE = 4, /* /generate */
    SAMPLING = 8, /* the object "sampling_params" of /generate */
    TOKENS = 16,  /* /tokenize */
    IDS = 32,     /* /detokenize */
    EMBED = 64,   /* /v1/embeddings */
    RANK = 128,   /* /v1/rerank */
    SCORE = 256,  /* /v1/score */
    BOTH = CHAT | TEXT
};

/* The request that is being read. Members are borrowed from the body. */
typedef struct reader {
    const vt_model *m;
    const vt_openai_defaults *d;
    vt_openai_request *r;
    vt_openai_error *e;
    unsigned where;
    int32_t max_tokens, max_completion_tokens; /* -1: not given */
    bool want_logprobs;                        /* chat's "logprobs": true */
    int32_t top_logprobs;
    const json_t *prompt, *messages, *input_ids; /* NULL: not given */
    const json_t *sampling;                      /* "sampling_params"; NULL: not given */
    json_t *kwargs;
    json_t *tools;          /* NULL: none */
    bool no_calls;          /* "tool_choice": "none" */
    bool must_call;         /* "tool_choice": "required", or a function */
    const json_t *function; /* the one that must be called; NULL: any */
    int32_t max_thought;    /* "thinking_token_budget"; 0: not given */
    bool single_call;       /* "parallel_tool_calls": false */
    bool unsplit;           /* "separate_reasoning": false */
    const char *effort;     /* "reasoning_effort"; NULL: not given */
    bool has_stream_options;
    bool open_turn;       /* add_generation_prompt */
    bool add_bos;         /* add_special_tokens */
    bool truncate;        /* texts to embed are cut to what the context holds */
    vt_prompt_limit most; /* tokens of a prompt */
    const char *before;   /* "prompt_name": the text in front of each input; NULL: not given */
    /* Pairs of texts to score; NULL: not given. `_name`: by which of its names. */
    const json_t *query, *documents, *instruction;
    const char *query_name, *documents_name;
    int32_t max_document; /* tokens of a pair's second text, which is cut; 0: any number */
    bool cut;             /* it is cut to what the context, or max_pair, holds */
    int32_t max_pair;     /* tokens; not above 0: what the context holds */
} reader;

typedef struct field {
    const char *name;
    unsigned where; /* CHAT, TEXT ... */
    /* FLOAT and INT: a number from lo to hi, into the engine's parameters at `at`. BOOL: likewise.
     * FLAG: true or false, into vt_openai_request at `at`. READ: a function. NEUTRAL: accepted
     * only with the value `only` (JSON), which asks for what is done anyway. BOOKKEEPING: a note
     * for the sender's own books that changes no answer. */
    enum { FLOAT, INT, BOOL, FLAG, READ, NEUTRAL, BOOKKEEPING } kind;
    size_t at;
    double lo, hi;
    vt_status (*read)(reader *r, const struct field *f, json_t *v);
    const char *only;
} field;

vt_status field_refuse_bool(reader *r, const char *name);
vt_status field_no_memory(reader *r);
vt_status field_int(reader *r, const char *name, const json_t *v, int64_t lo, int64_t hi,
                    int32_t *out);
vt_status field_float(reader *r, const field *f, const json_t *v, float *out);
/* A list of 1 to `most` token ids, copied into the request's arena. */
vt_status field_ids(reader *r, const char *name, const json_t *list, size_t most,
                    const int32_t **ids, int32_t *n_ids);

/* Functions for the table. */
vt_status field_read_model(reader *r, const field *f, json_t *v);
vt_status field_read_max_tokens(reader *r, const field *f, json_t *v);
vt_status field_read_logprobs(reader *r, const field *f, json_t *v);
vt_status field_read_top_logprobs(reader *r, const field *f, json_t *v);
vt_status field_read_prompt_logprobs(reader *r, const field *f, json_t *v);
vt_status field_read_top_k(reader *r, const field *f, json_t *v);
vt_status field_read_seed(reader *r, const field *f, json_t *v);
vt_status field_read_stop(reader *r, const field *f, json_t *v);
vt_status field_read_stop_ids(reader *r, const field *f, json_t *v);
vt_status field_read_allowed(reader *r, const field *f, json_t *v);
vt_status field_read_bias(reader *r, const field *f, json_t *v);
vt_status field_read_salt(reader *r, const field *f, json_t *v);
vt_status field_read_stream(reader *r, const field *f, json_t *v);
vt_status field_read_stream_options(reader *r, const field *f, json_t *v);
vt_status field_read_prompt(reader *r, const field *f, json_t *v);
vt_status field_read_input_ids(reader *r, const field *f, json_t *v);
vt_status field_read_sampling(reader *r, const field *f, json_t *v);
vt_status field_read_kwargs(reader *r, const field *f, json_t *v);
vt_status field_read_tools(reader *r, const field *f, json_t *v);
vt_status field_read_tool_choice(reader *r, const field *f, json_t *v);
vt_status field_read_parallel(reader *r, const field *f, json_t *v);
vt_status field_read_separate(reader *r, const field *f, json_t *v);
vt_status field_read_effort(reader *r, const field *f, json_t *v);
vt_status field_read_budget(reader *r, const field *f, json_t *v);
/* Sets the grammar of calls: of those that "tool_choice" demands, or of those that the model may
 * write. */
vt_status field_hold_calls(reader *r, bool optional);
vt_status field_read_open_turn(reader *r, const field *f, json_t *v);
vt_status field_read_add_bos(reader *r, const field *f, json_t *v);
vt_status field_read_truncate(reader *r, const field *f, json_t *v);
vt_status field_read_rid(reader *r, const field *f, json_t *v);
vt_status field_read_return_logprob(reader *r, const field *f, json_t *v);
vt_status field_read_response_format(reader *r, const field *f, json_t *v);
vt_status field_read_structured(reader *r, const field *f, json_t *v);
vt_status field_read_grammar(reader *r, const field *f, json_t *v);
vt_status field_read_encoding(reader *r, const field *f, json_t *v);
vt_status field_read_prompt_name(reader *r, const field *f, json_t *v);
vt_status field_read_query(reader *r, const field *f, json_t *v);
vt_status field_read_documents(reader *r, const field *f, json_t *v);
vt_status field_read_top_n(reader *r, const field *f, json_t *v);
vt_status field_read_max_document(reader *r, const field *f, json_t *v);
vt_status field_read_max_pair(reader *r, const field *f, json_t *v);
vt_status field_read_instruction(reader *r, const field *f, json_t *v);
vt_status field_read_activation(reader *r, const field *f, json_t *v);
/* Makes the prompts of pairs, when all fields are read (rank.c). */
vt_status vt_openai_encode_pairs(reader *r, vt_openai_form form);
vt_status field_read_neutral(reader *r, const field *f, json_t *v);

#endif
