/* Numbers of a story.json: {"value", "tag"} (docs/story-format.md). */
#ifndef VT_STORY_NUMBERS_H
#define VT_STORY_NUMBERS_H

#include <jansson.h>
#include <math.h>

static const char measured[] = "measured", derived[] = "derived";

/* {"value": v rounded, "tag": tag}; not finite: null and n/a. */
static inline json_t *tagged(double v, int digits, const char *tag)
{
    double scale = pow(10, digits);
    if (!isfinite(v))
        return json_pack("{s:n, s:s}", "value", "tag", "n/a");
    return json_pack("{s:f, s:s}", "value", round(v * scale) / scale, "tag", tag);
}

static inline json_t *ms(double seconds, const char *tag) { return tagged(seconds * 1e3, 4, tag); }
static inline json_t *us(double seconds, const char *tag) { return tagged(seconds * 1e6, 2, tag); }

#endif
