/* vitrine explain: the program for a batch, with what every call must move and compute. Runs
 * nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/model_name.h"
#include "exec/cuda.h"
#include "exec/describe.h"
#include "exec/weights_cuda.h"
#include "model/model.h"
#include "story/step.h"

/* One line of the table: a call, or all calls of a kind. */
typedef struct line {
    char *name; /* the line's own */
    const char *impl;
    int32_t n_calls;
    vt_cost cost, extra;
    double floor_s;
    double by_bound[STORY_BOUNDS]; /* seconds of floor_s that each roof sets */
} line;

typedef struct explanation {
    story_seq seq; /* of each of n_seqs sequences */
    int32_t n_seqs;
    vt_described described;
    story_step *plan;
    vt_roofs roofs;
    line *line; /* [n_lines] */
    int32_t n_lines;
    line total;
} explanation;

static story_bound bound_of(const line *l)
{
    int best = 0;
    for (int i = 1; i < STORY_BOUNDS; i++)
        if (l->by_bound[i] > l->by_bound[best])
            best = i;
    return (story_bound)best;
}

static void line_add(line *l, const vt_cost *cost, const vt_cost *extra, double floor_s,
                     story_bound bound)
{
    l->n_calls++;
    vt_cost_add(&l->cost, cost);
    vt_cost_add(&l->extra, extra);
    l->floor_s += floor_s;
    l->by_bound[bound] += floor_s;
}

static int64_t threads_wanted(const cli *c)
{
    int64_t n = vt_options_int(c->options, "threads");
    return n ? n : vt_cpu_get()->n_cores;
}

/* Batch and context from the options: a decode step by default. */
static vt_status read_shape(const cli *c, const vt_model *m, explanation *x, vt_err *err)
{
    int64_t prompt = vt_options_int(c->options, "prompt"),
            context = vt_options_int(c->options, "context");
    if (prompt == 0 && !vt_options_given(c->options, "context"))
        context = m->arch.max_context > 512 ? 512 : m->arch.max_context - 1;
    int64_t q = prompt ? prompt : 1;
    if (q + context > m->arch.max_context)
        return vt_fail(err, VT_ERR_USAGE,
                       "--prompt and --context: %lld tokens, expected at most %d, %s's context",
                       (long long)(q + context), m->arch.max_context, m->name);
    x->n_seqs = (int32_t)vt_options_int(c->options, "batch");
    if (q * x->n_seqs > 1 << 22)
        return vt_fail(err, VT_ERR_USAGE,
                       "--prompt and --batch: %lld tokens in a step, expected at most %d",
                       (long long)(q * x->n_seqs), 1 << 22);
    x->seq = (story_seq){.q_len = (int32_t)q, .kv_len = (int32_t)(q + context), .n_rows = 1};
    return VT_OK;
}

static vt_status make_plan(const cli *c, const vt_model *m, explanation *x, vt_err *err)
{
    bool gpu = vt_options_cuda(c->options) >= 0;
    vt_dtype kv = vt_options_kv_dtype(c->options, m->layer[0].q->dtype);
    vt_limits limits = {.max_tokens = x->seq.q_len * x->n_seqs,
                        .max_seqs = x->n_seqs,
                        .max_rows = x->n_seqs,
                        .max_context = m->arch.max_context,
                        .page_size = gpu ? 64 : 16,
                        .n_workers = 1};
    vt_target target = gpu ? vt_target_of_h200(&limits)
                           : vt_target_cpu(vt_cpu_get()->level, &limits);
    TRY(vt_options_backends(c->options, target.device, target.backend, &target.n_backends, err));
    if (gpu)
        TRY(vt_executor_cuda_check_kv(kv, err));
    story_seq *seqs = calloc((size_t)x->n_seqs, sizeof *seqs);
    if (!seqs)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d sequences", x->n_seqs);
    for (int32_t i = 0; i < x->n_seqs; i++)
        seqs[i] = x->seq;
    vt_status status = vt_describe(m, &target, kv, &x->described, err);
    if (status == VT_OK)
        status = story_step_new(x->described.program, limits.max_tokens, limits.max_seqs, &x->plan,
                                err);
    if (status == VT_OK)
        status = story_step_set(x->plan, seqs, x->n_seqs, err);
    free(seqs);
    return status;
}

static vt_status get_roofs(const cli *c, const vt_model *m, explanation *x, vt_err *err)
{
    const char *name = vt_options_get(c->options, "hardware");
    int32_t gpu = vt_options_cuda(c->options);
    if (strcmp(name, "this") != 0)
        return vt_roofs_named(name, &x->roofs, err);
    if (gpu < 0)
        return vt_roofs_get((int32_t)threads_wanted(c), m->weight_bytes, &x->roofs, err);
    return vt_roofs_cuda(gpu, (int64_t)vt_cuda_weights_bytes(m, m->arch.max_context), false,
                         &x->roofs, err);
}

/* The line a call belongs to: its own, or the one of its kind and row. NULL: out of memory. */
static line *line_of(explanation *x, const vt_call *call, const char *impl, bool all)
{
    const char *name = all ? call->label : story_call_kind(call);
    for (int32_t i = 0; !all && i < x->n_lines; i++)
        if (strcmp(x->line[i].name, name) == 0 && x->line[i].impl == impl)
            return &x->line[i];
    line *l = &x->line[x->n_lines];
    l->name = strdup(name);
    l->impl = impl;
    x->n_lines += l->name != NULL;
    return l->name ? l : NULL;
}

static bool add_call(explanation *x, int32_t i, bool all)
{
    const vt_call *call = &story_step_program(x->plan)->call[i];
    line *l = line_of(x, call, story_step_impl(x->plan, i)->name, all);
    vt_cost cost = {0}, extra = {0};
    story_bound bound;
    story_step_cost(x->plan, i, &cost, &extra);
    double floor_s = story_floor_s(&cost, &x->roofs, &bound);
    if (l)
        line_add(l, &cost, &extra, floor_s, bound);
    line_add(&x->total, &cost, &extra, floor_s, bound);
    return l != NULL;
}

static vt_status cost_calls(explanation *x, bool all, vt_err *err)
{
    const vt_program *p = story_step_program(x->plan);
    x->line = calloc((size_t)p->n_calls, sizeof *x->line);
    if (!x->line)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d calls", p->n_calls);
    for (int32_t i = 0; i < p->n_calls; i++) {
        if (!story_step_impl(x->plan, i))
            continue;
        if (!add_call(x, i, all))
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for the name of %s",
                           p->call[i].label);
    }
    return VT_OK;
}

/* ---- text ---- */

static void put_roofs(vt_buf *b, const vt_roofs *r)
{
    vt_buf_printf(b, "%s", r->name);
    if (r->measured && r->threads == 0)
        vt_buf_printf(b, ", %s (measured)", r->level);
    else if (r->measured)
        vt_buf_printf(b, ", %s, %d thread%s (measured)", r->level, r->threads,
                      r->threads == 1 ? "" : "s");
    vt_buf_puts(b, ": reads ");
    vt_text_rate(b, vt_roofs_bandwidth(r), "B");
    const double unit[] = {r->fp32_per_s, r->bf16_per_s, r->int8_per_s};
    static const char *const name[] = {"fp32", "bf16", "int8"};
    for (int i = 0; i < 3; i++)
        if (unit[i] > 0) {
            vt_buf_printf(b, ", %s ", name[i]);
            vt_text_rate(b, unit[i], "OP");
        }
}

static void cell_text(vt_table *t, void (*put)(vt_buf *, double), double v)
{
    vt_buf cell = {0};
    put(&cell, v);
    vt_table_cell(t, "%s", cell.data ? cell.data : "");
    vt_buf_release(&cell);
}

static void put_flops(vt_buf *b, double v)
{
    static const char *const unit[] = {"", " k", " M", " G", " T"};
    int i = 0;
    for (; v >= 999.5 && i < 4; i++)
        v /= 1000;
    vt_buf_printf(b, "%.*f%s", v >= 99.95 || i == 0 ? 0 : v >= 9.995 ? 1 : 2, v, unit[i]);
}

static void table_line(vt_table *t, const line *l, const line *total, bool sum)
{
    vt_table_cell(t, "%s", sum ? "sum" : l->name);
    vt_table_cell(t, "%s", sum ? "" : l->impl);
    vt_table_cell(t, "%d", l->n_calls);
    cell_text(t, vt_text_bytes, (double)(l->cost.read.weights + l->cost.write.weights));
    cell_text(t, vt_text_bytes, (double)(l->cost.read.kv + l->cost.write.kv));
    cell_text(t, vt_text_bytes, (double)(l->cost.read.activations + l->cost.write.activations));
    cell_text(t, put_flops, (double)vt_cost_flops(&l->cost));
    cell_text(t, vt_text_time, l->floor_s);
    vt_table_cell(t, "%.1f %%", total->floor_s > 0 ? 100 * l->floor_s / total->floor_s : 0);
    vt_table_cell(t, "%s", story_bound_name(bound_of(l)));
}

static int print_text(const cli *c, const vt_model *m, const explanation *x)
{
    vt_buf b = {0}, roofs = {0};
    vt_table t;
    int32_t tokens = x->seq.q_len * x->n_seqs;
    vt_buf_printf(&b, "%s (%s): %d sequence%s, %d new token%s each, context %d\n", m->name,
                  m->quant, x->n_seqs, x->n_seqs == 1 ? "" : "s", x->seq.q_len,
                  x->seq.q_len == 1 ? "" : "s", x->seq.kv_len);
    put_roofs(&roofs, &x->roofs);
    if (!x->roofs.measured)
        vt_buf_puts(&roofs, vt_options_cuda(c->options) < 0
                                ? " (the program and its implementations are this machine's)"
                                : " (the program is a GPU's)");
    vt_text_wrap(&b, roofs.data ? roofs.data : "", 2, c->out.width);
    vt_buf_puts(&b, "\n\n");
    vt_table_init(&t, "op|runs as|>calls|>weights|>KV|>act.|>FLOP|>least|>share|bound");
    for (int32_t i = 0; i < x->n_lines; i++)
        table_line(&t, &x->line[i], &x->total, false);
    table_line(&t, &x->total, &x->total, true);
    vt_table_finish(&t, &b, &c->out, 0);
    if (vt_cost_bytes(&x->total.extra) > 0) {
        vt_buf_puts(&b, "\nBeyond that the implementations move ");
        vt_text_bytes(&b, (double)vt_cost_bytes(&x->total.extra));
        vt_buf_puts(&b, " of their own (copies, partial results).\n");
    }
    vt_buf_puts(&b, "\nNo machine with these roofs does the step in less than ");
    vt_text_time(&b, x->total.floor_s);
    vt_buf_printf(&b, ": %.0f tokens/s.\n", x->total.floor_s > 0 ? tokens / x->total.floor_s : 0);
    bool ok = !b.failed && fwrite(b.data, 1, b.len, stdout) == b.len;
    vt_buf_release(&roofs);
    vt_buf_release(&b);
    return ok ? CLI_DONE : CLI_FAILED;
}

/* ---- JSON ---- */

static json_t *traffic_json(const vt_traffic *t)
{
    return json_pack("{s:I, s:I, s:I}", "weights", (json_int_t)t->weights, "kv", (json_int_t)t->kv,
                     "activations", (json_int_t)t->activations);
}

static json_t *line_json(const line *l)
{
    const vt_flops *f = &l->cost.flops;
    return json_pack(
        "{s:s, s:s, s:i, s:o, s:o, s:I, s:{s:I, s:I, s:I, s:I}, s:o, s:s}", "name",
        l->name ? l->name : "sum", "impl", l->impl ? l->impl : "", "calls", l->n_calls,
        "read_bytes", traffic_json(&l->cost.read), "write_bytes", traffic_json(&l->cost.write),
        "extra_bytes", (json_int_t)vt_cost_bytes(&l->extra), "flops", "fp32", (json_int_t)f->fp32,
        "bf16", (json_int_t)f->bf16, "fp8", (json_int_t)f->fp8, "int8", (json_int_t)f->int8,
        "least_us", cli_json_number(l->floor_s * 1e6, 3), "bound", story_bound_name(bound_of(l)));
}

static int print_object(const vt_model *m, const explanation *x)
{
    json_t *lines = json_array();
    const vt_roofs *r = &x->roofs;
    for (int32_t i = 0; i < x->n_lines; i++)
        json_array_append_new(lines, line_json(&x->line[i]));
    return cli_print_json(json_pack(
        "{s:s, s:s, s:{s:i, s:i, s:i}, s:{s:s, s:s, s:i, s:b, s:o, s:o, s:o, s:o}, s:o, s:o}",
        "model", m->name, "quant", m->quant, "batch", "sequences", x->n_seqs, "new_tokens",
        x->seq.q_len, "context", x->seq.kv_len, "hardware", "name", r->name, "level", r->level,
        "threads", r->threads, "measured", (int)r->measured, "read_bytes_per_s",
        cli_json_number(vt_roofs_bandwidth(r), 0), "fp32_per_s", cli_json_number(r->fp32_per_s, 0),
        "bf16_per_s", cli_json_number(r->bf16_per_s, 0), "int8_per_s",
        cli_json_number(r->int8_per_s, 0), "calls", lines, "total", line_json(&x->total)));
}

int cli_explain(cli *c)
{
    vt_err err = {0};
    vt_model *m = NULL;
    explanation x = {0};
    cli_tell_model(c);
    vt_status status = vt_model_open(c->options, &m, &err);
    if (status == VT_OK)
        status = read_shape(c, m, &x, &err);
    if (status == VT_OK)
        status = make_plan(c, m, &x, &err);
    if (status == VT_OK)
        status = get_roofs(c, m, &x, &err);
    if (status == VT_OK)
        status = cost_calls(&x, vt_options_flag(c->options, "all"), &err);
    if (m)
        status = vt_options_device_failed(c->options, status, &err);
    int code = status != VT_OK ? cli_fail(&err)
               : c->json       ? print_object(m, &x)
                               : print_text(c, m, &x);
    for (int32_t i = 0; i < x.n_lines; i++)
        free(x.line[i].name);
    free(x.line);
    story_step_free(x.plan);
    vt_described_release(&x.described);
    vt_model_free(m);
    return code;
}
