/* Lab 00 of the track mini-sglang: is everything here that the other labs need?
 *
 * `vitrine env --json` answers, in a process of its own: what it opened is closed again, and a
 * driver that crashes takes no lab with it. This file puts its answer in the order of a check: GPUs
 * and topology, compiler and cache, what each kernel needs, tools, one run of each kernel, and at
 * the end what is missing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/mini_sglang.h"
#include "story/read.h"

enum { LOOK_LIMIT_S = 300 };

static vt_status look_with(lab *l, const char *further, json_t **out, vt_err *err)
{
    char path[700];
    int code;
    const char *argv[] = {lab_self(), "env", "--json", "--quiet", further, NULL};
    snprintf(path, sizeof path, "%s/environment.json", l->results);
    TRY(lab_tool_run(l, argv, path, LOOK_LIMIT_S, &code, err));
    if (code != 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s env --json ended with status %d", lab_self(),
                       code);
    json_error_t why;
    *out = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (!*out)
        return vt_fail(err, VT_ERR_FORMAT, "%s: %s", path, why.text);
    lab_file(l, "environment.json", "what vitrine env --json answered");
    return VT_OK;
}

/* What this machine has, as the members that `vitrine env --json` prints. The only place that knows
 * where they come from. */
static vt_status look(lab *l, json_t **out, vt_err *err)
{
    vt_err why;
    return look_with(l, "--try", out, &why) == VT_OK ? VT_OK : look_with(l, NULL, out, err);
}

/* ---- hardware ---- */

static void tell_gpus(lab *l, const json_t *env)
{
    const json_t *gpus = story_get(env, "gpus"), *one = story_get(env, "gpu"), *g;
    char name[STORY_TEXT], why[STORY_TEXT];
    size_t i;
    if (!json_array_size(gpus) && !json_is_object(one)) {
        lab_item(l, "gpus", "no GPU: %s. All labs run on the CPU",
                 mini_text_or(story_get(env, "device"), "why_not_cuda",
                              mini_text_or(env, "gpus_missing", "none is installed", name), why));
        return;
    }
    lab_table(l, "gpus", "GPUs", "GPU|name|>memory|>free|>users");
    if (!json_array_size(gpus)) {
        lab_cell(l, "0");
        lab_cell(l, "%s", story_text(one, "name", name));
        lab_cell_number(l, story_num(one, "memory_bytes"), LAB_BYTES);
        lab_cell(l, "n/a");
        lab_cell(l, "n/a");
    }
    json_array_foreach(gpus, i, g)
    {
        const json_t *users = story_get(g, "users");
        lab_cell(l, "%zu", i);
        lab_cell(l, "%s", story_text(g, "name", name));
        lab_cell_number(l, story_num(g, "memory_bytes"), LAB_BYTES);
        lab_cell_number(l, story_num(g, "free_bytes"), LAB_BYTES);
        lab_cell(l, json_is_array(users) ? "%zu" : "n/a", json_array_size(users));
    }
    lab_table_end(l);
}

static void tell_topology(lab *l, const json_t *env)
{
    const json_t *cpu = story_get(env, "cpu"), *topology = story_get(env, "topology"),
                 *prefer = story_get(env, "prefer");
    char model[STORY_TEXT];
    double sockets = story_num(topology, "sockets");
    vt_buf pairs = {0};
    char *text = json_array_size(prefer) ? json_dumps(prefer, JSON_COMPACT) : NULL;
    if (text)
        vt_buf_printf(&pairs, "; GPUs to use together: %.200s", text);
    lab_item(
        l, "topology",
        "%s: %.0f CPUs on %.0f cores, %s%.0f NUMA node%s%s; caches: L1d %s and L2 %s a core, L3 %s",
        story_text(cpu, "model", model), story_num(cpu, "cpus"), story_num(cpu, "cores"),
        sockets >= 1 ? sockets > 1 ? "several sockets, " : "1 socket, " : "",
        story_num(cpu, "numa_nodes"), story_num(cpu, "numa_nodes") == 1 ? "" : "s",
        pairs.data ? pairs.data : "", mini_word(story_num(cpu, "l1d_bytes"), LAB_BYTES).text,
        mini_word(story_num(cpu, "l2_bytes"), LAB_BYTES).text,
        mini_word(story_num(cpu, "l3_bytes"), LAB_BYTES).text);
    vt_buf_release(&pairs);
    free(text);
}

/* ---- libraries and tools ---- */

static void tell_libraries(lab *l, const json_t *env)
{
    const char *name;
    json_t *path;
    char text[STORY_TEXT], version[STORY_TEXT];
    const json_t *tools = story_get(env, "tools");
    lab_table(l, "libraries", "libraries, opened only where they are needed", "library|found");
    json_object_foreach((json_t *)(uintptr_t)story_get(env, "libraries"), name, path)
    {
        lab_cell(l, "%s", name);
        lab_cell(l, "%s", json_is_string(path) ? story_clean(path, text) : "no");
    }
    lab_table_end(l);
    lab_table(l, "tools", "other programs", "program|found|version");
    static const char *const tool[] = {"nsys", "ncu"};
    for (size_t i = 0; i < sizeof tool / sizeof *tool; i++) {
        const json_t *t = story_get(tools, tool[i]);
        char found[600];
        bool there = lab_tool_find(tool[i], found, sizeof found);
        lab_cell(l, "%s", tool[i]);
        lab_cell(l, "%s", there ? found : mini_text_or(t, "path", "not on PATH", text));
        lab_cell(l, "%s", mini_text_or(t, "version", "-", version));
    }
    lab_table_end(l);
}

/* ---- one run of each kernel ---- */

/* Those that `vitrine env --try` ran. */
static int32_t tell_tried(lab *l, const json_t *tried)
{
    const json_t *t;
    char op[STORY_TEXT], row[STORY_TEXT], device[STORY_TEXT], why[STORY_TEXT];
    size_t i;
    int32_t good = 0;
    lab_table(l, "kernels", "compile and run one instance of each kernel",
              "op|device|row|>kernels|>compiled in|>error|result");
    json_array_foreach(tried, i, t)
    {
        bool ok = json_is_true(story_get(t, "ok"));
        double error = story_num(t, "error");
        lab_cell(l, "%s", story_text(t, "op", op));
        lab_cell(l, "%s", story_text(t, "device", device));
        lab_cell(l, "%s", mini_text_or(t, "row", "none", row));
        lab_cell(l, "%.0f", story_num(t, "n_kernels"));
        lab_cell_number(l, story_num(t, "compile_ms") * 1e-3, LAB_SECONDS);
        lab_cell(l, isfinite(error) ? "%.1e" : "-", error);
        lab_cell(l, "%s", ok ? "OK" : story_text(t, "why", why));
        lab_check(l, ok, "%s on %s: %s (expected: it compiles, runs and equals its reference)", op,
                  device, ok ? "works" : story_text(t, "why", why));
        good += ok;
    }
    lab_table_end(l);
    return good;
}

/* Each card on its smallest case, where `vitrine env` did not try them. */
static vt_status try_all(lab *l, int32_t *good, vt_err *err)
{
    lab_kernel k[64];
    const char *name[64];
    int32_t n = 0;
    for (int32_t i = 0; vt_ops[i] && n < 64; i++) {
        char shape[200];
        if (!mini_case_text(vt_ops[i], shape, sizeof shape))
            continue;
        vt_status status = mini_kernel_run(
            l, &(lab_kernel_ask){.op = vt_ops[i]->name, .shape = shape}, &k[n], err);
        if (status == VT_ERR_UNSUPPORTED || (status == VT_ERR_MEMORY && l->emulated))
            continue; /* no row for this device, or too large for an emulated one */
        TRY(status);
        *good += k[n].ok;
        name[n++] = vt_ops[i]->name;
    }
    lab_table(l, "kernels", "run one instance of each kernel", "op|row|>error|result");
    for (int32_t i = 0; i < n; i++) {
        lab_cell(l, "%s", name[i]);
        lab_cell(l, "%s", k[i].impl);
        lab_cell(l, isfinite(k[i].error) ? "%.1e" : "-", k[i].error);
        lab_cell(l, k[i].ok ? "OK" : "WRONG");
    }
    lab_table_end(l);
    return VT_OK;
}

static vt_status tell_kernels(lab *l, const json_t *env, vt_err *err)
{
    static const char what[] = "kernels that work";
    const json_t *tried = story_get(env, "tried");
    int32_t good = 0, n = (int32_t)json_array_size(tried);
    for (int32_t i = 0; n == 0 && vt_ops[i]; i++)
        good++;
    lab_predict(l, what, n ? n : good, LAB_COUNT,
                "all of them: every card has a row for this device "
                "or is left out");
    good = 0;
    if (n)
        good = tell_tried(l, tried);
    else
        TRY(try_all(l, &good, err));
    lab_outcome(l, what, good, false);
    return VT_OK;
}

/* ---- what is missing ---- */

static void tell_ready(lab *l, const json_t *env)
{
    const json_t *advice = story_get(env, "advice"), *missing = story_get(env, "missing"), *a;
    char seen[STORY_TEXT], action[STORY_TEXT];
    size_t i;
    lab_table(l, "troubleshooting", "what is missing, and what to do", "seen|what to do");
    json_array_foreach(advice, i, a)
    {
        lab_cell(l, "%s", story_text(a, "seen", seen));
        lab_cell(l, "%s", story_text(a, "action", action));
    }
    if (!json_array_size(advice)) {
        lab_cell(l, "nothing is missing for this device");
        lab_cell(l, "-");
    }
    lab_table_end(l);
    bool ready = story_get(env, "ready") ? json_is_true(story_get(env, "ready")) : !l->failed;
    vt_buf b = {0};
    json_array_foreach(missing, i, a)
        vt_buf_printf(&b, "%s%s", i ? ", " : "", story_clean(a, seen));
    lab_check(l, ready, "the environment is %s (expected: ready)", ready ? "ready" : "not ready");
    lab_item(l, "ready", "environment is %s%s%s", ready ? "READY" : "NOT ready", b.data ? ": " : "",
             b.data ? b.data : "");
    vt_buf_release(&b);
}

static const char *why_row(const char *impl, double *gain)
{
    (void)impl, *gain = NAN;
    return "another instruction set than the one that was chosen for this machine";
}

static vt_status run(lab *l, vt_err *err)
{
    json_t *env = NULL;
    mini_rows *r = NULL;
    TRY(look(l, &env, err));
    tell_gpus(l, env);
    tell_topology(l, env);
    mini_tell_compiler(l, env);
    mini_tell_cache(l, env);
    mini_tell_dependencies(l, env);
    tell_libraries(l, env);
    vt_status status = tell_kernels(l, env, err);
    if (status == VT_OK)
        tell_ready(l, env);
    json_decref(env);
    if (status == VT_OK)
        status = mini_rows_run(l, "rmsnorm", "tokens=512,hidden=576", &r, err);
    if (status == VT_OK)
        mini_rows_turn(l, "rmsnorm", r, why_row);
    free(r);
    return status;
}

static const lab_item_def items[] = {
    {"compiler", "the compiler of kernels", false},
    {"jit_ready", "whether kernels can be compiled", false},
    {"cache_place", "where compiled kernels are kept", false},
    {"cache", "what the cache holds", false},
    {"template_parameters", "template parameters", false},
    {"compile_flags", "compile flags", false},
    {"dependencies", "what each kernel needs", false},
    {"libraries", "libraries found", false},
    {"tools", "nsys and ncu", false},
    {"kernels", "one compile and run of each kernel", false},
    {"troubleshooting", "what to do about what is missing", false},
    {"ready", "whether the environment is READY", false},
    {"gpus", "the GPUs of this machine", true},
    {"topology", "sockets, NUMA nodes, caches and links", true},
    {NULL, NULL, false},
};

const lab_def mini_check_env = {
    .track = LAB_MINI_SGLANG,
    .number = "00",
    .name = "check_env",
    .goal = "You know what this machine has for the labs, what it lacks, and that every kernel "
            "compiles and runs here.",
    .about = {"Hardware, libraries, tools and the cache of compiled kernels are looked up.",
              "One small instance of each kernel runs and is compared with its reference.",
              "No model is loaded."},
    .alias = {"00_check_env.py", NULL},
    .items = items,
    .kernels = true,
    .run = run,
};
