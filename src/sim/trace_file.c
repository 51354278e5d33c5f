/* Reading traces (sim/trace_file.h). Every line is checked; nothing is rounded or guessed. */
#include "sim/trace_file.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/random.h"
#include "files/json.h"

enum {
    MOST_TOKENS = 1 << 24,
    MOST_HASHES = 1 << 16,
    MOST_ALL_HASHES = 1 << 30,
    MOST_LINE_BYTES = 32 << 20
};

typedef struct reading {
    vt_trace_file file;
    int32_t cap, hash_cap, max;
    const char *name;
    int32_t number; /* the number of the line, counted from 1 */
    vt_err *err;
} reading;

/* Makes room for one more line with n_hash hashes. */
static bool make_room(reading *r, int32_t n_hash)
{
    if (r->file.n == r->cap) {
        int32_t cap = r->cap ? 2 * r->cap : 1024;
        vt_trace_line *line = realloc(r->file.line, (size_t)cap * sizeof *line);
        if (!line)
            return false;
        r->file.line = line;
        r->cap = cap;
    }
    if (n_hash > MOST_ALL_HASHES - r->file.n_hash)
        return false;
    if (r->file.n_hash + n_hash > r->hash_cap) {
        int64_t cap = 2 * (int64_t)r->hash_cap + n_hash + 1024;
        uint64_t *hash = realloc(r->file.hash, (size_t)cap * sizeof *hash);
        if (!hash)
            return false;
        r->file.hash = hash;
        r->hash_cap = (int32_t)(cap < INT32_MAX ? cap : INT32_MAX);
    }
    return true;
}

/* Reads a length in tokens: a whole number from lo to MOST_TOKENS. */
static vt_status read_length(const reading *r, const json_t *j, const char *key, int32_t lo,
                             int32_t *out)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_number(v))
        return vt_fail(r->err, VT_ERR_FORMAT,
                       "%s: line %d: %s is missing or no number, expected tokens", r->name,
                       r->number, key);
    double n = json_number_value(v);
    if (!(n >= lo && n <= MOST_TOKENS) || n != floor(n))
        return vt_fail(r->err, VT_ERR_FORMAT,
                       "%s: line %d: %s is %.10g, expected a whole number from %d to %d", r->name,
                       r->number, key, n, lo, MOST_TOKENS);
    *out = (int32_t)n;
    return VT_OK;
}

/* Reads one id as a 64-bit hash. Numbers and strings start from different seeds, so 5 and "5" are
 * two ids. No trace is long enough for two ids to get the same 64 bits with any real chance. */
static vt_status read_hash(const reading *r, const json_t *v, size_t i, uint64_t *out)
{
    enum { FROM_NUMBER = 1, FROM_STRING = 2 };
    if (json_is_string(v)) {
        uint64_t h = vt_fnv1a(VT_FNV_OFFSET, json_string_value(v), json_string_length(v));
        *out = vt_mix64(vt_mix64(h) + FROM_STRING);
        return VT_OK;
    }
    double n = json_is_number(v) ? json_number_value(v) : NAN;
    bool whole = json_is_integer(v) || (n == floor(n) && fabs(n) < 9007199254740992.0);
    if (!whole)
        return vt_fail(
            r->err, VT_ERR_FORMAT,
            "%s: line %d: number %zu of hash_ids is %s, expected whole numbers or strings", r->name,
            r->number, i + 1, json_is_number(v) ? "a fraction" : "no number and no string");
    int64_t id = json_is_integer(v) ? json_integer_value(v) : (int64_t)n;
    *out = vt_mix64(vt_mix64((uint64_t)id) + FROM_NUMBER);
    return VT_OK;
}

/* Appends the hash_ids of the line being read to those of the lines before it. */
static vt_status read_hashes(reading *r, const json_t *list, vt_trace_line *line)
{
    if (list && !json_is_null(list) && !json_is_array(list))
        return vt_fail(r->err, VT_ERR_FORMAT, "%s: line %d: hash_ids is no list", r->name,
                       r->number);
    size_t n = json_array_size(list);
    if (n > MOST_HASHES)
        return vt_fail(r->err, VT_ERR_FORMAT, "%s: line %d: %zu hash_ids, expected at most %d",
                       r->name, r->number, n, MOST_HASHES);
    if (!make_room(r, (int32_t)n))
        return vt_fail(r->err, VT_ERR_MEMORY, "%s: line %d: out of memory for the trace", r->name,
                       r->number);
    line->first_hash = r->file.n_hash;
    line->n_hash = (int32_t)n;
    for (size_t i = 0; i < n; i++)
        TRY(read_hash(r, json_array_get(list, i), i, &r->file.hash[line->first_hash + (int32_t)i]));
    return VT_OK;
}

static vt_status read_line(reading *r, const json_t *j)
{
    const json_t *time = json_object_get(j, "timestamp");
    double ms = json_is_number(time) ? json_number_value(time) : -1;
    if (!(ms >= 0 && ms <= 1e12))
        return vt_fail(r->err, VT_ERR_FORMAT, "%s: line %d: timestamp is missing or no time in ms",
                       r->name, r->number);
    vt_trace_line line = {.arrive_ns = (int64_t)(ms * 1e6)};
    TRY(read_length(r, j, "input_length", 1, &line.input));
    TRY(read_length(r, j, "output_length", 0, &line.output));
    if (line.output == 0)
        line.output = 1;
    TRY(read_hashes(r, json_object_get(j, "hash_ids"), &line));
    if (r->file.n == r->max) {
        r->file.n_left_out++;
        return VT_OK;
    }
    int32_t blocks = (line.input + VT_TRACE_BLOCK - 1) / VT_TRACE_BLOCK;
    if (line.n_hash > 0 && line.n_hash != blocks && r->file.n_odd++ == 0)
        r->file.first_odd = r->number;
    r->file.n_hash += line.n_hash;
    r->file.line[r->file.n++] = line;
    return VT_OK;
}

static int by_arrival(const void *a, const void *b)
{
    const vt_trace_line *x = a, *y = b;
    if (x->arrive_ns != y->arrive_ns)
        return x->arrive_ns < y->arrive_ns ? -1 : 1;
    return (x->first_hash > y->first_hash) - (x->first_hash < y->first_hash);
}

static vt_status read_all(reading *r, const char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end ? (size_t)(end - text) - at : len - at;
        char line[240];
        r->number++;
        if (n > strspn(text + at, " \t\r")) {
            json_t *j = NULL;
            snprintf(line, sizeof line, "%.200s: line %d", r->name, r->number);
            vt_status status = vt_json_load(line, text + at, n, JSON_ALLOW_NUL, MOST_LINE_BYTES, &j,
                                            r->err);
            if (status == VT_OK)
                status = read_line(r, j);
            json_decref(j);
            TRY(status);
        }
        at += n + 1;
    }
    return r->file.n > 0 ? VT_OK : vt_fail(r->err, VT_ERR_FORMAT, "%s: no requests found", r->name);
}

vt_status vt_trace_parse(const char *name, const char *text, size_t len, int32_t max,
                         vt_trace_file *out, vt_err *err)
{
    reading r = {.max = max, .name = name, .err = err};
    vt_status status = read_all(&r, text, len);
    if (status != VT_OK) {
        vt_trace_file_release(&r.file);
        return status;
    }
    qsort(r.file.line, (size_t)r.file.n, sizeof *r.file.line, by_arrival);
    for (int32_t i = r.file.n - 1; i >= 0; i--)
        r.file.line[i].arrive_ns -= r.file.line[0].arrive_ns;
    *out = r.file;
    return VT_OK;
}

void vt_trace_file_release(vt_trace_file *t)
{
    free(t->line);
    free(t->hash);
    *t = (vt_trace_file){0};
}
