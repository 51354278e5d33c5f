/* Request bodies of Ollama's /api/chat and /api/generate, as bodies of /v1/chat/completions, and of
 * /api/embed, as bodies of /v1/embeddings. */
#ifndef VT_OPENAI_OLLAMA_H
#define VT_OPENAI_OLLAMA_H

#include <jansson.h>

#include "openai/error.h"

/* New objects; NULL with `e` filled. */
json_t *vt_ollama_chat(const json_t *body, vt_openai_error *e);
json_t *vt_ollama_generate(const json_t *body, vt_openai_error *e);
json_t *vt_ollama_embed(const json_t *body, vt_openai_error *e);
/* Tells an error of the chat in the names of the body that it was made of. */
void vt_ollama_own_names(vt_openai_error *e);
/* Returns true if a body has no prompt and no messages: it only asks for the model to be there. */
bool vt_ollama_only_loads(const json_t *body);

#endif
