/* The prefix tree, the layers of a step with their ops, and the trail of the step as a whole on the
 * roofline (page.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stats.h"
#include "base/term/figure.h"
#include "story/page/page.h"

/* ---- the prefix tree ---- */

enum { MAX_RUNS = 64 };

static void put_part(vt_buf *b, double n, const char *text)
{
    if (n > 0 && n < 1e15)
        vt_buf_printf(b, "%s%.0f %s", b->len ? "; " : "", n, text);
}

/* A run of pages: "5 pages | 75 tokens | the request's: 5, of which it found 2; found 3 times". */
static void run_row(page *p, const json_t *run, int32_t depth)
{
    double pages = story_num(run, "pages"), path = story_num(run, "path"),
           found = story_num(run, "found"), hits = story_num(run, "hits"),
           users = story_num(run, "users"), hidden = story_num(run, "hidden");
    vt_buf text = {0};
    if (path > 0)
        vt_buf_printf(&text, "%s this request's path: found %.0f, wrote %.0f",
                      path < pages ? "its begin is" : "all of it is", found, path - found);
    put_part(&text, hits, hits == 1 ? "look-up found it" : "look-ups found it");
    put_part(&text, users, users == 1 ? "sequence uses it" : "sequences use it");
    put_part(&text, hidden, hidden == 1 ? "run below is not shown" : "runs below are not shown");
    page_row *r = page_add(p, PAGE_NODE, 3);
    r->cell[0].text = page_say(p, "%s %.0f page%s", path > 0 ? "●" : "○", pages, story_s(pages));
    r->cell[0].value = depth;
    r->cell[0].ink = path > 0 ? VT_INK_CYAN : VT_INK_PLAIN;
    r->cell[1].text = page_say(p, "%.0f token%s", story_num(run, "tokens"),
                               story_s(story_num(run, "tokens")));
    r->cell[2].text = page_take(p, &text);
}

/* Adds the runs below `parent`, each with what is below it. A run's parent stands before it. */
static void runs_below(page *p, const json_t *shown, int32_t parent, int32_t depth)
{
    size_t n = json_array_size(shown);
    for (size_t i = (size_t)(parent + 1); i < n && i < MAX_RUNS; i++) {
        const json_t *run = json_array_get(shown, i);
        if (story_num(run, "parent") != parent)
            continue;
        run_row(p, run, depth);
        runs_below(p, shown, (int32_t)i, depth + 1);
    }
}

static void evictions(page *p, const json_t *evicted)
{
    vt_buf line = {0};
    put_part(&line, story_num(evicted, "for_prompts"), "for new prompts");
    put_part(&line, story_num(evicted, "for_growth"), "for the next page of a running sequence");
    put_part(&line, story_num(evicted, "covered"), "because a longer page begins with its tokens");
    put_part(&line, story_num(evicted, "flushed"), "because the cache was emptied");
    if (line.len == 0)
        return;
    page_add(p, PAGE_TEXT, 1)->cell[0].text = page_say(p, "pages evicted meanwhile: %s",
                                                       line.data ? line.data : "");
    vt_buf_release(&line);
}

void page_tree(page *p)
{
    const json_t *tree = story_get(p->story, "tree"), *shown = story_get(tree, "shown"),
                 *prefix = story_get(p->story, "prefix");
    double pages = story_num(tree, "pages"), runs = story_num(tree, "runs");
    vt_buf line = {0};
    if (!json_is_object(tree))
        return;
    page_open(p, "tree", "PREFIX TREE", "[as it was when the story was told]");
    vt_buf_printf(&line, "%.0f page%s in %.0f run%s without a branch", pages, story_s(pages), runs,
                  story_s(runs));
    if (isfinite(story_num(prefix, "found_pages")))
        vt_buf_printf(&line, "; the request found %.0f of the %.0f page%s of its prompt there",
                      story_num(prefix, "found_pages"), story_num(prefix, "prompt_pages"),
                      story_s(story_num(prefix, "prompt_pages")));
    if (json_is_object(story_get(p->story, "request")))
        vt_buf_puts(&line,
                    json_is_true(story_get(tree, "path_known"))
                        ? " (● its path, ○ other requests')"
                        : "; its path is not known: it still runs, left no page, or lost it");
    page_text(p, PAGE_TEXT, &line);
    runs_below(p, shown, -1, 0);
    evictions(p, story_get(tree, "evicted"));
}

/* ---- the trail ---- */

void page_trail(page *p)
{
    static const page_column column[] = {{"step", false, 0},     {"sequences", true, 0},
                                         {"time", true, 0},      {"tokens/s", true, 3},
                                         {"FLOP/byte", true, 0}, {"speed", true, 2},
                                         {"of roof", true, 0},   {"told by", false, 1}};
    enum { COLUMNS = sizeof column / sizeof *column };
    size_t i;
    json_t *x;
    const json_t *trail = story_get(p->story, "trail");
    if (json_array_size(trail) < 2)
        return;
    page_section *s = page_open(p, "trail", "TRAIL ON THE ROOFLINE",
                                page_tag(p, "[whole steps, prefill to decodes of more sequences]"));
    memcpy(s->column, column, sizeof column);
    s->n_columns = COLUMNS;
    json_array_foreach(trail, i, x)
    {
        double us = story_num(x, "step_us"), steps = story_num(x, "steps"),
               flops = story_num(x, "flops"), n = story_num(x, "sequences");
        vt_buf time = {0}, speed = {0};
        if (i >= STORY_ROWS)
            break;
        page_row *r = page_add(p, PAGE_TABLE, COLUMNS);
        vt_text_time(&time, us * 1e-6);
        vt_text_rate(&speed, flops / (us * 1e-6), "FLOP");
        r->cell[0].text = page_say(p, "%.24s", page_str(p, x, "phase"));
        r->cell[1].text = page_say(p, n == floor(n) ? "%.0f" : "%.1f", n);
        r->cell[2].text = page_take(p, &time);
        r->cell[3].text = page_say(p, "%.4g", story_num(x, "tokens") / (us * 1e-6));
        r->cell[4].text = page_say(p, "%.3g", flops / story_num(x, "bytes"));
        r->cell[5].text = page_take(p, &speed);
        r->cell[6].text = page_say(p, "%.0f %%", 100 * story_num(x, "floor_us") / us);
        r->cell[7].text = p->emulated ? "n/a"
                          : steps > 0 ? page_say(p, "measured, %.0f step%s", steps, story_s(steps))
                                      : "modelled";
        r->cell[7].ink = steps > 0 ? VT_INK_PLAIN : VT_INK_DIM;
    }
}

/* ---- the layers ---- */

typedef struct layer_view {
    const json_t *calls, *phase; /* "calls", with the labels; a phase of "typical" */
    size_t n_calls;
    double step_us;
} layer_view;

static double call_us(const layer_view *v, size_t i)
{
    double us = story_cell(v->phase, "us", i);
    return us > 0 ? us : 0;
}

static double layer_at(const layer_view *v, size_t i)
{
    const json_t *layer = json_array_get(story_get(v->calls, "layers"), i);
    return json_is_number(layer) ? json_number_value(layer) : NAN;
}

static void node(page *p, int32_t depth, const char *name, double us, double of_us)
{
    vt_buf time = {0};
    page_row *r = page_add(p, PAGE_NODE, 3);
    vt_text_time(&time, us * 1e-6);
    r->folded = true;
    r->cell[0].text = name;
    r->cell[0].value = depth;
    r->cell[1].text = page_take(p, &time);
    r->cell[1].share = us / of_us;
}

/* A layer and its calls; layer -1: what lies outside of layers. */
static void layer_nodes(page *p, const layer_view *v, double layer, double sum)
{
    char label[STORY_TEXT];
    node(p, 0, layer < 0 ? "outside of layers" : page_say(p, "layer %.0f", layer), sum, v->step_us);
    for (size_t i = 0; i < v->n_calls; i++) {
        if (layer_at(v, i) != layer || !(call_us(v, i) > 0))
            continue;
        const char *name = story_clean(json_array_get(story_get(v->calls, "labels"), i), label),
                   *dot = strchr(name, '.');
        node(p, 1, page_say(p, "%.60s", layer >= 0 && dot ? dot + 1 : name), call_us(v, i), sum);
    }
}

static void layer_series(page *p, const char *name, double *sum, int32_t n)
{
    int32_t most = 0;
    vt_buf text = {0};
    for (int32_t i = 0; i < n; i++)
        most = sum[i] > sum[most] ? i : most;
    page_row *r = page_add(p, PAGE_SERIES, 3);
    double *kept = vt_arena_alloc(&p->arena, (size_t)n, sizeof *kept);
    if (!kept) {
        p->failed = true;
        return;
    }
    memcpy(kept, sum, (size_t)n * sizeof *kept);
    double longest_us = sum[most];
    vt_text_printf(&text, "%f s in the median, layer %d longest: %f s",
                   vt_median(sum, (size_t)n) * 1e-6, most, longest_us * 1e-6);
    r->cell[0].text = name;
    r->cell[1].series = kept;
    r->cell[1].n_series = n;
    r->cell[2].text = page_take(p, &text);
}

/* Each layer of the typical step, and below it its calls. */
void page_layers(page *p)
{
    enum { MAX_LAYERS = 512, MAX_CALLS = 1 << 14 };
    const json_t *phases = story_get(story_get(p->story, "typical"), "phases");
    size_t n_phases = json_array_size(phases);
    double sum[MAX_LAYERS] = {0}, outside = 0, last = -1;
    layer_view v = {.calls = story_get(p->story, "calls"),
                    .phase = n_phases ? json_array_get(phases, n_phases - 1) : NULL};
    v.n_calls = json_array_size(story_get(v.calls, "labels"));
    v.n_calls = v.n_calls < MAX_CALLS ? v.n_calls : MAX_CALLS;
    for (size_t i = 0; v.phase && i < v.n_calls; i++) {
        double layer = layer_at(&v, i), us = call_us(&v, i);
        if (layer >= MAX_LAYERS)
            return;
        if (layer >= 0)
            sum[(int32_t)layer] += us;
        else
            outside += us;
        last = us > 0 && layer > last ? layer : last;
        v.step_us += us;
    }
    if (last < 1 || !(v.step_us > 0))
        return;
    page_open(p, "layers", "LAYERS",
              page_tag(p, page_say(p, "[of the typical %.20s step; a layer opens to its calls]",
                                   page_str(p, v.phase, "name"))));
    double shown[MAX_LAYERS];
    memcpy(shown, sum, sizeof shown);
    layer_series(p, "layers", shown, (int32_t)last + 1);
    for (double layer = 0; layer <= last; layer++)
        layer_nodes(p, &v, layer, sum[(int32_t)layer]);
    layer_nodes(p, &v, -1, outside);
}
