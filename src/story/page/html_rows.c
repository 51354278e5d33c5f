/* Sections and rows of a story's page as HTML. */
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

/* Draws the rows from `r` on that are the table's; returns the one behind them. */
static const page_row *table(vt_buf *b, const page_section *s, const page_row *r)
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
            else
                html_text(b, cell->text);
            vt_buf_puts(b, "</td>");
        }
        vt_buf_puts(b, "</tr>\n");
    }
    vt_buf_puts(b, "</tbody></table></div>\n");
    return r;
}

/* All cells of a row beside each other, each with its class. */
static void cells(vt_buf *b, const page_row *r, const char *class)
{
    static const char *const part[] = {"name", "how", "text", "note", "mark"};
    vt_buf_printf(b, "<div class=\"row %s\">", class);
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

/* Draws a row; returns the one behind it. */
static const page_row *draw_row(vt_buf *b, const page_section *s, const page_row *r)
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
        cells(b, r, r->kind == PAGE_LABEL ? "label" : "item");
        break;
    case PAGE_MORE:
    case PAGE_FACT:
        cells(b, r, r->kind == PAGE_FACT ? "fact" : "more");
        break;
    case PAGE_OF_OP:
    case PAGE_REMARK:
        cells(b, r, "of");
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
        return table(b, s, r);
    case PAGE_EVENT:
    case PAGE_CHANGE:
        event(b, r, r->kind == PAGE_EVENT ? "event" : "change");
        break;
    }
    return r->next;
}

void html_section(vt_buf *b, const page_section *s)
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
    for (const page_row *r = s->row; r;)
        r = draw_row(b, s, r);
    vt_buf_puts(b, "</section>\n");
}
