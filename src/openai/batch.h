/* Lines of OpenAI batch files.
 *
 *   IN   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
 *   OUT  {"id": "batch_req_a", "custom_id": "a",
 *         "response": {"status_code": 200, "request_id": "a", "body": {...}}, "error": null} */
#ifndef VT_OPENAI_BATCH_H
#define VT_OPENAI_BATCH_H

#include "openai/json_load.h"
#include "openai/reply.h"

typedef struct vt_openai_line {
    char *custom_id;
    vt_openai_form form;   /* by the url */
    json_t *body;          /* NULL: the line is wrong, `error` says why */
    vt_openai_error error; /* http 0: none */
} vt_openai_line;

/* Reads a line. Fails only where there is no custom_id to answer to; every other mistake goes to
 * out->error. `out` needs a release in any case. */
vt_status vt_openai_line_read(const char *text, size_t len, vt_openai_line *out, vt_err *err);
void vt_openai_line_release(vt_openai_line *l);

/* Appends a result and its newline. `error` has the failure where its http is not 0, else `reply`
 * (may be NULL otherwise) the answer. */
vt_status vt_openai_result_write(const char *custom_id, const vt_openai_reply *reply,
                                 const vt_openai_request *request, const vt_openai_error *error,
                                 vt_buf *out, vt_err *err);

typedef struct vt_openai_result {
    vt_buf custom_id; /* NUL-terminated */
    int32_t http;     /* response.status_code; 500 where there is an error and no response */
} vt_openai_result;

/* Finds custom_id and status code of a result line. It takes memory for the id alone, however long
 * the line is: answers with log-probabilities can have hundreds of megabytes. False where the line
 * is no batch result: not one JSON object, no custom_id, or neither response nor error. */
bool vt_openai_result_read(const char *text, size_t len, vt_openai_result *out);
void vt_openai_result_release(vt_openai_result *r);

/* Returns true if text, an unfinished line, may be the beginning of a line of
 * vt_openai_result_write. */
bool vt_openai_result_begins(const char *text, size_t len);

#endif
