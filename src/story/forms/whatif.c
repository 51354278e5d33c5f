/* Models the time of the recorded steps with other K and V, weights, batch, prefix or hardware.
 *
 *   1. The model of the story is opened, and its program described for the story's device
 *      (exec/describe.h): once as it was recorded, once as asked.
 *   2. Both are costed, op by op, for the phase's mean step: bytes and FLOPs are exact. The least
 *      time under the roofs of the recording, or of the named hardware, is the floor.
 *   3. time = recorded time * floor as asked / floor as recorded, for each kind of op: the
 *      efficiency that was measured stays what it was. What starting a library or a kernel took
 *      (once_us) is left out of the recorded time there and added again: it does not scale.
 *
 * So a kind whose efficiency changes with its size (a larger batch often runs other kernels) is
 * modelled wrongly by as much; every such figure has the tag `modelled`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/mem.h"
#include "device/hardware.h"
#include "exec/describe.h"
#include "model/load.h"
#include "model/model.h"
#include "ops/op.h"
#include "story/forms.h"
#include "story/read.h"
#include "story/step.h"

enum { MAX_KINDS = 64, KIND = 48, MAX_TOKENS = 1 << 20, MAX_SEQS = 4096 };

/* One of the two steps: as it was recorded, and as it is asked for. */
typedef struct variant {
    vt_described described;
    vt_roofs roofs;
    int32_t n_seqs, q_len, kv_len, n_steps;
    double floor_us[MAX_KINDS];
} variant;

typedef struct whatif {
    const char *name;
    const story_whatif_options *ask;
    json_t *story;
    vt_model *model;
    bool gpu;
    vt_dtype kv[2], weights; /* kv: recorded, asked; weights: where other_weights is set */
    bool other_weights;
    char kind[MAX_KINDS][KIND];
    double recorded_us[MAX_KINDS], once_us[MAX_KINDS]; /* of the former */
    int32_t n_kinds;
    variant v[2];
    vt_hardware hardware; /* where --hardware is given */
} whatif;

/* ---- what the story says ---- */

static vt_status read_dtype(const char *text, const char *what, vt_dtype *out, vt_err *err)
{
    for (int t = 0; t < VT_DTYPE_COUNT; t++)
        if (strcasecmp(vt_dtype_get((vt_dtype)t)->name, text) == 0) {
            *out = (vt_dtype)t;
            return VT_OK;
        }
    return vt_fail(err, VT_ERR_USAGE, "%s: '%.40s' is no type of elements", what, text);
}

/* A count of the story; 0: it does not say. */
static int64_t read_count(const json_t *from, const char *key)
{
    double v = story_num(from, key);
    return v > 0 && v < 1e15 ? (int64_t)v : 0;
}

/* The story's roofs with their tags: a launch that was measured while other programs were in the
 * way bounds nothing here, as in the recording. */
static void read_roofs(const json_t *story, bool gpu, vt_roofs *r)
{
    const json_t *from = story_get(story, "roofs");
    const char *disturbed = vt_roof_tag_name[VT_ROOF_DISTURBED];
    *r = (vt_roofs){.measured = true, .is_gpu = gpu};
    for (int i = 0; i < VT_ROOFS; i++) {
        const char *key = vt_roof_rows[i].key;
        const char *tag = json_string_value(story_get(story_get(from, key), "tag"));
        double v = story_num(from, key);
        if (v > 0)
            vt_roof_set(r, (vt_roof_kind)i, vt_roof_rows[i].unit ? v : v * 1e-6,
                        tag && strcmp(tag, disturbed) == 0 ? VT_ROOF_DISTURBED : VT_ROOF_MEASURED,
                        0);
    }
    r->near_bytes = r->near_bytes_per_s > 0;
    r->l2_size = read_count(from, "l2_size_bytes");
    r->l3_size = read_count(from, "l3_size_bytes");
}

static vt_status open_model(whatif *w, vt_err *err)
{
    const char *source = json_string_value(story_get(story_get(w->story, "model"), "source"));
    if (!source)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: does not say where its model was (model.source), which is needed to "
                       "cost its steps again",
                       w->name);
    vt_model *found = NULL;
    TRY(vt_model_load(source, &found, err));
    double bytes = story_num(story_get(w->story, "model"), "weight_bytes");
    int64_t found_bytes = found->weight_bytes;
    if (bytes == (double)found_bytes) {
        w->model = found;
        return VT_OK;
    }
    vt_model_free(found);
    return vt_fail(err, VT_ERR_USAGE,
                   "%s: its model had %.0f bytes of weights, and %s has %lld: another model",
                   w->name, bytes, source, (long long)found_bytes);
}

/* Without the model only bytes that the story holds can be scaled: those of K and V. The rest is
 * refused, by name, with why the model cannot be opened. */
static vt_status do_without_model(whatif *w, vt_err *why, vt_err *err)
{
    const char *named = w->ask->batch      ? "--batch"
                        : w->ask->prefix   ? "--prefix"
                        : w->ask->weights  ? "--weights"
                        : w->ask->hardware ? "--hardware"
                                           : NULL;
    if (named || !w->ask->kv_dtype || strcmp(w->ask->kv_dtype, "auto") == 0)
        return vt_fail(err, why->status, "%s needs the story's model: %s",
                       named ? named : "--kv-dtype auto", why->message);
    return VT_OK;
}

/* Checks what was asked for against the story. */
static vt_status read_ask(whatif *w, vt_err *err)
{
    const json_t *engine = story_get(w->story, "engine");
    char device[STORY_TEXT], dtype[STORY_TEXT];
    w->gpu = strcmp(story_text(engine, "device", device), "cuda") == 0;
    TRY(read_dtype(story_text(story_get(w->story, "memory"), "kv_dtype", dtype),
                   "the story's memory.kv_dtype", &w->kv[0], err));
    w->kv[1] = w->kv[0];
    if (w->ask->kv_dtype)
        w->kv[1] = vt_kv_choose_dtype(w->ask->kv_dtype, w->gpu,
                                      w->model ? vt_model_dtype(w->model) : VT_F32);
    if (w->ask->weights) {
        TRY(read_dtype(w->ask->weights, "--weights", &w->weights, err));
        w->other_weights = true;
    }
    if (w->ask->hardware && !w->gpu)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "--hardware: the story is of a CPU, whose efficiencies say nothing about "
                       "the kernels of %s; a story of a GPU was expected ('vitrine explain "
                       "--hardware' predicts without one)",
                       w->ask->hardware);
    if (!w->ask->hardware)
        return VT_OK;
    TRY(vt_hardware_open(w->ask->hardware, false, &w->hardware, err));
    if (w->hardware.is_cpu)
        return vt_fail(err, VT_ERR_USAGE, "--hardware: %s has no GPU, and the story is of one",
                       w->ask->hardware);
    return VT_OK;
}

/* ---- costs ---- */

/* Bytes of a layer's matrices in another type. */
static vt_status other_weights(const whatif *w, const vt_call *c, vt_cost *cost, vt_err *err)
{
    if (!w->other_weights || c->layer < 0 || cost->read.weights == 0)
        return VT_OK;
    if (c->op->packs == VT_PACKS_EXPERTS)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "--weights: experts are not scaled (%s), because how many of them a step "
                       "reads is not recorded",
                       c->label);
    if (c->op->packs != VT_PACKS_MATRIX)
        return VT_OK;
    const vt_weight *m = vt_op_operand(c->op, c->args, VT_OPERAND_WEIGHT);
    const vt_dtype_info *type = vt_dtype_get(w->weights);
    if (m->cols % type->block != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "--weights: %s has rows of %lld elements, which %s, in blocks of %d, cannot "
                       "hold",
                       c->label, (long long)m->cols, type->name, type->block);
    cost->read.weights = m->rows * vt_dtype_row_bytes(w->weights, m->cols);
    return VT_OK;
}

static int32_t kind_index(whatif *w, const char *kind)
{
    for (int32_t i = 0; i < w->n_kinds; i++)
        if (strcmp(w->kind[i], kind) == 0)
            return i;
    return -1;
}

static vt_status describe(whatif *w, int k, vt_err *err)
{
    variant *v = &w->v[k];
    const vt_hardware *named = k == 1 && w->ask->hardware ? &w->hardware : NULL;
    vt_limits limits = {.max_tokens = v->n_seqs * v->q_len > 8192 ? v->n_seqs * v->q_len : 8192,
                        .max_seqs = v->n_seqs > 256 ? v->n_seqs : 256,
                        .max_rows = v->n_seqs > 256 ? v->n_seqs : 256,
                        .max_context = w->model->arch.max_context,
                        .page_size = w->gpu ? 64 : 16,
                        .n_workers = 1};
    read_roofs(w->story, w->gpu, &v->roofs);
    if (named)
        v->roofs = named->roofs;
    const json_t *gpu = story_get(story_get(w->story, "engine"), "gpu");
    if (w->gpu && !named) /* the kernels of the recording's level, which its floor needs */
        named = vt_hardware_find(story_num(gpu, "level") >= 90 ? "h200" : "a100-80gb-sxm", err);
    vt_target target = named ? vt_target_named(named, &limits)
                             : vt_target_cpu(vt_cpu_get()->level, &limits);
    return vt_describe(w->model, &target, w->kv[k], &v->described, err);
}

/* The floor of each kind of op in the variant's step. */
static vt_status cost_step(whatif *w, int k, story_step *plan, vt_err *err)
{
    variant *v = &w->v[k];
    const vt_program *p = v->described.program;
    story_seq *seq = vt_calloc((size_t)v->n_seqs, sizeof *seq);
    if (!seq)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d sequences", v->n_seqs);
    for (int32_t i = 0; i < v->n_seqs; i++)
        seq[i] = (story_seq){.q_len = v->q_len, .kv_len = v->kv_len, .n_rows = 1};
    vt_status status = story_step_set(plan, seq, v->n_seqs, err);
    free(seq);
    memset(v->floor_us, 0, sizeof v->floor_us);
    for (int32_t i = 0; status == VT_OK && i < p->n_calls; i++) {
        vt_cost cost, extra;
        story_bound bound;
        int32_t at = kind_index(w, story_call_kind(&p->call[i]));
        if (at < 0 || !story_step_cost(plan, i, &cost, &extra))
            continue;
        if (k == 1)
            status = other_weights(w, &p->call[i], &cost, err);
        v->floor_us[at] += story_floor_s(&cost, &v->roofs, &bound) * 1e6;
    }
    return status;
}

static vt_status cost_variant(whatif *w, int k, vt_err *err)
{
    variant *v = &w->v[k];
    story_step *plan = NULL;
    if (v->n_seqs > MAX_SEQS || (int64_t)v->n_seqs * v->q_len > MAX_TOKENS ||
        v->kv_len > w->model->arch.max_context)
        return vt_fail(err, VT_ERR_USAGE,
                       "a step of %d sequences of %d new tokens at context %d "
                       "is more than can be costed",
                       v->n_seqs, v->q_len, v->kv_len);
    TRY(describe(w, k, err));
    vt_status status = story_step_new(v->described.program, v->n_seqs * v->q_len, v->n_seqs, &plan,
                                      err);
    if (status == VT_OK)
        status = cost_step(w, k, plan, err);
    story_step_free(plan);
    vt_described_release(&v->described);
    v->described = (vt_described){0};
    return status;
}

/* An op of the story, as one of its calls costs. */
static vt_cost call_cost(const json_t *op, double calls)
{
    const json_t *bytes = story_get(op, "expected_bytes"), *flops = story_get(op, "flops");
    return (vt_cost){.read = {.weights = (int64_t)(read_count(bytes, "weights") / calls),
                              .kv = (int64_t)(read_count(bytes, "kv") / calls),
                              .activations = (int64_t)(read_count(bytes, "activations") / calls)},
                     .flops = {.fp32 = (int64_t)(read_count(flops, "fp32") / calls),
                               .bf16 = (int64_t)(read_count(flops, "bf16") / calls),
                               .fp8 = (int64_t)(read_count(flops, "fp8") / calls),
                               .int8 = (int64_t)(read_count(flops, "int8") / calls)}};
}

/* The floors of both variants from the story's own bytes, where only K and V have another type. */
static void scale_kv(whatif *w, const json_t *phase)
{
    size_t i;
    json_t *op;
    for (int k = 0; k < 2; k++) {
        read_roofs(w->story, w->gpu, &w->v[k].roofs);
        memset(w->v[k].floor_us, 0, sizeof w->v[k].floor_us);
    }
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        char kind[STORY_TEXT];
        double calls = fmax(1, story_num(op, "calls"));
        int32_t at = kind_index(w, story_text(op, "kind", kind));
        vt_cost cost = call_cost(op, calls);
        for (int k = 0; k < 2 && at >= 0; k++) {
            story_bound bound;
            if (k == 1)
                cost.read.kv = cost.read.kv * vt_dtype_get(w->kv[1])->bytes /
                               vt_dtype_get(w->kv[0])->bytes;
            w->v[k].floor_us[at] += calls * story_floor_s(&cost, &w->v[k].roofs, &bound) * 1e6;
        }
    }
}

/* ---- one phase ---- */

static void read_kinds(whatif *w, const json_t *phase)
{
    size_t i;
    json_t *op;
    w->n_kinds = 0;
    json_array_foreach(story_get(phase, "ops"), i, op)
    {
        char kind[STORY_TEXT];
        double us = story_num(op, "time_us");
        if (w->n_kinds == MAX_KINDS || !isfinite(us))
            continue;
        int32_t at = kind_index(w, story_text(op, "kind", kind));
        if (at < 0) {
            at = w->n_kinds++;
            snprintf(w->kind[at], KIND, "%.46s", kind);
            w->recorded_us[at] = w->once_us[at] = 0;
        }
        w->recorded_us[at] += us;
        double once = story_num(op, "once_us"); /* older stories do not have it */
        w->once_us[at] += once > 0 && once < us ? once : 0;
    }
}

static int32_t bounded(double v, double low, double high)
{
    return (int32_t)(v >= low ? v <= high ? v : high : low);
}

/* The mean step of the phase as recorded, and as asked for. False: there is none. */
static bool shape(whatif *w, const json_t *phase, bool decode)
{
    const json_t *q = story_get(w->story, "request");
    double steps = story_num(phase, "steps"), tokens = story_num(phase, "tokens"),
           others = story_num(phase, "others"), prompt = story_num(q, "prompt_tokens"),
           cached = story_num(q, "cached_tokens");
    if (!(story_num(phase, "timed_steps") >= 1) || !(steps >= 1) || !json_is_object(q))
        return false;
    double kv = (story_num(phase, "kv_first") + story_num(phase, "kv_last")) / 2;
    variant *a = &w->v[0], *b = &w->v[1];
    a->n_seqs = decode ? bounded(round(1 + others), 1, MAX_SEQS) : 1;
    a->q_len = decode ? 1 : bounded(round(tokens / steps), 1, MAX_TOKENS);
    a->kv_len = decode ? bounded(round(kv), 1, 1 << 24) : bounded(prompt, 1, 1 << 24);
    a->n_steps = bounded(steps, 1, 1 << 24);
    if (a->kv_len < a->q_len)
        a->kv_len = a->q_len;
    *b = *a;
    if (w->ask->batch)
        b->n_seqs = w->ask->batch;
    if (!decode && w->ask->prefix > cached) {
        double left = fmax(1, prompt - w->ask->prefix);
        b->n_steps = bounded(ceil(left / a->q_len), 1, a->n_steps);
        b->q_len = bounded(ceil(left / b->n_steps), 1, MAX_TOKENS);
    }
    return true;
}

/* ---- printing ---- */

static void cell(vt_table *t, double us)
{
    vt_buf b = {0};
    vt_text_time(&b, us * 1e-6);
    vt_table_cell(t, "%s", b.data ? b.data : "");
    vt_buf_release(&b);
}

/* The time of a step, recorded and modelled. */
typedef struct outcome {
    double recorded_us, modelled_us; /* of all steps of the phase's mean step */
} outcome;

static outcome put_phase(whatif *w, const char *name, const vt_term *term, vt_buf *out)
{
    vt_table t;
    outcome all = {0};
    variant *a = &w->v[0], *b = &w->v[1];
    vt_buf_printf(out, "\none %s step: %d sequence%s of %d new token%s at context %d -> %d of %d\n",
                  name, a->n_seqs, vt_text_s(a->n_seqs), a->q_len, vt_text_s(a->q_len), a->kv_len,
                  b->n_seqs, b->q_len);
    vt_table_init(&t, "op|>recorded|>of roof|>modelled|>change");
    for (int32_t i = 0; i < w->n_kinds; i++) {
        bool known = a->floor_us[i] > 0;
        double usual = w->recorded_us[i] - w->once_us[i];
        double us = w->once_us[i] + usual * (known ? b->floor_us[i] / a->floor_us[i] : 1);
        vt_table_cell(&t, "%s", w->kind[i]);
        cell(&t, w->recorded_us[i]);
        if (known)
            vt_table_cell(&t, "%.0f %%", fmin(100 * a->floor_us[i] / w->recorded_us[i], 1e6));
        else
            vt_table_cell(&t, "n/a");
        cell(&t, us);
        vt_table_cell(&t, "x%.2f", w->recorded_us[i] > 0 ? us / w->recorded_us[i] : 1.0);
        all.recorded_us += w->recorded_us[i];
        all.modelled_us += us;
    }
    vt_table_cell(&t, "sum");
    cell(&t, all.recorded_us);
    vt_table_cell(&t, " ");
    cell(&t, all.modelled_us);
    vt_table_cell(&t, "x%.2f", all.modelled_us / all.recorded_us);
    vt_table_finish(&t, out, term, 1);
    return all;
}

static void put_title(const whatif *w, const vt_term *term, vt_buf *to)
{
    vt_buf line = {0}, *out = &line;
    char model[STORY_TEXT], machine[STORY_TEXT];
    vt_buf_printf(out, "%s: %s on %s", w->name,
                  story_text(story_get(w->story, "model"), "name", model),
                  story_text(story_get(w->story, "engine"), "machine", machine));
    if (w->kv[1] != w->kv[0])
        vt_buf_printf(out, ", with K and V in %s (recorded: %s)", vt_dtype_get(w->kv[1])->name,
                      vt_dtype_get(w->kv[0])->name);
    if (w->other_weights)
        vt_buf_printf(out, ", with the layers' matrices in %s", vt_dtype_get(w->weights)->name);
    if (w->ask->batch)
        vt_buf_printf(out, ", %d sequence%s at once", w->ask->batch, vt_text_s(w->ask->batch));
    if (w->ask->prefix)
        vt_buf_printf(out, ", %d prompt tokens in the cache", w->ask->prefix);
    if (w->ask->hardware)
        vt_buf_printf(out, ", on %s", w->ask->hardware);
    vt_text_wrap(to, line.data ? line.data : "", 2, term->width);
    vt_buf_release(&line);
    vt_buf_puts(to, "\nmodelled: bytes and FLOPs are exact, and each op keeps the share of its "
                    "roof that was measured\n");
}

/* Energy a token, where the recording read a counter. */
static void put_energy(const whatif *w, vt_buf *out)
{
    const json_t *e = story_get(story_get(w->story, "machine"), "energy");
    double prompt = story_num(e, "prompt_token_j"), made = story_num(e, "generated_token_j");
    char counter[STORY_TEXT], why[STORY_TEXT];
    story_text(e, "counter", counter);
    story_text(e, "why", why);
    if (isfinite(prompt) && isfinite(made))
        vt_buf_printf(out,
                      "energy as recorded: %.3g J a prompt token, %.3g J a generated token "
                      "[derived: %s]\n",
                      prompt, made, counter);
    else if (isfinite(prompt) || isfinite(made))
        vt_buf_printf(out, "energy as recorded: %.3g J a %s token [derived: %s]\n",
                      isfinite(prompt) ? prompt : made, isfinite(prompt) ? "prompt" : "generated",
                      counter);
    else
        vt_buf_printf(out, "energy a token: not measured (%s)\n",
                      *why ? why : "no counter was read while recording");
}

static vt_status run(whatif *w, const vt_term *term, vt_buf *out, vt_err *err)
{
    static const char *const name[] = {"prefill", "decode"};
    int phases = 0;
    put_title(w, term, out);
    for (int i = 0; i < 2; i++) {
        const json_t *phase = story_phase_named(w->story, name[i]);
        if (!phase || !shape(w, phase, i == 1))
            continue;
        read_kinds(w, phase);
        for (int k = 0; k < 2 && w->model; k++)
            TRY(cost_variant(w, k, err));
        if (!w->model)
            scale_kv(w, phase);
        outcome o = put_phase(w, name[i], term, out);
        phases++;
        double n = w->v[1].n_seqs * w->v[1].q_len;
        vt_buf_printf(out, " %.4g -> %.4g tokens/s%s\n",
                      1e6 * w->v[0].n_seqs * w->v[0].q_len / o.recorded_us, 1e6 * n / o.modelled_us,
                      " [recorded -> modelled]");
    }
    if (phases == 0)
        return vt_fail(err, VT_ERR_USAGE, "%s: no phase of a request whose calls were timed",
                       w->name);
    vt_buf_putc(out, '\n');
    put_energy(w, out);
    return VT_OK;
}

vt_status story_whatif(const story_file *f, const story_whatif_options *ask, const vt_term *term,
                       vt_buf *out, vt_err *err)
{
    whatif *w = vt_calloc(1, sizeof *w);
    if (!w)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    vt_err why = {0};
    w->name = f->name;
    w->ask = ask;
    vt_status status = story_load(f->name, f->json, f->len, &w->story, err);
    if (status == VT_OK)
        status = open_model(w, &why);
    if (status != VT_OK && w->story)
        status = do_without_model(w, &why, err);
    if (status == VT_OK)
        status = read_ask(w, err);
    if (status == VT_OK)
        status = run(w, term, out, err);
    for (int k = 0; k < 2; k++)
        vt_described_release(&w->v[k].described);
    vt_hardware_release(&w->hardware);
    vt_model_free(w->model);
    json_decref(w->story);
    free(w);
    return status;
}
