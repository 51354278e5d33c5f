/* The kernel benchmark on a GPU: see bench.h. Every row that supports a case runs once and is
 * compared with the reference, then it is timed. Rows that want weights in the same form share the
 * args on the device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "ops/bench/bench.h"
#include "ops/bench/bench_counters.h"
#include "ops/bench/bench_lines.h"
#include "ops/cut.h"

enum { MAX_FORMS = 4, SEED = 42 };
#define ARENA ((size_t)24 << 30)

typedef struct bench_run {
    on_cuda_gpu *gpu;
    const bench_options *o;
    bench_report report;
    void *user;
} bench_run;

/* A case on the host, and its args on the device, once for each form that its rows want weights
 * in. */
typedef struct call {
    const vt_op *op;
    const vt_case *c;
    vt_arena arena;
    void *args;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    bool checked;
    on_cuda form[MAX_FORMS];
    const vt_packing *packing[MAX_FORMS];
    int32_t n_forms;
} call;

static vt_status form_of(const bench_run *b, call *k, const vt_packing *p, on_cuda **out,
                         vt_err *err)
{
    *out = NULL;
    for (int32_t i = 0; i < k->n_forms; i++)
        if (k->packing[i] == p)
            *out = &k->form[i];
    if (*out || k->n_forms == MAX_FORMS)
        return VT_OK;
    TRY(on_cuda_make(&k->form[k->n_forms], b->gpu, k->op, k->args, p, err));
    k->packing[k->n_forms] = p;
    *out = &k->form[k->n_forms++];
    return VT_OK;
}

static void fill_times(bench_result *r, const on_cuda_times *t)
{
    r->best_ns = (int64_t)(t->us_min * 1e3 + 0.5);
    r->median_ns = (int64_t)(t->us * 1e3 + 0.5);
    r->noise = t->noise;
    r->n_calls = t->n;
    r->gb_per_s = (double)vt_cost_bytes(&r->cost) / (t->us * 1e3);
    r->gflop_per_s = (double)r->flops / (t->us * 1e3);
}

static vt_status bench_row(const bench_run *b, call *k, on_cuda *c, const vt_impl *impl,
                           vt_err *err)
{
    bool emulated = b->gpu->emulated;
    bench_result r = {.op = k->op,
                      .c = k->c,
                      .impl = impl,
                      .method = on_cuda_method_name[b->o->method],
                      .cuda = c,
                      .error = NAN,
                      .allowed = k->op->tolerance,
                      .timed = !emulated};
    on_cuda_times t;
    TRY(on_cuda_take(c, impl, err));
    TRY(on_cuda_run(c, err));
    if (k->checked) {
        on_cuda_error e;
        TRY(on_cuda_compare(c, k->output, k->n_outputs, &e, err));
        r.error = e.worst;
        r.allowed = e.allowed;
        r.wrong = !e.good;
        memcpy(r.why, e.why, sizeof r.why);
    }
    r.cost = on_cuda_cost(c);
    vt_cost extra = impl->extra ? impl->extra(c->args, &c->target, c->batch) : (vt_cost){0};
    r.bytes = vt_cost_bytes(&r.cost) + vt_cost_bytes(&extra);
    if (impl->describe)
        impl->describe(c->args, &c->target, &c->size, &r.cut);
    if (impl->describe && impl->plan)
        vt_cut_planned(&r.cut, c->filled, impl->plan->items(c->args, &c->target, &c->size, NULL));
    r.flops = vt_cost_flops(&r.cost);
    TRY(on_cuda_time(c, b->o->method, emulated, &t, err)); /* an emulated GPU runs this too */
    if (r.timed)
        fill_times(&r, &t);
    bench_counts counts;
    if (b->o->counters) {
        TRY(bench_count(c, b->o->counters, &counts, err));
        r.counts = &counts;
    }
    bench_lines lines;
    if (b->o->pc) {
        TRY(bench_sample_lines(c, b->o->pc, &lines, err));
        r.lines = &lines;
    }
    b->report(b->user, &r);
    return VT_OK;
}

/* The device's args for all rows are made before the reference runs, because it may work in
 * place. */
static vt_status bench_rows(const bench_run *b, call *k, bool only_make, vt_err *err)
{
    const vt_impl *const *const table[] = {k->op->impls, b->o->variants ? k->op->variants : NULL};
    for (int t = 0; t < 2; t++)
        for (const vt_impl *const *i = table[t]; i && *i; i++) {
            on_cuda *c;
            if ((*i)->device != VT_DEVICE_CUDA || !bench_wants(b->o, *i))
                continue;
            TRY(form_of(b, k, (*i)->packing, &c, err));
            if (!only_make && c && on_cuda_fits(c, *i))
                TRY(bench_row(b, k, c, *i, err));
        }
    return VT_OK;
}

static vt_status bench_call(const bench_run *b, call *k, vt_err *err)
{
    TRY(on_cuda_round(k->op, k->args, err));
    TRY(bench_rows(b, k, true, err));
    vt_cost cost = k->op->cost(k->args, NULL);
    k->checked = vt_cost_flops(&cost) <= (b->o->check_flops > 0 ? b->o->check_flops : 10000000000);
    if (k->checked)
        k->op->reference(k->args);
    return bench_rows(b, k, false, err);
}

static vt_status bench_case(void *ctx, const vt_op *op, const vt_case *c, vt_err *err)
{
    const bench_run *b = ctx;
    if (op->n_operands == 0) /* has no rows for a GPU */
        return VT_OK;
    call *k = calloc(1, sizeof *k);
    if (!k)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for a case", op->name);
    k->op = op;
    k->c = c;
    vt_arena_init(&k->arena, ARENA);
    k->args = op->make_args(c, SEED, &k->arena, k->output, &k->n_outputs);
    vt_status status = k->args ? bench_call(b, k, err)
                               : vt_fail(err, VT_ERR_MEMORY, "%s: out of memory for the case %s",
                                         op->name, c->name);
    for (int32_t i = 0; i < k->n_forms; i++)
        on_cuda_release(&k->form[i]);
    vt_arena_release(&k->arena);
    free(k);
    return status;
}

vt_status bench_kernels_cuda(const char *op_name, on_cuda_gpu *gpu, const bench_options *options,
                             bench_report report, void *user, vt_err *err)
{
    bench_run b = {.gpu = gpu, .o = options, .report = report, .user = user};
    return bench_each_case(op_name, options, bench_case, &b, err);
}
