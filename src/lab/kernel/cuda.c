/* A .cu on a GPU: compiled by our JIT, checked on every case of the card, then timed beside the
 * card's rows. Runs in the inner process alone.
 *
 *   our row's run() ── fills the parameter struct ──> vt_cuda_launch
 *                                                         │ lane->replace
 *                                                         v
 *                             the user's kernel in the place of ours, with the same parameters
 *
 * Its grid comes from LAB_LAUNCH, a kernel of one thread that runs once a shape. Operands have
 * margins (on_cuda.h), so a write beside them is noticed. On an emulated GPU the race detector
 * looks on, and nothing is timed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/cuda/occupancy.h"
#include "device/roofs/roofs.h"
#include "lab/kernel/inside.h"
#include "ops/calls/on_cuda.h"
#include "ops/case_text.h"

enum {
    SEED = 42,
    FLUSH = 256 << 20,
    EMULATED_FLUSH = 1 << 20,
    MARGIN = 64 << 10,
    EMULATED_MOST = 48 << 10, /* elements of an output that an emulated GPU is given */
    COMPILE_LIMIT_S = 600,
    MAX_PARAMS_BYTES = 4000
};
#define ARENA ((size_t)24 << 30)

/* struct lab_launch of lab_kernel.cuh. */
typedef struct chosen {
    uint32_t grid[3], threads, shared_bytes;
} chosen;

/* This stands in the place of a row's kernel. */
typedef struct stand_in {
    const own_kernel *k;
    const char *source;
    void *answer; /* device memory for a struct chosen */
    bool known;   /* `launch` is this shape's */
    chosen launch;
    bool used;      /* it has replaced a launch */
    char other[64]; /* a kernel of ours that the contract does not have; else "" */
} stand_in;

typedef struct gpu_case {
    vt_arena arena;
    void *args;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    own_kernel_case *entry;
    on_cuda call;
} gpu_case;

typedef struct gpu_run {
    own_kernel *k;
    on_cuda_gpu gpu;
    stand_in in;
    char source[64];
    gpu_case *item; /* [n] */
    int32_t n;
} gpu_run;

/* ---- the launch ---- */

static bool listed(const char *const *list, int n, const char *name)
{
    for (int i = 0; i < n && list[i]; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

/* The user's kernel with those template parameters of ours that say what the call is. */
static jit_spec spec_of(const stand_in *s, const jit_spec *ours)
{
    jit_spec spec = {.source = s->source, .kernel = "lab_kernel"};
    int32_t n = 0;
    for (int32_t i = 0; i < JIT_MAX_PARAMS && ours->param[i].name; i++)
        if (listed(s->k->contract->macros, OWN_KERNEL_MACROS, ours->param[i].name))
            spec.param[n++] = ours->param[i];
    return spec;
}

static vt_status check_chosen(const stand_in *s, const chosen *c, vt_err *err)
{
    if (c->grid[0] < 1 || c->grid[0] > INT32_MAX || c->grid[1] < 1 || c->grid[1] > 65535 ||
        c->grid[2] < 1 || c->grid[2] > 65535)
        return vt_fail(
            err, VT_ERR_FORMAT,
            "%s: LAB_LAUNCH asks for a grid of %u x %u x %u, expected 1 to 2147483647 x 65535 "
            "x 65535",
            s->k->report->step, c->grid[0], c->grid[1], c->grid[2]);
    if (c->threads < 1 || c->threads > 1024)
        return vt_fail(err, VT_ERR_FORMAT, "LAB_KERNEL says %u threads, expected 1 to 1024",
                       c->threads);
    return VT_OK;
}

/* Runs LAB_LAUNCH on the GPU: {answer, SMs, the kernel's parameters} is its only parameter. */
static vt_status ask_launch(stand_in *s, vt_cuda_lane *lane, int32_t index, const void *params,
                            size_t params_bytes, vt_err *err)
{
    vt_cuda *c = lane->cuda;
    const cuda_driver *d = &c->driver;
    _Alignas(16) char ask[MAX_PARAMS_BYTES + 16] = {0};
    cu_kernel kernel;
    if (params_bytes > MAX_PARAMS_BYTES)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "a parameter struct of %zu bytes", params_bytes);
    memcpy(ask, &s->answer, sizeof s->answer);
    memcpy(ask + 8, &c->sm_count, sizeof c->sm_count);
    memcpy(ask + 16, params, params_bytes);
    TRY(vt_cuda_check(c, d->library_kernel(&kernel, c->kernel[index].library, "lab_launch_of"),
                      "finding LAB_LAUNCH", err));
    cu_launch_config config = {.grid_x = 1,
                               .grid_y = 1,
                               .grid_z = 1,
                               .block_x = 1,
                               .block_y = 1,
                               .block_z = 1,
                               .stream = lane->stream};
    void *args[1] = {ask};
    TRY(vt_cuda_check(c, d->launch(&config, kernel, args, NULL), "running LAB_LAUNCH", err));
    TRY(vt_cuda_check(
        c,
        d->copy_to_host(&s->launch, (cu_ptr)(uintptr_t)s->answer, sizeof s->launch, lane->stream),
        "running LAB_LAUNCH", err));
    TRY(vt_cuda_check(c, d->stream_sync(lane->stream), "running LAB_LAUNCH", err));
    return check_chosen(s, &s->launch, err);
}

static vt_status replace(void *user, vt_cuda_lane *lane, cuda_launch *l, const void *params,
                         size_t params_bytes, vt_err *err)
{
    stand_in *s = user;
    if (!listed(s->k->contract->kernels, OWN_KERNEL_NAMES, l->spec.kernel)) {
        snprintf(s->other, sizeof s->other, "%s", l->spec.kernel);
        return VT_OK;
    }
    *l = (cuda_launch){.spec = spec_of(s, &l->spec), .no_pdl = true};
    s->used = true;
    int32_t index = vt_cuda_kernel_of(lane, l);
    if (lane->collect || index < 0)
        return VT_OK;
    if (index >= lane->cuda->n_kernels || !lane->cuda->kernel[index].kernel)
        TRY(vt_cuda_compile(lane->cuda, NULL, NULL, err));
    if (!s->known)
        TRY(ask_launch(s, lane, index, params, params_bytes, err));
    s->known = true;
    memcpy(l->grid, s->launch.grid, sizeof l->grid);
    l->threads = s->launch.threads;
    l->shared_bytes = s->launch.shared_bytes;
    return VT_OK;
}

/* Puts the user's kernel in the place of ours, or ours back. */
static void stand(gpu_run *g, bool in)
{
    g->gpu.lane.replace = in ? replace : NULL;
    g->gpu.lane.replace_user = &g->in;
    g->in.known = g->in.used = false;
    g->in.other[0] = '\0';
}

/* ---- opening ---- */

/* The emulated GPU reads this when it is opened, and no other driver reads it at all. */
static void ask_for_races(void)
{
    const char *set = getenv("VITRINE_EMULATOR");
    char text[512];
    snprintf(text, sizeof text, "%s%srace", set ? set : "", set && *set ? "," : "");
    setenv("VITRINE_EMULATOR", text, 1);
}

/* Opens the GPU. Without a driver the message says what can be done instead. */
static vt_status open_device(int32_t ordinal, const on_cuda_options *o, on_cuda_gpu *gpu,
                             vt_err *err)
{
    vt_status status = on_cuda_open(ordinal, o, gpu, err);
    if (status != VT_ERR_DEVICE || cuda_driver_found())
        return status;
    return vt_fail(
        err, VT_ERR_DEVICE,
        "no NVIDIA driver here: libcuda.so.1 was not found, and a .cu needs a GPU; 'make emulator' "
        "in a source tree builds an emulated one, which this command finds with "
        "LD_LIBRARY_PATH=build/release/emulator in front of it; a CPU runs a FILE.so, and the head "
        "of examples/kernels/rmsnorm.c says how one is compiled");
}

static vt_status open_gpu(gpu_run *g, int32_t ordinal, vt_err *err)
{
    on_cuda_options o = {.margin = MARGIN, .flush_bytes = EMULATED_FLUSH};
    own_kernel_report *r = g->k->report;
    ask_for_races();
    TRY(open_device(ordinal, &o, &g->gpu, err));
    if (!g->gpu.emulated) {
        on_cuda_close(&g->gpu);
        o.flush_bytes = FLUSH;
        TRY(on_cuda_open(ordinal, &o, &g->gpu, err));
    }
    r->gpu = true;
    r->emulated = r->races = g->gpu.emulated;
    snprintf(r->machine, sizeof r->machine, "%s", g->gpu.cuda->name);
    return vt_cuda_alloc(g->gpu.cuda, sizeof(chosen), &g->in.answer, err);
}

static void add_source(gpu_run *g)
{
    static const char fine[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-+";
    const char *name = g->k->name;
    bool plain = strspn(name, fine) == strlen(name) && strlen(name) + 3 < sizeof g->source;
    snprintf(g->source, sizeof g->source, "./%.60s", plain ? name : "kernel.cu");
    g->in = (stand_in){.k = g->k, .source = g->source, .answer = g->in.answer};
}

/* ---- cases ---- */

static int64_t most_elements(const gpu_case *c)
{
    int64_t most = 0;
    for (int32_t i = 0; i < c->n_outputs; i++)
        most = vt_tensor_elems(c->output[i]) > most ? vt_tensor_elems(c->output[i]) : most;
    return most;
}

/* The first row of the card that takes the call. */
static const vt_impl *row_for(const own_kernel *k, const on_cuda *call)
{
    for (const vt_impl *const *i = k->op->impls; *i; i++)
        if ((*i)->device == VT_DEVICE_CUDA && on_cuda_fits(call, *i))
            return *i;
    return NULL;
}

static vt_status collect(gpu_run *g, gpu_case *c, vt_err *err)
{
    stand(g, true);
    g->gpu.lane.collect = true;
    vt_status status = on_cuda_launch(&c->call, err);
    g->gpu.lane.collect = false;
    if (status == VT_OK && !g->in.used) {
        c->entry->verdict = OWN_KERNEL_SKIPPED;
        snprintf(c->entry->why, sizeof c->entry->why, "ours is %s here, which has no contract",
                 g->in.other[0] ? g->in.other : "another kernel");
    }
    return status;
}

static const vt_packing *first_packing(const vt_op *op)
{
    for (const vt_impl *const *i = op->impls; *i; i++)
        if ((*i)->device == VT_DEVICE_CUDA)
            return (*i)->packing;
    return NULL;
}

/* Makes the args on host and device, and notes the kernel. The reference has not run yet. */
static vt_status prepare(gpu_run *g, gpu_case *c, const vt_case *what, bool needed, vt_err *err)
{
    const vt_op *op = g->k->op;
    own_kernel_step(g->k, COMPILE_LIMIT_S, "preparing case %s", what->name);
    vt_arena_init(&c->arena, ARENA);
    c->entry = own_kernel_add_case(g->k, what, needed);
    if (!c->entry)
        return vt_fail(err, VT_ERR_MEMORY, "more than %d cases", OWN_KERNEL_CASES);
    if (c->entry->verdict == OWN_KERNEL_SKIPPED)
        return VT_OK;
    c->args = op->make_args(what, SEED, &c->arena, c->output, &c->n_outputs);
    if (!c->args)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the case %s", what->name);
    if (g->gpu.emulated && !needed && most_elements(c) > EMULATED_MOST) {
        c->entry->verdict = OWN_KERNEL_SKIPPED;
        snprintf(c->entry->why, sizeof c->entry->why, "too large for an emulated GPU");
        return VT_OK;
    }
    TRY(on_cuda_round(op, c->args, err));
    TRY(on_cuda_make(&c->call, &g->gpu, op, c->args, first_packing(op), err));
    const vt_impl *row = row_for(g->k, &c->call);
    if (!row) {
        c->entry->verdict = OWN_KERNEL_SKIPPED;
        snprintf(c->entry->why, sizeof c->entry->why, "no row of the card takes it on a GPU");
        return VT_OK;
    }
    TRY(on_cuda_take(&c->call, row, err));
    return collect(g, c, err);
}

static void drop(gpu_case *c)
{
    on_cuda_release(&c->call);
    vt_arena_release(&c->arena);
}

/* Runs the user's kernel once and compares. A fault is an error; a wrong result is noted. */
static vt_status check(gpu_run *g, gpu_case *c, vt_err *err)
{
    on_cuda_error e;
    own_kernel_case *entry = c->entry;
    bool clean = true;
    char why[256] = "";
    own_kernel_step(g->k, g->k->ask->limit_s, "case %s", entry->name);
    stand(g, true);
    TRY(on_cuda_note_margins(&c->call, err));
    TRY(on_cuda_run(&c->call, err));
    own_kernel_step(g->k, COMPILE_LIMIT_S, "case %s", entry->name);
    TRY(on_cuda_check_margins(&c->call, &clean, why, err));
    g->k->op->reference(c->args);
    TRY(on_cuda_compare(&c->call, c->output, c->n_outputs, &e, err));
    entry->error = e.worst;
    entry->allowed = e.allowed;
    entry->verdict = clean && e.good ? OWN_KERNEL_RIGHT : OWN_KERNEL_WRONG;
    if (entry->verdict == OWN_KERNEL_WRONG)
        snprintf(entry->why, sizeof entry->why, "%s", clean ? e.why : why);
    return VT_OK;
}

static vt_status check_card(gpu_run *g, vt_err *err)
{
    const vt_op *op = g->k->op;
    int32_t n = vt_op_n_cases(op);
    vt_case c;
    g->item = vt_calloc((size_t)n + 1, sizeof *g->item);
    if (!g->item)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d cases", n);
    for (; vt_op_case(op, g->n, &c); g->n++)
        TRY(prepare(g, &g->item[g->n], &c, false, err));
    own_kernel_step(g->k, COMPILE_LIMIT_S, "compiling it");
    TRY(vt_cuda_compile(g->gpu.cuda, NULL, NULL, err));
    for (int32_t i = 0; i < g->n; i++)
        if (g->item[i].entry->verdict == OWN_KERNEL_OPEN)
            TRY(check(g, &g->item[i], err));
    return VT_OK;
}

/* ---- timing ---- */

static void fill_launch(const on_cuda *c, own_kernel_launch *l)
{
    const vt_cuda *cuda = c->gpu->cuda;
    if (c->n_kernels == 0)
        return;
    int32_t index = c->kernel[c->n_kernels - 1];
    const cuda_kernel *k = &cuda->kernel[index];
    const jit_cubin *cubin = vt_jit_get(cuda->jit, index);
    snprintf(l->kernel, sizeof l->kernel, "%s", vt_jit_name(cuda->jit, index));
    memcpy(l->grid, k->grid, sizeof l->grid);
    l->threads = k->threads;
    l->dynamic_shared = k->dynamic_shared;
    l->registers = cubin->registers;
    l->spill_bytes = cubin->spill_bytes;
    l->static_shared = cubin->shared_bytes;
    vt_occupancy o;
    vt_occupancy_input in = {.cc = cuda->cc_major * 10 + cuda->cc_minor,
                             .threads = (int32_t)k->threads,
                             .registers = cubin->registers,
                             .shared_bytes = (int64_t)cubin->shared_bytes + k->dynamic_shared,
                             .grid = (int64_t)k->grid[0] * k->grid[1] * k->grid[2],
                             .sm_count = cuda->sm_count};
    if (!vt_occupancy_of(&in, &o))
        return;
    l->ctas = o.ctas;
    l->warps = o.warps;
    l->max_warps = o.max_warps;
    l->waves = o.waves;
    snprintf(l->limit, sizeof l->limit, "%s", vt_occupancy_limit_name(o.limit));
}

static vt_status time_row(gpu_run *g, gpu_case *c, const char *shape, const char *name, vt_err *err)
{
    static const on_cuda_method method[2] = {ON_CUDA_COLD, ON_CUDA_GRAPH};
    own_kernel_row *row = own_kernel_add_row(g->k, shape, name);
    if (!row)
        return VT_OK;
    vt_cost cost = on_cuda_cost(&c->call);
    row->own = strcmp(name, "yours") == 0;
    row->gpu = true;
    row->bytes = vt_cost_bytes(&cost);
    row->flops = vt_cost_flops(&cost);
    fill_launch(&c->call, &row->launch);
    for (int m = 0; m < 2 && !g->gpu.emulated; m++) {
        on_cuda_times t;
        own_kernel_step(g->k, g->k->ask->limit_s, "timing %s", shape);
        TRY(on_cuda_time(&c->call, method[m], false, &t, err));
        row->us[m] = t.us;
        row->spread = fmax(row->spread, t.us_min > 0 ? t.us / t.us_min : 1);
        row->share[m] = own_kernel_share(g->k->report, row->bytes, row->flops,
                                         m == 0 || row->bytes > g->gpu.cuda->l2_bytes, t.us,
                                         row->roof[m]);
    }
    return VT_OK;
}

static vt_status time_ours(gpu_run *g, gpu_case *c, const char *shape, vt_err *err)
{
    stand(g, false);
    for (const vt_impl *const *i = g->k->op->impls; *i; i++) {
        if ((*i)->device != VT_DEVICE_CUDA || !on_cuda_fits(&c->call, *i))
            continue;
        own_kernel_step(g->k, COMPILE_LIMIT_S, "timing our %s on %s", (*i)->name, shape);
        TRY(on_cuda_take(&c->call, *i, err));
        TRY(on_cuda_run(&c->call, err));
        TRY(time_row(g, c, shape, (*i)->name, err));
    }
    return VT_OK;
}

static vt_status measure_shape(gpu_run *g, gpu_case *c, const vt_case *shape, vt_err *err)
{
    TRY(prepare(g, c, shape, true, err));
    if (c->entry->verdict == OWN_KERNEL_SKIPPED)
        return vt_fail(err, VT_ERR_USAGE, "--shape %s: %s", shape->name, c->entry->why);
    own_kernel_step(g->k, COMPILE_LIMIT_S, "compiling it for %s", shape->name);
    TRY(vt_cuda_compile(g->gpu.cuda, NULL, NULL, err));
    TRY(check(g, c, err));
    if (c->entry->verdict == OWN_KERNEL_WRONG)
        return VT_OK;
    TRY(time_row(g, c, shape->name, "yours", err));
    return time_ours(g, c, shape->name, err);
}

static vt_status measure(gpu_run *g, vt_err *err)
{
    const own_kernel *k = g->k;
    if (g->gpu.emulated && !k->ask->shape)
        return VT_OK; /* its presets are for a real GPU */
    if (!g->gpu.emulated) {
        vt_roofs roofs;
        own_kernel_step(g->k, COMPILE_LIMIT_S, "measuring the roofs");
        TRY(vt_roofs_cuda(g->gpu.cuda->ordinal, 0, false, &roofs, err));
        k->report->memory_bytes_per_s = roofs.memory_bytes_per_s;
        k->report->fp32_per_s = roofs.fp32_per_s;
        double launch_s = vt_roofs_launch_s(&roofs, false);
        k->report->launch_s = launch_s > 0 ? launch_s : 0;
    }
    for (int32_t i = 0; i < k->n_shapes; i++) {
        gpu_case c = {0};
        vt_status status = measure_shape(g, &c, &k->shape[i], err);
        drop(&c);
        TRY(status);
    }
    return VT_OK;
}

static bool all_right(const own_kernel_report *r)
{
    for (int32_t i = 0; i < r->n_cases; i++)
        if (r->cases[i].verdict == OWN_KERNEL_WRONG)
            return false;
    return true;
}

vt_status own_kernel_on_cuda(own_kernel *k, int32_t ordinal, vt_err *err)
{
    gpu_run g = {.k = k};
    own_kernel_step(k, COMPILE_LIMIT_S, "opening the GPU");
    vt_status status = open_gpu(&g, ordinal, err);
    if (status != VT_OK)
        return status;
    add_source(&g);
    status = vt_jit_add_text(g.gpu.cuda->jit, g.source, k->text, err);
    if (status == VT_OK)
        status = check_card(&g, err);
    for (int32_t i = 0; g.item && i <= g.n; i++) /* the last may be half made */
        drop(&g.item[i]);
    free(g.item);
    if (status == VT_OK && all_right(k->report))
        status = measure(&g, err);
    return status; /* the process ends: the driver frees the rest */
}
