/* The requests of a whole recording and its batch over time, in the terminal: "levels" of a
 * story.json (story/levels.h). The JSON may come from a file of unknown origin. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "story/show.h"

enum { MAX_SHOWN = 24, LANE = 56, SERIES = 2048 };

static const json_t *column(const json_t *rows, const char *key)
{
    return json_object_get(json_object_get(rows, "columns"), key);
}

static double at(const json_t *rows, const char *key, size_t i)
{
    const json_t *v = json_array_get(column(rows, key), i);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void heading(vt_buf *b, const vt_term *term, const char *title)
{
    vt_buf_putc(b, '\n');
    vt_text_ink(b, term, VT_INK_BOLD, title);
    vt_buf_putc(b, '\n');
}

/* "··▒▒████    ": waits, its prompt is computed, it decodes; `cells` for begin..end of all. */
static void put_life(char out[4 * LANE], const json_t *r, size_t i, double begin, double end,
                     int cells)
{
    const double border[4] = {at(r, "arrive_ms", i), at(r, "admit_ms", i), at(r, "first_ms", i),
                              at(r, "last_ms", i)};
    static const char *const glyph[3] = {"·", "▒", "█"};
    size_t n = 0;
    for (int c = 0; c < cells; c++) {
        double time = begin + (end - begin) * (c + 0.5) / cells;
        const char *g = " ";
        for (int k = 0; k < 3; k++)
            if (time >= border[k] && time < border[k + 1])
                g = glyph[k];
        n += (size_t)snprintf(out + n, 4 * LANE - n, "%s", g);
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

static void requests(vt_buf *b, const vt_term *term, const json_t *r, size_t n)
{
    vt_table t;
    char title[128], life[4 * LANE];
    double begin = INFINITY, end = -INFINITY;
    int cells = term->width >= VT_TERM_WIDTH ? 36 : 16;
    for (size_t i = 0; i < n; i++) {
        begin = fmin(begin, at(r, "arrive_ms", i));
        end = fmax(end, at(r, "last_ms", i));
    }
    snprintf(title, sizeof title, "REQUESTS  %zu   · waits  ▒ prompt  █ decodes", n);
    heading(b, term, title);
    vt_table_init(&t, ">id|>prompt|>cached|>out|>wait|>first|>done|when");
    for (size_t i = 0; i < n && i < MAX_SHOWN; i++) {
        double arrive = at(r, "arrive_ms", i);
        vt_table_cell(&t, "%.0f", at(r, "id", i));
        vt_table_cell(&t, "%.0f", at(r, "prompt", i));
        vt_table_cell(&t, "%.0f", at(r, "cached", i));
        vt_table_cell(&t, "%.0f", at(r, "tokens", i));
        time_cell(&t, at(r, "admit_ms", i) - arrive);
        time_cell(&t, at(r, "first_ms", i) - arrive);
        time_cell(&t, at(r, "last_ms", i) - arrive);
        put_life(life, r, i, begin, end, cells);
        vt_table_cell(&t, "%s", life);
    }
    vt_table_finish(&t, b, term, 1);
    if (n > MAX_SHOWN)
        vt_buf_printf(b, " and %zu more\n", n - MAX_SHOWN);
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
        v[i] = at(steps, plus, i) - (minus ? at(steps, minus, i) : 0);
        low = fmin(low, v[i]);
        high = fmax(high, v[i]);
    }
    vt_buf_printf(b, " %s", name);
    vt_text_pad(b, start, 16);
    vt_text_spark(b, v, (int32_t)n, LANE);
    vt_buf_printf(b, "  %.0f to %.0f\n", low, high);
}

void story_show_batch(const json_t *story, const vt_term *term, vt_buf *out)
{
    const json_t *levels = json_object_get(story, "levels"),
                 *r = json_object_get(levels, "requests"), *s = json_object_get(levels, "steps");
    size_t n = json_array_size(column(r, "id"));
    if (n > 0)
        requests(out, term, r, n);
    if (json_array_size(column(s, "id")) == 0)
        return;
    heading(out, term, "BATCH, step by step");
    lane(out, s, "decodes", "decodes", NULL);
    lane(out, s, "prompt tokens", "tokens", "decodes");
    lane(out, s, "ms a step", "ms", NULL);
    lane(out, s, "KV pages held", "held", NULL);
    lane(out, s, "cached", "cached", NULL);
    lane(out, s, "free", "free", NULL);
}
