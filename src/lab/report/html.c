/* A page of a report as HTML, from its markdown (report/inside.h): the same words, with bars.
 *
 * It knows the markdown that the templates write: headings, paragraphs, lists, tables, fences, and
 * `code`, **strong** and [text](address) inside of lines. All else is text, and every character of
 * text is escaped: a result can add no element, and no address but one relative to the page or of
 * https. The entities &lt; and &amp; are in the markdown already (report/text.c) and stay.
 *
 * A column of a table that holds shares ("12.5 %") or ratios ("2.89x") gets a bar in each such
 * cell: of the whole, or of the largest in the column. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/report/inside.h"
#include "story/page/html.h"

static const char style[] =
    "h3 { font-size: .9rem; margin: 14px 0 6px; color: var(--soft); }\n"
    "pre { overflow-x: auto; font: .8rem/1.45 var(--mono); margin: 0 0 10px; }\n"
    "code { font-family: var(--mono); font-size: .9em; }\n"
    "td, th { vertical-align: top; } td.wide { white-space: normal; min-width: 16rem; }\n"
    "td .bar { width: 70px; margin-left: 6px; } ul { padding-left: 20px; margin: 0 0 10px; }\n";

/* A part of the page, which ends before `end`. */
typedef struct text_part {
    const char *at, *end;
} text_part;

/* ---- inside a line ---- */

static bool begins(text_part t, const char *with)
{
    size_t n = strlen(with);
    return (size_t)(t.end - t.at) >= n && memcmp(t.at, with, n) == 0;
}

/* The first place of `what` in the part; NULL: it is not there. */
static const char *find(text_part t, const char *what)
{
    for (; t.at < t.end; t.at++)
        if (begins(t, what))
            return t.at;
    return NULL;
}

/* One character as text. */
static void put_char(vt_buf *b, char c) { html_text(b, (char[]){c, '\0'}); }

static void put_code(vt_buf *b, text_part t)
{
    vt_buf_puts(b, "<code>");
    for (; t.at < t.end; t.at++)
        if (*t.at == '&' && (begins(t, "&lt;") || begins(t, "&amp;")))
            vt_buf_putc(b, '&');
        else
            put_char(b, *t.at);
    vt_buf_puts(b, "</code>");
}

/* Returns true if an address is relative or of https: no other scheme. */
static bool is_address(text_part t)
{
    if (begins(t, "https://"))
        return true;
    for (const char *p = t.at; p < t.end; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-_./#", *p))
            return false;
    return t.at < t.end && !begins(t, "//");
}

static void put_line(vt_buf *b, text_part t);

/* Writes the element that begins here and returns where it ends; NULL: none begins. */
static const char *put_element(vt_buf *b, text_part t)
{
    text_part rest = {t.at + 1, t.end};
    const char *end;
    if (*t.at == '`' && (end = find(rest, "`"))) {
        put_code(b, (text_part){rest.at, end});
        return end + 1;
    }
    if (begins(t, "**") && (end = find((text_part){t.at + 2, t.end}, "**"))) {
        vt_buf_puts(b, "<strong>");
        put_line(b, (text_part){t.at + 2, end});
        vt_buf_puts(b, "</strong>");
        return end + 2;
    }
    if (*t.at != '[' || !(end = find(rest, "](")))
        return NULL;
    const char *close = find((text_part){end, t.end}, ")");
    text_part name = {rest.at, end}, address = {end + 2, close};
    if (!close || !is_address(address) || find(name, "["))
        return NULL;
    vt_buf_puts(b, "<a href=\"");
    for (const char *p = address.at; p < address.end; p++)
        put_char(b, *p);
    vt_buf_puts(b, "\">");
    for (const char *p = name.at; p < name.end; p++)
        if (*p != '`')
            put_char(b, *p);
    vt_buf_puts(b, "</a>");
    return close + 1;
}

/* The nesting is finite: an element's text is shorter than the element. Strong text holds no strong
 * text, because it ends at the next pair of asterisks. */
static void put_line(vt_buf *b, text_part t)
{
    while (t.at < t.end) {
        const char *end = put_element(b, t);
        if (end) {
            t.at = end;
            continue;
        }
        bool escape = *t.at == '\\' && t.at + 1 < t.end && ispunct((unsigned char)t.at[1]);
        t.at += escape;
        if (*t.at == '&' && (begins(t, "&lt;") || begins(t, "&amp;")))
            vt_buf_putc(b, '&');
        else
            put_char(b, *t.at);
        t.at++;
    }
}

/* ---- tables ---- */

enum { COLUMNS = 32 };

/* Cuts "| a | b |" into cells; returns how many. "\|" is inside of one. */
static int32_t cut_cells(text_part t, text_part *cell)
{
    int32_t n = 0;
    const char *from = t.at + 1;
    for (const char *p = from; p < t.end && n < COLUMNS; p++) {
        if (*p == '\\' && p + 1 < t.end) {
            p++;
            continue;
        }
        if (*p != '|')
            continue;
        text_part c = {from, p};
        while (c.at < c.end && *c.at == ' ')
            c.at++;
        while (c.end > c.at && c.end[-1] == ' ')
            c.end--;
        cell[n++] = c;
        from = p + 1;
    }
    return n;
}

/* "12.5 %" is 0.125 of 1, "2.89x" 2.89 of the column's largest (*of_largest); NAN: neither. */
static double amount_of(text_part t, bool *of_largest)
{
    char text[32];
    char *end = NULL;
    size_t n = (size_t)(t.end - t.at);
    if (n == 0 || n >= sizeof text || !isdigit((unsigned char)*t.at))
        return NAN;
    memcpy(text, t.at, n);
    text[n] = '\0';
    double v = strtod(text, &end);
    *of_largest = strcmp(end, "x") == 0;
    return *of_largest ? v : strcmp(end, " %") == 0 ? v / 100 : NAN;
}

/* The next line of *t, which then begins behind it; without its line break. */
static text_part take_line(text_part *t)
{
    const char *end = memchr(t->at, '\n', (size_t)(t->end - t->at));
    text_part line = {t->at, end ? end : t->end};
    t->at = end ? end + 1 : t->end;
    return line;
}

/* The lines from here on that begin with '|'. */
static text_part table_part(text_part t)
{
    text_part rest = t;
    while (rest.at < rest.end && *rest.at == '|')
        take_line(&rest);
    return (text_part){t.at, rest.at};
}

/* The largest ratio of each column; 0: it has none. */
static void find_largest(text_part rows, double *largest)
{
    text_part cell[COLUMNS];
    bool ratio = false;
    while (rows.at < rows.end) {
        int32_t n = cut_cells(take_line(&rows), cell);
        for (int32_t i = 0; i < n; i++) {
            double v = amount_of(cell[i], &ratio);
            if (isfinite(v) && ratio)
                largest[i] = fmax(largest[i], v);
        }
    }
}

static void put_row(vt_buf *b, text_part line, const char *element, const bool *right,
                    const double *largest)
{
    enum { WIDE = 48 }; /* characters, from which on a cell is wrapped */
    text_part cell[COLUMNS];
    int32_t n = cut_cells(line, cell);
    vt_buf_puts(b, "<tr>");
    for (int32_t i = 0; i < n; i++) {
        bool ratio = false;
        double v = *element == 't' && element[1] == 'd' ? amount_of(cell[i], &ratio) : NAN;
        vt_buf_printf(b, "<%s%s>", element,
                      right[i]                          ? " class=\"right\""
                      : cell[i].end - cell[i].at > WIDE ? " class=\"wide\""
                                                        : "");
        put_line(b, cell[i]);
        if (!ratio || largest[i] > 0)
            html_bar(b, 0, ratio ? v / largest[i] : v);
        vt_buf_printf(b, "</%s>", element);
    }
    vt_buf_puts(b, "</tr>\n");
}

/* A table whose second line says which columns are of numbers. */
static void put_table(vt_buf *b, text_part t)
{
    text_part head = take_line(&t), kinds = take_line(&t), kind[COLUMNS];
    bool right[COLUMNS] = {0};
    double largest[COLUMNS] = {0};
    int32_t n = cut_cells(kinds, kind);
    for (int32_t i = 0; i < n; i++)
        right[i] = kind[i].end > kind[i].at && kind[i].end[-1] == ':';
    find_largest(t, largest);
    vt_buf_puts(b, "<div class=\"scroll\"><table>\n<thead>");
    put_row(b, head, "th", right, largest);
    vt_buf_puts(b, "</thead><tbody>\n");
    while (t.at < t.end)
        put_row(b, take_line(&t), "td", right, largest);
    vt_buf_puts(b, "</tbody></table></div>\n");
}

/* ---- blocks ---- */

/* The element that is open while lines follow each other. */
typedef enum block { BLOCK_NONE, BLOCK_PARAGRAPH, BLOCK_LIST } block;

typedef struct html_page {
    vt_buf *b;
    block block;
    bool section;
} html_page;

static void close_block(html_page *p)
{
    static const char *const end[] = {
        [BLOCK_NONE] = "", [BLOCK_PARAGRAPH] = "</p>\n", [BLOCK_LIST] = "</ul>\n"};
    vt_buf_puts(p->b, end[p->block]);
    p->block = BLOCK_NONE;
}

static void open_block(html_page *p, block wanted)
{
    if (p->block != wanted) {
        close_block(p);
        vt_buf_puts(p->b, wanted == BLOCK_LIST ? "<ul>\n" : "<p>");
    } else if (wanted == BLOCK_PARAGRAPH)
        vt_buf_putc(p->b, '\n');
    p->block = wanted;
}

/* A heading's address, as a viewer of markdown makes it: small letters, '-' for spaces. */
static void put_place(vt_buf *b, text_part t)
{
    for (; t.at < t.end; t.at++)
        if (isalnum((unsigned char)*t.at) || *t.at == '_' || *t.at == '-')
            vt_buf_putc(b, (char)tolower((unsigned char)*t.at));
        else if (*t.at == ' ')
            vt_buf_putc(b, '-');
}

static void put_heading(html_page *p, text_part line)
{
    int level = begins(line, "### ") ? 3 : begins(line, "## ") ? 2 : 1;
    text_part words = {line.at + level + 1, line.end};
    close_block(p);
    if (level == 2) {
        vt_buf_puts(p->b, p->section ? "</section>\n<section id=\"" : "<section id=\"");
        put_place(p->b, words);
        vt_buf_puts(p->b, "\">");
        p->section = true;
    }
    vt_buf_printf(p->b, "<h%d>", level);
    put_line(p->b, words);
    vt_buf_printf(p->b, "</h%d>\n", level);
}

/* From the line behind the opening fence to the fence that equals it. */
static void put_fence(html_page *p, text_part fence, text_part *t)
{
    close_block(p);
    size_t n = strspn(fence.at, "`");
    vt_buf_puts(p->b, "<pre>");
    while (t->at < t->end) {
        text_part line = take_line(t);
        if ((size_t)(line.end - line.at) == n && strspn(line.at, "`") >= n)
            break;
        for (; line.at < line.end; line.at++)
            put_char(p->b, *line.at);
        vt_buf_putc(p->b, '\n');
    }
    vt_buf_puts(p->b, "</pre>\n");
}

static void put_item(html_page *p, text_part line)
{
    bool done = begins(line, "- [x] "), open = begins(line, "- [ ] ");
    open_block(p, BLOCK_LIST);
    vt_buf_puts(p->b, done ? "<li>&#9745; " : open ? "<li>&#9744; " : "<li>");
    put_line(p->b, (text_part){line.at + (done || open ? 6 : 2), line.end});
    vt_buf_puts(p->b, "</li>\n");
}

static void put_blocks(html_page *p, text_part t)
{
    while (t.at < t.end) {
        text_part table = table_part(t);
        if (table.at < table.end) {
            close_block(p);
            put_table(p->b, table);
            t.at = table.end;
            continue;
        }
        text_part line = take_line(&t);
        if (line.at == line.end)
            close_block(p);
        else if (begins(line, "```"))
            put_fence(p, line, &t);
        else if (begins(line, "# ") || begins(line, "## ") || begins(line, "### "))
            put_heading(p, line);
        else if (begins(line, "- "))
            put_item(p, line);
        else {
            open_block(p, BLOCK_PARAGRAPH);
            put_line(p->b, line);
        }
    }
    close_block(p);
}

/* Links to the sections. */
static void put_contents(vt_buf *b, text_part t)
{
    bool fenced = false;
    vt_buf_puts(b, "<nav aria-label=\"Sections\">");
    while (t.at < t.end) {
        text_part line = take_line(&t);
        fenced ^= begins(line, "```");
        if (fenced || !begins(line, "## "))
            continue;
        line.at += 3;
        vt_buf_puts(b, "<a href=\"#");
        put_place(b, line);
        vt_buf_puts(b, "\">");
        put_line(b, line);
        vt_buf_puts(b, "</a> ");
    }
    vt_buf_puts(b, "</nav>\n");
}

void report_html(const char *markdown, size_t n, vt_buf *b)
{
    text_part all = {markdown, markdown + n}, rest = all, first = take_line(&rest);
    char title[96];
    size_t skip = begins(first, "# ") ? 2 : 0, length = (size_t)(first.end - first.at) - skip;
    length = length < sizeof title ? length : sizeof title - 1;
    memcpy(title, first.at + skip, length);
    title[length] = '\0';
    html_head(b, title, style, false);
    const char *body = find(all, "\n## ");
    text_part head = {all.at, body ? body + 1 : all.end}, main_part = {head.end, all.end};
    html_page p = {.b = b};
    vt_buf_puts(b, "<header>\n");
    put_blocks(&p, head);
    put_contents(b, main_part);
    vt_buf_puts(b, "</header>\n<main>\n");
    put_blocks(&p, main_part);
    vt_buf_puts(b, p.section ? "</section>\n</main>\n</body>\n</html>\n"
                             : "</main>\n</body>\n</html>\n");
}
