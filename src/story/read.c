/* Reading a story.json (story/read.h). */
#include "story/read.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "files/json.h"
#include "story/story.h"

vt_status story_load(const char *name, const char *json, size_t len, json_t **out, vt_err *err)
{
    json_t *story;
    TRY(vt_json_load(name, json, len, JSON_REJECT_DUPLICATES, VT_JSON_MAX_TREE, &story, err));
    const char *schema = json_string_value(story_get(story, "schema"));
    const json_t *v = story_get(story, "version");
    json_int_t version = json_is_integer(v) ? json_integer_value(v) : -1;
    vt_status status = VT_OK;
    if (!schema || strcmp(schema, "vitrine.story") != 0 || version < 0 || version > STORY_VERSION)
        status = vt_fail(err, VT_ERR_FORMAT,
                         "%s: not a story of schema vitrine.story, version 0 to %d", name,
                         STORY_VERSION);
    else if (!json_is_array(story_get(story, "phases")))
        status = vt_fail(err, VT_ERR_FORMAT, "%s: no list 'phases', which every story has", name);
    if (status != VT_OK)
        json_decref(story);
    else
        *out = story;
    return status;
}

double story_num(const json_t *o, const char *key)
{
    const json_t *v = story_get(o, key);
    if (json_is_object(v))
        v = story_get(v, "value");
    return json_is_number(v) ? json_number_value(v) : NAN;
}

const char *story_clean(const json_t *v, char out[STORY_TEXT])
{
    const char *s = json_string_value(v);
    size_t n = s ? strnlen(s, STORY_TEXT - 1) : 0;
    memcpy(out, s ? s : "", n);
    out[n] = '\0';
    vt_text_clean_line(out);
    return out;
}

const char *story_text(const json_t *o, const char *key, char out[STORY_TEXT])
{
    return story_clean(story_get(o, key), out);
}

const json_t *story_phase_named(const json_t *story, const char *name)
{
    size_t i;
    json_t *p;
    json_array_foreach(story_get(story, "phases"), i, p)
    {
        const char *s = json_string_value(story_get(p, "name"));
        if (s && strcmp(s, name) == 0)
            return p;
    }
    return NULL;
}

double story_cell(const json_t *list, const char *column, size_t i)
{
    const json_t *v = json_array_get(story_get(story_get(list, "columns"), column), i);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

size_t story_rows(const json_t *list, const char *const *columns)
{
    size_t least = 4096;
    for (; *columns; columns++) {
        size_t n = json_array_size(story_get(story_get(list, "columns"), *columns));
        least = n < least ? n : least;
    }
    return least;
}
