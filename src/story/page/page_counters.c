/* COUNTERS: a GPU's hardware counters, op by op, of steps that ran apart for them (page.h). */
#include <math.h>

#include "story/page/page.h"
#include "base/term/figure.h"

enum { OP, SM, TENSOR, DRAM, L2_HIT, OCCUPANCY, CONFLICTS, MOVED, OF_NEED, COLUMNS };

static const page_column columns[COLUMNS] = {
    [OP] = {"op", false, 0},
    [SM] = {"SM", true, 0},
    [TENSOR] = {"tensor", true, 0},
    [DRAM] = {"memory", true, 0},
    [L2_HIT] = {"L2 hit", true, 0},
    [OCCUPANCY] = {"occupancy", true, 2},
    [CONFLICTS] = {"conflicts", true, 1},
    [MOVED] = {"moved", true, 3},
    [OF_NEED] = {"of least", true, 0},
};

static const char *percent(page *p, double share)
{
    return isfinite(share) && fabs(share) < 1e9 ? page_say(p, "%.0f %%", 100 * share) : "n/a";
}

static const char *moved(page *p, const json_t *op)
{
    vt_buf b = {0};
    vt_text_bytes(&b, story_num(op, "dram_read") + story_num(op, "dram_written"));
    return page_take(p, &b);
}

static void op_row(page *p, const json_t *op)
{
    const char *const text[COLUMNS] = {
        [OP] = page_say(p, "%.46s", page_str(p, op, "kind")),
        [SM] = percent(p, story_num(op, "sm")),
        [TENSOR] = percent(p, story_num(op, "tensor")),
        [DRAM] = percent(p, story_num(op, "dram")),
        [L2_HIT] = percent(p, story_num(op, "l2_hit")),
        [OCCUPANCY] = percent(p, story_num(op, "occupancy")),
        [CONFLICTS] = percent(p,
                              story_num(op, "bank_conflicts") / story_num(op, "shared_wavefronts")),
        [MOVED] = moved(p, op),
        [OF_NEED] = percent(p, story_num(op, "of_compulsory"))};
    page_row *r = page_add(p, PAGE_TABLE, COLUMNS);
    for (int c = 0; c < COLUMNS; c++)
        r->cell[c].text = text[c];
}

static void phase_section(page *p, const json_t *phase)
{
    size_t i;
    json_t *op;
    double n = story_num(phase, "counted_steps");
    page_section *s = page_open(
        p, "counters",
        page_say(p, "COUNTERS of a %.20s step, op by op", page_str(p, phase, "name")),
        page_say(p, "[measured by tier T3 in %.0f step%s of %s own]", n, story_s(n),
                 n == 1 ? "its" : "their"));
    for (s->n_columns = 0; s->n_columns < COLUMNS; s->n_columns++)
        s->column[s->n_columns] = columns[s->n_columns];
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        if (i < STORY_ROWS)
            op_row(p, op);
    }
    page_add(p, PAGE_TEXT, 1)->cell[0].text =
        "shares of what the hardware can; moved: bytes read from memory and written, also as a "
        "share of the least that the op needs";
}

void page_counters(page *p)
{
    size_t i;
    json_t *phase;
    json_array_foreach(story_get(story_get(p->story, "gpu_counters"), "phases"), i, phase)
    {
        if (i < 2) /* prefill, decode */
            phase_section(p, phase);
    }
}
