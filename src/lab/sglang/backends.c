/* Lab sglang 03: which attention implementation runs, and what another one would have done.
 *
 *   chosen        the rows of the engine's own program, by size of the step
 *   same inputs   each row alone on the same shapes, checked against the reference
 *   engines       the same requests through an engine with --attention-backend NAME
 *   children      whole engines of another level (VITRINE_ISA, VITRINE_CUDA_LEVEL): these change
 *                 the linear layers too, so they compare engines and not attention */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "lab/profilers/ncu_run.h"
#include "lab/sglang/backends.h"
#include "lab/sglang/inside.h"
#include "story/read.h"

static const char *const attention_op[2] = {"attention_prefill", "attention_decode"};

/* ---- the same inputs ---- */

static vt_status run_shapes(lab *l, comparison *c, vt_err *err)
{
    lab_table(l, "same_inputs", "Each implementation alone on the same inputs", lab_kernel_columns);
    for (int s = 0; s < c->n_shapes; s++)
        for (int b = 0; b < c->n_names; b++) {
            lab_kernel *k = &c->kernel[s][b];
            const char *op = attention_op[c->shape[s].decode];
            vt_err why;
            vt_status status = lab_kernel_run(
                l, &(lab_kernel_ask){.op = op, .shape = c->shape[s].text, .impl = c->name[b]}, k,
                &why);
            c->ran[s][b] = status == VT_OK;
            if (status == VT_ERR_UNSUPPORTED) {
                snprintf(c->missing[b], sizeof c->missing[b], "%s", why.message);
                continue;
            }
            if (status != VT_OK)
                return vt_fail(err, status, "%s", why.message);
            /* the table has no room for the whole text of the shape */
            memcpy(k->shape, c->shape[s].name, sizeof c->shape[s].name);
            lab_kernel_cells(l, k);
        }
    int absent = 0;
    for (int b = 0; b < c->n_names; b++)
        absent += *c->missing[b] != '\0';
    if (absent == c->n_names)
        return vt_fail(err, VT_ERR_USAGE, "--backends: none of them runs on this device (%s)",
                       c->missing[0]);
    for (int b = 0; b < c->n_names; b++)
        if (*c->missing[b])
            lab_finding(l, "backend.missing", "%s was not compared: %s", c->name[b], c->missing[b]);
    return VT_OK;
}

static void tell_shares(lab *l, const comparison *c)
{
    char columns[200];
    size_t used = 0;
    vt_append(columns, sizeof columns, &used, "shape");
    for (int b = 0; b < c->n_names; b++)
        vt_append(columns, sizeof columns, &used, "|>%s", c->name[b]);
    lab_table(l, "roof_share",
              "Least time that the measured roofs allow, divided by the measured time", columns);
    for (int s = 0; s < c->n_shapes; s++) {
        lab_cell(l, "%s", c->shape[s].name);
        for (int b = 0; b < c->n_names; b++)
            lab_cell_number(l, c->ran[s][b] ? c->kernel[s][b].of_roof : NAN, VT_SHARE);
    }
}

static void tell_winners(lab *l, const comparison *c)
{
    lab_table(l, "where_wins", "The fastest of each shape",
              "shape|fastest|>median|second|>median|>ahead by|bound");
    for (int s = 0; s < c->n_shapes; s++) {
        const lab_kernel *best = NULL, *second = NULL;
        for (int b = 0; b < c->n_names; b++) {
            const lab_kernel *k = &c->kernel[s][b];
            if (!c->ran[s][b])
                continue;
            if (!best || k->median_s < best->median_s) {
                second = best;
                best = k;
            } else if (!second || k->median_s < second->median_s)
                second = k;
        }
        if (!best)
            continue;
        lab_cells(l, "%s|%s|%f s|%s|%f s|%f ratio|%s", c->shape[s].name,
                  l->emulated ? "n/a" : best->impl, best->median_s,
                  second && !l->emulated ? second->impl : "n/a", second ? second->median_s : NAN,
                  second ? second->median_s / best->median_s : NAN,
                  best->bound ? best->bound : "n/a");
    }
}

static void tell_occupancy(lab *l, const comparison *c)
{
    if (l->ordinal < 0) {
        lab_item(
            l, "occupancy",
            "a CPU core runs one worker, so there is nothing to fill: %d worker%s the items in "
            "turn. What can leave one idle is the last round, which lab 05 shows as waves",
            l->threads, l->threads == 1 ? " takes" : "s take");
        return;
    }
    lab_table(l, "occupancy", "Warps that an SM can hold, as a share of its most",
              "shape|row|kernel|>registers|>CTAs|>occupancy|limiter|>waves|>tail");
    for (int s = 0; s < c->n_shapes; s++)
        for (int b = 0; b < c->n_names; b++) {
            const lab_kernel *k = &c->kernel[s][b];
            if (!c->ran[s][b])
                continue;
            lab_cells(l, "%s|%s|%.20s|%d|%d|%f share|%s|%.2f|%f share", c->shape[s].name, k->impl,
                      k->kernel, k->registers, k->ctas_per_sm, k->occupancy, k->limited_by,
                      k->waves, k->tail);
        }
}

/* Tells what the warps of each wait for most, on the prefill and on a decode. */
static void tell_stalls(lab *l, const comparison *c)
{
    enum { PREFILL = 1, DECODE = 2 }; /* of make_shapes */
    char why[LAB_NCU_WHY] = "no implementation ran";
    int told = 0;
    for (int s = PREFILL; s <= DECODE; s++)
        for (int b = 0; b < c->n_names; b++) {
            char csv[96];
            lab_counters n;
            const lab_kernel *k = &c->kernel[s][b];
            snprintf(csv, sizeof csv, "ncu_%s_%.24s.csv", s == PREFILL ? "prefill" : "decode",
                     k->impl);
            if (!c->ran[s][b] ||
                !lab_ncu_read(l,
                              &(lab_kernel_ask){.op = attention_op[s == DECODE],
                                                .shape = c->shape[s].text,
                                                .impl = k->impl},
                              "attention", csv, &n, why) ||
                !(n.stalled > 0))
                continue;
            if (told++ == 0)
                lab_table(l, "stalls", "What warps wait for, read by ncu; share of the named waits",
                          "shape|row|largest reason|>share|meaning|>matrix unit|>issue");
            lab_cells(l, "%s|%s|%s|%f share|%s|%f share|%f share", c->shape[s].name, k->impl,
                      lab_ncu_stall_name(n.largest), n.stall[n.largest] / n.stalled,
                      lab_ncu_stall_meaning(n.largest), n.tensor, n.issue);
        }
    if (!told)
        lab_missing(l, "stalls", "%s", why);
}

/* ---- engines ---- */

static double attention_us(const json_t *story, const char *phase_name, const char *op)
{
    size_t i;
    json_t *o;
    char name[STORY_TEXT];
    double sum = NAN;
    json_array_foreach(story_get(story_phase_named(story, phase_name), "ops"), i,
                       o) if (strcmp(story_text(o, "op", name), op) == 0)
        sum = story_num(o, "time_us");
    return sum;
}

static vt_status run_engine(lab *l, comparison *c, int b, vt_err *err)
{
    engine_run *e = &c->engine[b];
    vt_engine *engine = NULL;
    int32_t *ids = NULL;
    vt_status status = sglang_open(l, (const char *const[]){"attention-backend", c->name[b], NULL},
                                   2, &engine, err);
    if (status == VT_OK)
        status = sglang_prompt(l, 3, NULL, 0, c->prompt, &ids, err);
    e->r = (lab_request){.prompt = ids, .n_prompt = c->prompt, .n_gen = c->gen};
    if (status == VT_OK)
        status = lab_requests_run(l, engine, &e->r, 1, err);
    if (status == VT_OK)
        status = lab_story(l, engine, e->r.id, &e->story, err);
    e->ran = status == VT_OK;
    vt_engine_free(engine);
    return status;
}

static void put_engine(lab *l, const comparison *c, int b, const engine_run *first)
{
    const engine_run *e = &c->engine[b];
    int32_t equal = 0;
    while (equal < c->gen && e->r.token[equal] == first->r.token[equal])
        equal++;
    lab_cells(l, "%s|%f s|%f s|%f s|%f s|%d of %d", c->name[b],
              attention_us(e->story, "prefill", attention_op[0]) * 1e-6,
              attention_us(e->story, "decode", attention_op[1]) * 1e-6, sglang_step_s(e->story),
              e->r.ttft_s, equal, c->gen);
}

static vt_status run_engines(lab *l, comparison *c, vt_err *err)
{
    const engine_run *first = NULL;
    for (int b = 0; b < c->n_names; b++) {
        vt_err why;
        vt_status status = *c->missing[b] ? VT_ERR_UNSUPPORTED : run_engine(l, c, b, &why);
        if (status == VT_ERR_UNSUPPORTED || status == VT_ERR_USAGE)
            continue; /* run_shapes has said why */
        if (status != VT_OK)
            return vt_fail(err, status, "%s", why.message);
    }
    lab_table(l, "engines", "The same request through an engine of each (--attention-backend)",
              "backend|>prefill attention|>decode attention|>decode step|>TTFT|>same tokens");
    for (int b = 0; b < c->n_names; b++) {
        if (!c->engine[b].ran)
            continue;
        first = first ? first : &c->engine[b];
        put_engine(l, c, b, first);
    }
    lab_check(l, first != NULL, "an engine ran with at least one of the implementations");
    return VT_OK;
}

/* ---- all ---- */

static void make_shapes(lab *l, const sglang_heads *h, comparison *c)
{
    static const struct {
        int32_t seqs, q_len, kv_len;
    } wanted[MAX_SHAPES] = {{1, 128, 1024}, {1, 512, 512}, {1, 1, 1024}, {8, 1, 1024}};
    for (int i = 0; i < MAX_SHAPES; i++) {
        int32_t shrink = l->emulated ? 8 : 1, q = wanted[i].q_len, kv = wanted[i].kv_len / shrink;
        backend_shape *s = &c->shape[c->n_shapes++];
        s->decode = q == 1;
        q = s->decode ? 1 : q / shrink;
        sglang_attention_shape(l, h, wanted[i].seqs, q, kv, s->text);
        snprintf(s->name, sizeof s->name, s->decode ? "decode %d x %d" : "prefill %d of %d",
                 s->decode ? wanted[i].seqs : q, kv);
    }
}

/* Why an implementation gains where the bytes are equal: [on a GPU][of a decode]. */
static const char *const turn_why[2][2] = {
    {"the bytes are equal, so bytes expect no gain; a prefill computes, and wider instructions do "
     "more a cycle",
     "the bytes are equal, so bytes expect no gain; they come from a cache here, and wider loads "
     "ask for more of them at once"},
    {"the bytes are equal, so bytes expect no gain; a prefill computes, and fa3 multiplies tiles "
     "from shared memory that TMA fills, where fa2 passes them through registers",
     "the bytes are equal, so bytes expect no gain; a decode waits for memory, and what helps is "
     "more loads under way at once"}};

/* The last implementation in place of the first, on a prefill and on a decode. */
static void turn(lab *l, const comparison *c)
{
    enum { PREFILL = 1, DECODE = 2 }; /* of make_shapes */
    for (int s = PREFILL; s <= DECODE; s++) {
        int first = -1, last = -1;
        char name[96];
        for (int b = 0; b < c->n_names; b++)
            if (c->ran[s][b]) {
                first = first < 0 ? b : first;
                last = b;
            }
        if (first == last)
            continue;
        const lab_kernel *a = &c->kernel[s][first], *b = &c->kernel[s][last];
        snprintf(name, sizeof name, "%s, %.24s", s == PREFILL ? "prefill" : "decode", b->impl);
        lab_turn_kernels(l, name, "--attention-backend", c->shape[s].name,
                         a->expected_s / b->expected_s, a, b,
                         turn_why[l->ordinal >= 0][s == DECODE]);
    }
}

/* The prediction is about the row that an engine chooses, which should be the fastest. */
static void grade(lab *l, const comparison *c)
{
    enum { ONE_DECODE = 2 }; /* the shape "decode 1 x 1024" */
    const lab_kernel *best = NULL;
    for (int b = 0; b < c->n_names; b++) {
        const lab_kernel *k = &c->kernel[ONE_DECODE][b];
        if (c->ran[ONE_DECODE][b] && (!best || k->median_s < best->median_s))
            best = k;
    }
    if (best)
        lab_outcome(l, "attention of a decode at 1,024 tokens", best->median_s, best->disturbed);
}

static vt_status measure(lab *l, comparison *c, vt_err *err)
{
    sglang_heads heads;
    TRY(sglang_read_backends(l, c->name, &c->n_names, err));
    c->prompt = l->quick ? 96 : 512;
    c->gen = l->quick ? 8 : 32;
    TRY(sglang_model_heads(l, &heads, err));
    make_shapes(l, &heads, c);
    if (l->emulated)
        lab_predict(l, "attention of a decode at 1,024 tokens", NAN, VT_SECONDS,
                    "an emulated GPU has no speed");
    else
        TRY(sglang_run_auto(l, c->prompt, c->gen, err));
    TRY(run_shapes(l, c, err));
    grade(l, c);
    tell_shares(l, c);
    tell_winners(l, c);
    tell_occupancy(l, c);
    turn(l, c);
    tell_stalls(l, c);
    if (l->emulated) {
        static const char *const key[] = {"chosen", "plan_cost", "engines", "whole_engine"};
        for (int i = 0; i < 4; i++)
            lab_missing(l, key[i], "an emulated GPU is too slow to run a model's requests");
        return VT_OK;
    }
    TRY(run_engines(l, c, err));
    return sglang_whole_engines(l, c->prompt, c->gen, err);
}

static vt_status run(lab *l, vt_err *err)
{
    comparison *c = calloc(1, sizeof *c);
    if (!c)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a comparison");
    vt_status status = measure(l, c, err);
    for (int b = 0; b < c->n_names; b++) {
        sglang_release(&c->engine[b].r, 1);
        json_decref(c->engine[b].story);
    }
    free(c);
    return status;
}

const lab_def sglang_backends = {
    .track = LAB_SGLANG,
    .number = "03",
    .name = "backend_comparison",
    .goal = "You can say which attention implementation runs, why, and where another would be "
            "faster.",
    .about = {"Each implementation computes the same attention; the reference checks each.",
              "A decode reads K and V of its context once and computes little.",
              "A prefill computes much for each byte: there the implementations differ most."},
    .alias = {"03_backend_comparison.py"},
    .knobs = {{"fa3-tiles", LAB_OFFERED, "attention_decode", "--attention-backend fa3-tiles"},
              {"prefill, ", LAB_RUNS, "prefill attention_prefill", NULL,
               "the attention of a prompt has a kernel of its own for this machine's instructions"},
              {"decode, ", LAB_RUNS, "attention_decode", NULL,
               "the attention of a decode has a kernel of its own for this machine's instructions"},
              {"VITRINE_CUDA_LEVEL", LAB_RUNS, LAB_FIRST, NULL,
               "kernels are compiled for this GPU, not for the oldest that would do"},
              {"VITRINE_CUBLASLT", LAB_RUNS, LAB_FIRST, NULL,
               "matrix products go to cuBLASLt for the sizes at which it was measured to be "
               "faster, and to our own kernels for the others"},
              {"prompt", LAB_RUNS, LAB_FIRST, NULL,
               "prompts use the widest vectors that the CPU has"},
              {"VITRINE_ISA", LAB_RUNS, LAB_STEP, NULL,
               "decodes use the widest vectors that the CPU has"},
              {"--deterministic", LAB_OFFERED, LAB_STEP, "--deterministic"}},
    .items = {{"chosen", "which attention implementation is chosen at which size, and why", false},
              {"plan_cost", "the plans of a step: who shares them, bytes, host time", false},
              {"same_inputs", "the same inputs through each implementation", false},
              {"engines", "the same requests through an engine of each", false},
              {"whole_engine", "whole engines of other levels", false},
              {"stalls", "stall reasons of each", true},
              {"occupancy", "occupancy of each and its limiter", true},
              {"roof_share", "share of its roof that each reaches", true},
              {"where_wins", "where each wins", true}},
    .kernels = true,
    .run = run,
};
