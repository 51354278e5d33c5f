/* Request bodies of OpenAI's /v1/responses, as bodies of /v1/chat/completions. Nothing is kept
 * between requests: the whole conversation comes as input. */
#ifndef VT_OPENAI_RESPONSES_H
#define VT_OPENAI_RESPONSES_H

#include <jansson.h>

#include "openai/error.h"

/* A new object; NULL with `e` filled. */
json_t *vt_responses_chat(const json_t *body, vt_openai_error *e);
/* Tells an error of the chat in the names of the body that it was made of. */
void vt_responses_own_names(vt_openai_error *e);

/* In front of the text of a thought in "encrypted_content", which clients send back. */
#define VT_RESPONSES_THOUGHT "vitrine-1:"

#endif
