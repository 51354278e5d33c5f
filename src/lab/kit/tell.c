/* Gathers what a lab tells in its result (lab.h, docs/lab-format.md). */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "lab/kit/result.h"

/* ---- adding to the result ---- */

/* A list or object of the result. */
static json_t *part(lab *l, const char *key) { return json_object_get(l->result, key); }

static void set(lab *l, json_t *o, const char *key, json_t *value)
{
    if (json_object_set_new(o, key, value) != 0)
        l->failed = true;
}

static void append(lab *l, const char *list, json_t *value)
{
    if (json_array_append_new(part(l, list), value) != 0)
        l->failed = true;
}

static json_t *text_of(lab *l, const char *fmt, va_list args)
{
    vt_buf b = {0};
    vt_text_vprintf(&b, fmt, args);
    json_t *s = json_stringn(b.data ? b.data : "", b.len); /* NULL where it is not UTF-8 */
    l->failed |= !s || b.failed;
    vt_buf_release(&b);
    return s;
}

static json_t *number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

void lab_event(lab *l, int64_t begin_ns, const char *fmt, ...)
{
    va_list args;
    if (json_array_size(part(l, "events")) >= LAB_MAX_EVENTS) {
        l->events_left++;
        return;
    }
    json_t *o = json_object();
    int64_t from_ns = begin_ns - l->begin_ns - l->thought_ns;
    set(l, o, "at_s", json_real((double)(from_ns > 0 ? from_ns : 0) * 1e-9));
    set(l, o, "seconds", json_real((double)(vt_now_ns() - begin_ns) * 1e-9));
    va_start(args, fmt);
    set(l, o, "text", text_of(l, fmt, args));
    va_end(args);
    append(l, "events", o);
}

void lab_predict(lab *l, const char *what, double own, vt_unit unit, const char *how)
{
    json_t *o = json_object();
    set(l, o, "what", json_string(what));
    set(l, o, "unit", json_string(vt_unit_name(unit)));
    set(l, o, "own", number(own));
    set(l, o, "how", json_string(how));
    set(l, o, "reader", json_null());
    set(l, o, "measured", json_null());
    set(l, o, "grade", json_null());
    bool first = json_array_size(part(l, "predictions")) == 0;
    append(l, "predictions", o);
    l->late |= first && l->ran;
    if (first)
        lab_ask_reader(l, o);
}

void lab_outcome(lab *l, const char *what, double measured, bool disturbed)
{
    size_t i;
    json_t *o;
    disturbed = !l->emulated && (disturbed || l->busy); /* the state stays "emulated" */
    json_array_foreach(part(l, "predictions"), i, o)
    {
        if (strcmp(json_string_value(json_object_get(o, "what")), what) != 0)
            continue;
        double own = json_number_value(json_object_get(o, "own"));
        bool known = json_is_real(json_object_get(o, "own"));
        set(l, o, "measured", number(measured));
        vt_unit unit = VT_SECONDS;
        vt_unit_find(json_string_value(json_object_get(o, "unit")), &unit);
        bool counts = unit == VT_COUNT; /* no load changes a count */
        bool slowed = !counts && vt_roofs_sanitized();
        const char *grade = l->emulated            ? "not graded: emulated"
                            : slowed               ? "not graded: a sanitized build"
                            : !counts && disturbed ? "not graded: the machine was busy"
                            : !isfinite(measured)  ? "not graded: not measured"
                            : !known               ? "not graded: nothing was expected"
                                                   : lab_grade(own, measured);
        set(l, o, "grade", json_string(grade));
        const json_t *reader = json_object_get(o, "reader");
        if (json_is_number(reader))
            set(l, o, "reader_grade",
                json_string(l->emulated || slowed || (!counts && disturbed) || !isfinite(measured)
                                ? grade
                                : lab_grade(json_number_value(reader), measured)));
    }
    if (disturbed)
        set(l, l->result, "state", json_string("disturbed"));
}

void lab_check(lab *l, bool ok, const char *fmt, ...)
{
    json_t *o = json_object();
    va_list args;
    va_start(args, fmt);
    set(l, o, "ok", json_boolean(ok));
    set(l, o, "text", text_of(l, fmt, args));
    va_end(args);
    append(l, "checks", o);
    l->failed |= !ok;
}

/* Items are written in the order in which they are told; a second one of a key replaces the
 * first. */
static json_t *new_item(lab *l, const char *key)
{
    json_t *o = json_object();
    set(l, part(l, "items"), key, o);
    return o;
}

void lab_item(lab *l, const char *key, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(l, new_item(l, key), "text", text_of(l, fmt, args));
    va_end(args);
}

void lab_missing(lab *l, const char *key, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set(l, new_item(l, key), "missing", text_of(l, fmt, args));
    va_end(args);
}

void lab_number(lab *l, const char *key, double v, vt_unit unit, const char *tag, const char *of)
{
    json_t *o = new_item(l, key);
    set(l, o, "value", number(v));
    set(l, o, "unit", json_string(vt_unit_name(unit)));
    set(l, o, "tag", json_string(isfinite(v) ? tag : "n/a"));
    set(l, o, "of", of ? json_string(of) : json_null());
}

void lab_drawing(lab *l, const char *key, const char *title, const vt_buf *text)
{
    json_t *o = new_item(l, key);
    set(l, o, "title", json_string(title));
    set(l, o, "drawing", json_stringn_nocheck(text->data ? text->data : "", text->len));
    l->failed |= text->failed;
}

/* Two runs of one program differ by a per cent or so, however little the repetitions inside each
 * do: nothing below twice that is a verdict. */
#define LEAST_DIFFERENCE 0.02

/* The verdict of a knob: it gains or loses if its times differ by more than two standard deviations
 * of their difference. Without a noise there is no verdict. */
const char *lab_verdict(double before_s, double before_noise, double after_s, double after_noise)
{
    double ratio = before_s / after_s,
           noise = 2 * hypot(before_noise, after_noise), /* NAN: none was found */
        limit = noise < LEAST_DIFFERENCE ? LEAST_DIFFERENCE : noise;
    return !isfinite(ratio)          ? "not measured"
           : ratio > 1 + limit       ? "gains"
           : ratio < 1 / (1 + limit) ? "loses"
                                     : "no gain here";
}

void lab_turn(lab *l, const lab_knob *k)
{
    json_t *o = json_object();
    double before_s = l->emulated ? NAN : k->before_s, after_s = l->emulated ? NAN : k->after_s,
           ratio = before_s / after_s;
    const char *verdict = isfinite(ratio) && (k->disturbed || l->busy)
                              ? "not graded"
                              : lab_verdict(before_s, k->before_noise, after_s, k->after_noise);
    set(l, o, "name", json_string(k->name));
    set(l, o, "where", json_string(k->where));
    set(l, o, "what", json_string(k->what));
    set(l, o, "expected", number(k->gain));
    set(l, o, "before_s", number(before_s));
    set(l, o, "before_noise", number(k->before_noise));
    set(l, o, "after_s", number(after_s));
    set(l, o, "after_noise", number(k->after_noise));
    set(l, o, "gain", number(ratio));
    set(l, o, "verdict", json_string(verdict));
    set(l, o, "why", json_string(k->why));
    append(l, "knobs", o);
}

void lab_turn_kernels(lab *l, const char *name, const char *where, const char *what, double gain,
                      const lab_kernel *before, const lab_kernel *after, const char *why)
{
    lab_turn(l, &(lab_knob){.name = name,
                            .where = where,
                            .what = what,
                            .gain = gain,
                            .before_s = before->median_s,
                            .before_noise = before->noise,
                            .after_s = after->median_s,
                            .after_noise = after->noise,
                            .why = why,
                            .disturbed = before->disturbed || after->disturbed});
}

void lab_turn_missing(lab *l, const char *name, const char *where, const char *what, double gain,
                      const char *why)
{
    lab_turn(l, &(lab_knob){.name = name,
                            .where = where,
                            .what = what,
                            .gain = gain,
                            .before_s = NAN,
                            .before_noise = NAN,
                            .after_s = NAN,
                            .after_noise = NAN,
                            .why = why});
}

void lab_finding(lab *l, const char *rule, const char *fmt, ...)
{
    json_t *o = json_object();
    va_list args;
    va_start(args, fmt);
    set(l, o, "rule", json_string(rule));
    set(l, o, "text", text_of(l, fmt, args));
    va_end(args);
    append(l, "findings", o);
}

void lab_file(lab *l, const char *name, const char *what)
{
    json_t *o = json_object();
    set(l, o, "name", json_string(name));
    set(l, o, "what", json_string(what));
    append(l, "files", o);
}

/* ---- tables ---- */

void lab_table(lab *l, const char *key, const char *title, const char *columns)
{
    json_t *o = new_item(l, key), *names = json_array();
    set(l, o, "title", json_string(title));
    for (const char *s = columns; s;) {
        size_t n = strcspn(s, "|");
        if (json_array_append_new(names, json_stringn(s, n)) != 0)
            l->failed = true;
        s = s[n] ? s + n + 1 : NULL;
    }
    set(l, o, "columns", names);
    set(l, o, "rows", json_array());
    l->table = o;
}

/* A cell is {"text"} and, of a number, {"text", "value", "unit"}. */
static void add_cell(lab *l, json_t *cell)
{
    json_t *rows = json_object_get(l->table, "rows"),
           *row = json_array_get(rows, json_array_size(rows) - 1);
    size_t width = json_array_size(json_object_get(l->table, "columns"));
    if (!row || json_array_size(row) == width) {
        row = json_array();
        if (json_array_append_new(rows, row) != 0)
            l->failed = true;
    }
    if (json_array_append_new(row, cell) != 0)
        l->failed = true;
}

void lab_cell(lab *l, const char *fmt, ...)
{
    json_t *o = json_object();
    va_list args;
    va_start(args, fmt);
    set(l, o, "text", text_of(l, fmt, args));
    va_end(args);
    add_cell(l, o);
}

void lab_cell_number(lab *l, double v, vt_unit unit)
{
    json_t *o = json_object();
    vt_buf b = {0};
    vt_text_figure(&b, v, unit);
    set(l, o, "text", json_string(b.data ? b.data : ""));
    set(l, o, "value", number(v));
    set(l, o, "unit", json_string(vt_unit_name(unit)));
    vt_buf_release(&b);
    add_cell(l, o);
}

void lab_cells(lab *l, const char *forms, ...)
{
    vt_pieces p = {0};
    va_list args;
    va_start(args, forms);
    for (const char *f = forms; f && !l->failed;) {
        size_t n = strcspn(f, "|");
        vt_unit unit = VT_COUNT;
        bool number = n > 0 &&
                      (vt_figure_at(f, &unit) == n || (n == 2 && strncmp(f, "%f", n) == 0));
        const char *text = number ? vt_pieces_next(&p, "%a", 2, args)
                                  : vt_pieces_next(&p, f, n, args);
        if (!text)
            l->failed = true;
        else if (number)
            lab_cell_number(l, strtod(text, NULL), unit);
        else
            lab_cell(l, "%s", text);
        f = f[n] ? f + n + 1 : NULL;
    }
    va_end(args);
    vt_pieces_release(&p);
}
