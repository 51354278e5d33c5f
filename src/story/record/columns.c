/* Lists by column of a story.json (columns.h). */
#include "story/record/columns.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "story/record/numbers.h"

static void put_number(vt_buf *b, bool first, double v, int digits)
{
    char text[400];
    vt_buf_puts(b, first ? "[" : ",");
    snprintf(text, sizeof text, "%.*f", digits, v);
    size_t n = strlen(text);
    if (strchr(text, '.')) {
        while (text[n - 1] == '0')
            n--;
        n -= text[n - 1] == '.';
    }
    if (isfinite(v))
        vt_buf_add(b, text, n);
    else
        vt_buf_puts(b, "null");
}

void story_put_column(vt_json *w, const char *key, const double *v, int32_t n, int digits)
{
    vt_buf b = {0};
    for (int32_t i = 0; i < n; i++)
        put_number(&b, i == 0, v[i], digits);
    vt_buf_puts(&b, n ? "]" : "[]");
    vt_json_raw(w, key, b.data ? b.data : "[]", b.data ? b.len : 2);
    w->out->failed |= b.failed;
    vt_buf_release(&b);
}

void story_open_list(vt_json *w, const char *key, int32_t count, int32_t left_out, const char *why)
{
    vt_json_open(w, key, '{');
    vt_json_int(w, "count", count);
    vt_json_int(w, "left_out", left_out);
    vt_json_string(w, "why", count ? NULL : why);
    vt_json_string(w, "tag", count ? measured : "n/a");
}

int story_open_line(vt_json *w, const char *key)
{
    vt_json_open(w, key, '[');
    int indent = w->indent;
    w->indent = -1;
    return indent;
}

void story_close_line(vt_json *w, int indent)
{
    vt_json_close(w);
    w->indent = indent;
}
