/* A story's page in a terminal (page.h): 80 to 100 cells wide, tables up to 140; reads as
 * well without colour.
 *
 * What is where within a section is in `styles`, by the section's key. A table whose columns do not
 * fit drops them in the order that its columns have. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "story/page/page.h"

enum { TIME = 11 /* where the tree of TIME begins */, WIDE = 100 };

/* How a section's rows are laid out. */
typedef struct style {
    const char *key;
    int8_t name;     /* where the text of an item begins, and the series of one; */
    int8_t lead;     /* spaces before a paragraph and a line, */
    int8_t hang;     /* and before further lines of a paragraph */
    int8_t cells[2]; /* of a series on a narrow and on a wide page */
    int8_t gap;      /* between a series and its text */
    int8_t scale;    /* from the end of the series to its note */
    bool joined;     /* it belongs to the section above it: no empty line in between */
} style;

static const style styles[] = {
    {.key = "headline", .joined = true},
    {.key = "title", .joined = true},
    {.key = "machine", .name = 9},
    {.key = "masks", .name = 9},
    {.key = "drafts", .name = 9},
    {.key = "time", .cells = {28, 48}, .gap = 2},
    {.key = "requests", .lead = 1},
    {.key = "batch", .lead = 1, .name = 16, .cells = {56, 56}, .gap = 2},
    {.key = "step", .lead = 1, .hang = 1},
    {.key = "slow", .lead = 1, .hang = 3, .joined = true},
    {.key = "cuts", .name = 20},
    {.key = "layers", .lead = 1, .name = 8, .cells = {36, 48}, .gap = 2},
    {.key = "tree", .lead = 1, .hang = 1},
    {.key = "kernels", .name = 24},
    {.key = "ctas-prefill", .lead = 1, .hang = 3},
    {.key = "ctas-decode", .lead = 1, .hang = 3},
    {.key = "gpu", .lead = 1, .hang = 3},
    {.key = "ranks", .name = 12},
    {.key = "memory", .lead = 1, .name = 9, .hang = 1, .cells = {24, 24}, .gap = 1},
    {.key = "threads", .lead = 1, .hang = 1},
    {.key = "lanes", .lead = 1, .name = 9, .cells = {16, 24}, .gap = 2, .scale = 18},
    {.key = "sampled", .lead = 1, .name = 15, .cells = {12, 20}, .gap = 2, .scale = 37},
    {.key = "findings", .lead = 1, .name = 5, .hang = 1},
    {.key = "not_measured", .lead = 1, .hang = 3},
    {.key = "observer", .lead = 1, .hang = 3},
    {.key = "level", .lead = 2, .hang = 4, .cells = {60, 60}, .gap = 2},
};

typedef struct drawing {
    vt_buf *b;
    vt_term term; /* at least 80 cells wide; its tables may be wider */
    const style *style;
} drawing;

static const style *style_of(const char *key)
{
    static const style plain = {.key = ""};
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        if (strcmp(styles[i].key, key) == 0)
            return &styles[i];
    return &plain;
}

static bool is_wide(const drawing *d) { return d->term.width >= WIDE; }

/* ---- lines ---- */

static void heading(drawing *d, const char *title, const char *note)
{
    size_t start = d->b->len;
    vt_text_ink(d->b, &d->term, VT_INK_BOLD, title);
    if (*note) {
        vt_text_pad(d->b, start, d->term.width - vt_text_width(note, strlen(note)));
        vt_text_ink(d->b, &d->term, VT_INK_DIM, note);
    }
    vt_buf_putc(d->b, '\n');
}

static void wrap(drawing *d, const char *text, int32_t column)
{
    vt_text_wrap(d->b, text, column, d->term.width);
    vt_buf_putc(d->b, '\n');
}

/* Writes what the page is about in bold, then the rest. Wraps as if the former were a word of the
 * text: its blanks would be taken for breaks. */
static void title_row(drawing *d, const page_cell *c)
{
    vt_buf all = {0}, lines = {0};
    size_t n = strlen(c[0].text);
    vt_text_ink(d->b, &d->term, VT_INK_BOLD, c[0].text);
    vt_buf_puts(d->b, "  ");
    for (size_t i = 0; i < n; i++)
        vt_buf_putc(&all, 'x');
    vt_buf_printf(&all, "  %s", c[1].text);
    vt_text_wrap(&lines, all.data ? all.data : "", 2, d->term.width - 3);
    if (lines.len > n + 1)
        vt_buf_puts(d->b, lines.data + n + 1);
    vt_buf_putc(d->b, '\n');
    d->b->failed |= all.failed || lines.failed;
    vt_buf_release(&lines);
    vt_buf_release(&all);
}

/* Returns how many cells the line that began at byte `start` has. */
static int32_t cells_of(const drawing *d, size_t start)
{
    return d->b->len > start ? vt_text_width(d->b->data + start, d->b->len - start) : 0;
}

/* Ends a line that began at byte `start`. The text stays as it is where it fits; else it is
 * wrapped, and further lines begin at `column`. */
static void end_line(drawing *d, size_t start, const char *text, int32_t column)
{
    if (cells_of(d, start) + vt_text_width(text, strlen(text)) > d->term.width)
        wrap(d, text, column);
    else
        vt_buf_printf(d->b, "%s\n", text);
}

static void text_row(drawing *d, const page_cell *c)
{
    vt_text_pad(d->b, d->b->len, d->style->lead);
    wrap(d, c->text, d->style->hang);
}

static void line_row(drawing *d, const page_cell *c)
{
    size_t start = d->b->len;
    vt_text_pad(d->b, start, d->style->lead);
    end_line(d, start, c->text, d->style->hang);
}

/* A name, and text beside it. */
static void item_row(drawing *d, const page_cell *c, bool label)
{
    size_t start = d->b->len;
    if (!label)
        vt_buf_putc(d->b, ' ');
    vt_text_ink(d->b, &d->term, label ? VT_INK_BOLD : c[0].ink, c[0].text);
    int32_t at = cells_of(d, start), behind = at ? at + 1 : 0,
            column = behind > d->style->name ? behind : d->style->name;
    vt_text_pad(d->b, start, column);
    wrap(d, c[1].text, column);
}

static void more_row(drawing *d, const page_cell *c)
{
    vt_text_pad(d->b, d->b->len, d->style->name);
    vt_buf_puts(d->b, "· ");
    wrap(d, c->text, d->style->name + 2);
}

static void series_row(drawing *d, const page_row *r)
{
    const style *s = d->style;
    const page_cell *c = r->cell;
    int32_t cells = s->cells[is_wide(d)];
    size_t start = d->b->len;
    vt_text_pad(d->b, start, s->lead);
    vt_buf_puts(d->b, c[0].text);
    if (s->name > 0)
        vt_text_pad(d->b, start, s->name);
    else
        vt_buf_putc(d->b, ' ');
    vt_text_spark(d->b, c[1].series, c[1].n_series, cells);
    if (r->n_cells > 3)
        vt_text_pad(d->b, start, s->name + cells);
    for (int32_t i = 0; i < s->gap && *c[2].text; i++)
        vt_buf_putc(d->b, ' ');
    if (r->n_cells > 3) {
        vt_buf_puts(d->b, c[2].text);
        vt_text_pad(d->b, start, s->name + cells + s->scale);
        wrap(d, c[3].text, s->name + cells + s->scale);
    } else {
        end_line(d, start, c[2].text, cells_of(d, start));
    }
}

/* A bar that begins where its time begins. */
static void span_row(drawing *d, const page_cell *c)
{
    enum { NAME = 28, FOR = 10 };
    int32_t cells = d->term.width - NAME - FOR - 1;
    size_t start = d->b->len;
    vt_buf_printf(d->b, " %s", c[0].text);
    vt_text_pad(d->b, start, NAME);
    vt_text_pad(d->b, start, NAME + FOR - (int32_t)strlen(c[1].text));
    vt_buf_puts(d->b, c[1].text);
    if (isfinite(c[2].value)) {
        int32_t at = (int32_t)(c[2].value * (cells - 1));
        vt_text_pad(d->b, start, NAME + FOR + 1 + at);
        vt_text_bar(d->b, c[2].share, cells - at > 1 ? cells : 1);
    }
    vt_buf_putc(d->b, '\n');
}

/* A call of a step; a narrow page has no bar. */
static void call_row(drawing *d, const page_row *r)
{
    enum { WITH_BAR = 97, HOW = 26, FOR = 38, SHARE = 47, BAR_AT = 56, BAR = 12 };
    const page_cell *c = r->cell;
    bool last = !r->next || r->next->kind != PAGE_CALL;
    size_t start = d->b->len;
    vt_buf_printf(d->b, " %s %s", last ? "└─" : "├─", c[0].text);
    vt_text_pad(d->b, start, HOW);
    vt_buf_puts(d->b, c[1].text);
    vt_text_pad(d->b, start, FOR);
    vt_buf_puts(d->b, c[2].text);
    vt_text_pad(d->b, start, SHARE);
    vt_buf_printf(d->b, "%5.1f %% ", 100 * c[2].share);
    if (d->term.width >= WITH_BAR) {
        vt_text_bar(d->b, c[2].share, BAR);
        vt_text_pad(d->b, start, BAR_AT + BAR);
    }
    vt_buf_puts(d->b, c[3].text);
    if (*c[4].text) {
        char mark[STORY_TEXT];
        snprintf(mark, sizeof mark, "  %s", c[4].text);
        vt_text_ink(d->b, &d->term, c[4].ink, mark);
    }
    vt_buf_putc(d->b, '\n');
}

/* Returns true if a node of the same depth follows with the same parent. */
static bool has_next_sibling(const page_row *r)
{
    double depth = r->cell[0].value;
    for (r = r->next; r && r->kind == PAGE_NODE && r->cell[0].value >= depth; r = r->next)
        if (r->cell[0].value == depth)
            return true;
    return false;
}

/* A node of a tree, below its parent. */
static void node_row(drawing *d, const page_row *r)
{
    enum { DEEPEST = 16, AMOUNT = 30, TEXT = 45 };
    const page_cell *c = r->cell;
    size_t start = d->b->len;
    int32_t depth = (int32_t)fmin(c[0].value, DEEPEST);
    vt_text_pad(d->b, start, 1 + 3 * depth);
    vt_buf_puts(d->b, has_next_sibling(r) ? "├─ " : "└─ ");
    vt_text_ink(d->b, &d->term, c[0].ink, c[0].text);
    vt_text_pad(d->b, start, AMOUNT);
    vt_buf_puts(d->b, c[1].text);
    if (*c[2].text) {
        vt_text_pad(d->b, start, TEXT);
        wrap(d, c[2].text, TEXT);
    } else {
        vt_buf_putc(d->b, '\n');
    }
}

/* ---- maps of CTAs ---- */

enum { MAP_BANDS = 8, MAP_WIDTH = 128 };

/* Adds a CTA's time to the cells of its band. */
static void add_cta(double cell[MAP_WIDTH], int32_t cells, double begin, double end)
{
    for (int32_t i = (int32_t)(begin * cells); i < cells && i < end * cells; i++)
        cell[i] += fmax(0, fmin(end * cells, i + 1) - fmax(begin * cells, i));
}

/* For how much of a cell the SMs from `first` to `last` had a CTA, in their mean. The CTAs are in
 * the order of SMs and begins. */
static void fill_band(const page_cell *c, int32_t first, int32_t last, double *cell, int32_t cells)
{
    double sm = -1, until = 0;
    memset(cell, 0, (size_t)cells * sizeof *cell);
    for (int32_t i = 0; i + 3 < c->n_series; i += 4) {
        const double *v = c->series + i;
        if (v[0] < first || v[0] > last)
            continue;
        until = v[0] == sm ? until : 0;
        sm = v[0];
        if (v[2] > until)
            add_cta(cell, cells, fmax(v[1], until), v[2]);
        until = fmax(until, v[2]);
    }
    for (int32_t i = 0; i < cells; i++)
        cell[i] /= last - first + 1;
}

/* Bands of SMs from top to bottom, time from left to right: the fuller a cell, the darker. */
static void draw_map(drawing *d, const page_cell *c)
{
    static const char *const shade[] = {"·", "░", "▒", "▓", "█"};
    double cell[MAP_WIDTH];
    int32_t sms = (int32_t)c->value, bands = sms < MAP_BANDS ? sms : MAP_BANDS,
            cells = d->term.width - 20 < MAP_WIDTH ? d->term.width - 20 : MAP_WIDTH;
    for (int32_t k = 0; k < bands; k++) {
        int32_t first = (int32_t)((int64_t)k * sms / bands),
                last = (int32_t)((int64_t)(k + 1) * sms / bands) - 1;
        size_t start = d->b->len;
        fill_band(c, first, last, cell, cells);
        vt_buf_printf(d->b, "   SM %d", first);
        if (last > first)
            vt_buf_printf(d->b, " to %d", last);
        vt_text_pad(d->b, start, 17);
        for (int32_t i = 0; i < cells; i++)
            vt_buf_puts(d->b, shade[cell[i] <= 0 ? 0 : 1 + (int)fmin(3, 4 * cell[i])]);
        vt_buf_putc(d->b, '\n');
    }
    size_t start = d->b->len;
    vt_text_pad(d->b, start, 17);
    vt_buf_putc(d->b, '0');
    vt_text_pad(d->b, start, 17 + cells - vt_text_width(c->text, strlen(c->text)));
    vt_buf_printf(d->b, "%s\n", c->text);
}

/* A launch in words; the two longest of a step are drawn too. */
static void map_row(drawing *d, const page_section *s, const page_row *r)
{
    int32_t before = 0;
    for (const page_row *at = s->row; at != r; at = at->next)
        before += at->kind == PAGE_MAP;
    vt_buf_putc(d->b, ' ');
    vt_text_ink(d->b, &d->term, VT_INK_BOLD, r->cell[0].text);
    vt_buf_puts(d->b, "\n   ");
    wrap(d, r->cell[2].text, 3);
    if (before < 2 && r->cell[1].n_series > 0)
        draw_map(d, &r->cell[1]);
}

/* ---- tables ---- */

/* "··▒▒████    ": a series of four borders, between which a request waits, computes its prompt and
 * decodes. */
static void put_life(char *out, size_t size, const page_cell *c, int cells)
{
    static const char *const glyph[3] = {"·", "▒", "█"};
    size_t n = 0;
    for (int i = 0; i < cells; i++) {
        double time = (i + 0.5) / cells;
        const char *g = " ";
        for (int k = 0; k < 3; k++)
            if (time >= c->series[k] && time < c->series[k + 1])
                g = glyph[k];
        vt_append(out, size, &n, "%s", g);
    }
}

static int32_t column_width(const page_section *s, int c)
{
    int32_t most = (int32_t)strlen(s->column[c].title);
    for (const page_row *r = s->row; r; r = r->next) {
        if (r->kind != PAGE_TABLE)
            continue;
        int32_t w = vt_text_width(r->cell[c].text, strlen(r->cell[c].text));
        most = w > most ? w : most;
    }
    return most;
}

/* Hides columns until the table, with a cell in front and two between columns, fits. */
static void fit(const page_section *s, int32_t width, bool shown[PAGE_CELLS])
{
    for (int c = 0; c < s->n_columns; c++)
        shown[c] = true;
    for (int32_t drop = 1;; drop++) {
        int32_t cells = -1, left = 0;
        for (int c = 0; c < s->n_columns; c++) {
            cells += shown[c] ? 2 + column_width(s, c) : 0;
            left += s->column[c].drop >= drop;
        }
        if (cells <= width || left == 0)
            return;
        for (int c = 0; c < s->n_columns; c++)
            shown[c] = shown[c] && s->column[c].drop != drop;
    }
}

/* Draws the rows from `r` on that are the table's; returns the one behind them. */
static const page_row *table(drawing *d, const page_section *s, const page_row *r)
{
    enum { LIFE = 36 };
    bool shown[PAGE_CELLS];
    vt_table out;
    vt_buf titles = {0};
    char life[4 * LIFE + 1];
    fit(s, d->term.wide, shown);
    for (int c = 0; c < s->n_columns; c++)
        if (shown[c])
            vt_buf_printf(&titles, "%s%s%s", titles.len ? "|" : "", s->column[c].right ? ">" : "",
                          s->column[c].title);
    vt_table_init(&out, titles.data ? titles.data : "");
    for (; r && r->kind == PAGE_TABLE; r = r->next)
        for (int c = 0; c < s->n_columns; c++) {
            const page_cell *cell = &r->cell[c];
            if (cell->n_series)
                put_life(life, sizeof life, cell, is_wide(d) ? LIFE : 16);
            if (shown[c])
                vt_table_cell(&out, "%s", cell->n_series ? life : cell->text);
        }
    vt_table_finish(&out, d->b, &d->term, 1);
    d->b->failed |= titles.failed;
    vt_buf_release(&titles);
    return r;
}

/* ---- the tree of TIME ---- */

/* "    1.23 ms " or blanks: the column in front of the tree. */
static void time_column(drawing *d, double at_ms)
{
    size_t start = d->b->len;
    if (isfinite(at_ms)) {
        vt_buf t = {0};
        vt_buf_printf(&t, "%.1f ms", at_ms);
        for (size_t i = t.len; i < TIME - 1; i++)
            vt_buf_putc(d->b, ' ');
        vt_buf_puts(d->b, t.data ? t.data : "");
        vt_buf_release(&t);
    }
    vt_text_pad(d->b, start, TIME);
}

/* Text that begins at `column` of a line of the tree. Its further lines begin with the tree's bars,
 * so that these are not broken. */
static void tree_wrap(drawing *d, const char *text, int32_t column, const char *bars)
{
    vt_buf lines = {0};
    vt_text_wrap(&lines, text, column, d->term.width);
    for (const char *s = lines.data ? lines.data : ""; *s;) {
        size_t n = strcspn(s, "\n");
        vt_buf_add(d->b, s, n);
        s += n;
        if (*s != '\n')
            break;
        size_t start = d->b->len + 1;
        vt_buf_putc(d->b, '\n');
        vt_text_pad(d->b, start, TIME);
        vt_buf_puts(d->b, bars);
        vt_text_pad(d->b, start, column);
        s += 1 + strspn(s + 1, " ");
    }
    vt_buf_putc(d->b, '\n');
    d->b->failed |= lines.failed;
    vt_buf_release(&lines);
}

/* Returns true if no other op of its event follows. */
static bool is_last_op(const page_row *r)
{
    for (r = r->next; r && r->kind != PAGE_EVENT && r->kind != PAGE_CHANGE; r = r->next)
        if (r->kind == PAGE_OP)
            return false;
    return true;
}

static bool is_last_event(const page_row *r)
{
    for (r = r->next; r; r = r->next)
        if (r->kind == PAGE_EVENT || r->kind == PAGE_CHANGE)
            return false;
    return true;
}

static void event_row(drawing *d, const page_section *s, const page_row *r)
{
    enum { NAME = 32, NOTE = 44 };
    const page_cell *c = r->cell;
    bool last = is_last_event(r);
    size_t start = d->b->len;
    time_column(d, c[0].value);
    vt_buf_printf(d->b, "%s ", r == s->row ? "┌─" : last ? "└─" : "├─");
    vt_text_ink(d->b, &d->term, VT_INK_BOLD, c[1].text);
    vt_text_pad(d->b, start, NAME);
    vt_buf_puts(d->b, c[2].text);
    vt_text_pad(d->b, start, NOTE);
    tree_wrap(d, c[3].text, NOTE, last && r != s->row ? "" : "│");
}

/* An op: its share as a number and a bar, its rate where the page is wide, its share of a roof. */
static void op_row(drawing *d, const page_row *r)
{
    enum { BAR = 43 };
    const page_cell *c = r->cell;
    int32_t cells = is_wide(d) ? 8 : 4;
    size_t start = d->b->len;
    time_column(d, NAN);
    vt_buf_printf(d->b, "│   %s %s", is_last_op(r) ? "└─" : "├─", c[0].text);
    vt_text_pad(d->b, start, is_wide(d) ? 36 : 35);
    vt_buf_printf(d->b, "%3.0f %%  ", 100 * c[0].share);
    vt_text_bar(d->b, c[0].share, cells);
    if (*c[1].text || *c[2].text || *c[3].text)
        vt_text_pad(d->b, start, BAR + cells);
    if (*c[1].text && is_wide(d))
        vt_buf_printf(d->b, " %s,", c[1].text);
    for (int i = 2; i < 4; i++)
        if (*c[i].text) {
            char text[STORY_TEXT];
            snprintf(text, sizeof text, " %s", c[i].text);
            vt_text_ink(d->b, &d->term, c[i].ink, text);
        }
    vt_buf_putc(d->b, '\n');
}

/* A line below the op, the change or the event above it. */
static void below_row(drawing *d, const page_row *r)
{
    const page_cell *c = r->cell;
    time_column(d, NAN);
    if (r->kind == PAGE_OF_OP) {
        vt_buf_puts(d->b, "│   │     ");
        tree_wrap(d, c[0].text, TIME + 10, "│   │");
    } else if (r->kind == PAGE_FACT) {
        vt_buf_printf(d->b, "│     %-9s", c[0].text);
        tree_wrap(d, c[1].text, TIME + 15, "│");
    } else {
        vt_buf_puts(d->b, "│       ");
        tree_wrap(d, c[0].text, TIME + 8, "│");
    }
}

static void change_row(drawing *d, const page_cell *c)
{
    time_column(d, c[0].value);
    vt_buf_puts(d->b, "╞═ ");
    vt_text_ink(d->b, &d->term, VT_INK_CYAN, "TRANSITION ");
    vt_text_ink(d->b, &d->term, VT_INK_CYAN, c[1].text);
    vt_buf_putc(d->b, '\n');
}

/* A series of the event above it. */
static void tree_series(drawing *d, const page_cell *c)
{
    size_t start = d->b->len;
    time_column(d, NAN);
    vt_buf_printf(d->b, "│   %s ", c[0].text);
    vt_text_spark(d->b, c[1].series, c[1].n_series, d->style->cells[is_wide(d)]);
    vt_buf_puts(d->b, "  ");
    int32_t at = cells_of(d, start);
    if (at + vt_text_width(c[2].text, strlen(c[2].text)) > d->term.width)
        tree_wrap(d, c[2].text, at, "│");
    else
        vt_buf_printf(d->b, "%s\n", c[2].text);
}

/* ---- all of it ---- */

/* Draws a row; returns the one behind it. */
static const page_row *draw_row(drawing *d, const page_section *s, const page_row *r)
{
    bool tree = strcmp(s->key, "time") == 0;
    if (r->folded)
        return r->next;
    switch (r->kind) {
    case PAGE_TITLE:
        title_row(d, r->cell);
        break;
    case PAGE_TEXT:
        text_row(d, r->cell);
        break;
    case PAGE_LINE:
        line_row(d, r->cell);
        break;
    case PAGE_CALL:
        call_row(d, r);
        break;
    case PAGE_LABEL:
    case PAGE_ITEM:
        item_row(d, r->cell, r->kind == PAGE_LABEL);
        break;
    case PAGE_MORE:
        more_row(d, r->cell);
        break;
    case PAGE_SERIES:
        if (tree)
            tree_series(d, r->cell);
        else
            series_row(d, r);
        break;
    case PAGE_SPAN:
        span_row(d, r->cell);
        break;
    case PAGE_MAP:
        map_row(d, s, r);
        break;
    case PAGE_NODE:
        node_row(d, r);
        break;
    case PAGE_TABLE:
        return table(d, s, r);
    case PAGE_EVENT:
        event_row(d, s, r);
        break;
    case PAGE_CHANGE:
        change_row(d, r->cell);
        break;
    case PAGE_OP:
        op_row(d, r);
        break;
    case PAGE_FACT:
    case PAGE_OF_OP:
    case PAGE_REMARK:
        below_row(d, r);
        break;
    }
    return r->next;
}

void page_to_terminal(const page *p, const vt_term *term, vt_buf *out)
{
    drawing d = {.b = out, .term = *term};
    d.term.width = term->width < 80 ? 80 : term->width;
    d.term.wide = vt_term_wide(term) < 80 ? 80 : vt_term_wide(term);
    for (int32_t i = 0; i < p->n_sections; i++) {
        const page_section *s = &p->section[i];
        d.style = style_of(s->key);
        if (!d.style->joined)
            vt_buf_putc(out, '\n');
        if (*s->title)
            heading(&d, s->title, s->note);
        for (const page_row *r = s->row; r;)
            r = draw_row(&d, s, r);
    }
}
