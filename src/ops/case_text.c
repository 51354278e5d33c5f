#include "ops/case_text.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/err.h"

/* The values of every field, and the order in which the text names the fields. */
typedef struct shape {
    int64_t value[VT_MAX_FIELDS][VT_CASE_VALUES];
    int32_t n[VT_MAX_FIELDS]; /* 0: not named */
    int32_t named[VT_MAX_FIELDS], n_named;
} shape;

static int64_t least_of(const vt_field *f) { return f->preset == 0 || f->words || f->zero ? 0 : 1; }
static int64_t most_of(const vt_field *f) { return f->most ? f->most : VT_FIELD_MOST; }

/* ---- names ---- */

static int32_t find_type(const char *text, size_t len)
{
    if (len == 3 && strncasecmp(text, "fp8", 3) == 0)
        return VT_FP8_E4M3;
    for (int32_t t = 0; t < VT_I8; t++) {
        const char *name = vt_dtype_get((vt_dtype)t)->name;
        if (strlen(name) == len && strncasecmp(name, text, len) == 0)
            return t;
    }
    return -1;
}

static int32_t find_word(const vt_field *f, const char *text, size_t len)
{
    for (int32_t i = 0; i <= most_of(f) && f->words[i]; i++)
        if (strlen(f->words[i]) == len && strncmp(f->words[i], text, len) == 0)
            return i;
    return -1;
}

static vt_status unknown_field(const vt_op *op, const char *text, size_t len, vt_err *err)
{
    char list[256];
    size_t at = 0;
    list[0] = 0;
    for (int32_t i = 0; i < op->n_fields; i++)
        vt_append(list, sizeof list, &at, "%s%s", i ? ", " : "", op->fields[i].name);
    return vt_fail(err, VT_ERR_USAGE, "a shape of %s: '%.*s' found, expected some of %s", op->name,
                   (int)(len < 40 ? len : 40), text, list);
}

static vt_status unknown_word(const vt_op *op, const vt_field *f, const char *text, size_t len,
                              vt_err *err)
{
    char list[160];
    size_t at = 0;
    list[0] = 0;
    for (int32_t i = 0; f->words[i]; i++)
        vt_append(list, sizeof list, &at, "%s%s", i ? ", " : "", f->words[i]);
    return vt_fail(err, VT_ERR_USAGE, "a shape of %s: %s is '%.*s', expected one of %s", op->name,
                   f->name, (int)(len < 40 ? len : 40), text, list);
}

/* ---- values ---- */

static vt_status read_number(const vt_op *op, const vt_field *f, const char *text, size_t len,
                             int64_t *out, vt_err *err)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    bool number = isdigit((unsigned char)text[0]) && end == text + len && !errno;
    int64_t least = least_of(f);
    if (!number || n < least || n > most_of(f))
        return vt_fail(err, VT_ERR_USAGE,
                       "a shape of %s: %s is '%.*s', expected a number from %lld to %lld", op->name,
                       f->name, (int)(len < 40 ? len : 40), text, (long long)least,
                       (long long)most_of(f));
    *out = n;
    return VT_OK;
}

vt_status vt_field_read(const vt_op *op, const vt_field *f, const char *text, size_t len,
                        int64_t *out, vt_err *err)
{
    if (!f->is_type && !f->words)
        return read_number(op, f, text, len, out, err);
    int32_t found = f->is_type ? find_type(text, len) : find_word(f, text, len);
    if (found < 0 && f->words)
        return unknown_word(op, f, text, len, err);
    if (found < 0)
        return vt_fail(err, VT_ERR_USAGE,
                       "a shape of %s: %s is '%.*s', expected a type such as bf16, fp8 or q4_k",
                       op->name, f->name, (int)(len < 40 ? len : 40), text);
    *out = found;
    return VT_OK;
}

/* Reads "1|8|64" up to `end`. */
static vt_status read_values(const vt_op *op, int32_t field, const char *text, const char *end,
                             shape *s, vt_err *err)
{
    for (const char *p = text; p <= end;) {
        const char *bar = memchr(p, '|', (size_t)(end - p));
        const char *stop = bar ? bar : end;
        if (s->n[field] == VT_CASE_VALUES)
            return vt_fail(err, VT_ERR_USAGE, "a shape of %s: %s has more than %d values", op->name,
                           op->fields[field].name, VT_CASE_VALUES);
        TRY(vt_field_read(op, &op->fields[field], p, (size_t)(stop - p),
                          &s->value[field][s->n[field]++], err));
        p = stop + 1;
    }
    return VT_OK;
}

static vt_status read_field(const vt_op *op, const char *text, const char *end, shape *s,
                            vt_err *err)
{
    const char *equals = memchr(text, '=', (size_t)(end - text));
    size_t len = (size_t)((equals ? equals : end) - text);
    for (int32_t i = 0; i < op->n_fields; i++) {
        if (strlen(op->fields[i].name) != len || strncmp(op->fields[i].name, text, len) != 0)
            continue;
        if (!equals)
            return vt_fail(err, VT_ERR_USAGE, "a shape of %s: %s has no value, expected %s=VALUE",
                           op->name, op->fields[i].name, op->fields[i].name);
        if (s->n[i] > 0)
            return vt_fail(err, VT_ERR_USAGE, "a shape of %s: %s is there twice", op->name,
                           op->fields[i].name);
        s->named[s->n_named++] = i;
        return read_values(op, i, equals + 1, end, s, err);
    }
    return unknown_field(op, text, len, err);
}

/* Reads the text; *cases: how many combinations its lists make, at most `most`. */
static vt_status read_shape(const vt_op *op, const char *text, int32_t most, shape *s,
                            int32_t *cases, vt_err *err)
{
    int64_t n = 1;
    *s = (shape){0};
    for (const char *p = text; *p;) {
        const char *end = p + strcspn(p, ", ");
        TRY(read_field(op, p, end, s, err));
        if (*end && !end[1])
            return vt_fail(err, VT_ERR_USAGE, "a shape of %s: it ends in '%c', expected a field",
                           op->name, *end);
        p = *end ? end + 1 : end;
    }
    for (int32_t k = 0; k < s->n_named; k++) {
        n *= s->n[s->named[k]];
        if (n > most)
            return vt_fail(err, VT_ERR_USAGE, "a shape of %s: more than %d combinations", op->name,
                           most);
    }
    *cases = (int32_t)n;
    return VT_OK;
}

/* ---- cases ---- */

const char *vt_field_text(const vt_field *f, int64_t v, char room[VT_VALUE_TEXT])
{
    if (f->words)
        return f->words[v];
    if (f->is_type)
        return v == VT_FP8_E4M3 ? "fp8" : vt_dtype_get((vt_dtype)v)->name;
    snprintf(room, VT_VALUE_TEXT, "%lld", (long long)v);
    return room;
}

void vt_case_presets(const vt_op *op, vt_case *out)
{
    *out = (vt_case){.bench = false};
    for (int32_t i = 0; i < op->n_fields; i++)
        out->p[i] = op->fields[i].preset;
}

void vt_case_name(const vt_op *op, vt_case *c)
{
    char room[VT_VALUE_TEXT];
    size_t at = 0;
    for (int32_t i = 0; i < op->n_fields; i++)
        if (i == 0 || c->p[i] != op->fields[i].preset)
            vt_append(c->name, sizeof c->name, &at, "%s%s=%s", i ? " " : "", op->fields[i].name,
                      vt_field_text(&op->fields[i], c->p[i], room));
}

/* Makes the case for combination `number` of the shape's values. */
static vt_status make_case(const vt_op *op, const shape *s, int32_t number, vt_case *out,
                           vt_err *err)
{
    char room[VT_VALUE_TEXT];
    size_t at = 0;
    vt_case_presets(op, out);
    out->bench = true;
    for (int32_t k = s->n_named - 1; k >= 0; k--) {
        int32_t i = s->named[k];
        out->p[i] = s->value[i][number % s->n[i]];
        number /= s->n[i];
    }
    snprintf(out->name, sizeof out->name, "presets");
    for (int32_t k = 0; k < s->n_named; k++) {
        const vt_field *f = &op->fields[s->named[k]];
        vt_append(out->name, sizeof out->name, &at, "%s%s=%s", k ? " " : "", f->name,
                  vt_field_text(f, out->p[s->named[k]], room));
    }
    const char *wrong = op->refuses ? op->refuses(out) : NULL;
    return wrong ? vt_fail(err, VT_ERR_USAGE, "a shape of %s: %s: %s", op->name, out->name, wrong)
                 : VT_OK;
}

vt_status vt_cases_from_text(const vt_op *op, const char *text, vt_case *out, int32_t most,
                             int32_t *n, vt_err *err)
{
    shape s;
    int32_t cases = 0;
    *n = 0;
    TRY(read_shape(op, text, most, &s, &cases, err));
    for (int32_t i = 0; i < cases; i++)
        TRY(make_case(op, &s, i, &out[i], err));
    *n = cases;
    return VT_OK;
}

vt_status vt_case_from_text(const vt_op *op, const char *text, vt_case *out, vt_err *err)
{
    int32_t n;
    return vt_cases_from_text(op, text, out, 1, &n, err);
}

bool vt_op_case(const vt_op *op, int32_t number, vt_case *out)
{
    for (const char *const *text = op->cases; *text; text++) {
        shape s = {0};
        int32_t n = 0;
        bool timed = **text == '*';
        vt_status status = read_shape(op, *text + timed, VT_MAX_TEXT_CASES, &s, &n, NULL);
        if (status == VT_OK && number < n)
            status = make_case(op, &s, number, out, NULL);
        assert(status == VT_OK); /* a card's own text, which test_op_parity reads */
        if (number < n) {
            out->bench = timed;
            return true;
        }
        number -= n;
    }
    return false;
}

int32_t vt_op_n_cases(const vt_op *op)
{
    vt_case c;
    int32_t n = 0;
    while (vt_op_case(op, n, &c))
        n++;
    return n;
}

int64_t vt_case_get(const vt_op *op, const vt_case *c, const char *field)
{
    for (int32_t i = 0; i < op->n_fields; i++)
        if (strcmp(op->fields[i].name, field) == 0)
            return c->p[i];
    return 0;
}

bool vt_case_of_rank(const vt_op *op, const vt_case *c)
{
    for (int32_t i = 0; i < op->n_fields; i++)
        if (op->fields[i].of_rank && c->p[i] != 0)
            return true;
    return false;
}
