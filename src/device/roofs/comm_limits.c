/* Limits of the forms of a sum over ranks, and the file of times (device/roofs/comm_limits.h).
 *
 *   {"version": 1, "date": "2026-11-29T18:00:00Z", "bytes": [8192, ...],
 *    "sum": {"push": [2.1, ..., null], "one_shot": [...], "other": [...]},   microseconds
 *    "norm": {...}} */
#include "device/roofs/comm_limits.h"

#include <math.h>
#include <stddef.h>

#include "device/roofs/roofs_cache.h"

enum { FILE_VERSION = 1, MAX_FILE = 1 << 16 };

static const char *const form_key[COMM_FORMS] = {"push", "one_shot", "other"};

vt_comm_limits vt_comm_fixed_limits(int32_t ranks)
{
    /* More than two ranks push too often; two send as much in any form, so the second meeting of
     * two-shot gains nothing. */
    return ranks <= 2 ? (vt_comm_limits){{64 << 10, INT64_MAX}, {128 << 10, 8 << 20}, 0}
                      : (vt_comm_limits){{0, 512 << 10}, {0, 512 << 10}, 0};
}

/* ---- from times to limits ---- */

static int64_t bytes_of(int32_t i) { return (int64_t)COMM_LEAST_BYTES << i; }

/* Returns how many sizes a limit holds. */
static int32_t sizes_upto(int64_t limit)
{
    int32_t n = 0;
    while (n < COMM_SIZES && bytes_of(n) <= limit)
        n++;
    return n;
}

/* The time of size i if the first p sizes push and those before q are one-shot. A form that does
 * not take the size gives way to another, as the rows do. */
static double time_of(const double t[COMM_FORMS][COMM_SIZES], int32_t i, int32_t p, int32_t q)
{
    static const comm_form order[COMM_FORMS][COMM_FORMS] = {
        [COMM_PUSH] = {COMM_PUSH, COMM_ONE_SHOT, COMM_OTHER},
        [COMM_ONE_SHOT] = {COMM_ONE_SHOT, COMM_OTHER, COMM_PUSH},
        [COMM_OTHER] = {COMM_OTHER, COMM_ONE_SHOT, COMM_PUSH}};
    const comm_form *form = order[i < p ? COMM_PUSH : i < q ? COMM_ONE_SHOT : COMM_OTHER];
    double s = 0;
    for (int k = 0; k < COMM_FORMS && !(s > 0); k++)
        s = t[form[k]][i];
    return s;
}

static double cost_of(const double t[COMM_FORMS][COMM_SIZES], int32_t p, int32_t q)
{
    double sum = 0;
    for (int32_t i = 0; i < COMM_SIZES; i++) {
        double best = INFINITY;
        for (int form = 0; form < COMM_FORMS; form++)
            if (t[form][i] > 0)
                best = fmin(best, t[form][i]);
        if (isfinite(best))
            sum += time_of(t, i, p, q) / best;
    }
    return sum;
}

/* A limit at the largest size holds beyond it, as far as the fixed one goes. */
static int64_t limit_of(int32_t n, int64_t fixed)
{
    int64_t most = n > 0 ? bytes_of(n - 1) : 0;
    return n == COMM_SIZES && fixed > most ? fixed : most;
}

static vt_form_limits choose(const double t[COMM_FORMS][COMM_SIZES], vt_form_limits fixed)
{
    double least = INFINITY;
    int32_t push = 0, one_shot = 0;
    for (int32_t p = 0; p <= COMM_SIZES; p++)
        for (int32_t q = COMM_SIZES; q >= p; q--) { /* of equals: few pushes, many one-shots */
            double cost = cost_of(t, p, q);
            if (!(cost < least))
                continue;
            least = cost;
            push = p;
            one_shot = q;
        }
    if (!(least + COMM_WORTH < cost_of(t, sizes_upto(fixed.push), sizes_upto(fixed.one_shot))))
        return fixed;
    return (vt_form_limits){limit_of(push, fixed.push), limit_of(one_shot, fixed.one_shot)};
}

vt_comm_limits vt_comm_limits_from(const comm_times *t, int32_t ranks)
{
    vt_comm_limits fixed = vt_comm_fixed_limits(ranks);
    return (vt_comm_limits){choose(t->sum, fixed.sum), choose(t->norm, fixed.norm), t->when};
}

/* ---- the file ---- */

static void put_times(vt_json *w, const char *key, const double t[COMM_FORMS][COMM_SIZES])
{
    vt_json_open(w, key, '{');
    for (int form = 0; form < COMM_FORMS; form++) {
        vt_json_open(w, form_key[form], '[');
        for (int32_t i = 0; i < COMM_SIZES; i++)
            if (t[form][i] > 0)
                vt_json_fixed(w, NULL, t[form][i] * 1e6, 3);
            else
                vt_json_null(w, NULL);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* A time is a number of microseconds above 0 and below a minute, or null. Every size has one. */
static bool get_times(const json_t *o, double t[COMM_FORMS][COMM_SIZES])
{
    static const double most_us = 60e6;
    for (int32_t i = 0; i < COMM_SIZES; i++) {
        bool some = false;
        for (int form = 0; form < COMM_FORMS; form++) {
            const json_t *v = json_array_get(json_object_get(o, form_key[form]), (size_t)i);
            double us = json_number_value(v);
            if (!json_is_null(v) && !(us > 0 && us < most_us))
                return false;
            t[form][i] = us * 1e-6;
            some = some || us > 0;
        }
        if (!some)
            return false;
    }
    return true;
}

bool vt_comm_times_read(const char *key, comm_times *out)
{
    json_t *j = roofs_cache_load("comm", key);
    comm_times t = {.when = roofs_get_date(j, "date")};
    bool good = json_integer_value(json_object_get(j, "version")) == FILE_VERSION && t.when > 0 &&
                get_times(json_object_get(j, "sum"), t.sum) &&
                get_times(json_object_get(j, "norm"), t.norm);
    json_decref(j);
    if (good)
        *out = t;
    return good;
}

void vt_comm_times_write(const char *key, const comm_times *t)
{
    vt_buf text;
    vt_json w;
    vt_buf_init(&text, MAX_FILE);
    vt_json_begin(&w, &text, 2);
    vt_json_open(&w, NULL, '{');
    vt_json_int(&w, "version", FILE_VERSION);
    roofs_put_date(&w, "date", t->when);
    vt_json_open(&w, "bytes", '[');
    for (int32_t i = 0; i < COMM_SIZES; i++)
        vt_json_int(&w, NULL, bytes_of(i));
    vt_json_close(&w);
    put_times(&w, "sum", t->sum);
    put_times(&w, "norm", t->norm);
    vt_json_close(&w);
    if (vt_json_end(&w))
        roofs_cache_save("comm", key, &text);
    vt_buf_release(&text);
}
