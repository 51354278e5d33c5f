/* Latencies and rates from the engine's trace events (live_look.h).
 *
 * TTFT is from a request's arrival to its first token, ITL the gap between two steps that gave a
 * request tokens. Both are kept for a minute, the newest few thousand; percentiles are exact over
 * what is kept. Rates are counted in intervals of half a second. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/stats.h"
#include "server/watch/live_look.h"

enum {
    REQUESTS = 1 << 13, /* followed at once; a request takes the place of its id modulo this */
    SAMPLES = 1 << 12,
    INTERVAL_NS = 500000000,
    NOW_INTERVALS = 4
};

static const int64_t window_ns = 60000000000;

typedef struct followed {
    uint64_t request, step;
    int64_t arrive_ns, token_ns; /* 0: not seen */
} followed;

typedef struct samples {
    int64_t at_ns[SAMPLES];
    double s[SAMPLES];
    uint64_t request[SAMPLES];
    uint64_t n; /* ever; the newest is at (n - 1) % SAMPLES */
} samples;

/* Tokens by interval of the clock: number i / INTERVAL_NS is at i % LIVE_RATES. */
typedef struct rates {
    int64_t interval[LIVE_RATES + 1];
    double tokens[LIVE_RATES + 1];
} rates;

struct live_times {
    followed follow[REQUESTS];
    samples ttft, itl;
    rates output, prefill;
    double sorted[SAMPLES];
};

live_times *live_times_new(void) { return vt_calloc(1, sizeof(live_times)); }

static void add_sample(samples *s, uint64_t request, int64_t at_ns, int64_t length_ns)
{
    s->request[s->n % SAMPLES] = request;
    s->at_ns[s->n % SAMPLES] = at_ns;
    s->s[s->n++ % SAMPLES] = (double)length_ns * 1e-9;
}

static void add_tokens(rates *r, int64_t at_ns, int32_t n)
{
    int64_t interval = at_ns / INTERVAL_NS;
    size_t i = (size_t)(interval % (LIVE_RATES + 1));
    if (r->interval[i] > interval)
        return;
    if (r->interval[i] != interval) {
        r->interval[i] = interval;
        r->tokens[i] = 0;
    }
    r->tokens[i] += n;
}

void live_times_request(live_times *t, const vt_request_event *e)
{
    followed *f = &t->follow[e->request % REQUESTS];
    if (e->kind == VT_REQ_ARRIVE) {
        *f = (followed){.request = e->request, .arrive_ns = e->arrive.at_ns};
        return;
    }
    if (e->kind != VT_REQ_TOKEN)
        return;
    const vt_req_token *k = &e->token;
    add_tokens(&t->output, k->at_ns, 1);
    if (f->request != k->request)
        *f = (followed){.request = k->request};
    if (f->token_ns == 0 && f->arrive_ns && k->index == 0)
        add_sample(&t->ttft, k->request, k->at_ns, k->at_ns - f->arrive_ns);
    else if (f->token_ns && k->step != f->step) /* other samples of it get tokens of one step */
        add_sample(&t->itl, k->request, k->at_ns, k->at_ns - f->token_ns);
    f->token_ns = k->at_ns;
    f->step = k->step;
}

void live_times_step(live_times *t, const vt_step_ran *e)
{
    add_tokens(&t->prefill, e->end_ns, e->n_tokens - e->n_decode);
}

static int32_t bin_of(double s)
{
    double i = floor(4 * log10(s * 1e4));
    return i < 0 || !isfinite(i) ? 0 : i >= LIVE_BINS ? LIVE_BINS - 1 : (int32_t)i;
}

static void tell_latency(live_times *t, const samples *s, int64_t now_ns, live_latency *out)
{
    *out = (live_latency){0};
    for (uint64_t i = s->n; i > 0 && s->n - i < SAMPLES; i--) {
        if (s->at_ns[(i - 1) % SAMPLES] < now_ns - window_ns)
            break;
        t->sorted[out->n] = s->s[(i - 1) % SAMPLES];
        int32_t bin = bin_of(t->sorted[out->n++]);
        if (out->bin[bin]++ == 0)
            out->request[bin] = s->request[(i - 1) % SAMPLES];
    }
    out->p50_s = vt_percentile(t->sorted, (size_t)out->n, 0.50);
    out->p90_s = vt_percentile(t->sorted, (size_t)out->n, 0.90);
    out->p99_s = vt_percentile(t->sorted, (size_t)out->n, 0.99);
}

/* The interval under way is left out: it is not over. */
static double tell_rates(const rates *r, int64_t now_ns, double *out)
{
    double sum = 0;
    int64_t now = now_ns / INTERVAL_NS;
    for (int32_t i = 0; i < LIVE_RATES; i++) {
        int64_t interval = now - LIVE_RATES + i;
        size_t at = (size_t)(interval % (LIVE_RATES + 1));
        double tokens = interval > 0 && r->interval[at] == interval ? r->tokens[at] : 0;
        out[i] = tokens * 1e9 / INTERVAL_NS;
        sum += i >= LIVE_RATES - NOW_INTERVALS ? out[i] : 0;
    }
    return sum / NOW_INTERVALS;
}

void live_times_tell(live_times *t, int64_t now_ns, live_look *out)
{
    tell_latency(t, &t->ttft, now_ns, &out->ttft);
    tell_latency(t, &t->itl, now_ns, &out->itl);
    out->output_now = tell_rates(&t->output, now_ns, out->output_rate);
    out->prefill_now = tell_rates(&t->prefill, now_ns, out->prefill_rate);
}
