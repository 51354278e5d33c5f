/* One line of an OpenAI batch: a request as JSON to engine parameters, and its result as JSON.
 *
 *   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
 *   {"id": "batch_req_a", "custom_id": "a", "response": {"status_code": 200, "body": {...}},
 *    "error": null}
 *
 * Fields beyond OpenAI's are called as in vLLM: top_k, min_p, repetition_penalty, ignore_eos,
 * priority, allowed_token_ids.
 *
 * A line that is wrong gets a result too (status 400, and why); it never stops the others. */
#ifndef VT_CLI_BATCH_LINE_H
#define VT_CLI_BATCH_LINE_H

#include "cli/cli.h"

typedef struct batch_choice {
    vt_buf text;
    vt_buf logprobs; /* rows of {id, logprob, n_top tops}, as vt_token_logprob */
    int32_t n_tokens;
    vt_finish finish;
} batch_choice;

typedef struct batch_line {
    char *custom_id;
    json_t *body; /* NULL: the line is wrong, see `error` */
    bool chat;
    vt_request_params p; /* filled by batch_line_params */
    int32_t *prompt;     /* vt_free */
    const char **stop;
    vt_logit_bias *bias;
    int32_t *allowed;
    batch_choice *choice; /* [p.n] */
    int32_t n_open;       /* choices that have not ended */
    int32_t prompt_tokens, completion_tokens, cached_tokens;
    vt_err error; /* status VT_OK: none */
    struct batch *batch;
    vt_request_id id;
} batch_line;

/* Reads one line of JSON. Fails only where there is no custom_id to answer to. */
vt_status batch_line_read(const char *text, size_t len, batch_line *out, vt_err *err);
/* The body's fields to parameters: tokenises, so the model is needed. A wrong field goes to
 * l->error. */
void batch_line_params(const cli *c, const vt_model *m, batch_line *l);
/* Takes an event of its request. */
void batch_line_event(batch_line *l, const vt_event *e);
/* The result, one line with its newline, appended to out. */
vt_status batch_line_result(const batch_line *l, const vt_model *m, vt_buf *out, vt_err *err);
void batch_line_release(batch_line *l);

#endif
