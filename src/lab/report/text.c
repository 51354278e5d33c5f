/* Items, tables, predictions, checks and knobs of a result as markdown (report/inside.h). */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "lab/report/inside.h"

const char *report_string(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

double report_number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* ---- texts of unknown origin ---- */

/* Appends text as Markdown shows it: a terminal's controls are replaced, HTML and links are plain
 * characters. Outside of a drawing it is one line. */
static void put_safe(vt_buf *b, const char *text, bool drawing)
{
    vt_buf clean = {0};
    vt_shown shown = {0};
    vt_text_show(&clean, &shown, text, strlen(text));
    vt_text_show_end(&clean, &shown);
    for (const char *p = clean.data ? clean.data : ""; *p; p++)
        if (drawing)
            vt_buf_putc(b, *p);
        else if (*p == '<' || *p == '&')
            vt_buf_puts(b, *p == '<' ? "&lt;" : "&amp;");
        else if (p[0] == ']' && p[1] == '(')
            vt_buf_puts(b, "]\\");
        else
            vt_buf_putc(b, *p == '\n' || *p == '\t' ? ' ' : *p);
    b->failed |= clean.failed;
    vt_buf_release(&clean);
}

void report_put_safe(vt_buf *b, const char *text) { put_safe(b, text, false); }

static bool is_plain(const char *text)
{
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~' || strchr("<&]", *p))
            return false;
    return true;
}

vt_status report_make_safe(json_t *value, bool drawing, vt_err *err)
{
    const char *key;
    size_t i;
    json_t *v;
    if (json_is_string(value) && !is_plain(json_string_value(value))) {
        vt_buf text = {0};
        put_safe(&text, json_string_value(value), drawing);
        bool ok = !text.failed && json_string_set(value, text.data ? text.data : "") == 0;
        vt_buf_release(&text);
        if (!ok)
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for a report");
    }
    json_object_foreach(value, key, v)
        TRY(report_make_safe(v, drawing || strcmp(key, "drawing") == 0, err));
    json_array_foreach(value, i, v) TRY(report_make_safe(v, drawing, err));
    return VT_OK;
}

const json_t *report_result(const report *r, const char *number)
{
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->lab[i]->number, number) == 0)
            return r->result[i];
    return NULL;
}

void report_cell(vt_buf *b, const char *text)
{
    for (; *text; text++)
        if (*text == '|')
            vt_buf_puts(b, "\\|");
        else
            vt_buf_putc(b, *text == '\n' ? ' ' : *text);
}

double report_noise(const json_t *knob)
{
    return 2 * hypot(report_number(knob, "before_noise"), report_number(knob, "after_noise"));
}

/* From this noise on, what lies within it is no verdict. */
#define MUCH_NOISE 0.14

bool report_is_hidden(const json_t *knob)
{
    return strcmp(report_string(knob, "verdict"), "no gain here") == 0 &&
           report_noise(knob) > MUCH_NOISE;
}

void report_verdict(const json_t *knob, vt_buf *b)
{
    const char *verdict = report_string(knob, "verdict");
    report_cell(b, *verdict ? verdict : "not measured");
    if (!report_is_hidden(knob))
        return;
    vt_text_printf(b, ", within a noise of %f share", report_noise(knob));
}
