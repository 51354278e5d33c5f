/* story.json from a recording (story/story.h, docs/story-format.md).
 *
 * Every number that is a time, a size, a rate or a share is written as {"value", "tag"}: `measured`
 * (read from a clock or a counter), `derived` (from measured times and exact bytes or FLOPs), `n/a`
 * (null: could not be seen here). Counts of tokens, steps and calls are plain integers: they are
 * exact. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/stats.h"
#include "device/probe.h"
#include "model/model.h"
#include "story/findings.h"
#include "story/gpu.h"
#include "story/numbers.h"
#include "story/phases.h"
#include "version.h"

enum {
    MAX_SERIES = 512,
    ENOUGH_GAPS = 3 /* between tokens: with fewer, the headline names no speed */
};

/* ---- the request's times ---- */

/* queue | step, gap, step, gap ... | tail: they sum to finish - arrive by construction of the
 * timeline, and a step counts from where the one before it ended. */
static void time_request(const story_record *r, story_facts *f)
{
    const request_record *q = r->mine;
    int64_t at = q->arrive_ns;
    bool first = true;
    for (int32_t i = 0; i < r->n_steps; i++) {
        const step_record *s = &r->step[i];
        if (!s->chosen)
            continue;
        int64_t begin = s->device.begin_ns > at ? s->device.begin_ns : at;
        *(first ? &f->queue_s : &f->waits_s) += (double)(begin - at) * 1e-9;
        if (s->device.end_ns > begin) {
            f->steps_s += (double)(s->device.end_ns - begin) * 1e-9;
            at = s->device.end_ns;
        } else
            at = begin;
        first = false;
    }
    if (q->finish_ns > 0) {
        f->tail_s = (double)(q->finish_ns - at) * 1e-9;
        f->total_s = (double)(q->finish_ns - q->arrive_ns) * 1e-9;
    }
    if (q->n_token_ns > 0)
        f->ttft_s = (double)(q->token_ns[0] - q->arrive_ns) * 1e-9;
}

/* A timed step of a GPU takes longer than it would by itself: gaps in which one ended say nothing
 * about the others. Keeps the rest, unless too few are left; returns how many went. */
static int32_t drop_timed(const story_record *r, double *gap, int32_t *n)
{
    enum { MIN_GAPS = 4 };
    const request_record *q = r->mine;
    int32_t kept = 0, at = 0;
    for (int32_t pass = 0; pass < 2; pass++) {
        if (pass == 1 && kept < MIN_GAPS)
            return 0;
        kept = at = 0;
        for (int32_t i = 0; i < *n; i++) {
            bool timed = false;
            for (; at < r->n_steps && r->step[at].device.end_ns <= q->token_ns[i + 1]; at++)
                timed = timed ||
                        (r->step[at].gpu.timed && r->step[at].device.end_ns > q->token_ns[i]);
            if (!timed && pass == 1)
                gap[kept] = gap[i];
            kept += !timed;
        }
    }
    int32_t dropped = *n - kept;
    *n = kept;
    return dropped;
}

static double *token_gaps(story_record *r, int32_t *n)
{
    const request_record *q = r->mine;
    *n = q && q->n_token_ns > 1 ? q->n_token_ns - 1 : 0;
    double *gap = vt_arena_alloc(&r->arena, (size_t)*n + 1, sizeof *gap);
    for (int32_t i = 0; gap && i < *n; i++)
        gap[i] = (double)(q->token_ns[i + 1] - q->token_ns[i]) * 1e-9;
    return gap;
}

/* At most MAX_SERIES values, each the mean of a run. */
static json_t *series(const double *v, int32_t n, double scale, const char *tag)
{
    json_t *list = json_array();
    int32_t out = n < MAX_SERIES ? n : MAX_SERIES;
    for (int32_t c = 0; c < out; c++) {
        int32_t from = (int32_t)((int64_t)c * n / out), to = (int32_t)((int64_t)(c + 1) * n / out);
        double sum = 0;
        for (int32_t i = from; i < to; i++)
            sum += v[i];
        json_array_append_new(list, json_real(round(sum / (to - from) * scale * 1e4) / 1e4));
    }
    return json_pack("{s:o, s:s}", "values", list, "tag", n ? tag : "n/a");
}

static const char *finish_name(int32_t finish)
{
    static const char *const name[] = {"none", "stop", "length", "abort", "error"};
    return finish >= 0 && finish <= VT_FINISH_ERROR ? name[finish] : "none";
}

static json_t *request_json(story_record *r, story_facts *f)
{
    const request_record *q = r->mine;
    int32_t n_gaps;
    double *gap = token_gaps(r, &n_gaps);
    if (!q || !gap)
        return json_null();
    time_request(r, f);
    f->n_gaps = n_gaps;
    json_t *itl = series(gap, n_gaps, 1e3, measured); /* before vt_percentile() sorts */
    int32_t left_out = drop_timed(r, gap, &n_gaps);
    f->itl_p50_s = vt_percentile(gap, (size_t)n_gaps, 0.50);
    f->itl_p99_s = vt_percentile(gap, (size_t)n_gaps, 0.99);
    return json_pack(
        "{s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:i}",
        "id", (json_int_t)q->id, "prompt_tokens", q->n_prompt, "cached_tokens", q->n_cached,
        "copied_tokens", q->n_copied, "completion_tokens", q->n_output, "pages", q->n_pages,
        "retracted", q->n_retracted, "finish", finish_name(q->finish), "total_ms",
        ms(f->total_s, measured), "queue_ms", ms(f->queue_s, measured), "steps_ms",
        ms(f->steps_s, measured), "waits_ms", ms(f->waits_s, measured), "tail_ms",
        ms(f->tail_s, measured), "ttft_ms", ms(f->ttft_s, measured), "itl_p50_ms",
        ms(f->itl_p50_s, measured), "itl_p99_ms", ms(f->itl_p99_s, measured), "itl_ms", itl,
        "itl_left_out", left_out);
}

/* ---- phases ---- */

/* Per step of the phase, so that a decode table reads "one decode step". */
static json_t *op_json(const story_input *in, const phase *p, const op_sum *o)
{
    double n = p->n_timed;
    const vt_cost *c = &o->cost;
    return json_pack(
        "{s:s, s:s, s:s, s:f, s:i, s:i, s:o, s:o, s:{s:f, s:f, s:f, s:s}, s:o, s:o,"
        " s:{s:f, s:f, s:f, s:f, s:s}, s:o, s:o, s:o, s:s, s:{s:s, s:o, s:I}, s:o}",
        "kind", o->kind, "op", o->op, "impl", o->impl, "calls", o->n_calls / n, "layer_first",
        o->layer_first, "layer_last", o->layer_last, "time_us", us(o->s / n, measured), "share",
        tagged(p->ops_s > 0 ? o->s / p->ops_s : NAN, 5, derived), "expected_bytes", "weights",
        (double)(c->read.weights + c->write.weights) / n, "kv",
        (double)(c->read.kv + c->write.kv) / n, "activations",
        (double)(c->read.activations + c->write.activations) / n, "tag", derived, "extra_bytes",
        tagged((double)vt_cost_bytes(&o->extra) / n, 0, derived), "measured_bytes",
        tagged(NAN, 0, measured), "flops", "fp32", (double)c->flops.fp32 / n, "bf16",
        (double)c->flops.bf16 / n, "fp8", (double)c->flops.fp8 / n, "int8",
        (double)c->flops.int8 / n, "tag", derived, "bytes_per_s",
        tagged(o->s > 0 ? op_bytes(o) / o->s : NAN, 0, derived), "floor_us",
        us(o->floor_s / n, derived), "of_roof", tagged(op_of_roof(o), 4, derived), "bound",
        o->link ? "link" : story_bound_name(op_bound(o)), "slowest", "call", o->slowest, "time_us",
        us(o->slowest_s, measured), "step", (json_int_t)o->slowest_step, "kernels",
        story_gpu_kernels(in, p, o));
}

static json_t *phase_json(const story_input *in, const phase *p)
{
    json_t *ops = json_array();
    for (int32_t i = 0; i < p->n_ops; i++)
        json_array_append_new(ops, op_json(in, p, &p->op[i]));
    double n = p->n_steps ? p->n_steps : NAN, t = p->n_timed ? p->n_timed : NAN;
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:o, s:o, s:{s:o, s:o, s:o}, s:o, s:o, s:o, "
        "s:o, s:o, "
        "s:o}",
        "name", p->name, "steps", p->n_steps, "timed_steps", p->n_timed, "tokens", p->n_tokens,
        "kv_first", p->kv_first, "kv_last", p->kv_last, "timed_kv_first", p->timed_kv_first,
        "timed_kv_last", p->timed_kv_last, "others", p->others, "wall_ms",
        ms((double)(p->end_ns - p->begin_ns) * 1e-9, measured), "device_ms",
        ms(p->device_s, measured), "per_step", "schedule_us",
        us(p->part_s[VT_PART_SCHEDULE] / n, measured), "prepare_us",
        us(p->part_s[VT_PART_PREPARE] / n, measured), "publish_us",
        us(p->part_s[VT_PART_PUBLISH] / n, measured), "step_us", us(p->timed_s / t, measured),
        "ops_us", us(p->ops_s / t, measured), "floor_us", us(p->floor_s / t, derived),
        "unexplained",
        tagged(p->timed_s > 0 ? (p->timed_s - p->ops_s) / p->timed_s : NAN, 5, derived), "ops", ops,
        "gpu", story_gpu_phase(in, p));
}

/* ---- the transition from prefill to decode ---- */

static double intensity(const phase *p)
{
    double bytes = 0, flops = 0;
    for (int32_t i = 0; i < p->n_ops; i++) {
        if (p->op[i].link)
            continue;
        bytes += op_bytes(&p->op[i]);
        flops += (double)vt_cost_flops(&p->op[i].cost);
    }
    return bytes > 0 ? flops / bytes : NAN;
}

/* Share of the roof `b` that the phase reaches while its device works. */
static double reached(const phase *p, const vt_roofs *roofs, story_bound b)
{
    const double roof[STORY_BOUNDS] = {vt_roofs_bandwidth(roofs), roofs->fp32_per_s,
                                       roofs->bf16_per_s, roofs->int8_per_s};
    double work = 0;
    for (int32_t i = 0; i < p->n_ops; i++) {
        const vt_flops *f = &p->op[i].cost.flops;
        const double did[STORY_BOUNDS] = {p->op[i].link ? 0 : op_bytes(&p->op[i]), (double)f->fp32,
                                          (double)f->bf16, (double)f->int8};
        work += did[b];
    }
    return roof[b] > 0 && p->n_timed ? work / p->n_timed / phase_step_s(p) / roof[b] : NAN;
}

static const op_sum *find_op(const phase *p, const char *op)
{
    for (int32_t i = 0; i < p->n_ops; i++)
        if (strcmp(p->op[i].op, op) == 0)
            return &p->op[i];
    return NULL;
}

static json_t *side_json(const story_input *in, const phase *p, const char *attention)
{
    const op_sum *o = find_op(p, attention);
    const vt_kernel_facts *k = o ? op_kernel(in, o) : NULL;
    char how[96] = "";
    if (story_gpu(in))
        story_gpu_how(p, how, sizeof how);
    return json_pack("{s:s, s:s, s:s?, s:s?, s:f, s:o, s:o, s:o, s:o, s:o}", "attention", attention,
                     "impl", o ? o->impl : "none", "kernel", k ? k->name : NULL, "how",
                     story_gpu(in) ? how : NULL, "rows",
                     p->n_steps ? (double)p->n_tokens / p->n_steps : 0.0, "flop_per_byte",
                     tagged(intensity(p), 2, derived), "of_memory",
                     tagged(reached(p, &in->roofs, STORY_BOUND_MEMORY), 4, derived), "of_int8",
                     tagged(reached(p, &in->roofs, STORY_BOUND_INT8), 4, derived), "of_fp32",
                     tagged(reached(p, &in->roofs, STORY_BOUND_FP32), 4, derived), "of_bf16",
                     tagged(reached(p, &in->roofs, STORY_BOUND_BF16), 4, derived));
}

static json_t *transition_json(const story_input *in, const phase phases[STORY_PHASES])
{
    const phase *p = &phases[STORY_PREFILL], *d = &phases[STORY_DECODE];
    if (p->n_timed == 0 || d->n_timed == 0)
        return json_null();
    return json_pack("{s:s, s:s, s:o, s:o, s:o}", "what", "prefill -> decode", "reason",
                     "one query row a sequence from here on", "at_ms", json_null(), "before",
                     side_json(in, p, "attention_prefill"), "after",
                     side_json(in, d, "attention_decode"));
}

/* ---- memory, threads, what stands around the numbers ---- */

static double resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long long size = 0, resident = 0;
    int n = f ? fscanf(f, "%lld %lld", &size, &resident) : 0;
    if (f)
        fclose(f);
    return n == 2 ? (double)resident * (double)sysconf(_SC_PAGESIZE) : NAN;
}

static json_t *memory_json(const story_input *in, story_record *r)
{
    json_t *out = json_pack("{s:o, s:o, s:o, s:i, s:i, s:o}", "weight_bytes",
                            tagged((double)in->model->weight_bytes, 0, derived), "packed_bytes",
                            tagged(in->packed_bytes, 0, derived), "kv_pool_bytes",
                            tagged(in->kv_bytes, 0, derived), "pages", in->n_pages, "page_size",
                            in->program->target.limits.page_size, "resident_bytes",
                            tagged(resident_bytes(), 0, measured));
    const story_source *gpu = story_gpu(in);
    if (gpu) {
        double free_bytes = gpu->free_bytes < 0 ? NAN : (double)gpu->free_bytes;
        json_object_set_new(out, "device_bytes",
                            tagged((double)gpu->is.device.memory_bytes, 0, measured));
        json_object_set_new(out, "device_free_bytes", tagged(free_bytes, 0, measured));
    }
    double *held = vt_arena_alloc(&r->arena, (size_t)r->n_steps + 1, 3 * sizeof *held);
    int32_t n = 0;
    for (int32_t i = 0; held && i < r->n_steps; i++)
        if (r->step[i].chosen) {
            held[n] = r->step[i].pages_held;
            held[r->n_steps + n] = r->step[i].pages_cached;
            held[2 * r->n_steps + n++] = r->step[i].pages_free;
        }
    if (held) {
        json_object_set_new(out, "pages_held", series(held, n, 1, measured));
        json_object_set_new(out, "pages_cached", series(held + r->n_steps, n, 1, measured));
        json_object_set_new(out, "pages_free", series(held + 2 * r->n_steps, n, 1, measured));
    }
    return out;
}

static json_t *threads_json(const story_input *in, const story_record *r)
{
    json_t *list = json_array();
    for (int32_t k = 0, w = -1; k < in->n_sources; k++) {
        double all = r->busy_s[k] + r->wait_s[k];
        if (in->source[k].is.kind != VT_SOURCE_WORKER)
            continue;
        w++;
        json_array_append_new(
            list, json_pack("{s:i, s:o, s:o, s:o}", "worker", w, "busy_ms",
                            ms(r->busy_s[k], measured), "wait_ms", ms(r->wait_s[k], measured),
                            "busy", tagged(all > 0 ? r->busy_s[k] / all : NAN, 4, derived)));
    }
    return list;
}

static json_t *roofs_json(const vt_roofs *r)
{
    return json_pack("{s:o, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:I, s:o}", "memory_bytes_per_s",
                     tagged(r->memory_bytes_per_s, 0, measured), "memory_working_set_bytes",
                     (json_int_t)r->far_bytes, "weights_bytes_per_s",
                     tagged(r->near_bytes > 0 ? r->near_bytes_per_s : NAN, 0, measured),
                     "weights_working_set_bytes", (json_int_t)r->near_bytes, "fp32_per_s",
                     tagged(r->fp32_per_s, 0, measured), "bf16_per_s",
                     tagged(r->bf16_per_s > 0 ? r->bf16_per_s : NAN, 0, measured), "int8_per_s",
                     tagged(r->int8_per_s > 0 ? r->int8_per_s : NAN, 0, measured), "l2_bytes_per_s",
                     tagged(r->l2_bytes > 0 ? r->l2_bytes_per_s : NAN, 0, measured),
                     "l2_working_set_bytes", (json_int_t)r->l2_bytes, "kernel_us",
                     us(r->kernel_s > 0 ? r->kernel_s : NAN, measured));
}

static json_t *not_measured_json(const story_input *in, const phase phases[STORY_PHASES])
{
    json_t *list = json_array();
    char why[200];
    int32_t lost = 0;
    for (int i = 0; i < STORY_PHASES; i++)
        lost += phases[i].n_steps - phases[i].n_timed - phases[i].gpu.n_whole;
    if (story_gpu(in))
        story_gpu_not_measured(in, phases, list);
    else if (!vt_probe_perf_events(why, sizeof why))
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "what", "bytes moved, cache misses, stalls", "why", why));
    else
        json_array_append_new(list,
                              json_pack("{s:s, s:s}", "what", "bytes moved, cache misses, stalls",
                                        "why", "the recorder does not read hardware counters yet"));
    if (lost > 0) {
        snprintf(why, sizeof why, "the recorder's rings hold the newest events; %d steps are older",
                 lost);
        json_array_append_new(
            list, json_pack("{s:s, s:s}", "what", "op calls of some steps", "why", why));
    }
    json_array_append_new(list, json_pack("{s:s, s:s}", "what", "tokenising and the chat template",
                                          "why", "they end before the engine sees the request"));
    return list;
}

/* Clock reads and events cost time too: so many events a step, each so long. */
static json_t *observer_json(const story_input *in, const phase *d, story_facts *f)
{
    double calls = 0;
    if (story_gpu(in))
        return story_gpu_observer(in, d, f);
    for (int32_t i = 0; i < d->n_ops; i++)
        calls += d->op[i].n_calls;
    double events = d->n_timed ? 2 * calls / d->n_timed
                               : NAN; /* a call and a wait, on each worker at once */
    f->recorder_s = events * in->event_cost_ns * 1e-9;
    return json_pack(
        "{s:o, s:o, s:o, s:o}", "events_per_step", tagged(events, 0, derived), "event_ns",
        tagged(in->event_cost_ns, 1, measured), "step_us", us(f->recorder_s, derived), "tax",
        tagged(d->n_timed ? f->recorder_s / (d->timed_s / d->n_timed) : NAN, 5, derived));
}

/* ---- the paragraph that one may stop after ---- */

/* A GPU's steps mostly run in graphs, and their time as a whole is the true one. */
static void headline_gpu(vt_buf *b, const phase *d, const vt_roofs *roofs)
{
    double bytes = 0, step_s = phase_step_s(d);
    for (int32_t i = 0; i < d->n_ops; i++)
        bytes += d->op[i].link ? 0 : op_bytes(&d->op[i]) / d->n_timed;
    vt_buf_puts(b, " A decode step moves ");
    vt_text_bytes(b, bytes);
    vt_buf_puts(b, " in ");
    vt_text_time(b, step_s);
    vt_buf_puts(b, ": ");
    vt_text_rate(b, bytes / step_s, "B");
    vt_buf_printf(b, ", %.0f %% of what this GPU reads (measured). The floor is ",
                  100 * bytes / step_s / vt_roofs_bandwidth(roofs));
    vt_text_time(b, d->floor_s / d->n_timed);
    vt_buf_puts(b, " a step.");
}

static void headline_decode(vt_buf *b, const phase *d, const vt_roofs *roofs)
{
    double weights = 0, weight_s = 0;
    for (int32_t i = 0; i < d->n_ops; i++)
        if (d->op[i].cost.read.weights > vt_cost_bytes(&d->op[i].cost) / 2) {
            weights += (double)d->op[i].cost.read.weights;
            weight_s += d->op[i].s;
        }
    if (weight_s > 0 && d->ops_s > 0) {
        vt_buf_printf(b, " %.0f %% of the decode time streams weights at ",
                      100 * weight_s / d->ops_s);
        vt_text_rate(b, weights / weight_s, "B");
        vt_buf_printf(b, ", %.0f %% of what this machine reads over that many bytes (measured).",
                      100 * weights / weight_s / vt_roofs_bandwidth(roofs));
    }
    vt_buf_puts(b, " The floor is ");
    vt_text_time(b, d->floor_s / d->n_timed);
    vt_buf_puts(b, " a step.");
}

static json_t *headline_json(const story_input *in, const story_record *r,
                             const phase phases[STORY_PHASES], const story_facts *f)
{
    vt_buf b = {0};
    const phase *d = &phases[STORY_DECODE];
    if (r->mine && r->mine->n_token_ns > 0) {
        vt_buf_puts(&b, "First token after ");
        vt_text_time(&b, f->ttft_s);
        if (f->n_gaps >= ENOUGH_GAPS) {
            vt_buf_puts(&b, ", then one every ");
            vt_text_time(&b, f->itl_p50_s);
        }
        vt_buf_puts(&b, ".");
    } else
        vt_buf_printf(&b, "%d prefill and %d decode steps.", phases[STORY_PREFILL].n_steps,
                      d->n_steps);
    if (d->n_timed > 0 && story_gpu(in))
        headline_gpu(&b, d, &in->roofs);
    else if (d->n_timed > 0)
        headline_decode(&b, d, &in->roofs);
    json_t *text = json_string(b.data ? b.data : "");
    vt_buf_release(&b);
    return text;
}

/* ---- the timeline ---- */

static void event_json(json_t *list, const char *what, double at_s, double s, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

static void event_json(json_t *list, const char *what, double at_s, double s, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:s}", "event", what, "at_ms",
                                          ms(at_s, measured), "ms", ms(s, measured), "text", text));
}

static void phase_event(const story_input *in, json_t *list, const request_record *q,
                        const phase *p)
{
    char mixed[64] = "", how[96] = "";
    if (story_gpu(in))
        story_gpu_how(p, how, sizeof how);
    if (p->others > 0)
        snprintf(mixed, sizeof mixed, ", with %.1f other sequences", p->others);
    event_json(list, p->name, (double)(p->begin_ns - q->arrive_ns) * 1e-9,
               (double)(p->end_ns - p->begin_ns) * 1e-9, "%d tokens in %d %s%s%s%s", p->n_tokens,
               p->n_steps,
               p->name[0] == 'p' ? (p->n_steps == 1 ? "chunk" : "chunks")
                                 : (p->n_steps == 1 ? "step" : "steps"),
               mixed, story_gpu(in) ? "; " : "", how);
}

static json_t *timeline_json(const story_input *in, const story_record *r,
                             const phase phases[STORY_PHASES], const story_facts *f)
{
    json_t *list = json_array();
    const request_record *q = r->mine;
    const phase *p = &phases[STORY_PREFILL], *d = &phases[STORY_DECODE];
    if (!q)
        return list;
    event_json(list, "arrive", 0, NAN, "%d prompt tokens", q->n_prompt);
    if (q->match.end_ns)
        event_json(list, "match", (double)(q->match.begin_ns - q->arrive_ns) * 1e-9,
                   span_s(q->match),
                   "%d of %d tokens found in the cache, %d of them copied; %d pages", q->n_cached,
                   q->n_prompt, q->n_copied, q->n_pages);
    if (p->n_steps)
        phase_event(in, list, q, p);
    if (p->n_steps && d->n_steps)
        event_json(list, "transition", (double)(d->begin_ns - q->arrive_ns) * 1e-9, NAN,
                   "prefill -> decode");
    if (d->n_steps)
        phase_event(in, list, q, d);
    if (q->finish_ns)
        event_json(list, "done", f->total_s, NAN, "%s", finish_name(q->finish));
    return list;
}

/* ---- all of it ---- */

static json_t *model_json(const vt_model *m)
{
    const vt_arch *a = &m->arch;
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I}", "name", m->name,
                     "family", a->family, "quant", m->quant, "layers", a->n_layers, "hidden",
                     a->hidden, "heads", a->n_heads, "kv_heads", a->n_kv_heads, "head_dim",
                     a->head_dim, "ffn", a->ffn, "vocab", a->vocab, "weight_bytes",
                     (json_int_t)m->weight_bytes);
}

/* "amx", "sm_90a": of what ran the steps. */
static const char *level_of(const story_input *in)
{
    for (int32_t i = 0; i < in->n_sources; i++)
        if (in->source[i].is.device.level)
            return in->source[i].is.device.level;
    return "";
}

static json_t *assemble(const story_input *in, story_record *r, const phase phases[STORY_PHASES])
{
    story_facts f = {
        .total_s = NAN, .tail_s = NAN, .ttft_s = NAN, .itl_p50_s = NAN, .itl_p99_s = NAN};
    json_t *request = request_json(r, &f), *list = json_array();
    json_t *observer = observer_json(in, &phases[STORY_DECODE], &f);
    for (int i = 0; i < STORY_PHASES; i++)
        if (phases[i].n_steps)
            json_array_append_new(list, phase_json(in, &phases[i]));
    return json_pack("{s:s, s:i, s:{s:s, s:s, s:s, s:s, s:s, s:i, s:o}, s:o, s:o, s:o, s:o, s:o, "
                     "s:o, s:o, s:o, s:o,"
                     " s:o, s:o, s:o}",
                     "schema", "vitrine.story", "version", STORY_VERSION, "engine", "version",
                     vt_version(), "commit", VT_COMMIT, "device", in->device, "machine",
                     in->roofs.name, "level", level_of(in), "threads", story_n_workers(in), "gpu",
                     story_gpu_json(in), "model", model_json(in->model), "roofs",
                     roofs_json(&in->roofs), "headline", headline_json(in, r, phases, &f),
                     "request", request, "timeline", timeline_json(in, r, phases, &f), "phases",
                     list, "transition", transition_json(in, phases), "memory", memory_json(in, r),
                     "threads", threads_json(in, r), "findings", story_findings(in, phases, &f),
                     "not_measured", not_measured_json(in, phases), "observer", observer);
}

/* True where an op of weight ran faster than its roof: the roof was measured on a busy machine. */
static bool roofs_beaten(const phase phases[STORY_PHASES])
{
    static const double weight = 0.03, beaten = 1.05;
    for (int i = 0; i < STORY_PHASES; i++)
        for (int32_t k = 0; k < phases[i].n_ops; k++)
            if (phases[i].op[k].s > weight * phases[i].ops_s &&
                op_of_roof(&phases[i].op[k]) > beaten)
                return true;
    return false;
}

static vt_status build(const story_input *in, story_record *r, char **json, bool *beaten,
                       vt_err *err)
{
    phase phases[STORY_PHASES];
    story_step *plan = NULL;
    const vt_limits *lim = &in->program->target.limits;
    TRY(story_step_new(in->program, lim->max_tokens, lim->max_seqs, &plan, err));
    vt_status status = story_sum_phases(in, r, plan, phases, err);
    if (status == VT_OK) {
        *beaten = in->roofs.measured && roofs_beaten(phases);
        json_t *story = assemble(in, r, phases);
        *json = story ? json_dumps(story, JSON_INDENT(1) | JSON_REAL_PRECISION(10)) : NULL;
        json_decref(story);
        if (!*json)
            status = vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    }
    story_step_free(plan);
    return status;
}

vt_status story_build(const story_input *in, vt_request_id id, char **json, size_t *len,
                      bool *beaten, vt_err *err)
{
    story_record r;
    char *text = NULL;
    bool some_beaten = false;
    TRY(story_record_make(in, id, &r, err));
    vt_status status = build(in, &r, &text, &some_beaten, err);
    story_record_release(&r);
    if (status == VT_OK) {
        *json = text;
        *len = strlen(text);
        if (beaten)
            *beaten = some_beaten;
    }
    return status;
}
