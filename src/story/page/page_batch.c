/* The requests of a whole recording and its batch over time: `requests` and `steps` of a story.json
 * (page.h). */
#include <math.h>

#include "story/page/page.h"

enum { MAX_SHOWN = 24 };

static const json_t *column(const json_t *rows, const char *key)
{
    return story_get(story_get(rows, "columns"), key);
}

static const char *time_text(page *p, double ms)
{
    vt_buf b = {0};
    if (isfinite(ms))
        vt_text_time(&b, ms * 1e-3);
    return page_take(p, &b);
}

/* When a request waits, when its prompt is computed and when it decodes: four borders, as shares of
 * the time from `begin` to `end`. */
static void put_life(page *p, page_cell *c, const json_t *r, size_t i, double begin, double end)
{
    static const char *const border[] = {"arrive_ms", "admit_ms", "first_ms", "last_ms"};
    double *v = vt_arena_alloc(&p->arena, 4, sizeof *v);
    p->failed = p->failed || !v;
    for (int k = 0; v && k < 4; k++)
        v[k] = (story_cell(r, border[k], i) - begin) / (end - begin);
    c->series = v;
    c->n_series = v ? 4 : 0;
}

static void requests(page *p, const json_t *r, size_t n)
{
    static const page_column columns[] = {
        {"id", true, 0},   {"prompt", true, 0}, {"cached", true, 0}, {"out", true, 0},
        {"wait", true, 0}, {"first", true, 0},  {"done", true, 0},   {"when", false, 0}};
    static const char *const count[] = {"id", "prompt", "cached", "tokens"};
    static const char *const until[] = {"admit_ms", "first_ms", "last_ms"};
    double begin = INFINITY, end = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        begin = fmin(begin, story_cell(r, "arrive_ms", i));
        end = fmax(end, story_cell(r, "last_ms", i));
    }
    page_section *s = page_open(p, "requests",
                                page_say(p, "REQUESTS  %zu   · waits  ▒ prompt  █ decodes", n), "");
    for (s->n_columns = 0; s->n_columns < 8; s->n_columns++)
        s->column[s->n_columns] = columns[s->n_columns];
    for (size_t i = 0; i < n && i < MAX_SHOWN; i++) {
        page_row *row = page_add(p, PAGE_TABLE, 8);
        for (int k = 0; k < 4; k++)
            row->cell[k].text = page_say(p, "%.0f", story_cell(r, count[k], i));
        for (int k = 0; k < 3; k++)
            row->cell[4 + k].text = time_text(p, story_cell(r, until[k], i) -
                                                     story_cell(r, "arrive_ms", i));
        put_life(p, &row->cell[7], r, i, begin, end);
    }
    if (n > MAX_SHOWN)
        page_add(p, PAGE_LINE, 1)->cell[0].text = page_say(p, "and %zu more", n - MAX_SHOWN);
}

/* A column of the steps, or the difference of two. */
static void lane(page *p, const json_t *steps, const char *name, const char *plus,
                 const char *minus)
{
    enum { MOST = 2048 };
    double low = INFINITY, high = -INFINITY;
    size_t n = json_array_size(column(steps, plus));
    n = n < MOST ? n : MOST;
    double *v = vt_arena_alloc(&p->arena, n + 1, sizeof *v);
    p->failed = p->failed || !v;
    for (size_t i = 0; v && i < n; i++) {
        v[i] = story_cell(steps, plus, i) - (minus ? story_cell(steps, minus, i) : 0);
        low = fmin(low, v[i]);
        high = fmax(high, v[i]);
    }
    page_row *r = page_add(p, PAGE_SERIES, 3);
    r->cell[0].text = name;
    r->cell[1].series = v;
    r->cell[1].n_series = v ? (int32_t)n : 0;
    r->cell[2].text = page_say(p, "%.0f to %.0f", low, high);
}

void page_batch(page *p)
{
    const json_t *r = story_get(p->story, "requests"), *s = story_get(p->story, "steps");
    size_t n = json_array_size(column(r, "id"));
    if (n > 0)
        requests(p, r, n);
    if (json_array_size(column(s, "id")) == 0)
        return;
    page_open(p, "batch", "BATCH, step by step", "");
    lane(p, s, "decodes", "decodes", NULL);
    lane(p, s, "prompt tokens", "tokens", "decodes");
    lane(p, s, "ms a step", "ms", NULL);
    lane(p, s, "KV pages held", "held", NULL);
    lane(p, s, "cached", "cached", NULL);
    lane(p, s, "free", "free", NULL);
}
