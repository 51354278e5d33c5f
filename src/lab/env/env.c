/* Looking at the machine (env/env.h). What it finds is judged in env/judge.c, told in env/text.c,
 * env/gpus.c and env/json.c. */
#include "lab/env/env.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/err.h"
#include "base/mem.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/cuda.h"
#include "model/load.h"

bool lab_env_has(const lab_env *e, const char *library)
{
    for (int32_t i = 0; i < e->n_libraries; i++)
        if (strcmp(e->library[i].library->name, library) == 0)
            return e->library[i].there;
    return false;
}

/* ---- the GPU ---- */

/* Name, level and architecture of a GPU that models can run on. */
static void look_at_gpu(lab_env *e)
{
    vt_cuda *c;
    if (!e->gpu)
        return;
    e->gpu_err.status = vt_cuda_open(e->ordinal, &c, &e->gpu_err);
    e->gpu = e->gpu_err.status == VT_OK;
    if (!e->gpu)
        return;
    snprintf(e->gpu_name, sizeof e->gpu_name, "%s", c->name);
    snprintf(e->arch, sizeof e->arch, "%s", c->arch);
    e->level = c->level;
    e->emulated = strstr(c->name, "Emulated") != NULL;
    lab_env_gpu_tiers(e, c);
    vt_cuda_close(c);
}

/* The order matters: of two libraries with one name, the one that is opened first stays in use. So
 * the engine's own ways of opening come before the plain search by name. */
static void look_at_devices(lab_env *e, const vt_options *o)
{
    cuda_driver driver;
    cuda_nvrtc nvrtc;
    int32_t named = strcmp(vt_options_get(o, "device"), "auto") == 0 ? -1 : vt_options_cuda(o);
    e->ordinal = named > 0 ? named : 0;
    snprintf(e->option, sizeof e->option, "%s", vt_options_get(o, "device"));
    e->driver = cuda_driver_open(&driver, NULL) == VT_OK;
    e->gpu_err.status = vt_cuda_usable(e->ordinal, &e->gpu_err);
    e->gpu = e->gpu_err.status == VT_OK;
    e->nvrtc = cuda_nvrtc_open(&nvrtc, &e->nvrtc_err) == VT_OK;
    e->nvrtc_major = e->nvrtc ? nvrtc.major : 0;
    e->nvrtc_minor = e->nvrtc ? nvrtc.minor : 0;
    if (e->nvrtc)
        vt_probe_path(nvrtc.library, "libnvrtc", e->nvrtc_path, sizeof e->nvrtc_path);
    if (e->gpu)
        vt_cublaslt_preload();
    look_at_gpu(e);
    vt_options_device(o, e->runs_on, sizeof e->runs_on);
    e->wanted = strcmp(e->option, "cpu") != 0 &&
                (e->topology.n_gpus > 0 || e->gpus.n > 0 || strncmp(e->option, "cuda", 4) == 0);
}

static void look_at_libraries(lab_env *e)
{
    int n;
    const vt_probe_library *l = vt_probe_libraries(&n);
    for (int i = 0; i < n && e->n_libraries < LAB_ENV_LIBRARIES; i++) {
        lab_env_library *to = &e->library[e->n_libraries++];
        to->library = &l[i];
        to->there = vt_probe_open(&l[i], to->found, sizeof to->found);
    }
}

/* ---- the cache ---- */

/* Returns true if files can be made in the folder, or in the nearest folder above it that is
 * there. */
static bool can_write(const char *folder)
{
    char path[1200];
    snprintf(path, sizeof path, "%s", folder);
    while (access(path, F_OK) != 0) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return access(".", W_OK) == 0;
        slash[slash == path ? 1 : 0] = '\0';
    }
    return access(path, W_OK) == 0;
}

static int32_t count_entries(const char *folder)
{
    int32_t n = 0;
    DIR *d = opendir(folder);
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* A lab on a GPU makes a model of random weights, which needs no file. */
static void look_at_lab_model(lab_env *e, const vt_options *o)
{
    char path[4096];
    bool in_cache;
    const char *name = vt_options_get(o, "model");
    snprintf(e->lab_model, sizeof e->lab_model, "%s", name);
    e->has_lab_model = strncmp(name, "dummy:", 6) == 0 ||
                       vt_model_resolve(name, path, sizeof path, &in_cache, NULL) == VT_OK;
}

static void look_at_cache(lab_env *e)
{
    char models[1200];
    vt_err *err = &e->cache_err;
    e->n_models = -1;
    if (vt_cache_path("models", models, sizeof models, NULL) == VT_OK)
        e->n_models = count_entries(models);
    err->status = vt_cache_path("cubin", e->cubin_folder, sizeof e->cubin_folder, err);
    if (err->status == VT_OK)
        err->status = vt_jit_check_cache(err);
    if (err->status == VT_OK)
        err->status = vt_jit_cached(&e->cached, &e->n_cached, err);
    if (err->status == VT_OK && !can_write(e->cubin_folder))
        err->status = vt_fail(err, VT_ERR_IO, "%s cannot be written", e->cubin_folder);
}

/* ---- everything ---- */

vt_status lab_env_look(const vt_options *o, lab_env **out, vt_err *err)
{
    static const char *const tool[LAB_ENV_TOOLS] = {"nvcc", "nsys", "ncu"};
    lab_env *e = vt_calloc(1, sizeof *e);
    if (!e)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for the description of this machine");
    vt_topology_read("", &e->topology);
    vt_gpus_read("", &e->gpus);
    for (int32_t i = 0; e->topology.n_nodes == 1 && i < e->gpus.n; i++)
        if (e->gpus.gpu[i].node < 0) /* /sys says -1 where there is one node */
            e->gpus.gpu[i].node = e->topology.node[0].id;
    look_at_devices(e, o);
    look_at_libraries(e);
    for (int i = 0; i < LAB_ENV_TOOLS; i++)
        vt_tool_look(tool[i], LAB_ENV_TOOL_MS, &e->tool[i]);
    e->perf = vt_probe_perf_events(e->perf_why, sizeof e->perf_why);
    for (int i = 0; i < VT_COUNTERS; i++)
        e->counted[i] = vt_probe_counter((vt_counter)i, e->counted_why[i],
                                         sizeof e->counted_why[i]);
    e->controllers = vt_probe_cpu_uncore("", NULL, e->uncore, sizeof e->uncore);
    e->slots = vt_probe_cpu_topdown("", e->topdown, sizeof e->topdown);
    e->counters = vt_probe_gpu_counters("", e->counters_why, sizeof e->counters_why);
    lab_env_cpu_tiers(e);
    look_at_cache(e);
    look_at_lab_model(e, o);
    lab_env_judge(e);
    *out = e;
    return VT_OK;
}

void lab_env_free(lab_env *e)
{
    if (!e)
        return;
    free(e->cached);
    free(e);
}

/* ---- trying ---- */

static vt_try *next_attempt(lab_env *e)
{
    return e->n_attempts < LAB_ENV_TRIES ? &e->attempt[e->n_attempts++] : NULL;
}

static bool has_row(const vt_op *op, vt_device_kind device)
{
    for (const vt_impl *const *i = op->impls; *i; i++)
        if ((*i)->device == device)
            return true;
    return false;
}

/* Every op that has a row for a GPU, but for those that join ranks, which one GPU alone cannot run
 * (`vitrine bench comm --device cuda` checks them); then the rows that compute with a library that
 * is here. */
static void try_cuda(lab_env *e, on_cuda_gpu *g)
{
    for (const vt_op *const *op = vt_ops; *op; op++) {
        bool alone = !((*op)->is & VT_OP_JOINS_RANKS) && has_row(*op, VT_DEVICE_CUDA);
        vt_try *t = alone ? next_attempt(e) : NULL;
        if (t)
            vt_try_cuda(*op, NULL, g, t);
    }
    g->target.cublaslt_all = g->target.cublaslt; /* small products too */
    for (const vt_op *const *op = vt_ops; *op; op++)
        for (const vt_impl *const *i = (*op)->impls; *i; i++) {
            if ((*i)->device != VT_DEVICE_CUDA || !(*i)->library || !g->target.cublaslt ||
                (*i)->level > g->target.level)
                continue;
            vt_try *t = next_attempt(e);
            if (t)
                vt_try_cuda(*op, *i, g, t);
        }
}

vt_status lab_env_try(lab_env *e, int32_t threads, jit_progress progress, void *user, vt_err *err)
{
    vt_team *team;
    on_cuda_gpu g;
    const on_cuda_options library = {.library = true};
    TRY(vt_team_new(threads, &team, err));
    e->n_attempts = e->n_failed = 0;
    for (const vt_op *const *op = vt_ops; *op; op++) {
        vt_try *t = next_attempt(e);
        if (t)
            vt_try_cpu(*op, vt_cpu_get()->level, team, t);
    }
    vt_team_free(team);
    if (e->gpu && strcmp(e->option, "cpu") != 0) {
        e->gpu_err.status = on_cuda_open(e->ordinal, &library, &g, &e->gpu_err);
        e->gpu = e->gpu_err.status == VT_OK;
        if (e->gpu) {
            g.progress = progress;
            g.progress_user = user;
            g.target.cublaslt_all = false; /* where it was measured to be faster, as in an engine */
            try_cuda(e, &g);
            on_cuda_close(&g);
        }
    }
    for (int32_t i = 0; i < e->n_attempts; i++)
        e->n_failed += !e->attempt[i].good;
    e->tried = true;
    free(e->cached); /* the cache has more kernels now */
    e->cached = NULL;
    e->n_cached = 0;
    look_at_cache(e);
    lab_env_judge(e);
    return VT_OK;
}
