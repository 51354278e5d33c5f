/* Request bodies of Anthropic's /v1/messages and /v1/messages/count_tokens, as bodies of
 * /v1/chat/completions: system, blocks of text, tool use, tool results and thinking become
 * messages.
 *
 * Text blocks that begin with "x-anthropic-billing-header" are left out of the system prompt: they
 * change from request to request, and the prefix cache would never hit. */
#ifndef VT_OPENAI_ANTHROPIC_H
#define VT_OPENAI_ANTHROPIC_H

#include <jansson.h>

#include "openai/error.h"

/* A new object; NULL with `e` filled. */
json_t *vt_anthropic_chat(const json_t *body, vt_openai_error *e);
/* The same of a body of /v1/messages/count_tokens, as a body of /tokenize. */
json_t *vt_anthropic_count(const json_t *body, vt_openai_error *e);
/* Tells an error of the chat in the names of the body that it was made of. */
void vt_anthropic_own_names(vt_openai_error *e);

/* {"type": "error", "error": {"type": T, "message": M}, "request_id": `id`}; left closed. */
void vt_anthropic_error_write(const vt_openai_error *e, const char *id, vt_json *w);

#endif
