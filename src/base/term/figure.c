/* See figure.h. */
#include "base/term/figure.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/term/term.h"

static const char *const unit_name[] = {"s",        "B",     "B/s",   "FLOP/s",
                                        "tokens/s", "share", "ratio", ""};

const char *vt_unit_name(vt_unit u) { return unit_name[u]; }

bool vt_unit_find(const char *name, vt_unit *out)
{
    for (size_t i = 0; name && i < sizeof unit_name / sizeof *unit_name; i++)
        if (strcmp(unit_name[i], name) == 0) {
            *out = (vt_unit)i;
            return true;
        }
    return false;
}

void vt_text_figure(vt_buf *b, double v, vt_unit unit)
{
    if (!isfinite(v)) {
        vt_buf_puts(b, "n/a");
        return;
    }
    switch (unit) {
    case VT_SECONDS:
        vt_text_time(b, v);
        return;
    case VT_BYTES:
        vt_text_bytes(b, v);
        return;
    case VT_BYTES_PER_S:
        vt_text_rate(b, v, "B");
        return;
    case VT_FLOP_PER_S:
        vt_text_rate(b, v, "FLOP");
        return;
    case VT_TOKENS_PER_S:
        vt_buf_printf(b, v < 100 ? "%.1f tokens/s" : "%.0f tokens/s", v);
        return;
    case VT_SHARE:
        vt_buf_printf(b, fabs(v) < 0.1 ? "%.1f %%" : "%.0f %%", 100 * v);
        return;
    case VT_RATIO:
        vt_buf_printf(b, "%.2fx", v);
        return;
    case VT_COUNT:
        vt_buf_printf(b, v == floor(v) ? "%.0f" : "%.2f", v);
        return;
    }
}

vt_figure vt_figure_of(double v, vt_unit unit)
{
    vt_figure w = {{0}};
    vt_buf b = {0};
    vt_text_figure(&b, v, unit);
    snprintf(w.text, sizeof w.text, "%s", b.data ? b.data : "n/a");
    vt_buf_release(&b);
    return w;
}

size_t vt_figure_at(const char *form, vt_unit *unit)
{
    for (int u = VT_SECONDS; strncmp(form, "%f ", 3) == 0 && u < VT_COUNT; u++) {
        size_t n = strlen(unit_name[u]);
        if (strncmp(form + 3, unit_name[u], n) == 0 && !isalnum((unsigned char)form[3 + n]) &&
            form[3 + n] != '/') {
            *unit = (vt_unit)u;
            return 3 + n;
        }
    }
    return 0;
}

const char *vt_pieces_next(vt_pieces *p, const char *form, size_t n, va_list args)
{
    va_list again;
    free(p->text);
    vt_buf_add(&p->upto, form, n);
    va_copy(again, args);
    int len = p->upto.failed ? -1 : vasprintf(&p->text, p->upto.data ? p->upto.data : "", again);
    va_end(again);
    size_t told = p->told;
    p->text = len < 0 ? NULL : p->text;
    p->told = len < 0 ? 0 : (size_t)len;
    return p->text ? p->text + told : NULL;
}

void vt_pieces_release(vt_pieces *p)
{
    vt_buf_release(&p->upto);
    free(p->text);
}

void vt_text_vprintf(vt_buf *b, const char *fmt, va_list args)
{
    vt_pieces p = {0};
    while (*fmt && !b->failed) {
        vt_unit unit = VT_COUNT, next;
        size_t n = vt_figure_at(fmt, &unit), words = 0;
        while (n == 0 && fmt[words] && vt_figure_at(fmt + words, &next) == 0)
            words += fmt[words] == '%' && fmt[words + 1] ? 2 : 1;
        const char *text = n > 0 ? vt_pieces_next(&p, "%a", 2, args)
                                 : vt_pieces_next(&p, fmt, words, args);
        if (!text)
            b->failed = true;
        else if (n > 0)
            vt_text_figure(b, strtod(text, NULL), unit);
        else
            vt_buf_puts(b, text);
        fmt += n > 0 ? n : words;
    }
    vt_pieces_release(&p);
}

void vt_text_printf(vt_buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vt_text_vprintf(b, fmt, args);
    va_end(args);
}
