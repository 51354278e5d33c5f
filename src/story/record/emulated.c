/* Stories of an emulated GPU (emulated.h). Bytes, FLOPs and counts stay as they are: they are
 * exact. Times keep their values, so that tests can add them up, and lose their tag. */
#include "story/record/emulated.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

bool story_is_emulated(const story_input *in)
{
    return story_on_gpu(in) && strcmp(in->roofs.name, "Emulated GPU") == 0;
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

/* Members whose value comes from a clock. */
static bool is_time(const char *key)
{
    static const char *const tail[] = {"_ms", "_us", "_ns", "_per_s", "_j", "_w"};
    static const char *const whole[] = {
        "share",        "of_roof",          "unexplained",       "tax",       "slower", "busy",
        "of_memory",    "of_int8",          "of_fp32",           "of_bf16",   "steps",  "calls",
        "measured_tax", "measured_tax_low", "measured_tax_high", "of_stamped"};
    for (size_t i = 0; i < sizeof tail / sizeof tail[0]; i++)
        if (ends_with(key, tail[i]))
            return true;
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        if (strcmp(key, whole[i]) == 0)
            return true;
    return false;
}

/* `depth` ends at the depth of trees that story_build makes. */
static void walk(json_t *at, int depth)
{
    const char *key;
    json_t *v;
    size_t i;
    if (depth == 0)
        return;
    json_object_foreach(at, key, v)
    {
        if (is_time(key) && json_is_object(v) && json_object_get(v, "tag"))
            json_object_set_new(v, "tag", json_string("n/a"));
        walk(v, depth - 1);
    }
    json_array_foreach(at, i, v) walk(v, depth - 1);
}

vt_status story_void_times(char **json, size_t *len, vt_err *err)
{
    enum { DEPTH = 12 };
    static const char headline[] = "An emulated GPU ran this: its times mean nothing. What is told "
                                   "of bytes, FLOPs, calls and kernels is exact.";
    json_t *story = json_loadb(*json, *len, 0, NULL);
    walk(story, DEPTH);
    json_t *gpu = json_object_get(json_object_get(story, "engine"), "gpu");
    json_object_set_new(gpu, "emulated", json_true());
    json_object_set_new(story, "headline", json_string(headline));
    json_object_set_new(story, "findings", json_array());
    char *text = json_dumps(story, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
    json_decref(story);
    if (!text)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    free(*json);
    *json = text;
    *len = strlen(text);
    return VT_OK;
}
