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
    const json_t *allowed;  /* "allowed_tools": the list of tools that may be called; NULL: all */
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

typedef struct field field;
typedef vt_status field_reader(reader *r, const field *f, json_t *v);

struct field {
    const char *name;
    unsigned where; /* CHAT, TEXT ... */
    /* FLOAT and INT: a number from lo to hi, into the engine's parameters at `at`. BOOL: likewise.
     * FLAG: true or false, into vt_openai_request at `at`. READ: a function. NEUTRAL: accepted
     * only with the value `only` (JSON), which asks for what is done anyway. BOOKKEEPING: a note
     * for the sender's own books that changes no answer. */
    enum { FLOAT, INT, BOOL, FLAG, READ, NEUTRAL, BOOKKEEPING } kind;
    size_t at;
    double lo, hi;
    field_reader *read;
    const char *only;
};

/* Refuses a field's value by what it is and what was expected (openai/error.h). */
vt_status field_refuse(reader *r, const char *name, const json_t *v, const char *want);
vt_status field_refuse_bool(reader *r, const char *name, const json_t *v);
vt_status field_no_memory(reader *r);
vt_status field_int(reader *r, const char *name, const json_t *v, int64_t lo, int64_t hi,
                    int32_t *out);
vt_status field_float(reader *r, const field *f, const json_t *v, float *out);
/* A list of 1 to `most` token ids, copied into the request's arena. */
vt_status field_ids(reader *r, const char *name, const json_t *list, size_t most,
                    const int32_t **ids, int32_t *n_ids);

/* Functions for the table. */
field_reader field_read_model, field_read_max_tokens, field_read_logprobs, field_read_top_logprobs,
    field_read_prompt_logprobs, field_read_top_k, field_read_seed, field_read_stop,
    field_read_stop_ids, field_read_allowed, field_read_bias, field_read_salt, field_read_stream,
    field_read_stream_options, field_read_prompt, field_read_input_ids, field_read_sampling,
    field_read_kwargs, field_read_tools, field_read_tool_choice, field_read_parallel,
    field_read_separate, field_read_effort, field_read_budget, field_read_open_turn,
    field_read_add_bos, field_read_truncate, field_read_rid, field_read_return_logprob,
    field_read_response_format, field_read_structured, field_read_grammar, field_read_encoding,
    field_read_prompt_name, field_read_query, field_read_documents, field_read_top_n,
    field_read_max_document, field_read_max_pair, field_read_instruction, field_read_activation,
    field_read_neutral;
/* Sets the grammar of calls: of those that "tool_choice" demands, or of those that the model may
 * write. */
vt_status field_hold_calls(reader *r, bool optional);
/* Makes the prompts of pairs, when all fields are read (rank.c). */
vt_status vt_openai_encode_pairs(reader *r, vt_openai_form form);

#endif
