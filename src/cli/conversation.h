/* A conversation: what was said, and its file form.
 *
 *   {"messages": [{"role": "system", "content": "Be brief."},
 *                 {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}
 *
 * `vitrine template --messages FILE` takes the same form. */
#ifndef VT_CLI_CONVERSATION_H
#define VT_CLI_CONVERSATION_H

#include "cli/cli.h"

typedef struct conversation {
    json_t *messages; /* the system message first, where there is one */
} conversation;

/* Empty, with `system` as its system message; NULL: none. */
vt_status conversation_begin(conversation *v, const char *system, vt_err *err);
void conversation_release(conversation *v);

/* The system message from now on; NULL takes it away. What was said stays. */
vt_status conversation_set_system(conversation *v, const char *text, vt_err *err);
/* The system message, or NULL; borrowed. */
const char *conversation_system(const conversation *v);
/* Messages besides the system message. */
size_t conversation_length(const conversation *v);
/* Drops the last messages until `length` are left. */
void conversation_cut(conversation *v, size_t length);
/* "user" or "assistant" of the last message; NULL where nothing was said. */
const char *conversation_last_role(const conversation *v);

vt_status conversation_save(const conversation *v, const char *path, vt_err *err);
/* Replaces the conversation by the file's; on failure it is as it was. */
vt_status conversation_load(conversation *v, const char *path, vt_err *err);

#endif
