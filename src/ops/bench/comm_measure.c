/* Timing the forms of a sum over GPUs (comm_measure.h). */
#include "ops/bench/comm_measure.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/knob.h"
#include "device/roofs/roofs_cache.h"
#include "ops/all_reduce/all_reduce.h"
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm.h"
#include "ops/bench/comm_gpus.h"

enum { COLUMNS = 4096, EACH = 2 /* bytes of a BF16 value */, REPETITIONS = 5 };

/* The rows of both ops, by form. */
static const char *const sum_row[COMM_FORMS] = {"push", "one-shot", "two-shot"};
static const char *const norm_row[COMM_FORMS] = {"push", "one-shot", "sum-then-norm"};

void vt_comm_times_key(const comm_set *s, char *out, size_t size)
{
    size_t at = (size_t)snprintf(out, size, "%.96s-driver%d-%s", s->first->name,
                                 s->first->driver_version, s->staged ? "host" : "p2p");
    for (int32_t r = 0; r < s->n && at < size; r++)
        at += (size_t)snprintf(out + at, size - at, "-%d", s->gpu[r]);
}

static bool share_a_gpu(const comm_set *s)
{
    for (int32_t r = 0; r < s->n; r++)
        for (int32_t k = 0; k < r; k++)
            if (s->gpu[k] == s->gpu[r])
                return true;
    return false;
}

static vt_status time_forms(comm_gpus *g, const vt_op *op, const char *const row[COMM_FORMS],
                            int32_t ranks, int32_t n_sizes, double t[COMM_FORMS][COMM_SIZES],
                            vt_err *err)
{
    for (int form = 0; form < COMM_FORMS; form++)
        for (int32_t i = 0; i < n_sizes; i++) {
            comm_result r;
            vt_err refused;
            int64_t n = ((int64_t)COMM_LEAST_BYTES << i) / EACH;
            const comm_ask ask = {.op = op,
                                  .row = row[form],
                                  .rows = n / COLUMNS + (n < COLUMNS),
                                  .n = n < COLUMNS ? n : COLUMNS,
                                  .residual = true,
                                  .how = COMM_REGISTERED,
                                  .repetitions = REPETITIONS,
                                  .unchecked = true};
            if (op == &all_reduce_op && form == COMM_OTHER && ranks == 2)
                continue; /* engines of two ranks have no memory for parts */
            vt_status status = comm_gpus_run(g, &ask, &r, &refused);
            if (status != VT_OK && status != VT_ERR_UNSUPPORTED) {
                *err = refused;
                return status;
            }
            if (status == VT_OK)
                t[form][i] = (double)r.median_ns * 1e-9;
        }
    return VT_OK;
}

vt_status vt_comm_times_measure(const comm_set *s, int32_t n_sizes, comm_times *out, vt_err *err)
{
    comm_gpus *g;
    comm_times t = {.when = (int64_t)time(NULL)};
    TRY(comm_gpus_open(s->gpu, s->n, s->staged ? "host" : "p2p", &g, err));
    vt_status status = time_forms(g, &all_reduce_op, sum_row, s->n, n_sizes, t.sum, err);
    if (status == VT_OK)
        status = time_forms(g, &all_reduce_rmsnorm_op, norm_row, s->n, n_sizes, t.norm, err);
    comm_gpus_close(g);
    if (status == VT_OK)
        *out = t;
    return status;
}

bool vt_comm_limits_get(const comm_set *s, bool measure, vt_comm_limits *out)
{
    char key[192];
    comm_times t;
    vt_err err;
    *out = vt_comm_fixed_limits(s->n);
    if (s->n < 2 || vt_knob_int(&vt_knobs[VT_KNOB_COMM_TIMES]) == 0 || share_a_gpu(s))
        return false;
    vt_comm_times_key(s, key, sizeof key);
    if (!vt_comm_times_read(key, &t)) {
        bool emulated = strstr(s->first->name, "Emulated") != NULL;
        if (!measure || emulated || vt_comm_times_measure(s, COMM_SIZES, &t, &err) != VT_OK)
            return false;
        vt_comm_times_write(key, &t);
    }
    *out = vt_comm_limits_from(&t, s->n);
    return true;
}

/* ---- saying it ---- */

static void tell_bytes(vt_buf *b, int64_t bytes)
{
    if (bytes >= 1 << 20)
        vt_buf_printf(b, "%lld MiB", (long long)bytes >> 20);
    else
        vt_buf_printf(b, "%lld KiB", (long long)bytes >> 10);
}

static void tell_forms(vt_buf *b, vt_form_limits l, const char *other)
{
    if (l.push > 0) {
        vt_buf_puts(b, "push to ");
        tell_bytes(b, l.push);
    }
    if (l.one_shot > l.push)
        vt_buf_puts(b, l.push > 0 ? ", then one-shot" : "one-shot");
    if (l.one_shot == INT64_MAX)
        return;
    if (l.one_shot > l.push) {
        vt_buf_puts(b, " to ");
        tell_bytes(b, l.one_shot);
    }
    vt_buf_printf(b, "%s%s", l.one_shot > 0 ? ", then " : "", other);
}

void vt_comm_limits_tell(vt_buf *b, const vt_comm_limits *l)
{
    time_t when = (time_t)l->when;
    struct tm utc;
    char date[16] = "";
    vt_buf_puts(b, "sums: ");
    tell_forms(b, l->sum, "two-shot");
    vt_buf_puts(b, "; with the norm: ");
    tell_forms(b, l->norm, "sum and norm apart");
    if (when > 0 && gmtime_r(&when, &utc) && strftime(date, sizeof date, " %Y-%m-%d", &utc) == 0)
        date[0] = '\0';
    vt_buf_printf(b, when > 0 ? " (measured%s)" : " (fixed)", date);
}

static void put_forms(vt_json *w, const char *key, vt_form_limits l)
{
    vt_json_open(w, key, '{');
    vt_json_int(w, "push", l.push);
    if (l.one_shot == INT64_MAX)
        vt_json_null(w, "one_shot");
    else
        vt_json_int(w, "one_shot", l.one_shot);
    vt_json_close(w);
}

void vt_comm_limits_put(vt_json *w, const char *key, const vt_comm_limits *l)
{
    vt_json_open(w, key, '{');
    put_forms(w, "sum", l->sum);
    put_forms(w, "norm", l->norm);
    roofs_put_date(w, "measured", l->when);
    vt_json_close(w);
}
