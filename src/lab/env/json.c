/* Writes what lab/env/env.h tells as members of a JSON object. A value that is not known is
 * null. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "lab/env/env.h"

static void put_text(vt_json *w, const char *key, const char *text)
{
    vt_json_string(w, key, text[0] ? text : NULL);
}

/* ---- the machine ---- */

static void write_topology(vt_json *w, const vt_topology *t)
{
    vt_json_open(w, "topology", '{');
    vt_json_known(w, "sockets", t->n_sockets ? t->n_sockets : -1);
    vt_json_open(w, "nodes", '[');
    for (int32_t i = 0; i < t->n_nodes; i++) {
        const vt_node *n = &t->node[i];
        vt_json_open(w, NULL, '{');
        vt_json_int(w, "node", n->id);
        vt_json_known(w, "n_cpus", n->n_cpus);
        put_text(w, "cpus", n->cpus);
        vt_json_known(w, "memory_bytes", n->memory_bytes);
        vt_json_known(w, "free_bytes", n->free_bytes);
        put_text(w, "distances", n->distance);
        vt_json_close(w);
    }
    vt_json_close(w);
    vt_json_open(w, "gpus_on_bus", '[');
    for (int32_t i = 0; i < t->n_gpus; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "place", t->gpu[i].place);
        vt_json_int(w, "pci_device", t->gpu[i].device);
        vt_json_known(w, "node", t->gpu[i].node);
        vt_json_close(w);
    }
    vt_json_close(w);
    vt_json_close(w);
}

static void write_users(vt_json *w, const vt_gpu_entry *g)
{
    if (g->n_users < 0) {
        vt_json_null(w, "users");
        return;
    }
    vt_json_open(w, "users", '[');
    for (int32_t i = 0; i < g->n_users && i < VT_MAX_GPU_USERS; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_int(w, "pid", g->user[i].pid);
        put_text(w, "name", g->user[i].name);
        vt_json_known(w, "bytes", g->user[i].bytes);
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void write_gpus(vt_json *w, const vt_gpus *g)
{
    char link[16];
    vt_json_open(w, "gpus", '[');
    for (int32_t i = 0; i < g->n; i++) {
        const vt_gpu_entry *e = &g->gpu[i];
        vt_json_open(w, NULL, '{');
        vt_json_known(w, "ordinal", e->ordinal);
        vt_json_string(w, "name", e->name);
        vt_json_bool(w, "emulated", e->emulated);
        put_text(w, "place", e->place);
        vt_json_known(w, "node", e->node);
        vt_json_known(w, "memory_bytes", e->memory_bytes);
        vt_json_known(w, "free_bytes", e->free_bytes);
        vt_json_known(w, "pcie_gen", e->pcie_gen);
        vt_json_known(w, "pcie_width", e->pcie_width);
        vt_json_known(w, "n_users", e->n_users);
        write_users(w, e);
        vt_json_open(w, "links", '[');
        for (int32_t k = 0; k < g->n; k++) {
            vt_link_name(g->link[i][k], link);
            vt_json_string(w, NULL, link);
        }
        vt_json_close(w);
        vt_json_close(w);
    }
    vt_json_close(w);
    vt_json_int(w, "gpus_left_out", g->n_left_out);
    put_text(w, "gpus_missing", g->why);
    put_text(w, "driver", g->driver);
}

static void write_legend(vt_json *w)
{
    char name[16];
    vt_json_open(w, "link_legend", '{');
    for (int kind = VT_LINK_NV; kind >= 0; kind--) {
        vt_link_name((vt_link){(vt_link_kind)kind, 0}, name);
        vt_json_string(w, kind == VT_LINK_NV ? "NVn" : name, vt_link_meaning((vt_link_kind)kind));
    }
    vt_json_close(w);
}

/* {"prefer": [{"size": 2, "gpus": [0, 1], "worst_link": "NV12", ...}], "islands": [[0, 1], [2]]} */
static void write_groups(vt_json *w, const vt_gpus *g)
{
    vt_gpu_group group[VT_MAX_GPU_GROUPS];
    int32_t island[VT_MAX_GPUS], n = vt_gpus_counted(g), islands = vt_gpu_islands(g, island);
    char link[16];
    vt_json_open(w, "prefer", '[');
    for (int32_t size = 2; size <= 8 && size <= n; size *= 2) {
        int32_t found = vt_gpu_groups(g, size, group);
        for (int32_t i = 0; i < found; i++) {
            vt_json_open(w, NULL, '{');
            vt_json_int(w, "size", size);
            vt_json_ints(w, "gpus", group[i].member, group[i].n);
            vt_link_name(group[i].worst, link);
            vt_json_string(w, "worst_link", link);
            vt_json_bool(w, "one_node", group[i].one_node);
            vt_json_close(w);
        }
    }
    vt_json_close(w);
    vt_json_open(w, "islands", '[');
    for (int32_t k = 0; k < islands; k++) {
        vt_json_open(w, NULL, '[');
        for (int32_t i = 0; i < n; i++)
            if (island[i] == k)
                vt_json_int(w, NULL, i);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* ---- programs and libraries ---- */

static void write_compiler(vt_json *w, const lab_env *e)
{
    vt_buf flags = {0};
    vt_jit_flags(e->arch[0] ? e->arch : "sm_XX", &flags, NULL);
    vt_json_open(w, "compiler", '{');
    if (e->nvrtc)
        vt_json_printf(w, "nvrtc", "%d.%d", e->nvrtc_major, e->nvrtc_minor);
    else
        vt_json_null(w, "nvrtc");
    put_text(w, "nvrtc_path", e->nvrtc_path);
    vt_json_string(w, "nvrtc_missing", e->nvrtc ? NULL : e->nvrtc_err.message);
    vt_json_string(w, "flags", flags.data);
    vt_json_string(w, "trigger", lab_env_jit_trigger);
    vt_json_string(w, "invalidation", lab_env_jit_invalid);
    vt_json_close(w);
    vt_buf_release(&flags);
}

static void write_tools(vt_json *w, const lab_env *e)
{
    vt_json_open(w, "tools", '{');
    for (int i = 0; i < LAB_ENV_TOOLS; i++) {
        const vt_tool *t = &e->tool[i];
        vt_json_open(w, t->name, '{');
        put_text(w, "path", t->path);
        put_text(w, "version", t->version);
        put_text(w, "missing", t->why);
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void write_libraries(vt_json *w, const lab_env *e)
{
    vt_json_open(w, "libraries", '{');
    for (int32_t i = 0; i < e->n_libraries; i++)
        vt_json_string(w, e->library[i].library->name,
                       e->library[i].there ? e->library[i].found : NULL);
    vt_json_close(w);
}

static void write_profiling(vt_json *w, const lab_env *e)
{
    vt_json_open(w, "profiling", '{');
    lab_env_write_tiers(w, e);
    vt_json_open(w, "cpu_events", '[');
    for (int i = 0; i < VT_COUNTERS; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "name", vt_counter_kinds[i].name);
        vt_json_bool(w, "counted", e->counted[i]);
        vt_json_string(w, "why", e->counted[i] ? NULL : e->counted_why[i]);
        vt_json_close(w);
    }
    vt_json_close(w);
    vt_json_close(w);
}

/* ---- kernels ---- */

static void write_parameters(vt_json *w, const char *name)
{
    const char *p = name + strcspn(name, "<");
    vt_json_open(w, "parameters", '{');
    while (*p == '<' || *p == ',') {
        char key[64];
        p++;
        size_t n = strcspn(p, "=,>");
        snprintf(key, sizeof key, "%.*s", (int)(n < sizeof key ? n : sizeof key - 1), p);
        p += n;
        if (*p == '=') {
            p++;
            n = strcspn(p, ",>");
            vt_json_string_n(w, key, p, n);
            p += n;
        }
    }
    vt_json_close(w);
}

void lab_env_write_cache(vt_json *w, const jit_cached *c, int32_t n)
{
    vt_json_open(w, "kernels", '[');
    for (int32_t i = 0; i < n; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_string_n(w, "kernel", c[i].name, strcspn(c[i].name, "<"));
        vt_json_string(w, "instance", c[i].name);
        write_parameters(w, c[i].name);
        vt_json_string(w, "arch", c[i].arch);
        vt_json_printf(w, "nvrtc", "%d.%d", c[i].nvrtc_major, c[i].nvrtc_minor);
        vt_json_int(w, "registers", c[i].registers);
        vt_json_int(w, "spill_bytes", c[i].spill_bytes);
        vt_json_fixed(w, "compile_ms", c[i].compile_ms, 1);
        vt_json_int(w, "bytes", (int64_t)c[i].bytes);
        vt_json_string(w, "key", c[i].key);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* One object an op: its rows for this CPU, those that NVRTC compiles, those of a library. */
static void write_needs(vt_json *w, const lab_env *e)
{
    vt_json_open(w, "ops", '{');
    for (const vt_op *const *op = vt_ops; *op; op++) {
        vt_json_open(w, (*op)->name, '[');
        for (const vt_impl *const *i = (*op)->impls; *i; i++) {
            bool gpu = (*i)->device == VT_DEVICE_CUDA;
            const char *library = gpu ? (*i)->library ? (*i)->library : "nvrtc" : NULL;
            bool there = !gpu ? vt_isa_has(vt_cpu_get()->level, (*i)->isa)
                              : e->gpu && (*i)->level <= e->level &&
                                    ((*i)->library ? lab_env_has(e, library) : e->nvrtc);
            vt_json_open(w, NULL, '{');
            vt_json_string(w, "row", (*i)->name);
            vt_json_string(w, "device", gpu ? "cuda" : "cpu");
            vt_json_string(w, "needs", library);
            vt_json_bool(w, "here", there);
            vt_json_close(w);
        }
        vt_json_close(w);
    }
    vt_json_close(w);
}

static void write_attempts(vt_json *w, const lab_env *e)
{
    if (!e->tried) {
        vt_json_null(w, "tried");
        return;
    }
    vt_json_open(w, "tried", '[');
    for (int32_t i = 0; i < e->n_attempts; i++) {
        const vt_try *t = &e->attempt[i];
        bool compiled = t->device == VT_DEVICE_CUDA && t->compile_ms > 0;
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "op", t->op->name);
        vt_json_string(w, "device", t->device == VT_DEVICE_CUDA ? "cuda" : "cpu");
        vt_json_string(w, "row", t->impl ? t->impl->name : NULL);
        vt_json_string(w, "shape", t->impl ? t->shape : NULL);
        put_text(w, "kernel", t->kernel);
        vt_json_int(w, "n_kernels", t->n_kernels);
        vt_json_fixed(w, "compile_ms", compiled ? t->compile_ms : NAN, 1);
        vt_json_bool(w, "cached", t->cached);
        vt_json_real(w, "error", t->error);
        vt_json_real(w, "allowed", t->allowed);
        vt_json_bool(w, "ok", t->good);
        put_text(w, "why", t->why);
        vt_json_close(w);
    }
    vt_json_close(w);
}

/* ---- the verdict ---- */

static void write_ready(vt_json *w, const lab_env *e)
{
    bool ready = lab_env_ready(e);
    vt_json_open(w, "advice", '[');
    for (int32_t i = 0; i < e->n_advice; i++) {
        vt_json_open(w, NULL, '{');
        vt_json_string(w, "observation", e->advice[i].seen);
        vt_json_string(w, "action", e->advice[i].action);
        vt_json_bool(w, "blocks", e->advice[i].blocks);
        vt_json_close(w);
    }
    vt_json_close(w);
    vt_json_bool(w, "ready", ready);
    vt_json_open(w, "ready_for", '[');
    if (ready)
        vt_json_string(w, NULL, "cpu");
    if (ready && e->gpu)
        vt_json_printf(w, NULL, "cuda:%d", e->ordinal);
    vt_json_close(w);
    vt_json_open(w, "missing", '[');
    for (int32_t i = 0; i < e->n_advice; i++)
        if (e->advice[i].blocks)
            vt_json_string(w, NULL, e->advice[i].seen);
    vt_json_close(w);
}

void lab_env_write(vt_json *w, const lab_env *e)
{
    write_topology(w, &e->topology);
    write_gpus(w, &e->gpus);
    write_legend(w);
    write_groups(w, &e->gpus);
    write_libraries(w, e);
    write_compiler(w, e);
    write_tools(w, e);
    write_profiling(w, e);
    write_needs(w, e);
    vt_json_open(w, "cache", '{');
    put_text(w, "folder", e->cubin_folder);
    vt_json_string(w, "missing", e->cache_err.status == VT_OK ? NULL : e->cache_err.message);
    lab_env_write_cache(w, e->cached, e->n_cached);
    vt_json_close(w);
    write_attempts(w, e);
    write_ready(w, e);
}
