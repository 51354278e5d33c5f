/* Reading a story.json of unknown origin: every read tolerates members that are missing or of
 * another type, counts are bounded, and text that goes to a terminal has no control characters. */
#ifndef VT_STORY_READ_H
#define VT_STORY_READ_H

#include <jansson.h>

#include "base/term/term.h"
#include "vitrine.h"

enum { STORY_TEXT = 300, STORY_ROWS = 64 };

/* A story of version 0 or 1, which has a list `phases`; json_decref it. `name` is used in
 * messages. */
vt_status story_load(const char *name, const char *json, size_t len, json_t **out, vt_err *err);

static inline const json_t *story_get(const json_t *o, const char *key)
{
    return json_object_get(o, key);
}
/* The value of a number, plain or tagged; NAN if the member is neither. */
double story_num(const json_t *o, const char *key);
/* Text for a terminal, in a buffer of the caller's: "" where there is none. */
const char *story_text(const json_t *o, const char *key, char out[STORY_TEXT]);
/* The same of a value, which may be NULL. */
const char *story_clean(const json_t *v, char out[STORY_TEXT]);
/* The phase of this name; NULL: the story has none. */
const json_t *story_phase_named(const json_t *story, const char *name);
/* Returns true if the phase has steps whose calls were timed, its own or borrowed ones: an op
 * table. */
static inline bool story_has_ops(const json_t *phase)
{
    return story_num(phase, "timed_steps") >= 1 || story_num(phase, "borrowed_steps") >= 1;
}
/* A list by column ("steps", "calls"): element i of a column; NAN where it is no number. */
double story_cell(const json_t *list, const char *column, size_t i);
/* Returns how many rows all of these columns have at least; at most 4,096. Columns end with
 * NULL. */
size_t story_rows(const json_t *list, const char *const *columns);
/* The ending of a counted noun. */
static inline const char *story_s(double n) { return n == 1 ? "" : "s"; }

#endif
