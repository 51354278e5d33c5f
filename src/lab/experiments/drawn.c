/* Drawings of an experiment: where the time of the server's steps went, as a flame graph, and what
 * it held and used meanwhile, over the same time. Both come from the story of all steps that the
 * server's recorder still has. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/experiments/experiments.h"
#include "story/forms.h"
#include "story/read.h"

enum { WIDTH = 92, CELLS = 56, MOST = 512 };

/* The numbers of a list, at most MOST; returns how many. Others than numbers are NAN. */
static int32_t read_values(const json_t *list, double *v)
{
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n && i < MOST; i++) {
        const json_t *o = json_array_get(list, i);
        v[i] = json_is_number(o) ? json_number_value(o) : NAN;
    }
    return (int32_t)(n < MOST ? n : MOST);
}

/* "held      ▁▂▃▃▃▃  0 to 34 pages"; nothing where there are fewer than two values. */
static void put_series(vt_buf *b, const char *name, const json_t *list, double scale,
                       const char *unit)
{
    double v[MOST], least = INFINITY, most = -INFINITY;
    int32_t n = read_values(list, v);
    for (int32_t i = 0; i < n; i++) {
        least = fmin(least, v[i]);
        most = fmax(most, v[i]);
    }
    if (n < 2 || !(most >= least))
        return;
    vt_buf_printf(b, "%-14.14s ", name);
    vt_text_spark(b, v, n, CELLS);
    vt_buf_printf(b, "  %.4g to %.4g %s\n", scale * least, scale * most, unit);
}

/* Pages of the KV cache after each step, and the lanes of the story: shares of roofs and of the
 * workers' time. */
static void put_over_time(vt_buf *b, const json_t *story)
{
    static const char *const key[] = {"pages_held", "pages_cached", "pages_free"};
    static const char *const name[] = {"pages held", "pages cached", "pages free"};
    const json_t *memory = story_get(story, "memory");
    size_t i;
    json_t *lane;
    for (int k = 0; k < 3; k++)
        put_series(b, name[k], story_get(story_get(memory, key[k]), "values"), 1, "pages");
    json_array_foreach(story_get(story_get(story, "lanes"), "items"), i, lane)
    {
        char text[STORY_TEXT];
        if (i < STORY_ROWS)
            put_series(b, story_text(lane, "name", text), story_get(lane, "values"), 100, "%");
    }
}

static vt_status draw_flame(const json_t *story, vt_buf *out, vt_err *err)
{
    char *text = json_dumps(story, JSON_COMPACT);
    if (!text)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a flame graph");
    vt_status status = story_flame(&(story_file){"the server's story", text, strlen(text)},
                                   &(vt_term){.width = WIDTH}, out, err);
    free(text);
    return status;
}

void lab_draw_server(lab *l, const lab_server *s)
{
    json_t *story = NULL;
    vt_err err = {0};
    vt_buf flame = {0}, over = {0};
    vt_status status = lab_server_json(s, "/story/0", &story, &err);
    if (status == VT_OK)
        status = draw_flame(story, &flame, &err);
    if (status == VT_OK)
        lab_drawing(l, "flame", "all steps that the server's recorder has", &flame);
    else
        lab_missing(l, "flame", "%s", err.message);
    put_over_time(&over, story);
    if (over.len > 0)
        lab_drawing(l, "over_time", "from the first of these steps to the last", &over);
    else
        lab_missing(l, "over_time", "%s",
                    story ? "the server's recorder has fewer than two steps" : err.message);
    json_decref(story);
    vt_buf_release(&flame);
    vt_buf_release(&over);
}
