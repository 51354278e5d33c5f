/* Compares CUDA rows with the references of their cards, case by case, on the device (on_cuda.h
 * says what the device gets, and which tolerance it has).
 *
 * Each case runs on the row that a program would take for it, and also on cuBLASLt if that can
 * compute it; with --rows all it runs on every row and variant that supports the call. Rows of a
 * linear's result must have the same bits in the smallest step that would be padded to this size.
 * With --time bench cases are timed: single launches, with L2 flushed before each.
 *
 * usage: gpu_parity [--time] [--small] [--op NAME] [--case NAME] [--rows all|NAME] [--shard I/N]
 *     [--pdl] [--padded] [--deterministic] [--random N] [--seed S] [--list]
 * TAP on stdout, then the rows that no case has reached; exit 1 when a case fails or none was
 * found, 77 without a GPU. --list prints op, tab, case and needs none. --shard: every Nth case from
 * number I, for several processes at once (the references are single-threaded and take most of the
 * time). --random: in place of these cases N of random shapes of each op. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "gpu_cases.h"
#include "gpu_options.h"
#include "ops/calls/on_cuda.h"

enum { MAX_FORMS = 4, MAX_ROWS = 24, FLUSH = 256 << 20 };
#define ARENA ((size_t)12 << 30)

/* A row of the card, and whether a case has run on it. */
typedef struct row_seen {
    const vt_op *op;
    const vt_impl *impl;
    bool reached;
} row_seen;

typedef struct rig {
    on_cuda_gpu gpu;
    gpu_options o;
    int32_t seen; /* cases of all shards so far */
    int32_t passed, failed, skipped, number;
    row_seen row[256];
    int32_t n_rows;
} rig;

/* One case: its args on the host, and on the device in each form that rows want weights in. */
typedef struct call {
    const vt_op *op;
    const gpu_call *g;
    vt_arena arena;
    void *args;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    on_cuda form[MAX_FORMS];
    const vt_packing *packing[MAX_FORMS]; /* NULL first: the form in which models are loaded */
    int32_t n_forms;
} call;

static void must(vt_status status, const vt_err *err)
{
    if (status == VT_OK)
        return;
    printf("Bail out! %s\n", err->message);
    exit(1);
}

/* ---- rows ---- */

static void list_rows(rig *r)
{
    for (const vt_op *const *op = vt_ops; *op; op++) {
        const vt_impl *const *const table[] = {(*op)->impls, (*op)->variants};
        for (int t = 0; t < 2; t++)
            for (const vt_impl *const *i = table[t]; i && *i; i++)
                if ((*i)->device == VT_DEVICE_CUDA && r->n_rows < 256)
                    r->row[r->n_rows++] = (row_seen){.op = *op, .impl = *i};
    }
}

static void reached(rig *r, const vt_op *op, const vt_impl *impl)
{
    for (int32_t i = 0; i < r->n_rows; i++)
        if (r->row[i].op == op && r->row[i].impl == impl)
            r->row[i].reached = true;
}

/* Prints the rows of this level and mode that no case has reached; others cannot be reached
 * here. */
static void print_unreached(const rig *r)
{
    const vt_target *t = &r->gpu.target;
    for (int32_t i = 0; i < r->n_rows; i++) {
        const vt_impl *impl = r->row[i].impl;
        if (!r->row[i].reached && impl->level <= t->level &&
            (impl->fixed_order || !t->deterministic) &&
            (!r->o.only_op || strcmp(r->o.only_op, r->row[i].op->name) == 0))
            printf("# no case ran on %s, %s\n", r->row[i].op->name, impl->name);
    }
}

/* ---- one case ---- */

static void call_release(call *k)
{
    for (int32_t i = 0; i < k->n_forms; i++)
        on_cuda_release(&k->form[i]);
    vt_arena_release(&k->arena);
}

/* The call in the form of the packing. It is made when it is first needed. */
static on_cuda *form_of(rig *r, call *k, const vt_packing *p)
{
    vt_err err = {0};
    for (int32_t i = 0; i < k->n_forms; i++)
        if (k->packing[i] == p)
            return &k->form[i];
    if (k->n_forms == MAX_FORMS)
        return NULL;
    must(on_cuda_make(&k->form[k->n_forms], &r->gpu, k->op, k->args, p, &err), &err);
    k->packing[k->n_forms] = p;
    return &k->form[k->n_forms++];
}

static void print_time(on_cuda *c)
{
    on_cuda_times t;
    vt_err err = {0};
    vt_cost cost = on_cuda_cost(c);
    must(on_cuda_time(c, ON_CUDA_COLD, c->gpu->emulated, &t, &err), &err);
    printf("  %.1f us  %.0f GB/s  %.1f TFLOP/s", t.us, (double)vt_cost_bytes(&cost) / t.us * 1e-3,
           (double)vt_cost_flops(&cost) / t.us * 1e-6);
}

/* Rows of a product have the same bits in the smallest step that would be padded to this one
 * (exec/cuda_step.c), on the same row of the card. */
static bool same_in_bucket(on_cuda *c, const vt_tensor *output, char *why, size_t size)
{
    int64_t m = output->dim[0];
    int64_t least = m;
    while (least > 1 && vt_padded_tokens((int32_t)least - 1) == vt_padded_tokens((int32_t)m))
        least--;
    void *before, *after;
    vt_err err = {0};
    if (m <= least)
        return true;
    const vt_tensor *y = &on_cuda_find(c, output)->device;
    must(on_cuda_fetch(c, output, &before, &err), &err);
    on_cuda_window(c, 0, least);
    must(on_cuda_run(c, &err), &err);
    on_cuda_window(c, 0, m);
    must(on_cuda_fetch(c, output, &after, &err), &err);
    size_t element = (size_t)vt_dtype_get(y->dtype)->bytes, row = (size_t)y->row_stride * element;
    bool good = true;
    for (int64_t i = 0; i < least && good; i++)
        good = memcmp((char *)before + (size_t)i * row, (char *)after + (size_t)i * row,
                      (size_t)y->dim[1] * element) == 0;
    if (!good)
        snprintf(why, size, "other bits with fewer tokens of the same bucket");
    free(before);
    free(after);
    return good;
}

/* Returns true if this is linear or a similar op: it has a weight, and no batch. */
static bool is_product(const vt_op *op)
{
    for (int32_t i = 0; i < op->n_operands; i++)
        if (op->operands[i].kind == VT_OPERAND_WEIGHT)
            return true;
    return false;
}

static void try_row(rig *r, call *k, on_cuda *c, const vt_impl *impl, const char *what)
{
    on_cuda_error e = {.good = false};
    vt_err err = {0};
    vt_status status = on_cuda_take(c, impl, &err);
    if (status == VT_OK)
        status = on_cuda_run(c, &err);
    if (status == VT_OK)
        status = on_cuda_compare(c, k->output, k->n_outputs, &e, &err);
    if (status != VT_OK)
        snprintf(e.why, sizeof e.why, "%.250s", err.message);
    if (e.good && is_product(k->op))
        e.good = same_in_bucket(c, k->output[0], e.why, sizeof e.why);
    printf("%s %d - %s %s [%s%s]  worst %.2g %s", e.good ? "ok" : "not ok", ++r->number,
           k->op->name, k->g->name, impl->name, what, e.worst, e.why);
    if (e.good && r->o.timing && k->g->large)
        print_time(c);
    printf("\n");
    fflush(stdout);
    e.good ? r->passed++ : r->failed++;
    reached(r, k->op, impl);
    if (status == VT_ERR_DEVICE && !r->gpu.emulated) /* the context may be lost */
        must(status, &err);
}

static bool wants_row(const rig *r, const vt_impl *impl)
{
    return strcmp(r->o.rows, "all") == 0 || strcmp(r->o.rows, impl->name) == 0;
}

/* The forms are made before the reference runs, which may change the args in place. */
static int32_t collect_rows(rig *r, call *k, const vt_impl *row[MAX_ROWS], on_cuda *at[MAX_ROWS])
{
    const vt_impl *const *const table[] = {k->op->impls, k->op->variants};
    int32_t n = 0;
    if (!r->o.rows) {
        on_cuda *c = form_of(r, k, NULL);
        row[0] = on_cuda_choice(c);
        at[0] = c;
        return row[0] != NULL;
    }
    for (int t = 0; t < 2; t++)
        for (const vt_impl *const *i = table[t]; i && *i && n < MAX_ROWS; i++) {
            if ((*i)->device != VT_DEVICE_CUDA || (*i)->level > r->gpu.target.level ||
                !wants_row(r, *i))
                continue;
            on_cuda *c = form_of(r, k, (*i)->packing);
            if (!c || !on_cuda_fits(c, *i))
                continue;
            row[n] = *i;
            at[n++] = c;
        }
    return n;
}

static void skip_case(rig *r, const call *k, const char *why)
{
    r->skipped++;
    printf("ok %d - %s %s # skip %s\n", ++r->number, k->op->name, k->g->name, why);
}

static void run_rows(rig *r, call *k)
{
    const vt_impl *row[MAX_ROWS];
    on_cuda *at[MAX_ROWS];
    bool there = r->gpu.target.cublaslt, library = there && !r->o.rows;
    if (library) /* rows of our own first */
        r->gpu.target.cublaslt = r->gpu.target.cublaslt_all = false;
    int32_t n = collect_rows(r, k, row, at);
    const vt_impl *other = NULL;
    if (library && n > 0) {
        at[0]->target.cublaslt = at[0]->target.cublaslt_all = true;
        other = on_cuda_choice(at[0]);
        at[0]->target.cublaslt = at[0]->target.cublaslt_all = false;
    }
    r->gpu.target.cublaslt = r->gpu.target.cublaslt_all = there;
    if (n == 0)
        skip_case(r, k, "no row on this GPU takes it");
    else
        k->op->reference(k->args);
    for (int32_t i = 0; i < n; i++)
        try_row(r, k, at[i], row[i], "");
    if (other && other != row[0]) {
        at[0]->target.cublaslt = at[0]->target.cublaslt_all = true;
        try_row(r, k, at[0], other, "");
    }
}

/* Returns true if some row or variant of the card runs on a GPU. prefix_match, for one, has
 * none. */
static bool has_row(const vt_op *op)
{
    const vt_impl *const *const table[] = {op->impls, op->variants};
    for (int t = 0; t < 2; t++)
        for (const vt_impl *const *i = table[t]; i && *i; i++)
            if ((*i)->device == VT_DEVICE_CUDA)
                return true;
    return false;
}

/* --list names only what can run on a GPU. */
static void run_case(rig *r, const vt_op *op, const gpu_call *g)
{
    vt_err err = {0};
    if ((r->o.small && g->large) || (r->o.only_case && strcmp(r->o.only_case, g->name) != 0))
        return;
    if (r->o.list) {
        if (has_row(op))
            printf("%s\t%s\n", op->name, g->name);
        return;
    }
    if (r->seen++ % r->o.shards != r->o.shard)
        return;
    static call k;
    k = (call){.op = op, .g = g};
    vt_arena_init(&k.arena, ARENA);
    k.args = g->make(&g->c, g->seed, &k.arena, k.output, &k.n_outputs);
    if (!k.args) {
        skip_case(r, &k, "out of host memory");
    } else if (!has_row(op)) {
        skip_case(r, &k, "no rows for a GPU");
    } else {
        must(on_cuda_round(op, k.args, &err), &err);
        run_rows(r, &k);
    }
    call_release(&k);
}

/* ---- all ---- */

static void run_card(rig *r, const vt_op *op)
{
    gpu_call g = {.seed = 42, .make = op->make_args};
    for (int32_t i = 0; vt_op_case(op, i, &g.c); i++) {
        g.large = g.c.bench;
        snprintf(g.name, sizeof g.name, "%s", g.c.name);
        run_case(r, op, &g);
    }
    for (const gpu_case *c = gpu_cases; c->op; c++) {
        gpu_call calls[GPU_MOST_CALLS];
        int32_t n;
        vt_err err = {0};
        if (strcmp(c->op, op->name) != 0)
            continue;
        must(gpu_calls_of(op, c, calls, &n, &err), &err);
        for (int32_t i = 0; i < n; i++)
            run_case(r, op, &calls[i]);
    }
}

static void run_random(rig *r, const vt_op *op)
{
    for (int32_t i = 0; i < r->o.n_random; i++) {
        gpu_call g;
        if (gpu_random_call(op, r->o.seed, i, &g))
            run_case(r, op, &g);
    }
}

static void run_cases(rig *r)
{
    for (const vt_op *const *op = vt_ops; *op; op++)
        if (!r->o.only_op || strcmp(r->o.only_op, (*op)->name) == 0)
            r->o.n_random ? run_random(r, *op) : run_card(r, *op);
}

int main(int argc, char **argv)
{
    static rig r;
    vt_err err = {0};
    (void)argc;
    if (!gpu_options_read(&r.o, argv + 1))
        return 2;
    if (r.o.list) {
        run_cases(&r);
        return 0;
    }
    on_cuda_options options = {.deterministic = r.o.deterministic,
                               .pdl = r.o.pdl,
                               .padded = r.o.padded,
                               .library = true,
                               .always = true,
                               .flush_bytes = r.o.timing ? FLUSH : 0};
    if (on_cuda_open(0, &options, &r.gpu, &err) != VT_OK) {
        printf("1..0 # skip %s\n", err.message);
        return 77;
    }
    const vt_cuda *c = r.gpu.cuda;
    printf("# %s, %s, level %d, driver %d, pdl %d\n", c->name, c->arch, c->level, c->driver_version,
           r.o.pdl);
    list_rows(&r);
    run_cases(&r);
    if (r.o.n_random == 0 && r.o.shards == 1 && !r.o.only_case)
        print_unreached(&r);
    printf("1..%d\n# passed %d, failed %d, skipped %d\n", r.number, r.passed, r.failed, r.skipped);
    on_cuda_close(&r.gpu);
    return r.failed != 0 || r.number == 0;
}
