/* CTAS: when every CTA of a launch ran and on which SM, drawn as a map, and in one sentence what it
 * shows (page.h). The launches of a step stand in the order of their times, the longest first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "story/page/page.h"
#include "base/term/figure.h"

enum { MOST_SMS = 1024, MAP_CELLS = 4 };

static const char *const map_columns[] = {"sm", "begin_ns", "end_ns", NULL};

/* "in 3 waves of 132, 132 and 40" */
static void put_waves(vt_buf *b, const json_t *map)
{
    const json_t *in = story_get(map, "in_wave");
    double waves = story_num(map, "waves");
    size_t n = json_array_size(in) < 8 ? json_array_size(in) : 8;
    if (!(waves > 1)) {
        vt_buf_puts(b, "in one wave");
        return;
    }
    vt_buf_printf(b, "in %.0f waves of ", waves);
    for (size_t i = 0; i < n; i++)
        vt_buf_printf(b, "%s%.0f",
                      i == 0      ? ""
                      : i + 1 < n ? ", "
                                  : " and ",
                      json_number_value(json_array_get(in, i)));
    if (waves > (double)n)
        vt_buf_puts(b, " (the last is all further ones)");
}

/* Returns the sentence that says what a map shows. */
static const char *sentence(page *p, const json_t *map, double sms)
{
    vt_buf b = {0};
    double ctas = story_num(map, "ctas"), used = story_num(map, "sms"),
           us = story_num(map, "time_us"), tail = story_num(map, "tail_us");
    vt_text_printf(&b, "%.0f CTA%s on %.0f of %.0f SMs ", ctas, story_s(ctas), used, sms);
    put_waves(&b, map);
    vt_text_printf(&b, ": %f s from the first begin to the last end", us * 1e-6);
    if (sms > used)
        vt_buf_printf(&b, "; %.0f SM%s had none", sms - used, story_s(sms - used));
    if (tail > 0 && us > 0)
        vt_text_printf(&b, "; the first SM was done %f s before the end (the tail, %.0f %%)",
                       tail * 1e-6, 100 * tail / us);
    vt_buf_printf(&b, "; SMs had a CTA %.0f %% of that time", 100 * story_num(map, "busy"));
    if (story_num(map, "not_known") > 0)
        vt_buf_printf(&b, "; %.0f CTAs were not stamped", story_num(map, "not_known"));
    if (!json_is_object(story_get(map, "columns")))
        vt_buf_puts(&b, "; they are too many to be told one by one");
    return page_take(p, &b);
}

/* A CTA: its SM, its begin and end as shares of the launch, and how many began on its SM before. */
typedef struct cta {
    double sm, begin, end, order;
} cta;

static int by_sm(const void *a, const void *b)
{
    const cta *x = a, *y = b;
    if (x->sm != y->sm)
        return x->sm < y->sm ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Reads the CTAs of a map into a cell: MAP_CELLS numbers each. Returns the number of SMs to draw;
 * 0: there is nothing to draw. */
static double read_map(page *p, const json_t *map, double sms, page_cell *out)
{
    size_t n = story_rows(map, map_columns), kept = 0;
    double all = story_num(map, "time_us") * 1e3;
    cta *c = vt_arena_alloc(&p->arena, n + 1, sizeof *c);
    p->failed = p->failed || !c;
    for (size_t i = 0; c && i < n; i++) {
        cta x = {.sm = story_cell(map, "sm", i),
                 .begin = story_cell(map, "begin_ns", i) / all,
                 .end = story_cell(map, "end_ns", i) / all};
        if (!(x.sm >= 0 && x.sm < MOST_SMS && x.begin >= 0 && x.end >= x.begin && x.end < 1.01))
            continue;
        sms = fmax(sms, x.sm + 1);
        c[kept++] = x;
    }
    if (kept == 0 || !(sms <= MOST_SMS))
        return 0;
    qsort(c, kept, sizeof *c, by_sm);
    for (size_t i = 1; i < kept; i++)
        c[i].order = c[i].sm == c[i - 1].sm ? c[i - 1].order + 1 : 0;
    out->series = &c->sm;
    out->n_series = (int32_t)kept * MAP_CELLS;
    return sms;
}

static void map_row(page *p, const json_t *map, double sms)
{
    page_row *r = page_add(p, PAGE_MAP, 3);
    double us = story_num(map, "time_us");
    vt_buf name = {0}, length = {0};
    vt_buf_printf(&name, "%s %s", page_str(p, map, "label"), page_kernel_base(p, map, "kernel"));
    vt_text_printf(&length, "%f s", us * 1e-6);
    r->cell[0].text = page_take(p, &name);
    r->cell[1].text = page_take(p, &length);
    r->cell[1].value = read_map(p, map, sms, &r->cell[1]);
    r->cell[2].text = sentence(p, map, sms);
}

/* The maps of a step, the longest first; of one op alone where it is named. Returns how many. */
static int32_t map_rows(page *p, const json_t *step, const char *op)
{
    const json_t *maps = story_get(step, "maps");
    double sms = story_num(story_get(p->story, "ctas"), "sms"), last = INFINITY;
    size_t n = json_array_size(maps) < STORY_ROWS ? json_array_size(maps) : STORY_ROWS;
    bool done[STORY_ROWS] = {false};
    int32_t rows = 0;
    for (size_t k = 0; k < n; k++) {
        size_t most = n;
        for (size_t i = 0; i < n; i++) {
            double us = story_num(json_array_get(maps, i), "time_us");
            if (!done[i] && us <= last &&
                (most == n || us > story_num(json_array_get(maps, most), "time_us")))
                most = i;
        }
        if (most == n)
            break;
        done[most] = true;
        const json_t *map = json_array_get(maps, most);
        last = story_num(map, "time_us");
        if (op && strcmp(page_str(p, map, "kind"), op) != 0)
            continue;
        map_row(p, map, sms);
        rows++;
    }
    return rows;
}

void page_ctas_of_op(page *p, const char *op)
{
    size_t i;
    json_t *step;
    json_array_foreach(story_get(story_get(p->story, "ctas"), "steps"), i, step)
    {
        if (i < 2)
            map_rows(p, step, op);
    }
}

static void step_section(page *p, const json_t *step)
{
    vt_buf b = {0};
    bool prompt = strcmp(page_str(p, step, "phase"), "prefill") == 0;
    double n = story_num(step, "launches"), of = story_num(step, "of_libraries"),
           left = story_num(step, "left_out");
    page_open(p, prompt ? "ctas-prefill" : "ctas-decode",
              page_say(p, "CTAS of step %.0f, a %s step, SM by SM", story_num(step, "step"),
                       prompt ? "prefill" : "decode"),
              page_tag(p, "[measured by stamps]"));
    vt_buf_printf(
        &b, "%.0f launches with %.0f CTAs; of each op and kernel the launch of median length.", n,
        story_num(step, "ctas"));
    if (of > 0)
        vt_buf_printf(&b, " %.0f launch%s a library's, which has no stamps.", of,
                      of == 1 ? " is" : "es are");
    if (left > 0)
        vt_buf_printf(&b, " The table had no room for %.0f launches.", left);
    if (prompt)
        vt_buf_puts(&b, " The step's times elsewhere include what stamping its CTAs took.");
    page_text(p, PAGE_TEXT, &b);
    map_rows(p, step, NULL);
}

void page_ctas(page *p)
{
    size_t i;
    json_t *step;
    json_array_foreach(story_get(story_get(p->story, "ctas"), "steps"), i, step)
    {
        if (i < 2)
            step_section(p, step);
    }
}
