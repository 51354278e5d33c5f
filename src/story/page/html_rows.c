/* Sections and rows of a story's page as HTML. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "story/page/html.h"

static const char *const ink_class[] = {
    [VT_INK_PLAIN] = "",   [VT_INK_BOLD] = "bold",   [VT_INK_DIM] = "dim",
    [VT_INK_RED] = "red",  [VT_INK_GREEN] = "green", [VT_INK_YELLOW] = "yellow",
    [VT_INK_CYAN] = "cyan"};

/* <tag class="...">text</tag>; nothing where the text is empty. */
static void element(vt_buf *b, const char *tag, const char *class, const page_cell *c)
{
    if (!*c->text)
        return;
    vt_buf_printf(b, "<%s class=\"%s %s\">", tag, class, ink_class[c->ink]);
    html_text(b, c->text);
    vt_buf_printf(b, "</%s>", tag);
}

void html_bar(vt_buf *b, double from, double share)
{
    if (!isfinite(from) || !isfinite(share))
        return;
    from = fmin(fmax(from, 0), 1);
    share = fmin(fmax(share, 0), 1 - from);
    vt_buf_printf(b,
                  "<svg class=\"bar\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\" "
                  "aria-hidden=\"true\"><rect x=\"%.2f\" width=\"%.2f\" height=\"8\"/></svg>",
                  100 * from, fmax(100 * share, 0.3));
}

static void percent(vt_buf *b, double share)
{
    if (isfinite(share))
        vt_buf_printf(b, "<span class=\"share\">%.1f %%</span>", 100 * share);
}

/* The life of a request: four borders, between which it waits, computes its prompt and decodes. */
static void life(vt_buf *b, const page_cell *c)
{
    static const char *const part[3] = {"waits", "prefill", "decode"};
    vt_buf_puts(b, "<svg class=\"life\" viewBox=\"0 0 100 8\" preserveAspectRatio=\"none\">");
    for (int k = 0; k < 3 && k + 1 < c->n_series; k++)
        if (c->series[k + 1] > c->series[k])
            vt_buf_printf(b,
                          "<rect class=\"%s\" x=\"%.2f\" width=\"%.2f\" height=\"8\"><title>%s"
                          "</title></rect>",
                          part[k], 100 * c->series[k], 100 * (c->series[k + 1] - c->series[k]),
                          part[k]);
    vt_buf_puts(b, "</svg>");
}

/* The name of an op as part of an id: what has another meaning there becomes '_'. */
static void put_id(vt_buf *b, const char *name)
{
    for (; *name; name++)
        vt_buf_putc(b, isalnum((unsigned char)*name) || strchr(".-", *name) ? *name : '_');
}

/* Where the card of an op is, "L00..L35 linear.qkv" or "linear.qkv". */
static const char *op_of(const char *text)
{
    const char *blank = strrchr(text, ' ');
    return blank ? blank + 1 : text;
}

/* Returns true if the page has a card of the op. */
static bool has_card(const page *p, const char *op)
{
    for (int32_t i = 0; i < p->n_sections; i++)
        for (const page_row *r = p->section[i].row; r && strcmp(p->section[i].key, "cuts") == 0;
             r = r->next)
            if (r->kind == PAGE_ITEM && strcmp(r->cell[0].text, op) == 0)
                return true;
    return false;
}

static void card_link(vt_buf *b, const char *text)
{
    vt_buf_puts(b, "<a href=\"#op-");
    put_id(b, op_of(text));
    vt_buf_puts(b, "\">");
    html_text(b, text);
    vt_buf_puts(b, "</a>");
}

/* Draws the rows from `r` on that are the table's; returns the one behind them. */
static const page_row *table(vt_buf *b, const page *p, const page_section *s, const page_row *r)
{
    vt_buf_puts(b, "<div class=\"scroll\"><table><thead><tr>");
    for (int c = 0; c < s->n_columns; c++) {
        vt_buf_printf(b, "<th%s>", s->column[c].right ? " class=\"right\"" : "");
        html_text(b, s->column[c].title);
        vt_buf_puts(b, "</th>");
    }
    vt_buf_puts(b, "</tr></thead><tbody>\n");
    for (; r && r->kind == PAGE_TABLE; r = r->next) {
        vt_buf_puts(b, "<tr>");
        for (int c = 0; c < s->n_columns; c++) {
            const page_cell *cell = &r->cell[c];
            vt_buf_printf(b, "<td class=\"%s %s\">", s->column[c].right ? "right" : "",
                          ink_class[cell->ink]);
            if (cell->n_series)
                life(b, cell);
            else if (c == 0 && has_card(p, op_of(cell->text)))
                card_link(b, cell->text);
            else
                html_text(b, cell->text);
            vt_buf_puts(b, "</td>");
        }
        vt_buf_puts(b, "</tr>\n");
    }
    vt_buf_puts(b, "</tbody></table></div>\n");
    return r;
}

/* All cells of a row beside each other, each with its class. An op's card has an id. */
static void cells(vt_buf *b, const page_section *s, const page_row *r, const char *class)
{
    static const char *const part[] = {"name", "how", "text", "note", "mark"};
    vt_buf_printf(b, "<div class=\"row %s\"", class);
    if (r->kind == PAGE_ITEM && strcmp(s->key, "cuts") == 0) {
        vt_buf_puts(b, " id=\"op-");
        put_id(b, r->cell[0].text);
        vt_buf_putc(b, '"');
    }
    vt_buf_putc(b, '>');
    for (int32_t i = 0; i < r->n_cells && i < 5; i++)
        element(b, "span", part[i], &r->cell[i]);
    vt_buf_puts(b, "</div>\n");
}

static void moment(vt_buf *b, double at_ms)
{
    if (isfinite(at_ms))
        vt_buf_printf(b, "<a class=\"at\" href=\"#t=%.1f\">%.1f ms</a>", at_ms * 1e3, at_ms);
}

static void event(vt_buf *b, const page_row *r, const char *class)
{
    vt_buf_printf(b, "<div class=\"row %s\">", class);
    moment(b, r->cell[0].value);
    if (r->kind == PAGE_CHANGE)
        vt_buf_puts(b, "<b>TRANSITION</b> ");
    element(b, "b", "name", &r->cell[1]);
    for (int32_t i = 2; i < r->n_cells && i < 4; i++)
        element(b, "span", i == 2 ? "how" : "text", &r->cell[i]);
    vt_buf_puts(b, "</div>\n");
}

static void series(vt_buf *b, const page_row *r)
{
    vt_buf_puts(b, "<div class=\"row series\">");
    element(b, "span", "name", &r->cell[0]);
    html_spark(b, r->cell[1].series, r->cell[1].n_series);
    for (int32_t i = 2; i < r->n_cells && i < 4; i++)
        element(b, "span", i == 2 ? "text" : "note", &r->cell[i]);
    vt_buf_puts(b, "</div>\n");
}

/* A row with a bar: an op of a phase, a call of a step, a span of it. */
static void barred(vt_buf *b, const page_row *r)
{
    const page_cell *c = r->cell;
    bool op = r->kind == PAGE_OP, span = r->kind == PAGE_SPAN;
    vt_buf_printf(b, "<div class=\"row %s\">", op ? "op" : "call");
    element(b, "span", "name", &c[0]);
    if (!op)
        element(b, "span", "how", &c[1]);
    if (span) {
        html_bar(b, c[2].value, c[2].share);
    } else {
        const page_cell *of = op ? &c[0] : &c[2];
        if (!op)
            element(b, "span", "time", of);
        percent(b, of->share);
        html_bar(b, 0, of->share);
        for (int32_t i = op ? 1 : 3; i < r->n_cells && i < 5; i++)
            element(b, "span", "text", &c[i]);
    }
    vt_buf_puts(b, "</div>\n");
}

/* Draws the CTAs of a launch, a line each in the row of its SM. Those that follow each other there
 * have three colours in turn. */
static void map(vt_buf *b, const page_row *r)
{
    const page_cell *c = &r->cell[1];
    int sms = (int)c->value;
    vt_buf_puts(b, "<div class=\"row map\">");
    element(b, "span", "name", &r->cell[0]);
    element(b, "span", "text", &r->cell[2]);
    vt_buf_puts(b, "</div>\n");
    if (c->n_series == 0)
        return;
    vt_buf_printf(b,
                  "<svg class=\"map\" viewBox=\"0 0 1000 %d\" height=\"%d\" "
                  "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"SMs from top to bottom, "
                  "time from left to right\">",
                  sms,
                  sms < 24   ? 8 * sms
                  : sms < 96 ? 3 * sms
                             : 2 * sms);
    for (int turn = 0; turn < 3; turn++) {
        vt_buf_printf(b, "<path class=\"turn%d\" d=\"", turn);
        for (int32_t i = 0; i + 3 < c->n_series; i += 4) {
            const double *v = c->series + i;
            int at = (int)(1000 * v[1]), to = (int)ceil(1000 * v[2]);
            if ((int)fmod(v[3], 3) == turn)
                vt_buf_printf(b, "M%d %d.5h%d", at, (int)v[0], to > at ? to - at : 1);
        }
        vt_buf_puts(b, "\"/>");
    }
    vt_buf_printf(b,
                  "</svg>\n<div class=\"axis\"><span>SM 0 at the top, SM %d at the bottom</span>"
                  "<span>0 to %s</span></div>\n",
                  sms - 1, c->text);
}

/* Draws a tree, from its first node on: what is folded, below the node that opens it. Returns the
 * row behind it. */
static const page_row *tree(vt_buf *b, const page_row *r)
{
    enum { DEEPEST = 16 };
    for (; r && r->kind == PAGE_NODE; r = r->next) {
        const page_cell *c = r->cell;
        int depth = (int)fmin(c[0].value, DEEPEST);
        bool opens = r->folded && depth == 0 && r->next && r->next->kind == PAGE_NODE &&
                     r->next->cell[0].value > 0,
             last = r->folded && depth > 0 &&
                    (!r->next || r->next->kind != PAGE_NODE || !(r->next->cell[0].value > 0));
        vt_buf_puts(b, opens ? "<details><summary>" : "");
        vt_buf_printf(b, "<div class=\"row node d%d\">", depth);
        element(b, "span", "name", &c[0]);
        element(b, "span", "time", &c[1]);
        percent(b, c[1].share);
        if (depth == 0)
            html_bar(b, 0, c[1].share);
        element(b, "span", "text", &c[2]);
        vt_buf_puts(b, "</div>");
        vt_buf_puts(b, opens ? "</summary>\n" : last ? "</details>\n" : "\n");
    }
    return r;
}

/* Draws a row; returns the one behind it. */
static const page_row *draw_row(vt_buf *b, const page *p, const page_section *s, const page_row *r)
{
    switch (r->kind) {
    case PAGE_TITLE:
        element(b, "h1", "", &r->cell[0]);
        element(b, "p", "about", &r->cell[1]);
        break;
    case PAGE_TEXT:
    case PAGE_LINE:
        element(b, "p", r->kind == PAGE_LINE ? "line" : "text", &r->cell[0]);
        break;
    case PAGE_LABEL:
    case PAGE_ITEM:
        cells(b, s, r, r->kind == PAGE_LABEL ? "label" : "item");
        break;
    case PAGE_MORE:
    case PAGE_FACT:
        cells(b, s, r, r->kind == PAGE_FACT ? "fact" : "more");
        break;
    case PAGE_OF_OP:
    case PAGE_REMARK:
        cells(b, s, r, "of");
        break;
    case PAGE_SERIES:
        series(b, r);
        break;
    case PAGE_SPAN:
    case PAGE_CALL:
    case PAGE_OP:
        barred(b, r);
        break;
    case PAGE_MAP:
        map(b, r);
        break;
    case PAGE_TABLE:
        return table(b, p, s, r);
    case PAGE_NODE:
        return tree(b, r);
    case PAGE_EVENT:
    case PAGE_CHANGE:
        event(b, r, r->kind == PAGE_EVENT ? "event" : "change");
        break;
    }
    return r->next;
}

/* Words of the headline, and the section that shows the number before or behind them. */
static const struct {
    const char *words;
    bool before;
    const char *to;
} evidence[] = {{"First token after ", false, "time"}, {"then one every ", false, "ribbon"},
                {" of the decode time", true, "step"}, {"weights at ", false, "step"},
                {" of what this", true, "roofline"},   {"A decode step moves ", false, "step"},
                {"The floor is ", false, "trail"},     {"machine withheld ", false, "machine"}};

/* Returns true if the page has such a section. The drawings are there where the data is. */
static bool has_section(const page *p, const char *key)
{
    for (int32_t i = 0; i < p->n_sections; i++)
        if (strcmp(p->section[i].key, key) == 0)
            return true;
    vt_buf drawn = {0};
    if (strcmp(key, "ribbon") == 0)
        html_ribbon(&drawn, p->story);
    else if (strcmp(key, "roofline") == 0)
        html_roofline(&drawn, p->story);
    bool there = drawn.len > 0;
    vt_buf_release(&drawn);
    return there;
}

/* "20.9 ms", "90 %": a number and its unit at text[0..); 0: there is none. */
static size_t number_length(const char *text)
{
    size_t digits = strspn(text, "0123456789.,"), unit = text[digits] == ' ' ? digits + 1 : digits;
    unit += strcspn(text + unit, " ,.;:");
    return digits ? unit : 0;
}

/* Where the number that ends at text[at] begins. */
static size_t number_before(const char *text, size_t at)
{
    for (int words = 0; at > 0; at--)
        if (text[at - 1] == ' ' && ++words == 2)
            break;
    return at;
}

static void put_cut(vt_buf *b, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char one[2] = {text[i], '\0'};
        html_text(b, one);
    }
}

/* Finds the first number at or behind text[from] that has evidence on the page: *at and its length.
 * NULL: there is none. */
static const char *next_evidence(const page *p, const char *text, size_t from, size_t *at,
                                 size_t *n)
{
    const char *to = NULL;
    *at = SIZE_MAX;
    for (size_t i = 0; i < sizeof evidence / sizeof *evidence; i++) {
        const char *words = strstr(text + from, evidence[i].words);
        size_t begin = words ? (size_t)(words - text) : 0;
        if (!words)
            continue;
        begin = evidence[i].before ? number_before(text, begin) : begin + strlen(evidence[i].words);
        size_t length = number_length(text + begin);
        if (begin >= from && begin < *at && length > 0 && has_section(p, evidence[i].to)) {
            *at = begin;
            *n = length;
            to = evidence[i].to;
        }
    }
    return to;
}

/* The headline, whose numbers lead to where they come from. */
static void headline(vt_buf *b, const page *p, const page_row *r)
{
    if (!r)
        return;
    const char *text = r->cell[0].text, *to;
    size_t done = 0, at, n;
    vt_buf_puts(b, "<p class=\"text\">");
    while ((to = next_evidence(p, text, done, &at, &n))) {
        put_cut(b, text + done, at - done);
        vt_buf_printf(b, "<a href=\"#%s\">", to);
        put_cut(b, text + at, n);
        vt_buf_puts(b, "</a>");
        done = at + n;
    }
    html_text(b, text + done);
    vt_buf_puts(b, "</p>\n");
}

void html_section(vt_buf *b, const page *p, const page_section *s)
{
    vt_buf_printf(b, "<section id=\"%s\">", s->key);
    if (*s->title) {
        vt_buf_puts(b, "<h2>");
        html_text(b, s->title);
        if (*s->note) {
            vt_buf_puts(b, " <small>");
            html_text(b, s->note);
            vt_buf_puts(b, "</small>");
        }
        vt_buf_puts(b, "</h2>\n");
    }
    if (strcmp(s->key, "headline") == 0)
        headline(b, p, s->row);
    for (const page_row *r = strcmp(s->key, "headline") == 0 ? NULL : s->row; r;)
        r = draw_row(b, p, s, r);
    vt_buf_puts(b, "</section>\n");
}
