#include "server/watch/exposition.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The shortest decimal form that reads back as the same number; whole numbers as they are. */
static void put_number(vt_buf *b, double v)
{
    char text[40];
    if (isnan(v) || isinf(v)) {
        vt_buf_puts(b, isnan(v) ? "NaN" : v < 0 ? "-Inf" : "+Inf");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    vt_buf_puts(b, text);
}

/* A bound as OpenMetrics writes it: "1.0", not "1". */
static void put_bound(vt_buf *b, double v)
{
    size_t before = b->len;
    put_number(b, v);
    if (!b->failed && !strpbrk(b->data + before, ".eE"))
        vt_buf_puts(b, ".0");
}

/* Escapes as both formats do, in help texts and label values alike. */
static void put_escaped(vt_buf *b, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n')
            vt_buf_putc(b, '\\');
        vt_buf_putc(b, *text == '\n' ? 'n' : *text);
    }
}

static void put_label(vt_buf *b, const char *name, const char *value, bool *some)
{
    vt_buf_putc(b, *some ? ',' : '{');
    vt_buf_puts(b, name);
    vt_buf_puts(b, "=\"");
    put_escaped(b, value);
    vt_buf_putc(b, '"');
    *some = true;
}

void server_family(server_exposition *w, server_family_type type, const char *name,
                   const char *help)
{
    static const char *const types[] = {"gauge", "counter", "histogram"};
    const char *tail = type == SERVER_COUNTER && !w->open ? "_total" : "";
    w->type = type;
    w->name = name;
    vt_buf_printf(w->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, tail, help, name, tail,
                  types[type]);
}

void server_sample(server_exposition *w, double value, ...)
{
    vt_buf *b = w->out;
    bool some = false;
    va_list args;
    vt_buf_puts(b, w->name);
    if (w->type == SERVER_COUNTER)
        vt_buf_puts(b, "_total");
    if (w->model)
        put_label(b, "model_name", w->model, &some);
    va_start(args, value);
    for (const char *name; (name = va_arg(args, const char *));)
        put_label(b, name, va_arg(args, const char *), &some);
    va_end(args);
    vt_buf_puts(b, some ? "} " : " ");
    put_number(b, value);
    vt_buf_putc(b, '\n');
}

void server_metric(server_exposition *w, server_family_type type, const char *name,
                   const char *help, double value)
{
    server_family(w, type, name, help);
    server_sample(w, value, NULL);
}

/* "name_sum" or "name_count" with the model's label. */
static void put_total(server_exposition *w, const char *tail, double value)
{
    bool some = false;
    vt_buf_puts(w->out, w->name);
    vt_buf_puts(w->out, tail);
    if (w->model)
        put_label(w->out, "model_name", w->model, &some);
    vt_buf_puts(w->out, some ? "} " : " ");
    put_number(w->out, value);
    vt_buf_putc(w->out, '\n');
}

/* " # {story="17"} 0.21 1764150000.123": OpenMetrics alone has exemplars. */
static void put_exemplar(server_exposition *w, const server_exemplar *e, double unit)
{
    vt_buf *b = w->out;
    if (!w->open || e->story == 0)
        return;
    vt_buf_printf(b, " # {story=\"%llu\"", (unsigned long long)e->story);
    if (e->trace_id[0])
        vt_buf_printf(b, ",trace_id=\"%s\"", e->trace_id);
    vt_buf_puts(b, "} ");
    put_number(b, (double)e->value / unit);
    vt_buf_printf(b, " %.3f", (double)e->wall_ns * 1e-9);
}

void server_histogram_samples(server_exposition *w, const server_histogram *h)
{
    const server_bounds *bounds = h->bounds;
    vt_buf *b = w->out;
    uint64_t sum = 0;
    for (int32_t i = 0; i <= bounds->n; i++) {
        bool some = false;
        sum += h->count[i];
        vt_buf_puts(b, w->name);
        vt_buf_puts(b, "_bucket");
        if (w->model)
            put_label(b, "model_name", w->model, &some);
        vt_buf_puts(b, some ? ",le=\"" : "{le=\"");
        if (i < bounds->n)
            put_bound(b, (double)bounds->bound[i] / bounds->unit);
        else
            vt_buf_puts(b, "+Inf");
        vt_buf_puts(b, "\"} ");
        put_number(b, (double)sum);
        put_exemplar(w, &h->newest[i], bounds->unit);
        vt_buf_putc(b, '\n');
    }
    put_total(w, "_sum", (double)h->sum / bounds->unit);
    put_total(w, "_count", (double)h->n);
}

void server_exposition_end(server_exposition *w)
{
    if (w->open)
        vt_buf_puts(w->out, "# EOF\n");
}

/* ---- the Accept header (RFC 9110, 12.5.1) ---- */

/* The "q" among the parameters text[0..len); 1 where there is none, 0 where it is no number. */
static double quality(const char *text, size_t len)
{
    for (const char *p = text, *end = text + len; p < end; p++) {
        if (*p != ';')
            continue;
        for (p++; p < end && (*p == ' ' || *p == '\t');)
            p++;
        if (end - p < 3 || (*p != 'q' && *p != 'Q') || p[1] != '=') {
            p--;
            continue;
        }
        char number[8] = {0};
        size_t n = (size_t)(end - p - 2);
        memcpy(number, p + 2, n < sizeof number ? n : sizeof number - 1);
        double v = number[strspn(number, "0123456789.; \t")] ? 0 : strtod(number, NULL);
        return v >= 0 && v <= 1 ? v : 0;
    }
    return 1;
}

bool server_accepts_openmetrics(const char *accept)
{
    static const char open_type[] = "application/openmetrics-text", plain[] = "text/plain";
    double open = 0, text = 0;
    for (const char *p = accept; p && *p;) {
        p += strspn(p, " \t,");
        size_t len = strcspn(p, ","), name = strcspn(p, ",; \t");
        double q = quality(p + name, len - name);
        if (name == sizeof open_type - 1 && strncasecmp(p, open_type, name) == 0 && q > open)
            open = q;
        if (name == sizeof plain - 1 && strncasecmp(p, plain, name) == 0 && q > text)
            text = q;
        p += len;
    }
    return open > 0 && open >= text;
}
