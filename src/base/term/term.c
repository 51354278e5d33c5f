/* Text for terminals (base/term/term.h).
 *
 * Everything here counts cells, while printf's widths count bytes: each of the eight block glyphs
 * of sparklines and bars has three bytes of UTF-8 and is one cell wide. Wide (East Asian)
 * characters, found by the ranges below, count as two cells and combining marks as none; that is
 * enough for model names and prompts. */
#include "base/term/term.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/utf8.h"

static const char *const glyph[8] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

enum { LEAST_WIDTH = 40 }; /* what says that it is narrower is not believed */

vt_term vt_term_of(int fd)
{
    struct winsize size;
    const char *kind = getenv("TERM"), *no_color = getenv("NO_COLOR");
    const char *columns = getenv("COLUMNS");
    int32_t cells = 0;
    vt_term t = {.tty = isatty(fd), .width = VT_TERM_WIDTH};
    t.colour = t.tty && kind && strcmp(kind, "dumb") != 0 && !(no_color && *no_color);
    if (t.tty && ioctl(fd, TIOCGWINSZ, &size) == 0)
        cells = size.ws_col;
    else if (!t.tty && columns && strspn(columns, "0123456789") == strlen(columns) &&
             strlen(columns) < 6)
        cells = (int32_t)strtol(columns, NULL, 10);
    if (cells >= LEAST_WIDTH) {
        t.width = cells < VT_TERM_WIDTH ? cells : VT_TERM_WIDTH;
        t.wide = cells < VT_TERM_WIDE ? cells : VT_TERM_WIDE;
    }
    return t;
}

void vt_text_ink(vt_buf *b, const vt_term *t, vt_ink ink, const char *text)
{
    static const char *const code[] = {"", "1", "2", "31", "32", "33", "36"};
    if (t->colour && ink != VT_INK_PLAIN)
        vt_buf_printf(b, "\033[%sm%s\033[0m", code[ink], text);
    else
        vt_buf_puts(b, text);
}

/* The code point at s (len > 0 bytes are left) and its length. An invalid byte counts as one
 * character. */
static uint32_t decode(const unsigned char *s, size_t len, size_t *used)
{
    static const uint32_t first[5] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    size_t n = s[0] < 0x80   ? 1
               : s[0] < 0xc0 ? 0
               : s[0] < 0xe0 ? 2
               : s[0] < 0xf0 ? 3
               : s[0] < 0xf8 ? 4
                             : 0;
    *used = 1;
    if (n == 0 || n > len)
        return 0xfffd;
    uint32_t c = s[0] & first[n];
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0xfffd;
        c = c << 6 | (s[i] & 0x3f);
    }
    *used = n;
    return c;
}

static int32_t cells_of(uint32_t c)
{
    if (c < 0x20 || (c >= 0x300 && c <= 0x36f) || c == 0x200d || (c >= 0xfe00 && c <= 0xfe0f))
        return 0;
    bool wide = (c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xa4cf) ||
                (c >= 0xac00 && c <= 0xd7a3) || (c >= 0xf900 && c <= 0xfaff) ||
                (c >= 0xfe30 && c <= 0xfe6f) || (c >= 0xff00 && c <= 0xff60) ||
                (c >= 0x1f300 && c <= 0x1faff) || (c >= 0x20000 && c <= 0x3fffd);
    return wide ? 2 : 1;
}

int32_t vt_text_width(const char *text, size_t len)
{
    int32_t cells = 0;
    for (size_t i = 0, used; i < len; i += used) {
        if (text[i] == '\033') { /* ESC [ ... m */
            const char *end = memchr(text + i, 'm', len - i);
            used = end ? (size_t)(end - (text + i)) + 1 : len - i;
            continue;
        }
        cells += cells_of(decode((const unsigned char *)text + i, len - i, &used));
    }
    return cells;
}

/* ---- untrusted text ---- */

bool vt_text_is_control(uint32_t c)
{
    return (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c <= 0x9f) || c == 0x61c ||
           c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

/* Appends the characters that s holds completely; if `last`, everything that it holds. */
static void show_held(vt_buf *b, vt_shown *s, bool last)
{
    while (s->n_held > 0) {
        int step = vt_utf8_step(s->held, (size_t)s->n_held);
        bool cr = s->held[0] == '\r';
        if (!last && (step == 0 || (cr && s->n_held == 1)))
            return; /* the next piece decides what this becomes */
        uint32_t c = 0xfffd;
        if (step > 0)
            vt_utf8_next(s->held, &c);
        if (!cr || s->n_held == 1 || s->held[1] != '\n')
            vt_utf8_add(b, vt_text_is_control(c) ? 0xfffd : c);
        int used = step > 0 ? step : step < 0 ? -step : s->n_held;
        s->n_held -= used;
        memmove(s->held, s->held + used, (size_t)s->n_held);
    }
}

void vt_text_show(vt_buf *b, vt_shown *s, const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t plain = i;
        while (s->n_held == 0 && plain < len && (unsigned char)text[plain] < 0x80 &&
               !vt_text_is_control((unsigned char)text[plain]))
            plain++;
        vt_buf_add(b, text + i, plain - i);
        i = plain;
        if (i < len) {
            s->held[s->n_held++] = text[i++];
            show_held(b, s, false);
        }
    }
}

void vt_text_show_end(vt_buf *b, vt_shown *s) { show_held(b, s, true); }

void vt_text_clean_line(char *text)
{
    char *to = text;
    for (size_t n = strlen(text); n > 0;) {
        int step = vt_utf8_step(text, n);
        size_t used = step > 0 ? (size_t)step : step < 0 ? (size_t)-step : n;
        uint32_t c = 0xfffd;
        if (step > 0)
            vt_utf8_next(text, &c);
        if (step < 0)
            *to++ = '?';
        else if (vt_text_is_control(c) || c == '\n' || c == '\t')
            *to++ = ' ';
        else if (step > 0) {
            memmove(to, text, used);
            to += used;
        }
        text += used;
        n -= used;
    }
    *to = '\0';
}

static void repeat(vt_buf *b, const char *s, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        vt_buf_puts(b, s);
}

void vt_text_pad(vt_buf *b, size_t line_start, int32_t column)
{
    if (line_start <= b->len)
        repeat(b, " ", column - vt_text_width(b->data + line_start, b->len - line_start));
}

void vt_text_wrap(vt_buf *b, const char *text, int32_t indent, int32_t width)
{
    int32_t at = indent;
    bool first = true;
    for (const char *p = text; *(p += strspn(p, " "));) {
        size_t len = strcspn(p, " ");
        int32_t cells = vt_text_width(p, len);
        if (!first && at + 1 + cells > width) {
            vt_buf_putc(b, '\n');
            repeat(b, " ", indent);
            at = indent;
        } else if (!first) {
            vt_buf_putc(b, ' ');
            at++;
        }
        vt_buf_add(b, p, len);
        at += cells;
        first = false;
        p += len;
    }
}

/* Appends v with three significant digits. Scaled values are small enough to need no exponent. */
static void number(vt_buf *b, double v)
{
    double a = fabs(v);
    vt_buf_printf(b, "%.*f", a >= 99.95 ? 0 : a >= 9.995 ? 1 : 2, v);
}

static void scaled(vt_buf *b, double v, const char *const *unit, int32_t n, double step)
{
    int32_t i = 0;
    while (i + 1 < n && fabs(v) >= 0.9995 * step) {
        v /= step;
        i++;
    }
    if (i == 0 && v == floor(v))
        vt_buf_printf(b, "%.0f", v);
    else
        number(b, v);
    vt_buf_printf(b, " %s", unit[i]);
}

void vt_text_time(vt_buf *b, double seconds)
{
    static const char *const unit[] = {"ns", "us", "ms", "s"};
    if (isnan(seconds))
        vt_buf_puts(b, "n/a");
    else
        scaled(b, seconds * 1e9, unit, 4, 1000);
}

void vt_text_bytes(vt_buf *b, double bytes)
{
    static const char *const unit[] = {"B", "KB", "MB", "GB", "TB"};
    if (isnan(bytes))
        vt_buf_puts(b, "n/a");
    else
        scaled(b, bytes, unit, 5, 1000);
}

void vt_text_rate(vt_buf *b, double per_second, const char *unit)
{
    static const char *const prefix[] = {"", "k", "M", "G", "T", "P"};
    if (isnan(per_second))
        vt_buf_puts(b, "n/a");
    else {
        scaled(b, per_second, prefix, 6, 1000);
        vt_buf_printf(b, "%s/s", unit);
    }
}

void vt_text_bar(vt_buf *b, double share, int32_t cells)
{
    if (!(share > 0))
        return;
    int32_t n = (int32_t)lround(fmin(share, 1) * cells);
    repeat(b, glyph[6], n > 0 ? n : 1);
}

/* Of eight. The difference of two large values, or their sum, may be infinite. */
static int height(double v, double low, double high)
{
    return (int)fmax(0, fmin(7, (v - low) / (high - low) * 8));
}

void vt_text_spark(vt_buf *b, const double *value, int32_t n, int32_t cells)
{
    double low = INFINITY, high = -INFINITY;
    if (cells > n)
        cells = n;
    for (int32_t i = 0; i < n; i++) {
        if (isnan(value[i]))
            continue;
        low = fmin(low, value[i]);
        high = fmax(high, value[i]);
    }
    low = fmin(low, 0); /* heights are proportional to values, so they begin at zero */
    for (int32_t c = 0; c < cells; c++) {
        int32_t from = (int32_t)((int64_t)c * n / cells),
                to = (int32_t)((int64_t)(c + 1) * n / cells);
        double sum = 0;
        for (int32_t i = from; i < to; i++)
            sum += value[i];
        double mean = sum / (to - from);
        if (isnan(mean))
            vt_buf_putc(b, ' ');
        else
            vt_buf_puts(b, glyph[high > low ? height(mean, low, high) : 0]);
    }
}

/* ---- tables ---- */

void vt_table_init(vt_table *t, const char *titles)
{
    *t = (vt_table){0};
    vt_buf_init(&t->text, 0);
    for (const char *p = titles; t->n_columns < VT_TABLE_COLUMNS;) {
        size_t len = strcspn(p, "|");
        bool right = *p == '>';
        t->right[t->n_columns++] = right;
        vt_table_cell(t, "%.*s", (int)len - right, p + right);
        if (p[len] == '\0')
            break;
        p += len + 1;
    }
}

void vt_table_cell(vt_table *t, const char *fmt, ...)
{
    char cell[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(cell, sizeof cell, fmt, args);
    va_end(args);
    vt_text_clean_line(cell);
    vt_buf_add(&t->text, cell, strlen(cell) + 1);
    t->n_cells++;
}

static void cut_line(vt_buf *b, size_t start, int32_t width)
{
    size_t end = b->len;
    while (end > start && vt_text_width(b->data + start, end - start) > width)
        do
            end--;
        while (end > start && ((unsigned char)b->data[end] & 0xc0) == 0x80);
    while (end > start && b->data[end - 1] == ' ')
        end--;
    b->len = end;
    if (b->data)
        b->data[end] = '\0';
}

/* Returns the bytes of `cell` that fit into `width` cells: all, or up to a blank, or what fits. */
static size_t fitting(const char *cell, int32_t width)
{
    size_t len = strlen(cell), blank = 0, n = 0;
    if (vt_text_width(cell, len) <= width)
        return len;
    for (size_t used; n < len; n += used) {
        decode((const unsigned char *)cell + n, len - n, &used);
        if (n > 0 && vt_text_width(cell, n + used) > width)
            break;
        blank = cell[n] == ' ' ? n : blank;
    }
    return blank > 0 ? blank : n;
}

/* Writes one row; *cell moves behind its cells. What does not fit into its column stands on lines
 * of its own below. */
static void table_row(vt_table *t, const char **cell, const int32_t *wide, vt_buf *b,
                      const vt_term *term, int32_t indent, vt_ink ink)
{
    const char *rest[VT_TABLE_COLUMNS];
    for (int32_t c = 0; c < t->n_columns; c++) {
        rest[c] = *cell;
        *cell += strlen(*cell) + 1;
    }
    for (bool more = true; more;) {
        vt_buf line;
        vt_buf_init(&line, 0);
        repeat(&line, " ", indent);
        more = false;
        for (int32_t c = 0; c < t->n_columns; c++) {
            size_t n = fitting(rest[c], wide[c]);
            int32_t gap = wide[c] - vt_text_width(rest[c], n);
            repeat(&line, " ", (c ? 2 : 0) + (t->right[c] ? gap : 0));
            vt_buf_add(&line, rest[c], n);
            repeat(&line, " ", t->right[c] ? 0 : gap);
            rest[c] += n + strspn(rest[c] + n, " ");
            more |= *rest[c] != '\0';
        }
        cut_line(&line, 0, vt_term_wide(term));
        if (line.data)
            vt_text_ink(b, term, ink, line.data);
        vt_buf_putc(b, '\n');
        vt_buf_release(&line);
    }
}

/* Narrows the widest column of text where a row would be wider than the terminal. */
static void narrow(const vt_table *t, int32_t *wide, int32_t width)
{
    enum { LEAST = 16 };
    int32_t widest = 0, all = 0;
    for (int32_t c = 0; c < t->n_columns; c++) {
        all += wide[c] + (c ? 2 : 0);
        widest = !t->right[c] && wide[c] > wide[widest] ? c : widest;
    }
    if (all <= width || wide[widest] <= LEAST)
        return;
    int32_t left = wide[widest] - (all - width);
    wide[widest] = left > LEAST ? left : LEAST;
}

void vt_table_finish(vt_table *t, vt_buf *b, const vt_term *term, int32_t indent)
{
    int32_t wide[VT_TABLE_COLUMNS] = {0};
    const char *cell = t->text.data;
    for (int32_t i = 0; !t->text.failed && i < t->n_cells; i++, cell += strlen(cell) + 1) {
        int32_t w = vt_text_width(cell, strlen(cell)), c = i % t->n_columns;
        wide[c] = w > wide[c] ? w : wide[c];
    }
    narrow(t, wide, vt_term_wide(term) - indent);
    cell = t->text.data;
    for (int32_t r = 0; !t->text.failed && r < t->n_cells / t->n_columns; r++)
        table_row(t, &cell, wide, b, term, indent, r == 0 ? VT_INK_DIM : VT_INK_PLAIN);
    b->failed |= t->text.failed;
    vt_buf_release(&t->text);
}

void vt_text_progress(vt_buf *b, const char *label, double done, double total, double elapsed_s,
                      const char *unit)
{
    enum { CELLS = 24 };
    double rate = elapsed_s > 0 ? done / elapsed_s : 0;
    vt_buf_printf(b, "%s  ", label);
    if (total > 0) {
        double share = fmin(done / total, 1);
        int32_t full = (int32_t)(share * CELLS);
        vt_buf_putc(b, '[');
        repeat(b, "#", full);
        repeat(b, ".", CELLS - full);
        vt_buf_printf(b, "] %3.0f %%  ", share * 100);
    }
    vt_text_rate(b, rate, unit);
    if (total > done && rate > 0)
        vt_buf_printf(b, "  %.0f s left", ceil((total - done) / rate));
}
