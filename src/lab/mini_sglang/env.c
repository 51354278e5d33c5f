/* Lab 00 of the track mini-sglang: is everything here that the other labs need?
 *
 * env/env.h looks around and tries every kernel, for `vitrine env` as for this lab. This file puts
 * its answers in the order of a check: GPUs and topology, compiler and cache, what each kernel
 * needs, tools, one run of each kernel, and at the end what is missing. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "lab/env/env.h"
#include "lab/kit/comm_ranks.h"
#include "lab/mini_sglang/mini_sglang.h"

/* A part of lab/env/env.h as a drawing; a sentence where there is nothing to draw. */
static void tell_part(lab *l, const lab_env *e, const char *key, const char *title,
                      void (*put)(vt_buf *, const vt_term *, const lab_env *), const char *none)
{
    vt_buf b = {0};
    vt_term term = {.width = VT_TERM_WIDTH - 4};
    put(&b, &term, e);
    if (b.len)
        lab_drawing(l, key, title, &b);
    else
        lab_item(l, key, "%s", none);
    vt_buf_release(&b);
}

static void put_topology(vt_buf *b, const vt_term *term, const lab_env *e)
{
    const vt_cpu *cpu = vt_cpu_get();
    vt_text_printf(b, "%s: %d CPUs on %d cores; L1d %f B and L2 %f B a core, L3 %f B\n", cpu->model,
                   cpu->n_cpus, cpu->n_cores, (double)cpu->l1d_bytes, (double)cpu->l2_bytes,
                   (double)cpu->l3_bytes);
    lab_env_put_nodes(b, term, e);
    lab_env_put_links(b, term, e);
}

static void tell_jit(lab *l, const lab_env *e)
{
    vt_buf flags = {0};
    tell_part(l, e, "compiler", "how kernels are compiled", lab_env_put_compiler, "none is here");
    lab_item(l, "jit_ready",
             e->nvrtc && e->gpu
                 ? "yes: kernels are compiled when they are first needed, and run here"
             : e->nvrtc ? "kernels can be compiled here; there is no GPU to run them on, so all "
                          "labs run the CPU's kernels, which are part of this program"
                        : "no: NVRTC is missing, so only GPU kernels that are in the cache run; "
                          "the CPU's are part of this program");
    vt_jit_flags(e->arch[0] ? e->arch : "sm_XX", &flags, NULL);
    lab_item(l, "compile_flags", "%s", flags.len ? flags.data : "none");
    vt_buf_release(&flags);
    lab_item(l, "cache_place", "%s holds %d compiled kernel%s", e->cubin_folder, e->n_cached,
             vt_text_s(e->n_cached));
    tell_part(l, e, "cache", "the cache of compiled kernels", lab_env_put_cache,
              "the cache holds no kernel yet");
    if (e->n_cached)
        lab_item(l, "template_parameters", "%s An instance is named with its parameters: %s",
                 lab_env_jit_trigger, e->cached[0].name);
    else
        lab_item(l, "template_parameters", "%s None is in the cache yet", lab_env_jit_trigger);
}

static void tell_tools(lab *l, const lab_env *e)
{
    tell_part(l, e, "dependencies", "what each kernel needs", lab_env_put_needs, "nothing");
    tell_part(l, e, "libraries", "libraries, opened only where they are needed",
              lab_env_put_libraries, "none");
    lab_table(l, "tools", "programs that wrap a run", "program|found|version");
    for (int i = 0; i < LAB_ENV_TOOLS; i++)
        lab_cells(l, "%s|%.56s|%s", e->tool[i].name,
                  e->tool[i].found ? e->tool[i].path : "not found",
                  e->tool[i].runs ? e->tool[i].version : "-");
}

static void tell_kernels(lab *l, const lab_env *e)
{
    static const char what[] = "kernels that work";
    lab_predict(l, what, e->n_attempts, VT_COUNT,
                "all that were tried: every op on the CPU, and on a GPU where one is");
    lab_outcome(l, what, e->n_attempts - e->n_failed, false);
    tell_part(l, e, "kernels", "one compile and run of each kernel", lab_env_put_tries,
              "none was tried");
    for (int32_t i = 0; i < e->n_attempts; i++) {
        const vt_try *t = &e->attempt[i];
        const char *device = t->device == VT_DEVICE_CPU ? "CPU" : "GPU";
        if (t->good)
            lab_check(l, true, "%s on the %s: row %s equals its reference (%.1e, allowed %.1e)",
                      t->op->name, device, t->impl->name, t->error, t->allowed);
        else
            lab_check(l, false, "%s on the %s: %s", t->op->name, device, t->why);
    }
}

static void tell_ready(lab *l, const lab_env *e)
{
    vt_buf b = {0};
    vt_term term = {.width = VT_TERM_WIDTH};
    bool ready = lab_env_ready(e);
    tell_part(l, e, "troubleshooting", "what is missing, and what to do", lab_env_put_advice,
              "nothing is missing");
    lab_env_put_ready(&b, &term, e);
    while (b.len && b.data[b.len - 1] == '\n')
        b.data[--b.len] = '\0';
    for (size_t i = 0; i < b.len; i++) /* one paragraph, wrapped again where it is shown */
        b.data[i] = b.data[i] == '\n' ? ' ' : b.data[i];
    lab_check(l, ready, "the environment is %s (expected: ready)", ready ? "ready" : "not ready");
    lab_item(l, "ready", "%s", b.len ? b.data : "environment is not known");
    vt_buf_release(&b);
}

/* Everything that was found, for the reports. */
static vt_status write_all(lab *l, const lab_env *e, vt_err *err)
{
    vt_json w;
    vt_json_object(&w);
    lab_env_write(&w, e);
    (void)vt_json_end(&w); /* a failure stays in the text's flag */
    vt_status status = mini_write_file(l, "environment.json",
                                       "what was found, as vitrine env "
                                       "--json tells it",
                                       w.out, err);
    vt_json_release(&w);
    return status;
}

static const char *why_row(const char *impl, double *gain)
{
    (void)gain;
    return strcmp(impl, "apart") == 0
               ? "the sum in one launch and its norm in another: the sum is written and read once "
                 "more"
               : "the same bytes by another instruction set than the one that was chosen for this "
                 "machine";
}

/* NCCL joins two GPUs once. */
static void tell_nccl(lab *l)
{
    static const double bytes = 16384;
    lab_comm c;
    comm_result r;
    lab_comm_open(l, 2, &c);
    if (!c.gpus)
        lab_missing(l, "nccl", "NCCL joins GPUs: %s",
                    l->ordinal < 0 ? "the lab runs on the CPU" : c.why);
    else if (!c.nccl || !lab_comm_sum(&c, "nccl", bytes, COMM_PLAIN, &r))
        lab_missing(l, "nccl", "libnccl.so.2 is not here, or joins no two of these GPUs");
    else {
        lab_check(l, r.agree && r.error <= COMM_BF16_TOLERANCE,
                  "NCCL's sum on two GPUs differs from the reference by %.1e, allowed %.1e",
                  r.error, COMM_BF16_TOLERANCE);
        lab_item(l, "nccl", "NCCL %s joins two GPUs: a sum of %f B takes %f s, OK",
                 comm_gpus_nccl(c.gpus), bytes, (double)r.median_ns * 1e-9);
    }
    lab_comm_close(&c);
}

static vt_status run(lab *l, vt_err *err)
{
    lab_env *e;
    mini_rows *r = NULL;
    const char *op = l->ordinal < 0 ? "rmsnorm" : "add_rmsnorm"; /* rmsnorm has one row on a GPU */
    lab_note(l, "looking around, and trying every kernel");
    TRY(lab_env_look(l->options, &e, err));
    vt_status status = lab_env_try(e, l->threads, NULL, NULL, err);
    if (status == VT_OK) {
        tell_part(l, e, "gpus", "GPUs", lab_env_put_gpus, "no GPU: all labs run on the CPU");
        tell_part(l, e, "topology", "the machine", put_topology, "not known");
        tell_jit(l, e);
        tell_tools(l, e);
        tell_kernels(l, e);
        tell_nccl(l);
        tell_ready(l, e);
        status = write_all(l, e, err);
    }
    lab_env_free(e);
    if (status == VT_OK)
        status = mini_rows_run(l, op, "tokens=512,hidden=576", &r, err);
    if (status == VT_OK)
        mini_rows_turn(l, op, r, why_row);
    free(r);
    return status;
}

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
    .knobs = {{"row ", LAB_OFFERED, "rmsnorm", LAB_BY_CARD}},
    .items = {{"compiler", "the compiler of kernels", false},
              {"jit_ready", "whether kernels can be compiled", false},
              {"cache_place", "where compiled kernels are kept", false},
              {"cache", "what the cache holds", false},
              {"template_parameters", "template parameters", false},
              {"compile_flags", "compile flags", false},
              {"dependencies", "what each kernel needs", false},
              {"libraries", "libraries found", false},
              {"tools", "nsys and ncu", false},
              {"kernels", "one compile and run of each kernel", false},
              {"nccl", "NCCL between two GPUs", false},
              {"troubleshooting", "what to do about what is missing", false},
              {"ready", "whether the environment is READY", false},
              {"gpus", "the GPUs of this machine", true},
              {"topology", "sockets, NUMA nodes, caches and links", true}},
    .kernels = true,
    .run = run,
};
