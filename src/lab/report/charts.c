/* Tables of a result drawn as bars, for labs that draw nothing themselves (report/inside.h):
 *
 *   prefill 512 of 512 fa2  ████████████  17.6 us
 *   prefill 512 of 512 fa3  ████████      11.6 us
 *
 * One picture of times, of the first table that has a column of them, and one of the pages of KV
 * memory over the steps of a recording. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/report/inside.h"

enum { MAX_BARS = 16, BAR_CELLS = 32, LABEL_COLUMNS = 36 };

typedef struct bar {
    char label[160];
    const char *text; /* the figure as the table has it */
    double value;
} bar;

/* A column of times: its cells are numbers in seconds. One of pages has plain numbers. */
static double number_of(const json_t *cell, bool pages)
{
    char *end;
    const char *text = report_string(cell, "text");
    if (!pages)
        return strcmp(report_string(cell, "unit"), "s") == 0 ? report_number(cell, "value") : NAN;
    double v = strtod(text, &end);
    return end != text && *end == '\0' ? v : NAN;
}

/* The words of the columns at the left: those of a row that are no numbers. */
static void label_of(const json_t *columns, const json_t *row, size_t until, bool pages,
                     char *label, size_t size)
{
    size_t n = 0;
    *label = '\0';
    for (size_t i = 0; i < until && n < size - 1; i++) {
        const char *name = json_string_value(json_array_get(columns, i)),
                   *text = report_string(json_array_get(row, i), "text");
        if (name && *text && (*name != '>' || pages)) {
            n += (size_t)snprintf(label + n, size - n, "%s%s", n ? " " : "", text);
            if (pages)
                return; /* the first column counts the steps */
        }
    }
}

/* Cuts text to a number of columns, not within a character. */
static void cut(char *text, size_t columns)
{
    size_t n = 0;
    for (char *p = text; *p; p++)
        if (((unsigned char)*p & 0xc0) != 0x80 && n++ == columns) {
            *p = '\0';
            return;
        }
}

static size_t columns_of(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static int bars_of(const json_t *table, size_t column, bool pages, bar *out)
{
    int n = 0;
    size_t i;
    json_t *row;
    const json_t *columns = json_object_get(table, "columns");
    json_array_foreach(json_object_get(table, "rows"), i, row)
    {
        const json_t *cell = json_array_get(row, column);
        double v = number_of(cell, pages);
        if (n == MAX_BARS)
            break;
        if (!(v >= 0) || !isfinite(v))
            continue;
        out[n] = (bar){.text = report_string(cell, "text"), .value = v};
        label_of(columns, row, column, pages, out[n].label, sizeof out[n].label);
        cut(out[n].label, LABEL_COLUMNS);
        n++;
    }
    return n;
}

static json_t *draw(const bar *all, int n)
{
    double most = 0;
    size_t width = 0;
    vt_buf b = {0};
    for (int i = 0; i < n; i++) {
        most = fmax(most, all[i].value);
        width = columns_of(all[i].label) > width ? columns_of(all[i].label) : width;
    }
    for (int i = 0; i < n && most > 0; i++) {
        int cells = (int)lround(BAR_CELLS * all[i].value / most);
        vt_buf_puts(&b, all[i].label);
        for (size_t k = columns_of(all[i].label); k < width + 2; k++)
            vt_buf_putc(&b, ' ');
        for (int k = 0; k < cells; k++)
            vt_buf_puts(&b, "█");
        for (int k = cells; k < BAR_CELLS + 2; k++)
            vt_buf_putc(&b, ' ');
        vt_buf_printf(&b, "%s\n", all[i].text);
    }
    return report_text(&b);
}

/* Appends a picture of the first column of the table that has these numbers, in two rows at
 * least. */
static json_t *add_chart(json_t *charts, const lab_item_def *def, const json_t *table, bool pages,
                         bool *drawn)
{
    size_t i;
    json_t *c;
    bar *all = calloc(MAX_BARS, sizeof *all);
    json_array_foreach(json_object_get(table, "columns"), i, c)
    {
        const char *name = json_string_value(c);
        if (!all || *drawn || !name || (pages && strcmp(name, ">pages held") != 0))
            continue;
        int n = bars_of(table, i, pages, all);
        if (n < 2)
            continue;
        *drawn = true;
        charts = report_append(charts, json_pack("{s:s s:s s:o}", "what", def->what, "column",
                                                 name + (*name == '>'), "drawing", draw(all, n)));
    }
    free(all);
    return charts;
}

/* ---- the events of a lab ---- */

enum { MAX_EVENTS = 24, EVENT_COLUMN = 17 };

/* The tick of an event in its timeline. */
static const char *tick_of(size_t i, size_t n) { return i == 0 ? "┌─" : i + 1 == n ? "└─" : "├─"; }

/*    0.31 s ├─ 120 ms  embed gather, tokens=64 ...: 1.81 us a call, 15 % of its memory roof */
static void put_event(vt_buf *b, const json_t *e, const char *tick)
{
    size_t start = b->len;
    vt_text_printf(b, "%9.2f s %s %f s", report_number(e, "at_s"), tick,
                   report_number(e, "seconds"));
    vt_text_pad(b, start, EVENT_COLUMN + 7);
    vt_text_wrap(b, report_string(e, "text"), EVENT_COLUMN + 7, VT_TERM_WIDTH - 4);
    vt_buf_putc(b, '\n');
}

json_t *report_view_events(const json_t *result)
{
    const json_t *events = json_object_get(result, "events");
    size_t n = json_array_size(events);
    vt_buf b = {0};
    if (n == 0)
        return json_null();
    for (size_t i = 0; i < n; i++) {
        if (n > MAX_EVENTS && i == MAX_EVENTS / 2) {
            i = n - MAX_EVENTS / 2;
            vt_buf_printf(&b, "%11s │  %zu more\n", "", n - MAX_EVENTS);
        }
        put_event(&b, json_array_get(events, i), tick_of(i, n));
    }
    for (size_t i = 0; i < b.len; i++)
        b.data[i] = b.data[i] == '`' ? '\'' : b.data[i];
    return report_text(&b);
}

json_t *report_view_charts(const lab_def *d, const json_t *result)
{
    json_t *charts = json_array();
    const json_t *items = json_object_get(result, "items");
    for (int pages = 0; pages < 2; pages++) {
        bool drawn = false;
        for (const lab_item_def *i = d->items; i->key && !drawn; i++)
            charts = add_chart(charts, i, json_object_get(items, i->key), pages == 1, &drawn);
    }
    return charts;
}
