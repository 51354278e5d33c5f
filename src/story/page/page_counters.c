/* COUNTERS and WAITS: a GPU's hardware counters, op by op, of steps that ran apart for them, and
 * what the warps of each op did with their cycles (page.h). */
#include <math.h>
#include <string.h>

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

/* "decode step", of several ranks "decode step of rank 1". */
static const char *step_of(page *p, const json_t *phase)
{
    const char *rank = page_str(p, phase, "rank");
    return page_say(p, "%.20s step%s%.20s", page_str(p, phase, "name"), rank[0] ? " of " : "",
                    rank);
}

static void phase_section(page *p, const json_t *phase)
{
    size_t i;
    json_t *op;
    double n = story_num(phase, "counted_steps");
    page_section *s = page_open(p, "counters",
                                page_say(p, "COUNTERS of a %s, op by op", step_of(p, phase)),
                                page_say(p, "[measured by tier T3 in %.0f step%s of %s own]", n,
                                         story_s(n), n == 1 ? "its" : "their"));
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

/* ---- WAITS ---- */

enum {
    WAIT_OP,
    WORKS,
    FIRST,
    NAMED = 3,
    WAIT_COLUMNS = FIRST + NAMED,
    MOST_WORDS = 8,
    MOST_RANKS = 8
};

static const page_column wait_columns[WAIT_COLUMNS] = {
    [WAIT_OP] = {"op", false, 0},           [WORKS] = {"works", true, 0},
    [FIRST] = {"waits most for", false, 0}, [FIRST + 1] = {"then", false, 0},
    [FIRST + 2] = {"then", false, 1},
};

/* The row of a reason in the story's list of words; NULL: it has none. */
static const json_t *words_of(page *p, const char *reason)
{
    size_t i;
    json_t *row;
    json_array_foreach(story_get(story_get(p->story, "gpu_counters"), "reasons"), i, row)
    {
        if (strcmp(page_str(p, row, "reason"), reason) == 0)
            return row;
    }
    return NULL;
}

/* Remembers that a reason was named, for the words below the table. */
static void name(const json_t *words, const json_t *named[MOST_WORDS], int *n)
{
    for (int i = 0; i < *n; i++)
        if (named[i] == words)
            return;
    if (*n < MOST_WORDS)
        named[(*n)++] = words;
}

static void wait_row(page *p, const json_t *op, const json_t *named[MOST_WORDS], int *n_named)
{
    size_t i;
    json_t *wait;
    int n = 0;
    page_row *r = page_add(p, PAGE_TABLE, WAIT_COLUMNS);
    r->cell[WAIT_OP].text = page_say(p, "%.46s", page_str(p, op, "kind"));
    r->cell[WORKS].text = "n/a";
    json_array_foreach(story_get(op, "waits"), i, wait)
    {
        const char *reason = page_str(p, wait, "reason");
        const json_t *words = words_of(p, reason);
        double share = story_num(wait, "share");
        if (strcmp(reason, "selected") == 0) {
            r->cell[WORKS].text = percent(p, share);
        } else if (words && n < NAMED && share >= 0.005) {
            r->cell[FIRST + n++].text = page_say(p, "%.20s %s", page_str(p, words, "label"),
                                                 percent(p, share));
            name(words, named, n_named);
        }
    }
}

static void waits_section(page *p, const json_t *phase)
{
    const json_t *named[MOST_WORDS];
    int n_named = 0;
    size_t i;
    json_t *op;
    page_section *s = page_open(
        p, "waits", page_say(p, "WAITS of the warps of a %s, op by op", step_of(p, phase)),
        "[measured by tier T3, some reasons a step]");
    for (s->n_columns = 0; s->n_columns < WAIT_COLUMNS; s->n_columns++)
        s->column[s->n_columns] = wait_columns[s->n_columns];
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        if (i < STORY_ROWS && json_array_size(story_get(op, "waits")) > 0)
            wait_row(p, op, named, &n_named);
    }
    vt_buf b = {0};
    vt_buf_puts(&b, "shares of the cycles in which the op's warps were on an SM");
    for (int k = 0; k < n_named; k++)
        vt_buf_printf(&b, "; %.20s: a warp %.100s", page_str(p, named[k], "label"),
                      page_str(p, named[k], "meaning"));
    page_text(p, PAGE_TEXT, &b);
}

static bool has_waits(const json_t *phase)
{
    size_t i;
    json_t *op;
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        if (json_array_size(story_get(op, "waits")) > 0)
            return true;
    }
    return false;
}

void page_counters(page *p)
{
    size_t i;
    json_t *phase;
    json_array_foreach(story_get(story_get(p->story, "gpu_counters"), "phases"), i, phase)
    {
        if (i >= 2 * MOST_RANKS) /* prefill, decode */
            break;
        phase_section(p, phase);
        if (has_waits(phase))
            waits_section(p, phase);
    }
}
