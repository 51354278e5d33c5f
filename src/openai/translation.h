/* Makes a chat's body of one of the APIs beside OpenAI's chat, member by member.
 *
 *   translation_begin   the body is an object of members that are known
 *   translation_read    each member that is there is read, in the order of the table
 *   translation_end     the chat, or NULL and the error
 *
 * What is wrong with the chat is told of the members that it was made of:
 * translation_own_names. */
#ifndef VT_OPENAI_TRANSLATION_H
#define VT_OPENAI_TRANSLATION_H

#include <jansson.h>
#include <string.h>

#include "base/buf.h"
#include "openai/error.h"

/* A body on its way to a chat's. */
typedef struct translation {
    const json_t *body;
    json_t *chat, *messages, *kwargs; /* kwargs: of the chat template */
    json_t *turn;                     /* Responses: the assistant's message that items join */
    vt_buf said;                      /* its content so far */
    vt_openai_error *e;
} translation;

/* A member of a body, in the order in which they are read. */
typedef struct translation_member {
    const char *name;
    unsigned where; /* the bodies that have it, a bit each */
    vt_status (*read)(translation *t, const json_t *v);
    const char *as;   /* the chat's name for it. NULL without `read`: it has no effect */
    const char *said; /* what a sentence calls it, such as "text.format"; NULL: its name */
} translation_member;

/* Refuses what is no object, and members that no row of the table has for the bodies `where`. */
vt_status translation_begin(translation *t, const json_t *body, const translation_member *member,
                            size_t n, unsigned where, vt_openai_error *e);
/* Reads those members of the bodies `where` that are there and not null. */
vt_status translation_read(translation *t, const translation_member *member, size_t n,
                           unsigned where);
/* Puts in what was gathered (the messages where `chat`) and releases the rest. */
json_t *translation_end(translation *t, vt_status status, bool chat);
/* An error of the chat, whose field is a row's `as`, becomes one of that row's member. */
void translation_own_names(const translation_member *member, size_t n, vt_openai_error *e);
/* The field of an error is `param` from now on, and where its sentence has the old one as a word of
 * its own, `said` stands there. */
void translation_rename(vt_openai_error *e, const char *param, const char *said);

/* For the documentation's test: the members that each API knows. */
const translation_member *vt_responses_members(size_t *n);
const translation_member *vt_anthropic_members(size_t *n);
const translation_member *vt_ollama_members(size_t *n);

static inline vt_status no_memory(translation *t)
{
    return vt_openai_refuse(t->e, 500, NULL, "out of memory for the request");
}

/* Puts a new value into an object. */
static inline vt_status put(translation *t, json_t *object, const char *key, json_t *value)
{
    return value && json_object_set_new(object, key, value) == 0 ? VT_OK : no_memory(t);
}

/* A buffer as a JSON string; NULL: out of memory. */
static inline json_t *string_of(const vt_buf *b)
{
    return b->failed ? NULL : json_stringn(b->data ? b->data : "", b->len);
}

static inline json_t *borrow(const json_t *v) { return json_incref((json_t *)(uintptr_t)v); }

static inline bool is(const json_t *v, const char *word)
{
    return json_is_string(v) && strcmp(json_string_value(v), word) == 0;
}

static inline const char *name_of(const json_t *v)
{
    return json_is_string(v) ? json_string_value(v) : "missing";
}

#endif
