/* A lab's result as a person reads it: predict, run, check, profile, explain, change (lab.h). The
 * result may come from a file of unknown origin: see story/read.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "lab/kit/list.h"
#include "lab/kit/result.h"
#include "story/read.h"

typedef struct page {
    vt_buf *b;
    const vt_term *term;
    const json_t *r;
} page;

static void heading(page *p, const char *number, const char *name)
{
    vt_buf_putc(p->b, '\n');
    vt_buf_printf(p->b, "%s ", number);
    vt_text_ink(p->b, p->term, VT_INK_BOLD, name);
    vt_buf_putc(p->b, '\n');
}

/* "  text", wrapped; the buffer is released. */
static void paragraph(page *p, vt_buf *text, int32_t indent)
{
    for (int32_t i = 0; i < indent; i++)
        vt_buf_putc(p->b, ' ');
    vt_text_wrap(p->b, text->data ? text->data : "", indent, p->term->width);
    vt_buf_putc(p->b, '\n');
    p->b->failed |= text->failed;
    vt_buf_release(text);
    *text = (vt_buf){0};
}

static double real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static vt_unit unit_of(const json_t *o)
{
    vt_unit u = VT_COUNT;
    vt_unit_find(json_string_value(json_object_get(o, "unit")), &u);
    return u;
}

/* Text of any length, made safe for a terminal. */
static void put_text(vt_buf *b, const json_t *v)
{
    const char *s = json_string_value(v);
    vt_shown shown = {0};
    if (!s)
        return;
    vt_text_show(b, &shown, s, strlen(s));
    vt_text_show_end(b, &shown);
}

/* ---- the title and what is about to happen ---- */

static void title(page *p)
{
    char track[STORY_TEXT], number[STORY_TEXT], name[STORY_TEXT], machine[STORY_TEXT],
        level[STORY_TEXT], model[STORY_TEXT];
    const json_t *m = json_object_get(p->r, "machine");
    char what[256];
    vt_buf line = {0};
    snprintf(what, sizeof what, "LAB %.20s %.10s %.60s", story_text(p->r, "track", track),
             story_text(p->r, "lab", number), story_text(p->r, "name", name));
    vt_text_ink(p->b, p->term, VT_INK_BOLD, what);
    vt_buf_putc(p->b, '\n');
    put_text(&line, json_object_get(p->r, "goal"));
    paragraph(p, &line, 2);
    vt_buf_printf(&line, "%s · %s, %.0f thread%s · model %s%s", story_text(m, "name", machine),
                  story_text(m, "level", level), real(m, "threads"), story_s(real(m, "threads")),
                  story_text(p->r, "model", model),
                  json_is_true(json_object_get(p->r, "quick")) ? " · quick form" : "");
    paragraph(p, &line, 2);
    char state[STORY_TEXT];
    if (strcmp(story_text(p->r, "state", state), "emulated") == 0)
        vt_buf_puts(p->b,
                    "  An EMULATED GPU: results are checked, often on smaller shapes than those "
                    "named below;\n  times mean nothing and are left out.\n");
    else if (strcmp(state, "disturbed") == 0)
        vt_buf_puts(p->b,
                    "  The machine was BUSY meanwhile: figures may be too slow, and no time is "
                    "graded.\n");
}

static void predictions(page *p)
{
    size_t i;
    json_t *o;
    heading(p, "1", "PREDICT");
    vt_buf line = {0};
    json_array_foreach(json_object_get(p->r, "about"), i, o)
    {
        put_text(&line, o);
        paragraph(p, &line, 2);
    }
    json_array_foreach(json_object_get(p->r, "predictions"), i, o)
    {
        char how[STORY_TEXT], what[STORY_TEXT];
        vt_unit u = unit_of(o);
        vt_buf_printf(&line, "%s: expected ", story_text(o, "what", what));
        vt_text_figure(&line, real(o, "own"), u);
        vt_buf_printf(&line, " (%s)", story_text(o, "how", how));
        if (json_is_number(json_object_get(o, "reader"))) {
            vt_buf_puts(&line, "; you said ");
            vt_text_figure(&line, real(o, "reader"), u);
        }
        paragraph(p, &line, 2);
    }
}

/* ---- items ---- */

static void table(page *p, const json_t *item)
{
    vt_table t;
    vt_buf titles = {0};
    size_t i, k, width = json_array_size(json_object_get(item, "columns"));
    json_t *c, *row;
    if (width == 0 || width > VT_TABLE_COLUMNS)
        return;
    json_array_foreach(json_object_get(item, "columns"), i, c)
    {
        if (i)
            vt_buf_putc(&titles, '|');
        put_text(&titles, c);
    }
    vt_table_init(&t, titles.data ? titles.data : "");
    json_array_foreach(json_object_get(item, "rows"), i, row)
    {
        for (k = 0; k < width && i < 512; k++) {
            char cell[STORY_TEXT];
            vt_table_cell(&t, "%s", story_text(json_array_get(row, k), "text", cell));
        }
    }
    vt_table_finish(&t, p->b, p->term, 4);
    vt_buf_release(&titles);
}

static void indented(page *p, const json_t *text)
{
    vt_buf b = {0};
    put_text(&b, text);
    for (const char *s = b.data ? b.data : ""; *s;) {
        size_t n = strcspn(s, "\n");
        vt_buf_puts(p->b, n ? "    " : "");
        vt_buf_add(p->b, s, n);
        vt_buf_putc(p->b, '\n');
        s += n + (s[n] == '\n');
    }
    p->b->failed |= b.failed;
    vt_buf_release(&b);
}

/* "  what" with the value, the sentence, the table or the drawing of the item. */
static void put_item(page *p, const char *what, const json_t *item)
{
    vt_buf line = {0};
    char tag[STORY_TEXT], of[STORY_TEXT];
    vt_buf_printf(&line, "%s: ", what);
    if (json_object_get(item, "missing")) {
        vt_buf_puts(&line, "not measured here, because ");
        put_text(&line, json_object_get(item, "missing"));
    } else if (json_object_get(item, "text")) {
        put_text(&line, json_object_get(item, "text"));
    } else if (json_object_get(item, "unit")) {
        vt_text_figure(&line, real(item, "value"), unit_of(item));
        if (*story_text(item, "of", of))
            vt_buf_printf(&line, " %s", of);
        vt_buf_printf(&line, " [%s]", story_text(item, "tag", tag));
    } else {
        const json_t *title = json_object_get(item, "title");
        const char *words = json_string_value(title);
        if (words && strcasecmp(words, what) != 0) /* else it has been said */
            put_text(&line, title);
    }
    paragraph(p, &line, 4);
    if (json_object_get(item, "rows"))
        table(p, item);
    else if (json_object_get(item, "drawing"))
        indented(p, json_object_get(item, "drawing"));
}

static const lab_item_def *def_of(const lab_def *d, const char *key)
{
    for (const lab_item_def *i = d ? d->items : NULL; i && i->key; i++)
        if (strcmp(i->key, key) == 0)
            return i;
    return NULL;
}

/* group 0: what is no item of the lab's table (the run); 1: the process; 2: the hardware. */
static void items(page *p, const lab_def *d, int group)
{
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)json_object_get(p->r, "items"), key, item)
    {
        const lab_item_def *i = def_of(d, key);
        char clean[64];
        if ((!i ? 0 : i->hardware ? 2 : 1) != group)
            continue;
        snprintf(clean, sizeof clean, "%.60s", key);
        vt_text_clean_line(clean);
        put_item(p, i ? i->what : clean, item);
    }
}

/* "  it took 8.9 s in all; section 5 tells what was found" */
static void run_line(page *p)
{
    vt_buf line = {0};
    double s = real(p->r, "seconds");
    if (!isfinite(s))
        return;
    vt_text_printf(&line, "took %f s in all; section 5 tells what was found", s);
    paragraph(p, &line, 2);
}

/* ---- checks, tiers, grades, knobs ---- */

static void checks(page *p)
{
    enum { SHOWN = 12 };
    size_t i, n = json_array_size(json_object_get(p->r, "checks")), good = 0;
    json_t *o;
    vt_buf line = {0};
    heading(p, "3", "CHECK");
    json_array_foreach(json_object_get(p->r, "checks"), i, o)
    {
        bool ok = json_is_true(json_object_get(o, "ok"));
        good += ok;
        if (ok && i >= SHOWN)
            continue;
        vt_buf_puts(&line, ok ? "ok: " : "WRONG: ");
        put_text(&line, json_object_get(o, "text"));
        paragraph(p, &line, 2);
    }
    vt_buf_printf(p->b, "  %zu of %zu checks hold\n", good, n);
}

static void profile(page *p)
{
    vt_buf line = {0};
    heading(p, "4", "PROFILE");
    vt_buf_puts(&line, "tier ");
    put_text(&line, json_object_get(p->r, "tier"));
    vt_buf_puts(&line, ". What that cannot see: ");
    put_text(&line, json_object_get(p->r, "cannot_see"));
    paragraph(p, &line, 2);
}

static void grades(page *p)
{
    size_t i;
    json_t *o;
    vt_buf line = {0};
    json_array_foreach(json_object_get(p->r, "predictions"), i, o)
    {
        char what[STORY_TEXT], grade[STORY_TEXT], reader[STORY_TEXT];
        vt_unit u = unit_of(o);
        if (!*story_text(o, "grade", grade))
            continue;
        vt_buf_printf(&line, "%s: measured ", story_text(o, "what", what));
        vt_text_figure(&line, real(o, "measured"), u);
        if (json_is_real(json_object_get(o, "own"))) {
            vt_buf_puts(&line, ", expected ");
            vt_text_figure(&line, real(o, "own"), u);
        }
        vt_buf_printf(&line, ": %s", grade);
        if (*story_text(o, "reader_grade", reader)) {
            vt_buf_puts(&line, "; your ");
            vt_text_figure(&line, real(o, "reader"), u);
            vt_buf_printf(&line, ": %s", reader);
        }
        paragraph(p, &line, 4);
    }
    json_array_foreach(json_object_get(p->r, "findings"), i, o)
    {
        char rule[STORY_TEXT];
        put_text(&line, json_object_get(o, "text"));
        vt_buf_printf(&line, " [%s]", story_text(o, "rule", rule));
        paragraph(p, &line, 4);
    }
}

static void put_time(vt_table *t, double s, double noise)
{
    vt_buf b = {0};
    vt_text_figure(&b, s, VT_SECONDS);
    if (isfinite(noise) && isfinite(s))
        vt_buf_printf(&b, noise > 0.99 ? " ± >99 %%" : " ± %.0f %%", 100 * noise);
    vt_table_cell(t, "%s", b.data ? b.data : "");
    vt_buf_release(&b);
}

static void knobs(page *p)
{
    size_t i;
    json_t *o;
    vt_table t;
    vt_buf line = {0};
    heading(p, "6", "CHANGE");
    if (json_array_size(json_object_get(p->r, "knobs")) == 0) {
        vt_buf_puts(p->b, "  no knob belongs to this lab\n");
        return;
    }
    vt_table_init(&t, "knob|>before|>after|>gain|>expected|verdict");
    json_array_foreach(json_object_get(p->r, "knobs"), i, o)
    {
        char cell[STORY_TEXT];
        if (i >= 64)
            break;
        vt_table_cell(&t, "%s", story_text(o, "name", cell));
        put_time(&t, real(o, "before_s"), real(o, "before_noise"));
        put_time(&t, real(o, "after_s"), real(o, "after_noise"));
        double gain = real(o, "gain"), expected = real(o, "expected");
        vt_table_cell(&t, isfinite(gain) ? "%.2fx" : "n/a", gain);
        vt_table_cell(&t, isfinite(expected) ? "%.2fx" : "n/a", expected);
        vt_table_cell(&t, "%s", story_text(o, "verdict", cell));
    }
    vt_table_finish(&t, p->b, p->term, 2);
    json_array_foreach(json_object_get(p->r, "knobs"), i, o)
    {
        char name[STORY_TEXT], where[STORY_TEXT];
        vt_buf_printf(&line, "%s (%s): ", story_text(o, "name", name),
                      story_text(o, "where", where));
        put_text(&line, json_object_get(o, "why"));
        paragraph(p, &line, 4);
    }
}

static void files(page *p)
{
    size_t i;
    json_t *o;
    vt_buf line = {0};
    if (json_array_size(json_object_get(p->r, "files")) == 0)
        return;
    vt_buf_puts(p->b, "\nFiles:\n");
    json_array_foreach(json_object_get(p->r, "files"), i, o)
    {
        char name[STORY_TEXT];
        vt_buf_printf(&line, "%s: ", story_text(o, "name", name));
        put_text(&line, json_object_get(o, "what"));
        paragraph(p, &line, 4);
    }
}

void lab_result_render(const json_t *result, const vt_term *term, vt_buf *out)
{
    vt_term wide = *term;
    wide.width = wide.width < 80 ? 80 : wide.width;
    page p = {out, &wide, result};
    char track[STORY_TEXT], number[STORY_TEXT];
    lab_track t;
    const lab_def *d = lab_track_find(story_text(result, "track", track), &t)
                           ? lab_find(t, story_text(result, "lab", number))
                           : NULL;
    title(&p);
    predictions(&p);
    heading(&p, "2", "RUN");
    run_line(&p);
    items(&p, d, 0);
    checks(&p);
    profile(&p);
    heading(&p, "5", "EXPLAIN");
    vt_buf_puts(out, "  the process\n");
    items(&p, d, 1);
    vt_buf_puts(out, "  the hardware\n");
    items(&p, d, 2);
    grades(&p);
    knobs(&p);
    files(&p);
}
