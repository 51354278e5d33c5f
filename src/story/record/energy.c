/* Joules a token (energy.h).
 *
 *   samples    s ------- 50 ms ------- s --------------------- s
 *   steps        |prompt |d|d|d|d|d|d|d|d|d|d|d|d|d|d|d|d|d|d|
 *
 * Between two samples the energy is taken to grow evenly. A step has what it grew by from the end
 * of the story's step before it, if that ran just before, to its own end, so idle time between two
 * steps belongs to the second. Steps with prompt tokens and steps of decodes alone are summed
 * apart. A sum is told where the samples are not much farther apart than its steps are long:
 * evenly growing energy says nothing about one short step among others.
 *
 * The counters are of a whole device: they include other programs, and on a CPU idle cores. So the
 * tokens that the energy is divided by are those of all requests in these steps. */
#include "story/record/energy.h"

#include <math.h>

#include "story/record/numbers.h"

static const double most_apart = 2.0; /* samples, as a multiple of the steps' time */

/* Samples, asked for times that never go back. */
typedef struct meter {
    const vt_machine_event *sample;
    uint64_t n, a, b; /* a and b: two samples in a row whose counter was read; b n: no more */
} meter;

/* The first sample at or after `from` whose counter was read; n: there is none. */
static uint64_t next_metered(const meter *m, uint64_t from)
{
    while (from < m->n && m->sample[from].energy_mj < 0)
        from++;
    return from;
}

/* Joules at a time between two samples; NAN outside them. *apart becomes at least the seconds
 * between the two. */
static double joules_at(meter *m, int64_t at_ns, double *apart)
{
    while (m->b < m->n && m->sample[m->b].at_ns < at_ns) {
        m->a = m->b;
        m->b = next_metered(m, m->b + 1);
    }
    if (m->b >= m->n || at_ns < m->sample[m->a].at_ns)
        return NAN;
    const vt_machine_event *x = &m->sample[m->a], *y = &m->sample[m->b];
    double s = (double)(y->at_ns - x->at_ns) * 1e-9;
    double share = s > 0 ? (double)(at_ns - x->at_ns) * 1e-9 / s : 0;
    *apart = fmax(*apart, s);
    return ((double)x->energy_mj + share * (double)(y->energy_mj - x->energy_mj)) * 1e-3;
}

/* Steps of one of the two sorts. */
typedef struct energy_sum {
    double joules, s, apart_s;
    int64_t tokens;
    bool missed; /* a step that is not between two samples */
} energy_sum;

static void add_step(meter *m, const story_record *r, int32_t i, energy_sum *sum)
{
    const step_record *s = &r->step[i];
    bool follows = i > 0 && r->step[i - 1].chosen && r->step[i - 1].id + 1 == s->id;
    int64_t begin = follows ? r->step[i - 1].device.end_ns : s->device.begin_ns;
    double before = joules_at(m, begin, &sum->apart_s),
           j = joules_at(m, s->device.end_ns, &sum->apart_s) - before;
    if (isnan(j)) {
        sum->missed = true;
        return;
    }
    sum->joules += j;
    sum->s += (double)(s->device.end_ns - begin) * 1e-9;
    sum->tokens += step_has_chunk(s) ? s->n_tokens : s->n_decode;
}

static double told(const energy_sum *sum)
{
    return sum->s > 0 && sum->apart_s <= most_apart * sum->s ? sum->joules : NAN;
}

/* Why there are not two readings of the counter. A GPU's library that can be asked now could be
 * asked before: then the steps were over before the watching thread (device/nvml.h) came to it. */
static const char *why_unread(const story_source *from, bool gpu, const meter *m)
{
    if (!from)
        return "nothing was sampled";
    if (!gpu && from->is.no_energy)
        return from->is.no_energy;
    if (!gpu)
        return "the energy counter was read less than twice";
    if (from->n_samples == 0 && !from->has_state)
        return "NVIDIA's management library could not be asked";
    if (from->n_samples == 0)
        return "these steps were over before the GPU's energy counter was read for the first time: "
               "that is done every 500 ms";
    if (m->a < m->n)
        return "the GPU's energy counter was read once, and joules are the difference of two "
               "readings: the next one would have come 500 ms later";
    return "NVIDIA's management library gave no energy counter";
}

/* The joules of one device; `from` may be NULL. */
static void find_one(const story_source *from, bool gpu, const story_record *r, story_energy *out)
{
    meter m = {from ? from->sample : NULL, from ? from->n_samples : 0, 0, 0};
    energy_sum prompt = {0}, decode = {0};
    m.a = next_metered(&m, 0);
    m.b = next_metered(&m, m.a + 1);
    *out = (story_energy){.prompt_j = NAN, .decode_j = NAN};
    if (m.b >= m.n) {
        out->why = why_unread(from, gpu, &m);
        return;
    }
    out->counter = gpu ? "the whole GPU (NVML)" : "all CPU packages (RAPL)";
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].chosen)
            add_step(&m, r, i, step_has_chunk(&r->step[i]) ? &prompt : &decode);
    out->prompt_j = told(&prompt);
    out->decode_j = told(&decode);
    out->prompt_tokens = prompt.tokens;
    out->generated = decode.tokens;
    if ((prompt.missed && !(prompt.s > 0)) || (decode.missed && !(decode.s > 0)))
        out->why = "the counter was not read before and after some of the steps";
    if ((prompt.s > 0 && isnan(out->prompt_j)) || (decode.s > 0 && isnan(out->decode_j)))
        out->why = "some steps are too short for samples of the counter that lie so far apart";
}

void story_find_energy(const story_input *in, const story_record *r, story_energy *out)
{
    bool gpu = story_on_gpu(in), any = false;
    vt_source_kind kind = gpu ? VT_SOURCE_STREAM : VT_SOURCE_ENGINE;
    for (int32_t k = 0; k < in->n_sources; k++) {
        story_energy one;
        if (in->source[k].is.kind != kind)
            continue;
        find_one(&in->source[k], gpu, r, &one);
        if (!any) {
            *out = one;
        } else { /* another GPU of the same steps */
            out->prompt_j += one.prompt_j;
            out->decode_j += one.decode_j;
            out->counter = one.counter ? out->counter : NULL;
            out->why = out->why ? out->why : one.why;
        }
        any = true;
    }
    if (!any)
        find_one(NULL, gpu, r, out);
}

static double a_token(double joules, int64_t tokens)
{
    return tokens ? joules / (double)tokens : NAN;
}

void story_put_energy(vt_json *w, const story_energy *e)
{
    vt_json_open(w, "energy", '{');
    vt_json_string(w, "counter", e->counter);
    vt_json_string(w, "why", e->why);
    vt_json_tagged(w, "prompt_j", e->prompt_j, 4, derived);
    vt_json_int(w, "prompt_tokens", e->prompt_tokens);
    vt_json_tagged(w, "prompt_token_j", a_token(e->prompt_j, e->prompt_tokens), 6, derived);
    vt_json_tagged(w, "decode_j", e->decode_j, 4, derived);
    vt_json_int(w, "generated_tokens", e->generated);
    vt_json_tagged(w, "generated_token_j", a_token(e->decode_j, e->generated), 6, derived);
    vt_json_close(w);
}

void story_energy_not_measured(vt_json *w, const story_energy *e)
{
    if (!e->counter)
        put_missing(w, "joules a token", e->why);
}
