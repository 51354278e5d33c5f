/* RECORDS: when a step's kernels ran by CUPTI, op by op, beside what stamps say (page.h). */
#include <math.h>

#include "story/page/page.h"
#include "base/term/figure.h"

enum { OP, CALLS, RECORDED, KERNELS, STAMPED, OF_STAMPED, COLUMNS };

static const page_column columns[COLUMNS] = {
    [OP] = {"op", false, 0},
    [CALLS] = {"calls", true, 2},
    [RECORDED] = {"recorded", true, 0},
    [KERNELS] = {"in kernels", true, 1},
    [STAMPED] = {"stamped", true, 0},
    [OF_STAMPED] = {"of stamped", true, 0},
};

static const char *time_text(page *p, double us)
{
    vt_buf b = {0};
    if (!isfinite(us))
        return "n/a";
    vt_text_printf(&b, "%f s", us * 1e-6);
    return page_take(p, &b);
}

static const char *percent(page *p, double share)
{
    return isfinite(share) && fabs(share) < 1e9 ? page_say(p, "%.1f %%", 100 * share) : "n/a";
}

static void op_row(page *p, const json_t *op)
{
    const char *const text[COLUMNS] = {[OP] = page_say(p, "%.46s", page_str(p, op, "kind")),
                                       [CALLS] = page_say(p, "%.4g", story_num(op, "calls")),
                                       [RECORDED] = time_text(p, story_num(op, "time_us")),
                                       [KERNELS] = time_text(p, story_num(op, "kernel_us")),
                                       [STAMPED] = time_text(p, story_num(op, "stamped_us")),
                                       [OF_STAMPED] = percent(p, story_num(op, "of_stamped"))};
    page_row *r = page_add(p, PAGE_TABLE, COLUMNS);
    for (int c = 0; c < COLUMNS; c++)
        r->cell[c].text = text[c];
}

/* Kernels that have no stamps. */
static void library_rows(page *p, const json_t *op)
{
    size_t i;
    json_t *k;
    json_array_foreach(story_get(op, "kernels"), i, k)
    {
        vt_buf line = {0};
        if (i >= STORY_ROWS || !json_is_true(story_get(k, "library")))
            continue;
        vt_text_printf(&line, "a library's kernel %.80s x%.3g, %f s each", page_str(p, k, "name"),
                       story_num(k, "launches"), story_num(k, "each_us") * 1e-6);
        page_pair(p, PAGE_ITEM, page_str(p, op, "kind"), &line);
    }
}

static void sum_row(page *p, const json_t *phase)
{
    vt_buf line = {0};
    double of = story_num(phase, "of_stamped"), step = story_num(phase, "step_us"),
           alone = story_num(phase, "unrecorded_step_us");
    vt_text_printf(&line, "calls of %f s in sum", story_num(phase, "calls_us") * 1e-6);
    if (isfinite(of))
        vt_text_printf(&line, ", %.1f %% of what stamps say of the same ops", 100 * of);
    vt_text_printf(&line, "; a recorded step takes %f s", step * 1e-6);
    if (isfinite(alone))
        vt_text_printf(&line, ", one that is left alone %f s", alone * 1e-6);
    page_text(p, PAGE_TEXT, &line);
    vt_text_printf(&line, "%.3g copies of %f B in %f s a step, %.3g fills",
                   story_num(story_get(phase, "copies"), "count"),
                   story_num(story_get(phase, "copies"), "bytes"),
                   story_num(story_get(phase, "copies"), "time_us") * 1e-6,
                   story_num(story_get(phase, "fills"), "count"));
    if (story_num(phase, "unknown") > 0)
        vt_buf_printf(&line, "; %.3g kernels of no call", story_num(phase, "unknown"));
    page_text(p, PAGE_TEXT, &line);
}

static void phase_section(page *p, const json_t *phase)
{
    size_t i;
    json_t *op;
    double n = story_num(phase, "recorded_steps");
    const char *rank = page_str(p, phase, "rank");
    page_section *s = page_open(p, "activity",
                                page_say(p, "RECORDS of a %.20s step%s%.20s, op by op",
                                         page_str(p, phase, "name"), rank[0] ? " of " : "", rank),
                                page_say(p, "[measured by tier T1 in %.0f step%s of %s own]", n,
                                         story_s(n), n == 1 ? "its" : "their"));
    for (s->n_columns = 0; s->n_columns < COLUMNS; s->n_columns++)
        s->column[s->n_columns] = columns[s->n_columns];
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        if (i < STORY_ROWS)
            op_row(p, op);
    }
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        if (i < STORY_ROWS)
            library_rows(p, op);
    }
    sum_row(p, phase);
}

void page_activity(page *p)
{
    const json_t *a = story_get(p->story, "activity");
    size_t i;
    json_t *phase;
    double lost = story_num(a, "lost"), broken = story_num(a, "broken_steps");
    if (!json_is_object(a))
        return;
    json_array_foreach(story_get(a, "phases"), i, phase)
    {
        if (i < STORY_ROWS && json_array_size(story_get(phase, "ops")) > 0)
            phase_section(p, phase);
    }
    if (lost > 0 || broken > 0) {
        if (i == 0)
            page_open(p, "activity", "RECORDS of kernels", "");
        page_add(p, PAGE_TEXT, 1)->cell[0].text = page_say(
            p, "%.0f record%s lost; %.0f step%s left out, whose records are not whole", lost,
            lost == 1 ? " was" : "s were", broken, broken == 1 ? " is" : "s are");
    }
}
