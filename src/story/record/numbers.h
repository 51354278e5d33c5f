/* Numbers of a story.json: {"value", "tag"} (docs/story-format.md). */
#ifndef VT_STORY_NUMBERS_H
#define VT_STORY_NUMBERS_H

#include "base/json_write.h"

static const char measured[] = "measured", derived[] = "derived", modelled[] = "modelled";

static inline void put_ms(vt_json *w, const char *key, double seconds, const char *tag)
{
    vt_json_tagged(w, key, seconds * 1e3, 4, tag);
}

static inline void put_us(vt_json *w, const char *key, double seconds, const char *tag)
{
    vt_json_tagged(w, key, seconds * 1e6, 2, tag);
}

/* An element of "not_measured". */
static inline void put_missing(vt_json *w, const char *what, const char *why)
{
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "what", what);
    vt_json_string(w, "why", why);
    vt_json_close(w);
}

#endif
