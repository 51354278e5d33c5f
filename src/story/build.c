/* story.json from a recording (story/story.h, docs/story-format.md).
 *
 * A pure function of the recording and the roofs. Every number that is a time, a size, a rate or a
 * share is written as {"value", "tag"}: `measured` (read from a clock or a counter), `derived`
 * (from measured times and exact bytes or FLOPs), `n/a` (null: could not be seen here). Counts of
 * tokens, steps and calls are plain integers: they are exact. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/stats.h"
#include "base/term/figure.h"
#include "device/probe.h"
#include "engine/end_reason.h"
#include "kv/radix.h"
#include "model/model.h"
#include "ops/op.h"
#include "story/record/calls.h"
#include "story/record/watched/activity.h"
#include "story/record/watched/ctas.h"
#include "story/record/watched/lines.h"
#include "story/record/gpu_counters.h"
#include "story/record/emulated.h"
#include "story/findings/findings.h"
#include "story/record/gpu.h"
#include "story/record/numbers.h"
#include "story/record/observer.h"
#include "story/record/phases.h"
#include "story/record/places.h"
#include "story/record/ranks.h"
#include "story/record/steps.h"
#include "story/record/timeline.h"
#include "story/record/drawn/trail.h"
#include "story/record/transitions.h"
#include "story/record/drawn/tree.h"
#include "story/record/workers.h"
#include "version.h"

enum {
    MAX_SERIES = 512,
    ENOUGH_GAPS = 3, /* between tokens: with fewer, the headline names no speed */
    MIN_GAPS = 4     /* left between untimed steps of a GPU, for percentiles without the others */
};

/* ---- the request's times ---- */

/* Cuts the request's time into queue | step, gap, step, gap ... | tail. A step counts from the end
 * of the one before it, so the parts sum to finish - arrive. */
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

/* The gaps to leave out of percentiles. */
static bool was_timed(const step_record *s) { return step_is_timed(s); }
static bool was_disturbed(const step_record *s) { return s->use.disturbed; }
static bool was_either(const step_record *s) { return was_timed(s) || was_disturbed(s); }

/* Drops the gaps in which a step ended that `drop` names. Keeps all gaps where fewer than `least`
 * would be left. Returns how many were dropped. */
static int32_t drop_gaps(const story_record *r, bool (*drop)(const step_record *), int32_t least,
                         double *gap, int32_t *n)
{
    const request_record *q = r->mine;
    int32_t kept = 0, at = 0;
    for (int32_t pass = 0; pass < 2; pass++) {
        if (pass == 1 && kept < least)
            return 0;
        kept = at = 0;
        for (int32_t i = 0; i < *n; i++) {
            bool dropped = false;
            for (; at < r->n_steps && r->step[at].device.end_ns <= q->token_ns[i + 1]; at++)
                dropped = dropped ||
                          (drop(&r->step[at]) && r->step[at].device.end_ns > q->token_ns[i]);
            if (!dropped && pass == 1)
                gap[kept] = gap[i];
            kept += !dropped;
        }
    }
    int32_t dropped = *n - kept;
    *n = kept;
    return dropped;
}

/* Percentiles of the gaps without a disturbed step. Steps of a GPU that were timed are left out,
 * too: timing made them longer. */
static void find_calm(const story_record *r, story_facts *f, double *sorted)
{
    int32_t n = f->n_gaps;
    memcpy(sorted, f->gap_s, (size_t)n * sizeof *sorted);
    if (f->machine.n_disturbed > 0 &&
        drop_gaps(r, was_either, STORY_ENOUGH_STEPS, sorted, &n) == 0 &&
        drop_gaps(r, was_disturbed, STORY_ENOUGH_STEPS, sorted, &n) == 0)
        return;
    if (f->machine.n_disturbed == 0)
        drop_gaps(r, was_timed, MIN_GAPS, sorted, &n);
    f->calm_p50_s = vt_percentile(sorted, (size_t)n, 0.50);
    f->calm_p99_s = vt_percentile(sorted, (size_t)n, 0.99);
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

/* {"values", "tag"}: at most MAX_SERIES values, each the mean of a run. */
static void put_series(vt_json *w, const char *key, const double *v, int32_t n, double scale,
                       const char *tag)
{
    int32_t out = n < MAX_SERIES ? n : MAX_SERIES;
    vt_json_open(w, key, '{');
    vt_json_open(w, "values", '[');
    for (int32_t c = 0; c < out; c++) {
        int32_t from = (int32_t)((int64_t)c * n / out), to = (int32_t)((int64_t)(c + 1) * n / out);
        double sum = 0;
        for (int32_t i = from; i < to; i++)
            sum += v[i];
        vt_json_fixed(w, NULL, sum / (to - from) * scale, 4);
    }
    vt_json_close(w);
    vt_json_string(w, "tag", n ? tag : "n/a");
    vt_json_close(w);
}

/* Everything that several parts of the story say. */
static vt_status find_facts(const story_input *in, story_record *r, story_facts *f, vt_err *err)
{
    *f = (story_facts){.total_s = NAN,
                       .tail_s = NAN,
                       .ttft_s = NAN,
                       .itl_p50_s = NAN,
                       .itl_p99_s = NAN,
                       .calm_p50_s = NAN,
                       .calm_p99_s = NAN};
    story_sum_machine(in, r, &f->machine);
    f->gap_s = token_gaps(r, &f->n_gaps);
    double *sorted = vt_arena_alloc(&r->arena, (size_t)f->n_gaps + 1, sizeof *sorted);
    if (!f->gap_s || !sorted)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    if (!r->mine)
        return VT_OK;
    int32_t n = f->n_gaps;
    time_request(r, f);
    memcpy(sorted, f->gap_s, (size_t)n * sizeof *sorted);
    f->n_left_out = drop_gaps(r, was_timed, MIN_GAPS, sorted, &n);
    f->itl_p50_s = vt_percentile(sorted, (size_t)n, 0.50);
    f->itl_p99_s = vt_percentile(sorted, (size_t)n, 0.99);
    find_calm(r, f, sorted);
    return story_find_slow(r, f->gap_s, f->n_gaps, f->itl_p50_s, &f->slow, err);
}

/* The masks of a constrained request. */
static void put_masks(vt_json *w, const request_record *q)
{
    if (q->n_masks == 0)
        return;
    vt_json_open(w, "masks", '{');
    vt_json_int(w, "count", q->n_masks);
    vt_json_int(w, "new", q->n_new_masks);
    vt_json_int(w, "forced_tokens", q->n_forced);
    put_ms(w, "total_ms", (double)q->mask_ns * 1e-9, measured);
    vt_json_tagged(w, "mean_us", (double)q->mask_ns * 1e-3 / q->n_masks, 3, measured);
    vt_json_tagged(w, "slowest_us", q->slowest_mask_us, 3, measured);
    vt_json_int(w, "late", q->n_late_masks);
    put_ms(w, "late_ms", (double)q->late_mask_ns * 1e-9, measured);
    vt_json_close(w);
}

/* The guesses that steps verified for the request. */
static void put_drafts(vt_json *w, const request_record *q)
{
    if (q->draft_tokens == 0)
        return;
    vt_json_open(w, "drafts", '{');
    vt_json_int(w, "tokens", q->draft_tokens);
    vt_json_int(w, "accepted", q->draft_accepted);
    vt_json_close(w);
}

static void put_request(vt_json *w, const story_record *r, const story_facts *f)
{
    const request_record *q = r->mine;
    if (!q) {
        vt_json_null(w, "request");
        return;
    }
    vt_json_open(w, "request", '{');
    vt_json_int(w, "id", (int64_t)q->id);
    vt_json_int(w, "prompt_tokens", q->n_prompt);
    vt_json_int(w, "cached_tokens", q->n_cached);
    vt_json_int(w, "copied_tokens", q->n_copied);
    vt_json_int(w, "completion_tokens", q->n_output);
    vt_json_int(w, "pages", q->n_pages);
    vt_json_int(w, "retracted", q->n_retracted);
    vt_json_string(w, "finish", vt_finish_name(vt_end_finish(q->end)));
    vt_json_string(w, "end_reason", vt_end_reason_name(q->end));
    put_masks(w, q);
    put_drafts(w, q);
    put_ms(w, "before_ms", (double)(q->arrive_ns - story_origin(r)) * 1e-9, measured);
    put_ms(w, "total_ms", f->total_s, measured);
    put_ms(w, "queue_ms", f->queue_s, measured);
    put_ms(w, "steps_ms", f->steps_s, measured);
    put_ms(w, "waits_ms", f->waits_s, measured);
    put_ms(w, "tail_ms", f->tail_s, measured);
    put_ms(w, "ttft_ms", f->ttft_s, measured);
    put_ms(w, "itl_p50_ms", f->itl_p50_s, measured);
    put_ms(w, "itl_p99_ms", f->itl_p99_s, measured);
    put_series(w, "itl_ms", f->gap_s, f->n_gaps, 1e3, measured);
    vt_json_int(w, "itl_left_out", f->n_left_out);
    bool slope = f->more.n_slope > 0;
    vt_json_tagged(w, "us_per_100_tokens", slope ? f->more.slope_s * 1e8 : NAN, 3, derived);
    vt_json_tagged(w, "explained_us_per_100_tokens", slope ? f->more.slope_bytes_s * 1e8 : NAN, 3,
                   derived);
    vt_json_close(w);
}

/* ---- phases ---- */

static void put_op_work(vt_json *w, const op_sum *o, double n)
{
    const vt_cost *c = &o->cost;
    vt_json_open(w, "expected_bytes", '{');
    vt_json_real(w, "weights", (double)(c->read.weights + c->write.weights) / n);
    vt_json_real(w, "kv", (double)(c->read.kv + c->write.kv) / n);
    vt_json_real(w, "activations", (double)(c->read.activations + c->write.activations) / n);
    vt_json_string(w, "tag", derived);
    vt_json_close(w);
    vt_json_tagged(w, "extra_bytes", (double)vt_cost_bytes(&o->extra) / n, 0, derived);
    vt_json_tagged(w, "measured_bytes", NAN, 0, measured); /* no counter tells it of an op */
    vt_json_open(w, "flops", '{');
    vt_json_real(w, "fp32", (double)c->flops.fp32 / n);
    vt_json_real(w, "bf16", (double)c->flops.bf16 / n);
    vt_json_real(w, "fp8", (double)c->flops.fp8 / n);
    vt_json_real(w, "int8", (double)c->flops.int8 / n);
    vt_json_string(w, "tag", derived);
    vt_json_close(w);
}

/* Per step of the phase, so that a decode table reads "one decode step". */
static void put_op(vt_json *w, const story_input *in, const phase *p, const op_sum *o)
{
    double n = p->n_timed;
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "kind", o->kind);
    vt_json_string(w, "op", o->op);
    vt_json_string(w, "impl", o->impl);
    vt_json_real(w, "calls", o->n_calls / n);
    vt_json_int(w, "layer_first", o->layer_first);
    vt_json_int(w, "layer_last", o->layer_last);
    put_us(w, "time_us", o->s / n, measured);
    if (phase_is_stamped(p) && !o->link)
        put_us(w, "overlap_us", o->early_s / n, measured);
    put_us(w, "once_us", o->once.excess_s / n, derived);
    vt_json_tagged(w, "share", p->ops_s > 0 ? o->s / p->ops_s : NAN, 5, derived);
    put_op_work(w, o, n);
    vt_json_tagged(w, "bytes_per_s", o->s > 0 ? op_bytes(o) / o->s : NAN, 0, derived);
    put_us(w, "floor_us", o->floor_s / n, derived);
    put_us(w, "expected_us", o->link ? NAN : o->expected_s / n, modelled);
    vt_json_tagged(w, "of_roof", op_of_roof(o), 4, derived);
    vt_json_string(w, "bound",
                   o->link ? (op_bytes(o) > 0 ? "link" : "host") : story_bound_name(op_bound(o)));
    put_us(w, "if_twice_us", o->if_twice_s, modelled);
    put_us(w, "if_small_us", o->if_small_s, modelled);
    if (o->small_type && isfinite(o->if_small_s))
        vt_json_string(w, "small_type", o->small_type);
    vt_json_string(w, "cut", o->cut);
    story_put_imbalance(w, in, o);
    vt_json_open(w, "slowest", '{');
    vt_json_string(w, "call", o->slowest);
    put_us(w, "time_us", o->slowest_s, measured);
    vt_json_int(w, "step", (int64_t)o->slowest_step);
    vt_json_close(w);
    story_gpu_kernels(w, p, o);
    vt_json_close(w);
}

/* The typical steps have these in common. */
static const char *typical_of(const phase *p)
{
    if (p->name[0] == 'p')
        return "all chunks";
    return p->with_chunk ? "decodes with a chunk of a prompt" : "decodes alone";
}

/* The kinds of ops whose time the phase's expected time leaves out; nothing if it has all. */
static void put_expected_without(vt_json *w, const phase *p)
{
    bool some = false;
    for (int32_t i = 0; i < p->n_ops && isfinite(p->expected_s); i++) {
        if (p->op[i].link || op_is_expected(&p->op[i]))
            continue;
        if (!some)
            vt_json_open(w, "expected_without", '[');
        some = true;
        vt_json_string(w, NULL, p->op[i].kind);
    }
    if (some)
        vt_json_close(w);
}

/* Writes how much of the engine thread's work the device's work hid. */
static void put_hidden(vt_json *w, const story_record *r, const phase *p)
{
    static const char *const key[VT_PARTS] = {[VT_PART_SCHEDULE] = "schedule_hidden",
                                              [VT_PART_PREPARE] = "prepare_hidden",
                                              [VT_PART_PUBLISH] = "publish_hidden"};
    for (int k = 0; k < VT_PARTS; k++)
        if (key[k])
            vt_json_tagged(w, key[k], story_hidden(r, p->name[0] == 'p', (vt_trace_part)k), 4,
                           derived);
}

static void put_phase(vt_json *w, const story_input *in, const story_record *r, const phase *p)
{
    double n = p->n_steps ? p->n_steps : NAN, t = p->n_timed ? p->n_timed : NAN;
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "name", p->name);
    vt_json_int(w, "steps", p->n_steps);
    vt_json_int(w, "disturbed_steps", p->n_disturbed);
    vt_json_int(w, "timed_steps", p->n_recorded);
    vt_json_int(w, "typical_steps", p->n_timed);
    vt_json_int(w, "borrowed_steps", p->n_borrowed);
    vt_json_int(w, "undisturbed_steps", p->n_undisturbed);
    vt_json_string(w, "typical_of", typical_of(p));
    vt_json_int(w, "tokens", p->n_tokens);
    vt_json_int(w, "kv_first", p->kv_first);
    vt_json_int(w, "kv_last", p->kv_last);
    vt_json_int(w, "timed_kv_first", p->timed_kv_first);
    vt_json_int(w, "timed_kv_last", p->timed_kv_last);
    vt_json_real(w, "others", p->others);
    put_ms(w, "wall_ms", (double)(p->end_ns - p->begin_ns) * 1e-9, measured);
    put_ms(w, "device_ms", p->device_s, measured);
    vt_json_open(w, "per_step", '{');
    if (p->part_s[VT_PART_DRAFT] > 0)
        put_us(w, "draft_us", p->part_s[VT_PART_DRAFT] / n, measured);
    put_us(w, "schedule_us", p->part_s[VT_PART_SCHEDULE] / n, measured);
    put_us(w, "prepare_us", p->part_s[VT_PART_PREPARE] / n, measured);
    put_us(w, "commit_us", p->part_s[VT_PART_SAMPLE] / n, measured);
    put_us(w, "publish_us", p->part_s[VT_PART_PUBLISH] / n, measured);
    put_us(w, "detokenise_us", p->text_s > 0 ? p->text_s / n : NAN, measured);
    put_hidden(w, r, p);
    vt_json_close(w);
    put_us(w, "step_us", p->timed_s / t, measured);
    put_us(w, "ops_us", p->ops_s / t, measured);
    put_us(w, "floor_us", p->floor_s / t, derived);
    put_us(w, "expected_us", p->expected_s / t, modelled);
    put_expected_without(w, p);
    vt_json_tagged(w, "unexplained", p->timed_s > 0 ? (p->timed_s - p->ops_s) / p->timed_s : NAN, 5,
                   derived);
    vt_json_open(w, "ops", '[');
    for (int32_t i = 0; i < p->n_ops; i++)
        put_op(w, in, p, &p->op[i]);
    vt_json_close(w);
    story_put_counters(w, in, r, p->name[0] == 'p');
    story_gpu_phase(w, p, phase_stream(p));
    vt_json_close(w);
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

/* "pages_held", "pages_cached", "pages_free" after each chosen step. */
static void put_pages(vt_json *w, story_record *r)
{
    static const char *const key[] = {"pages_held", "pages_cached", "pages_free"};
    double *v = vt_arena_alloc(&r->arena, (size_t)r->n_steps + 1, sizeof *v);
    for (int k = 0; v && k < 3; k++) {
        int32_t n = 0;
        for (int32_t i = 0; i < r->n_steps; i++) {
            const step_record *s = &r->step[i];
            if (s->chosen)
                v[n++] = k == 0 ? s->pages_held : k == 1 ? s->pages_cached : s->pages_free;
        }
        put_series(w, key[k], v, n, 1, measured);
    }
}

/* The element type of the KV cache, as decodes read it; "none" if they read none. */
static const char *kv_dtype(const vt_program *p)
{
    for (int32_t i = 0; i < p->n_calls; i++) {
        const vt_call *c = &p->call[i];
        const vt_tensor *pool = c->op->is & VT_OP_DECODES
                                    ? vt_op_operand(c->op, c->args, VT_OPERAND_KV)
                                    : NULL;
        if (pool)
            return vt_dtype_get(pool->dtype)->name;
    }
    return "none";
}

/* Cached pages that were given up for others while the story lasted. */
static int64_t evicted_pages(const story_record *r)
{
    int64_t n = 0, begin = story_origin(r),
            end = r->mine && r->mine->finish_ns > 0 ? r->mine->finish_ns : INT64_MAX;
    for (uint64_t i = 0; i < r->n_events; i++) {
        const vt_req_cache *e = &r->event[i].cache;
        if (e->kind == VT_REQ_CACHE && e->what == VT_CACHE_EVICT && e->why != VT_EVICT_COVERED &&
            e->at_ns >= begin && e->at_ns <= end)
            n += e->n;
    }
    return n;
}

static void put_memory(vt_json *w, const story_input *in, story_record *r)
{
    double device_bytes = 0, free_bytes = 0; /* of all GPUs */
    for (int32_t k = 0; k < in->n_sources; k++) {
        const story_source *s = &in->source[k];
        if (s->is.kind != VT_SOURCE_STREAM)
            continue;
        device_bytes += (double)s->is.device.memory_bytes;
        free_bytes += s->free_bytes < 0 ? NAN : (double)s->free_bytes;
    }
    vt_json_open(w, "memory", '{');
    vt_json_tagged(w, "weight_bytes", (double)in->model->weight_bytes, 0, derived);
    vt_json_tagged(w, "packed_bytes", in->packed_bytes, 0, derived);
    vt_json_tagged(w, "kv_pool_bytes", in->kv_bytes, 0, derived);
    vt_json_string(w, "kv_dtype", kv_dtype(in->program));
    vt_json_int(w, "pages", in->n_pages);
    vt_json_int(w, "page_size", in->program->target.limits.page_size);
    if (in->n_windows > 0) {
        vt_json_open(w, "window", '{');
        vt_json_int(w, "tokens", in->window);
        vt_json_int(w, "pages", in->n_windows);
        vt_json_tagged(w, "pool_bytes", in->n_windows * in->window_page_bytes, 0, derived);
        vt_json_close(w);
    }
    vt_json_tagged(w, "resident_bytes", resident_bytes(), 0, measured);
    if (story_on_gpu(in)) {
        vt_json_tagged(w, "device_bytes", device_bytes, 0, measured);
        vt_json_tagged(w, "device_free_bytes", free_bytes, 0, measured);
    }
    put_pages(w, r);
    vt_json_int(w, "evicted_pages", evicted_pages(r));
    vt_json_close(w);
}

/* Says what of a CPU's steps hardware events did not tell. */
static void not_counted(vt_json *w, const story_record *r)
{
    char why[256];
    unsigned counted = story_counted(r);
    if (counted == 0)
        put_missing(w, "bytes moved, cache misses, stalls",
                    vt_probe_perf_events(why, sizeof why)
                        ? "no step's hardware events are in the recording"
                        : why);
    else
        put_missing(w, "bytes moved, stalls, and hardware events of single ops",
                    "events are read once a step, and what a prefetcher reads is no miss");
    if (counted && !(counted >> VT_COUNT_MISSES & 1))
        put_missing(w, "cache misses",
                    vt_probe_counter(VT_COUNT_MISSES, why, sizeof why)
                        ? "no step's are in the recording"
                        : why);
}

static void put_not_measured(vt_json *w, const story_input *in, const story_record *r,
                             const phase phases[STORY_PHASES], const story_facts *f)
{
    char why[200];
    int32_t lost = 0;
    for (int i = 0; i < STORY_PHASES; i++)
        lost += (phases[i].n_lanes ? phase_stream(&phases[i])->n_timed : phases[i].n_steps) -
                phases[i].n_recorded;
    vt_json_open(w, "not_measured", '[');
    if (story_on_gpu(in))
        story_gpu_not_measured(w, phases);
    else
        not_counted(w, r);
    if (lost > 0) {
        snprintf(why, sizeof why,
                 "%d steps are without them: decode steps are recorded in every second block of 8, "
                 "and of old ones a sample is kept",
                 lost);
        put_missing(w, "op calls of some steps", why);
    }
    if (r->mine && r->mine->tokenise.end_ns == 0)
        put_missing(w, "tokenising and the chat template",
                    "whoever submitted the request did not tell when they ended");
    story_energy_not_measured(w, &f->machine.energy);
    if (r->mine && r->mine->write.end_ns == 0)
        put_missing(w, "writing the text",
                    "whoever was handed it did not tell when it was written (vt_engine_wrote)");
    vt_json_close(w);
}

/* ---- the headline: a reader may stop after it ---- */

/* Most steps of a GPU run in graphs; their time as a whole is the true one. */
static void headline_gpu(vt_buf *b, const phase *d, const vt_roofs *roofs)
{
    double bytes = 0, step_s = phase_step_s(d);
    for (int32_t i = 0; i < d->n_ops; i++)
        bytes += d->op[i].link ? 0 : op_bytes(&d->op[i]) / d->n_timed;
    vt_text_printf(b,
                   " A decode step moves %f B in %f s: %f B/s, %.0f %% of what this GPU reads "
                   "(measured). The floor is %f s a step.",
                   bytes, step_s, bytes / step_s, 100 * bytes / step_s / vt_roofs_bandwidth(roofs),
                   d->floor_s / d->n_timed);
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
        vt_text_printf(b,
                       " %.0f %% of the decode time streams weights at %f B/s, %.0f %% of what "
                       "this machine reads over that many bytes (measured).",
                       100 * weight_s / d->ops_s, weights / weight_s,
                       100 * weights / weight_s / vt_roofs_bandwidth(roofs));
    }
    vt_text_printf(b, " The floor is %f s a step.", d->floor_s / d->n_timed);
}

static double mean_gap(const story_facts *f)
{
    double sum = 0;
    for (int32_t i = 0; i < f->n_gaps; i++)
        sum += f->gap_s[i];
    return sum / f->n_gaps;
}

static void put_headline(vt_json *w, const story_input *in, const story_record *r,
                         const phase phases[STORY_PHASES], const story_facts *f)
{
    vt_buf b = {0};
    const phase *d = &phases[STORY_DECODE];
    story_withheld(&b, &f->machine);
    if (r->mine && r->mine->n_token_ns > 0) {
        vt_text_printf(&b, "First token after %f s", f->ttft_s);
        if (f->n_gaps >= ENOUGH_GAPS && r->mine->draft_tokens > 0)
            vt_text_printf(&b, ", then one every %f s in the mean, several a step", mean_gap(f));
        else if (f->n_gaps >= ENOUGH_GAPS)
            vt_text_printf(&b, ", then one every %f s", f->itl_p50_s);
        vt_buf_puts(&b, ".");
    } else
        vt_buf_printf(&b, "%d prefill and %d decode steps.", phases[STORY_PREFILL].n_steps,
                      d->n_steps);
    if (d->n_timed > 0 && d->n_lanes)
        headline_gpu(&b, d, &in->roofs);
    else if (d->n_timed > 0 && !phase_too_few(d))
        headline_decode(&b, d, &in->roofs);
    vt_json_string(w, "headline", b.data ? b.data : "");
    vt_buf_release(&b);
}

/* ---- all of it ---- */

/* "amx", "sm_90a": of what ran the steps. */
static const char *level_of(const story_input *in)
{
    for (int32_t i = 0; i < in->n_sources; i++)
        if (in->source[i].is.device.level)
            return in->source[i].is.device.level;
    return "";
}

static void put_engine(vt_json *w, const story_input *in)
{
    vt_json_open(w, "engine", '{');
    vt_json_string(w, "version", vt_version());
    vt_json_string(w, "commit", VT_COMMIT);
    vt_json_string(w, "device", in->device);
    vt_json_string(w, "machine", in->roofs.name);
    vt_json_string(w, "level", level_of(in));
    vt_json_int(w, "threads", story_count(in, VT_SOURCE_WORKER));
    story_gpu_engine(w, story_find_source(in, VT_SOURCE_STREAM), &in->roofs);
    vt_json_close(w);
}

static void put_model(vt_json *w, const vt_model *m)
{
    const vt_arch *a = &m->arch;
    vt_json_open(w, "model", '{');
    vt_json_string(w, "name", m->name);
    vt_json_string(w, "source", m->path);
    vt_json_string(w, "family", a->family);
    vt_json_string(w, "quant", m->quant);
    vt_json_int(w, "layers", a->n_layers);
    vt_json_int(w, "hidden", a->hidden);
    vt_json_int(w, "heads", a->n_heads);
    vt_json_int(w, "kv_heads", a->n_kv_heads);
    vt_json_int(w, "head_dim", a->head_dim);
    vt_json_int(w, "ffn", a->ffn);
    vt_json_int(w, "vocab", a->vocab);
    vt_json_int(w, "weight_bytes", m->weight_bytes);
    vt_json_close(w);
}

static vt_status assemble(const story_input *in, story_record *r, story_step *plan,
                          phase phases[STORY_PHASES], vt_buf *out, vt_err *err)
{
    story_facts f;
    observer_tax tax;
    counted_phase counted[STORY_PHASES];
    vt_json w;
    TRY(find_facts(in, r, &f, err));
    TRY(story_model_ops(in, r, plan, phases, err));
    TRY(story_measure_tax(in, r, &tax, err));
    TRY(story_count_calls(in, r, plan, counted, err));
    f.counted = counted;
    story_find_more(in, r, plan, phases, &f.more);
    vt_json_begin(&w, out, 1);
    vt_json_open(&w, NULL, '{');
    vt_json_string(&w, "schema", "vitrine.story");
    vt_json_int(&w, "version", STORY_VERSION);
    put_engine(&w, in);
    put_model(&w, in->model);
    story_put_roofs(&w, &in->roofs);
    put_headline(&w, in, r, phases, &f);
    story_put_machine(&w, &f.machine);
    put_request(&w, r, &f);
    story_put_prefix(&w, in, r, plan, &phases[STORY_PREFILL]);
    if (r->mine)
        story_put_slow(&w, &f.slow);
    else
        vt_json_null(&w, "slow_tokens");
    TRY(story_put_timeline(&w, in, r, phases, err));
    vt_json_open(&w, "phases", '[');
    for (int i = 0; i < STORY_PHASES; i++)
        if (phases[i].n_steps)
            put_phase(&w, in, r, &phases[i]);
    vt_json_close(&w);
    TRY(story_put_trail(&w, in, r, plan, phases, err));
    story_put_transition(&w, in, phases);
    story_put_transitions(&w, in, r, plan);
    put_memory(&w, in, r);
    story_put_tree(&w, in, r);
    story_put_threads(&w, in, r);
    story_findings(&w, in, r, phases, &f);
    put_not_measured(&w, in, r, phases, &f);
    story_put_observer(&w, in, &tax, &phases[STORY_DECODE]);
    TRY(story_put_steps(&w, r, err));
    TRY(story_put_calls(&w, in, r, plan, phases, &f.slow, err));
    TRY(story_put_gpu_counters(&w, in, r, plan, counted, err));
    TRY(story_put_activity(&w, in, r, plan, phases, err));
    TRY(story_put_lines(&w, in, r, &phases[STORY_DECODE], err));
    TRY(story_put_ctas(&w, in, r, plan, err));
    TRY(story_put_places(&w, in, r, plan, err));
    story_put_ranks(&w, in, r, plan, phases);
    vt_json_close(&w);
    return vt_json_end(&w) ? VT_OK : vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
}

static bool roofs_beaten(const phase phases[STORY_PHASES])
{
    for (int i = 0; i < STORY_PHASES; i++)
        for (int32_t k = 0; k < phases[i].n_ops; k++)
            if (op_beats_roof(&phases[i], &phases[i].op[k]))
                return true;
    return false;
}

static vt_status build(const story_input *in, story_record *r, vt_buf *out, bool *beaten,
                       vt_err *err)
{
    phase phases[STORY_PHASES];
    story_step *plan = NULL;
    const vt_limits *lim = &in->program->target.limits;
    TRY(story_step_new(in->program, lim->max_tokens, lim->max_seqs, &plan, err));
    vt_status status = story_sum_phases(in, r, plan, phases, err);
    if (status == VT_OK)
        status = assemble(in, r, plan, phases, out, err);
    *beaten = status == VT_OK && in->roofs.measured && roofs_beaten(phases);
    story_step_free(plan);
    return status;
}

vt_status story_build(const story_input *in, vt_request_id id, char **json, size_t *len,
                      bool *beaten, vt_err *err)
{
    story_record r;
    vt_buf out = {0};
    bool some_beaten = false;
    TRY(story_record_make(in, id, &r, err));
    vt_status status = build(in, &r, &out, &some_beaten, err);
    story_record_release(&r);
    if (status == VT_OK) {
        *json = vt_buf_detach(&out, len);
        if (beaten)
            *beaten = some_beaten;
        if (story_is_emulated(in))
            status = story_void_times(json, len, err);
    }
    vt_buf_release(&out);
    return status;
}
