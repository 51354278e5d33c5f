/* A shared object on the CPU: dlopen, every case on guarded args, then timing beside the card's
 * rows with the methods of `vitrine bench kernels`. Runs in the inner process alone. */
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/err.h"
#include "device/cpu.h"
#include "device/roofs/roofs.h"
#include "lab/kernel/inside.h"
#include "ops/access.h"
#include "ops/bench/bench.h"
#include "ops/case_text.h"
#include "vitrine_kernel.h"

enum { SEED = 42, TIMING_LIMIT_S = 120 };

typedef int (*kernel_fn)(const void *call, const vitrine_lane *lane);

typedef struct shared_object {
    const own_kernel_op *contract;
    kernel_fn kernel;
    const void *args; /* of the checked call */
    vt_team *team;
    atomic_int returned; /* what the kernel returned, if not 0 */
} shared_object;

/* ---- faults ---- */

/* A signal handler has no argument for these. They are set before the first call. */
static own_kernel_report *fault_report;
static const own_kernel_guard *fault_guard;

static const char *verb_of(const void *context)
{
#if defined(__x86_64__)
    const ucontext_t *u = context;
    return u->uc_mcontext.gregs[REG_ERR] & 2 ? "wrote" : "read";
#else
    (void)context;
    return "touched";
#endif
}

/* The process ends here, so nothing that the fault interrupted goes on. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    char where[128];
    own_kernel_report *r = fault_report;
    if (fault_guard) {
        own_kernel_guard_describe(fault_guard, info->si_addr, where, sizeof where);
        snprintf(r->failure, sizeof r->failure, "%s: it %s %s (signal %d)", r->step,
                 verb_of(context), where, number);
    } else
        snprintf(r->failure, sizeof r->failure, "%s ended with signal %d", r->step, number);
    r->finished = true;
    _exit(0);
}

static void catch_faults(own_kernel_report *r)
{
    struct sigaction a = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    fault_report = r;
    sigaction(SIGSEGV, &a, NULL);
    sigaction(SIGBUS, &a, NULL);
}

/* ---- the file ---- */

static vt_status open_object(own_kernel *k, shared_object *o, vt_err *err)
{
    char path[4096];
    const char *file = k->ask->file;
    snprintf(path, sizeof path, "%s%s", strchr(file, '/') ? "" : "./", file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return vt_fail(err, VT_ERR_FORMAT, "it cannot be loaded: %s", dlerror());
    const char *op = dlsym(library, "vitrine_kernel_op");
    const int32_t *abi = dlsym(library, "vitrine_kernel_abi");
    void *kernel = dlsym(library, "vitrine_kernel");
    if (!op || !abi || !kernel)
        return vt_fail(err, VT_ERR_FORMAT,
                       "VITRINE_KERNEL(op) { ... } of vitrine_kernel.h is not in it");
    if (*abi != VITRINE_KERNEL_ABI)
        return vt_fail(err, VT_ERR_FORMAT,
                       "it was compiled with version %d of vitrine_kernel.h, "
                       "expected %d",
                       *abi, VITRINE_KERNEL_ABI);
    if (strncmp(op, k->contract->name, 40) != 0)
        return vt_fail(err, VT_ERR_FORMAT, "it implements %.40s, and --op is %s", op,
                       k->contract->name);
    o->contract = k->contract;
    memcpy(&o->kernel, &kernel, sizeof kernel);
    return VT_OK;
}

/* ---- a row of it ---- */

static vt_status own_run(const void *args, const vt_lane *lane)
{
    const shared_object *o = lane->own;
    _Alignas(16) char call[OWN_KERNEL_CALL_BYTES];
    vitrine_lane l = {lane->worker, lane->n_workers};
    if (!o->contract->call(args, call))
        return VT_ERR_UNSUPPORTED;
    return o->kernel(call, &l) == 0 ? VT_OK : VT_ERR_DEVICE;
}

/* ---- checking ---- */

static void check_main(void *p, int32_t worker)
{
    shared_object *o = p;
    _Alignas(16) char call[OWN_KERNEL_CALL_BYTES];
    vitrine_lane lane = {worker, vt_team_size(o->team)};
    o->contract->call(o->args, call);
    int r = o->kernel(call, &lane);
    if (r != 0)
        atomic_store(&o->returned, r);
}

static bool is_near(float got, float want, double tolerance)
{
    if (got == want || (isnan(got) && isnan(want)))
        return true;
    return fabs((double)got - (double)want) <= tolerance * (1 + fabs((double)want));
}

/* The place of the first wrong element. */
static void say_wrong(const vt_tensor *got, const vt_tensor *want, double tolerance,
                      own_kernel_case *c)
{
    for (int64_t t = 0; t < want->dim[0]; t++)
        for (int64_t i = 0; i < want->dim[1]; i++) {
            float g = tensor_get(got, t, i), w = tensor_get(want, t, i);
            if (is_near(g, w, tolerance))
                continue;
            snprintf(c->why, sizeof c->why,
                     "row %lld, %lld: %.9g, expected %.9g (allowed error %.3g)", (long long)t,
                     (long long)i, (double)g, (double)w, tolerance);
            return;
        }
}

static void compare(const own_kernel *k, own_kernel_guard *g, vt_tensor **output, int32_t n,
                    own_kernel_case *c)
{
    c->verdict = OWN_KERNEL_RIGHT;
    c->allowed = k->op->tolerance;
    c->error = 0;
    for (int32_t i = 0; i < n; i++) {
        vt_tensor *got = own_kernel_guard_find(g, output[i]);
        double error = bench_error(&got, &output[i], 1);
        c->error = error > c->error ? error : c->error;
        if (error <= c->allowed || c->verdict == OWN_KERNEL_WRONG)
            continue;
        c->verdict = OWN_KERNEL_WRONG;
        say_wrong(got, output[i], c->allowed, c);
    }
}

static vt_status check_args(own_kernel *k, shared_object *o, own_kernel_case *c, const void *args,
                            vt_tensor **output, int32_t n_outputs, vt_arena *arena, vt_err *err)
{
    own_kernel_guard g;
    _Alignas(16) char call[OWN_KERNEL_CALL_BYTES];
    bool clean;
    TRY(own_kernel_guard_make(&g, k->op, args, arena, err));
    if (!k->contract->call(g.args, call)) {
        c->verdict = OWN_KERNEL_SKIPPED;
        snprintf(c->why, sizeof c->why, "vitrine_kernel.h has no call of this form");
        own_kernel_guard_release(&g);
        return VT_OK;
    }
    vt_status status = own_kernel_guard_close(&g, err);
    if (status == VT_OK) {
        o->args = g.args;
        fault_guard = &g;
        vt_team_run(o->team, check_main, o);
        fault_guard = NULL;
        clean = own_kernel_guard_check(&g, c->why);
        k->op->reference(args);
        if (clean)
            compare(k, &g, output, n_outputs, c);
        else
            c->verdict = OWN_KERNEL_WRONG;
        if (atomic_load(&o->returned))
            status = vt_fail(err, VT_ERR_DEVICE, "case %s: it returned %d, expected 0", c->name,
                             atomic_load(&o->returned));
    }
    own_kernel_guard_release(&g);
    return status;
}

static vt_status check_case(own_kernel *k, shared_object *o, const vt_case *what, bool needed,
                            vt_err *err)
{
    vt_arena arena;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs = 0;
    own_kernel_case *c = own_kernel_add_case(k, what, needed);
    if (!c || c->verdict == OWN_KERNEL_SKIPPED)
        return VT_OK;
    own_kernel_step(k, k->ask->limit_s, "case %s", what->name);
    vt_arena_init(&arena, 0);
    void *args = k->op->make_args(what, SEED, &arena, output, &n_outputs);
    vt_status status = args ? check_args(k, o, c, args, output, n_outputs, &arena, err)
                            : vt_fail(err, VT_ERR_MEMORY, "out of memory for the case %s",
                                      what->name);
    vt_arena_release(&arena);
    if (status == VT_OK && needed && c->verdict == OWN_KERNEL_SKIPPED)
        return vt_fail(err, VT_ERR_USAGE, "--shape %s: %s", what->name, c->why);
    return status;
}

static vt_status check_all(own_kernel *k, shared_object *o, vt_err *err)
{
    vt_case c;
    for (int32_t i = 0; vt_op_case(k->op, i, &c); i++)
        TRY(check_case(k, o, &c, false, err));
    for (int32_t i = 0; i < k->n_shapes; i++)
        TRY(check_case(k, o, &k->shape[i], true, err));
    return VT_OK;
}

/* ---- timing ---- */

typedef struct timing {
    own_kernel *k;
    int method;          /* 0: warm, 1: cold */
    int64_t cache_bytes; /* calls of more bytes meet the memory's roof warm too */
} timing;

static own_kernel_row *row_of(own_kernel *k, const bench_result *r)
{
    for (int32_t i = 0; i < k->report->n_rows; i++) {
        own_kernel_row *row = &k->report->rows[i];
        if (strcmp(row->shape, r->c->name) == 0 && strcmp(row->name, r->impl->name) == 0)
            return row;
    }
    return own_kernel_add_row(k, r->c->name, r->impl->name);
}

static void report(void *user, const bench_result *r)
{
    timing *t = user;
    own_kernel_row *row = row_of(t->k, r);
    own_kernel_step(t->k, TIMING_LIMIT_S, "timing %s", r->c->name);
    if (!row)
        return;
    row->own = strcmp(r->impl->name, "yours") == 0;
    row->bytes = r->bytes;
    row->flops = r->flops;
    row->us[t->method] = (double)r->median_ns * 1e-3;
    if (r->best_ns > 0)
        row->spread = fmax(row->spread, (double)r->median_ns / (double)r->best_ns);
    row->share[t->method] = own_kernel_share(t->k->report, r->bytes, r->flops,
                                             t->method == 1 || r->bytes > t->cache_bytes,
                                             row->us[t->method], row->roof[t->method]);
}

static vt_status time_all(own_kernel *k, const shared_object *o, vt_err *err)
{
    const vt_impl own = {.name = "yours", .device = VT_DEVICE_CPU, .run = own_run};
    int32_t threads = vt_team_size(o->team);
    timing t = {.k = k, .cache_bytes = vt_cpu_get()->l2_bytes * threads};
    if (vt_cpu_get()->l3_bytes > t.cache_bytes)
        t.cache_bytes = vt_cpu_get()->l3_bytes;
    vt_roofs roofs;
    own_kernel_step(k, TIMING_LIMIT_S, "measuring the roofs");
    TRY(vt_roofs_get(threads, 0, &roofs, err));
    k->report->memory_bytes_per_s = roofs.memory_bytes_per_s;
    k->report->fp32_per_s = roofs.fp32_per_s;
    snprintf(k->report->machine, sizeof k->report->machine, "%.60s, %d thread%s", roofs.name,
             threads, threads == 1 ? "" : "s");
    const char *shape = k->ask->shape ? k->ask->shape : k->contract->shape_cpu;
    for (t.method = 0; t.method < 2; t.method++) {
        bench_options options = {.cold = t.method == 1, .shape = shape, .extra = &own, .own = o};
        own_kernel_step(k, TIMING_LIMIT_S, "timing %s", shape);
        TRY(bench_kernels(k->op->name, o->team, vt_cpu_get()->level, &options, report, &t, err));
    }
    return VT_OK;
}

vt_status own_kernel_on_cpu(own_kernel *k, vt_err *err)
{
    shared_object o = {0};
    int32_t threads = k->ask->threads > 0 ? k->ask->threads : vt_cpu_get()->n_cores;
    own_kernel_step(k, k->ask->limit_s, "loading it");
    catch_faults(k->report);
    TRY(open_object(k, &o, err));
    TRY(vt_team_new(threads, &o.team, err));
    vt_status status = check_all(k, &o, err);
    bool right = true;
    for (int32_t i = 0; i < k->report->n_cases; i++)
        right &= k->report->cases[i].verdict != OWN_KERNEL_WRONG;
    if (status == VT_OK && right)
        status = time_all(k, &o, err);
    vt_team_free(o.team);
    return status;
}
