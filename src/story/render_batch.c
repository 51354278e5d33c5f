/* The requests of a whole recording and its batch over time: `requests` and `steps` of a story.json
 * (story/render.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "story/render.h"

enum { MAX_SHOWN = 24, LANE = 56, SERIES = 2048 };

static const json_t *column(const json_t *rows, const char *key)
{
    return story_get(story_get(rows, "columns"), key);
}

/* "··▒▒████    ": waits, its prompt is computed, it decodes; `cells` for begin..end of all. */
static void put_life(char out[4 * LANE], const json_t *r, size_t i, double begin, double end,
                     int cells)
{
    const double border[4] = {story_cell(r, "arrive_ms", i), story_cell(r, "admit_ms", i),
                              story_cell(r, "first_ms", i), story_cell(r, "last_ms", i)};
    static const char *const glyph[3] = {"·", "▒", "█"};
    size_t n = 0;
    for (int c = 0; c < cells; c++) {
        double time = begin + (end - begin) * (c + 0.5) / cells;
        const char *g = " ";
        for (int k = 0; k < 3; k++)
            if (time >= border[k] && time < border[k + 1])
                g = glyph[k];
        vt_append(out, 4 * LANE, &n, "%s", g);
    }
}

static void time_cell(vt_table *t, double ms)
{
    vt_buf c = {0};
    if (isfinite(ms))
        vt_text_time(&c, ms * 1e-3);
    vt_table_cell(t, "%s", c.data ? c.data : "");
    vt_buf_release(&c);
}

static void requests(render_page *p, const json_t *r, size_t n)
{
    vt_table t;
    char title[128], life[4 * LANE];
    double begin = INFINITY, end = -INFINITY;
    int cells = render_width(p) >= VT_TERM_WIDTH ? 36 : 16;
    for (size_t i = 0; i < n; i++) {
        begin = fmin(begin, story_cell(r, "arrive_ms", i));
        end = fmax(end, story_cell(r, "last_ms", i));
    }
    snprintf(title, sizeof title, "REQUESTS  %zu   · waits  ▒ prompt  █ decodes", n);
    render_heading(p, title, NULL);
    vt_table_init(&t, ">id|>prompt|>cached|>out|>wait|>first|>done|when");
    for (size_t i = 0; i < n && i < MAX_SHOWN; i++) {
        double arrive = story_cell(r, "arrive_ms", i);
        vt_table_cell(&t, "%.0f", story_cell(r, "id", i));
        vt_table_cell(&t, "%.0f", story_cell(r, "prompt", i));
        vt_table_cell(&t, "%.0f", story_cell(r, "cached", i));
        vt_table_cell(&t, "%.0f", story_cell(r, "tokens", i));
        time_cell(&t, story_cell(r, "admit_ms", i) - arrive);
        time_cell(&t, story_cell(r, "first_ms", i) - arrive);
        time_cell(&t, story_cell(r, "last_ms", i) - arrive);
        put_life(life, r, i, begin, end, cells);
        vt_table_cell(&t, "%s", life);
    }
    vt_table_finish(&t, p->b, p->term, 1);
    if (n > MAX_SHOWN)
        vt_buf_printf(p->b, " and %zu more\n", n - MAX_SHOWN);
}

/* " decodes        ▁▂▃▄  0 to 8" */
static void lane(vt_buf *b, const json_t *steps, const char *name, const char *plus,
                 const char *minus)
{
    double v[SERIES];
    double low = INFINITY, high = -INFINITY;
    size_t n = json_array_size(column(steps, plus)), start = b->len;
    n = n < SERIES ? n : SERIES;
    for (size_t i = 0; i < n; i++) {
        v[i] = story_cell(steps, plus, i) - (minus ? story_cell(steps, minus, i) : 0);
        low = fmin(low, v[i]);
        high = fmax(high, v[i]);
    }
    vt_buf_printf(b, " %s", name);
    vt_text_pad(b, start, 16);
    vt_text_spark(b, v, (int32_t)n, LANE);
    vt_buf_printf(b, "  %.0f to %.0f\n", low, high);
}

void render_batch(render_page *p)
{
    const json_t *r = story_get(p->story, "requests"), *s = story_get(p->story, "steps");
    size_t n = json_array_size(column(r, "id"));
    if (n > 0)
        requests(p, r, n);
    if (json_array_size(column(s, "id")) == 0)
        return;
    render_heading(p, "BATCH, step by step", NULL);
    lane(p->b, s, "decodes", "decodes", NULL);
    lane(p->b, s, "prompt tokens", "tokens", "decodes");
    lane(p->b, s, "ms a step", "ms", NULL);
    lane(p->b, s, "KV pages held", "held", NULL);
    lane(p->b, s, "cached", "cached", NULL);
    lane(p->b, s, "free", "free", NULL);
}
