/* Percentiles, rates, goodput (load/measure.h). */
#include "load/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/stats.h"

vt_status vt_load_slo_parse(const char *text, vt_load_slo *out, vt_err *err)
{
    vt_load_slo slo = {0};
    const struct {
        const char *name;
        double *to;
    } field[] = {{"ttft", &slo.ttft}, {"itl", &slo.itl}, {"tpot", &slo.tpot}, {"e2e", &slo.e2e}};
    const char *p = text;
    do {
        size_t n = strcspn(p, "="), i = 0;
        while (i < 4 && (strlen(field[i].name) != n || strncmp(field[i].name, p, n) != 0))
            i++;
        char *end = NULL;
        double ms = i < 4 && p[n] ? strtod(p + n + 1, &end) : 0;
        if (!end || end == p + n + 1 || !(ms > 0 && ms < 1e9) || (*end && *end != ','))
            return vt_fail(err, VT_ERR_USAGE,
                           "--slo: '%.60s' found, expected limits in ms such as "
                           "ttft=200,itl=50,tpot=30,e2e=5000",
                           text);
        *field[i].to = ms * 1e-3;
        p = *end ? end + 1 : end;
    } while (*p);
    *out = slo;
    return VT_OK;
}

/* ---- one request ---- */

double vt_load_ttft(const vt_load_result *r)
{
    return r->n_pieces ? (double)(r->first_ns - r->due_ns) * 1e-9 : NAN;
}

int32_t vt_load_tokens(const vt_load_result *r)
{
    return r->completion >= 0 ? r->completion : r->n_pieces;
}

double vt_load_tpot(const vt_load_result *r)
{
    int32_t n = vt_load_tokens(r);
    return r->n_pieces > 1 && n > 1 ? (double)(r->last_ns - r->first_ns) * 1e-9 / (n - 1) : NAN;
}

double vt_load_e2e(const vt_load_result *r) { return (double)(r->end_ns - r->due_ns) * 1e-9; }

/* A request that has no such time, because it made one token or none, keeps the limit on it. */
static bool within(double seconds, double limit)
{
    return limit <= 0 || isnan(seconds) || seconds <= limit;
}

bool vt_load_is_good(const vt_load_result *r, const vt_load_slo *slo)
{
    return r->end == VT_LOAD_OK && within(vt_load_ttft(r), slo->ttft) &&
           within((double)r->longest_gap_s, slo->itl) && within(vt_load_tpot(r), slo->tpot) &&
           within(vt_load_e2e(r), slo->e2e);
}

/* ---- all of them ---- */

static void spread_of(double *v, size_t n, vt_load_spread *out)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    *out = (vt_load_spread){.n = (int64_t)n, .mean = n ? sum / (double)n : NAN};
    out->p50 = vt_percentile(v, n, 0.5);
    out->p90 = vt_percentile(v, n, 0.9);
    out->p99 = vt_percentile(v, n, 0.99);
    out->max = n ? v[n - 1] : NAN;
}

static void spread_over(const vt_load_result *result, int32_t n,
                        double (*time)(const vt_load_result *), double *room, vt_load_spread *out)
{
    size_t k = 0;
    for (int32_t i = 0; i < n; i++) {
        double t = result[i].end == VT_LOAD_OK ? time(&result[i]) : NAN;
        if (!isnan(t))
            room[k++] = t;
    }
    spread_of(room, k, out);
}

static void count_one(const vt_load_result *r, const vt_load_slo *slo, vt_load_summary *s)
{
    if (r->begin_ns == 0)
        return;
    s->n++;
    s->ended[r->end]++;
    double late = (double)(r->begin_ns - r->due_ns) * 1e-9;
    s->late_s = late > s->late_s ? late : s->late_s;
    if (r->end != VT_LOAD_OK)
        return;
    s->prompt_tokens += r->prompt > 0 ? r->prompt : 0;
    s->cached_tokens += r->cached > 0 ? r->cached : 0;
    s->n_prompt_known += r->prompt >= 0;
    s->n_cached_known += r->cached >= 0;
    s->output_tokens += vt_load_tokens(r);
    s->by_usage += r->completion >= 0;
    s->by_pieces += r->completion < 0;
    s->n_good += vt_load_is_good(r, slo);
}

vt_status vt_load_measure(const vt_load_result *result, int32_t n, const float *gap, size_t n_gaps,
                          double wall_s, const vt_load_slo *slo, vt_load_summary *out, vt_err *err)
{
    vt_load_summary s = {.wall_s = wall_s};
    size_t room_n = n_gaps > (size_t)n ? n_gaps : (size_t)n;
    double *room = vt_calloc(room_n + 1, sizeof *room);
    if (!room)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the times of %d requests", n);
    for (int32_t i = 0; i < n; i++)
        count_one(&result[i], slo, &s);
    spread_over(result, n, vt_load_ttft, room, &s.ttft);
    spread_over(result, n, vt_load_tpot, room, &s.tpot);
    spread_over(result, n, vt_load_e2e, room, &s.e2e);
    for (size_t i = 0; i < n_gaps; i++)
        room[i] = (double)gap[i];
    spread_of(room, n_gaps, &s.itl);
    free(room);
    double per = wall_s > 0 ? 1 / wall_s : NAN;
    s.requests_per_s = s.ended[VT_LOAD_OK] * per;
    s.output_tokens_per_s = (double)s.output_tokens * per;
    s.total_tokens_per_s = (double)(s.output_tokens + s.prompt_tokens) * per;
    s.goodput_per_s = s.n_good * per;
    *out = s;
    return VT_OK;
}

vt_status vt_load_measure_turn(const vt_load_result *result, int32_t n, int32_t turn,
                               vt_load_turns *out, vt_err *err)
{
    vt_load_turns t = {0};
    double *ttft = vt_calloc((size_t)n + 1, sizeof *ttft);
    size_t k = 0;
    if (!ttft)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the times of %d requests", n);
    for (int32_t i = 0; i < n; i++) {
        const vt_load_result *r = &result[i], *before = turn > 0 && i > 0 ? r - 1 : NULL;
        if (r->turn != turn || r->end != VT_LOAD_OK)
            continue;
        if (r->n_pieces)
            ttft[k++] = vt_load_ttft(r);
        bool known = !before || (before->prompt >= 0 && before->completion >= 0);
        if (r->prompt < 0 || !known)
            continue;
        t.n++;
        t.prompt += r->prompt;
        t.cached += r->cached > 0 ? r->cached : 0;
        t.fresh += r->prompt - (before ? before->prompt + before->completion : 0);
    }
    double per = t.n ? 1.0 / t.n : NAN;
    t.prompt *= per;
    t.cached *= per;
    t.fresh *= per;
    t.ttft_p50 = vt_percentile(ttft, k, 0.5);
    free(ttft);
    *out = t;
    return VT_OK;
}
