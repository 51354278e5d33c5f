/* Lab sglang 03, last part: whole engines of other levels and libraries, each in a process of its
 * own (engine_run.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "device/cpu.h"
#include "lab/kit/engine_run.h"
#include "lab/sglang/backends.h"
#include "lab/sglang/inside.h"

enum { MOST = 6 };

typedef struct engines {
    char name[MOST][48];
    lab_engine_ask ask[MOST];
    lab_engine_run run[MOST];
    bool ran[MOST];
    char why[MOST][64];
    int32_t n;
} engines;

static void add(engines *e, const lab_engine_ask *base, const char *env, const char *option)
{
    if (e->n == MOST)
        return;
    lab_engine_ask *ask = &e->ask[e->n];
    char *name = e->name[e->n++];
    snprintf(name, sizeof e->name[0], "%s", env ? env : option ? option : "own choice");
    *ask = *base;
    ask->env = env ? name : NULL;
    ask->option[0] = option;
}

static void list_engines(const lab *l, const lab_engine_ask *base, engines *e)
{
    if (l->ordinal >= 0) {
        add(e, base, NULL, NULL);
        add(e, base, "VITRINE_CUDA_LEVEL=80", NULL);
        add(e, base, "VITRINE_CUBLASLT=0", NULL);
        add(e, base, NULL, "--deterministic");
        return;
    }
    /* the portable level takes a minute for what AVX-512 does in a second */
    for (vt_isa isa = l->quick ? VT_ISA_AVX2 : VT_ISA_PORTABLE; isa < VT_ISA_COUNT; isa++) {
        char env[48];
        vt_isa found;
        vt_err why;
        snprintf(env, sizeof env, "VITRINE_ISA=%s", vt_isa_name(isa));
        if (vt_isa_parse(vt_isa_name(isa), &found, &why) == VT_OK)
            add(e, base, env, NULL);
    }
}

static void put_engine(lab *l, const engines *e, int32_t i)
{
    const lab_engine_run *r = &e->run[i];
    bool ran = e->ran[i];
    lab_cells(l, "%s|%d|%f tokens/s|%f tokens/s|%f s|%s", e->name[i], e->ask[i].prompt,
              ran ? r->prefill_tokens_per_s : NAN, ran ? r->decode_tokens_per_s : NAN,
              ran ? r->ttft_s : NAN, ran ? "ran" : e->why[i]);
}

/* ---- knobs ---- */

/* From engine `before` to `after`: of the prompt, or of a decode step. */
static void turn(lab *l, const engines *e, int32_t before, int32_t after, const char *name,
                 const char *where, bool prompt, const char *why)
{
    const lab_engine_run *a = &e->run[before], *b = &e->run[after];
    char what[64];
    snprintf(what, sizeof what, prompt ? "the engine's first token, prompt of %d" : "a decode step",
             e->ask[after].prompt);
    if (!e->ran[before] || !e->ran[after]) {
        lab_turn_missing(l, name, where, what, 1, e->why[e->ran[before] ? after : before]);
        return;
    }
    lab_turn(l, &(lab_knob){.name = name,
                            .where = where,
                            .what = what,
                            .gain = 1,
                            .before_s = prompt ? a->ttft_s : a->token_s,
                            .before_noise = prompt ? a->ttft_noise : a->token_noise,
                            .after_s = prompt ? b->ttft_s : b->token_s,
                            .after_noise = prompt ? b->ttft_noise : b->token_noise,
                            .why = why});
}

static void turn_gpu(lab *l, const engines *e)
{
    enum { OWN, LEVEL_80, NO_CUBLASLT, DETERMINISTIC };
    turn(l, e, LEVEL_80, OWN, "kernel level: this GPU's, not 80", "VITRINE_CUDA_LEVEL", true,
         "the same bytes and FLOPs; on Hopper wgmma and TMA feed the matrix unit, where mma.sync "
         "passes every tile through registers");
    turn(l, e, NO_CUBLASLT, OWN, "cuBLASLt", "VITRINE_CUBLASLT", true,
         "the same bytes and FLOPs: cuBLASLt is taken for the sizes at which it was measured to be "
         "faster, our own kernels for the others");
    turn(l, e, OWN, DETERMINISTIC, "deterministic", "--deterministic", false,
         "the same bytes: only rows with one order of sums are taken, so a decode cannot choose "
         "how finely it is split by what else is in the batch");
    lab_turn_missing(l, "instruction set", "VITRINE_ISA", "a decode step", NAN,
                     "the engine runs on a GPU, whose kernels do not depend on the CPU's "
                     "instructions");
}

static void turn_cpu(lab *l, const engines *e)
{
    char name[2][80], where[80];
    if (e->n > 1) {
        const char *low = strchr(e->name[0], '=') + 1, *high = strchr(e->name[e->n - 1], '=') + 1;
        snprintf(where, sizeof where, "VITRINE_ISA; before: %.20s", low);
        snprintf(name[0], sizeof name[0], "instruction set: %.20s, prompt", high);
        snprintf(name[1], sizeof name[1], "instruction set: %.20s, decode", high);
        turn(l, e, 0, e->n - 1, name[0], where, true,
             "the same bytes, so bytes expect no gain; a prompt computes, and wider instructions "
             "compute more at once");
        turn(l, e, 0, e->n - 1, name[1], where, false,
             "the same bytes, and a decode waits for them: what is gained is the arithmetic that "
             "did not hide behind the reading");
    } else {
        lab_turn_missing(l, "instruction set", "VITRINE_ISA", "a decode step", 1,
                         "this CPU has one of the instruction sets that are compared here");
    }
    lab_turn_missing(l, "kernel level", "VITRINE_CUDA_LEVEL", "a prompt", 1,
                     "it chooses among a GPU's kernels, and no GPU runs this engine");
    lab_turn_missing(l, "cuBLASLt", "VITRINE_CUBLASLT", "a prompt", 1,
                     "it is a library of GPUs, and no GPU runs this engine");
    lab_turn_missing(l, "deterministic", "--deterministic", "a decode step", 1,
                     "on a CPU every sum has one order in any case, so there is nothing to turn");
}

vt_status sglang_whole_engines(lab *l, int32_t prompt, int32_t gen, vt_err *err)
{
    static const lab_engine_ask none = {NULL};
    engines e = {.n = 0};
    lab_engine_ask base = none;
    int32_t ran = 0;
    char why[160];
    base.prompt = l->quick ? 32 : prompt;
    base.gen = gen;
    list_engines(l, &base, &e);
    if (!lab_engine_small(l, why)) {
        lab_missing(l, "whole_engine", "%s", why);
        return VT_OK;
    }
    for (int32_t i = 0; i < e.n; i++) {
        vt_err error;
        vt_status status = lab_engine_child(l, &e.ask[i], &e.run[i], &error);
        if (status == VT_ERR_CANCELLED)
            return vt_fail(err, status, "%s", error.message);
        e.ran[i] = status == VT_OK;
        ran += e.ran[i];
        snprintf(e.why[i], sizeof e.why[i], "%.60s", e.ran[i] ? "" : error.message);
    }
    lab_table(l, "whole_engine",
              "Whole engines of other levels: the linear layers change too, so this is no "
              "comparison of attention",
              "process|>prompt|>prefill tokens/s|>decode tokens/s|>TTFT|what came");
    for (int32_t i = 0; i < e.n; i++)
        put_engine(l, &e, i);
    lab_check(l, ran > 0 || l->ordinal >= 0, "a whole engine of at least one level ran (%d of %d)",
              ran, e.n);
    (l->ordinal >= 0 ? turn_gpu : turn_cpu)(l, &e);
    return VT_OK;
}
