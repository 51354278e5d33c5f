/* The whole forward pass against transformers: the logits of every position for the tiny models of
 * tools/fixtures/make_models.py. Each prompt runs whole, in uneven chunks, and token by token.
 *
 * Tolerance: |got - want| <= 1e-4 * (the largest |want| of the row) if products are exact in fp32
 * or nearly so. Both sides sum in fp32, in different orders, and logits are of order 1 to 10.
 * Quantised weights: the portable code multiplies them in fp32 too. The other implementations
 * quantise activations to 8 bits in blocks, which costs about 0.5 % per matrix. The sharp attention
 * of these models turns that into 2 % of the logits' deviation and up to 7 % of a row's peak. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#include "device/cpu.h"
#include "exec/cpu_inside.h"
#include "exec/program.h"
#include "model/load.h"

#define MODELS "tests/golden/models/"

enum { MAX_PROMPT = 64, PAGE = 4, PAGES = MAX_PROMPT / PAGE };

typedef struct golden_case {
    const char *model;  /* folder or file under MODELS */
    const char *golden; /* its logits */
    bool quantised;
    vt_dtype kv;
    float kv_scale; /* scale of every layer's K; V has half of it; 0 stands for 1 */
    int32_t ranks;  /* 0 stands for 1 */
} golden_case;

/* ---- the fixture ---- */

typedef struct prompt {
    int32_t n, vocab;
    int32_t ids[MAX_PROMPT];
    float *logits; /* [n, vocab] */
} prompt;

static void read_prompt(FILE *f, int32_t vocab, prompt *p)
{
    p->vocab = vocab;
    assert_int_equal(fread(&p->n, sizeof p->n, 1, f), 1);
    assert_in_range(p->n, 1, MAX_PROMPT);
    size_t n = (size_t)p->n * (size_t)vocab;
    p->logits = malloc(n * sizeof *p->logits);
    assert_non_null(p->logits);
    assert_int_equal(fread(p->ids, sizeof *p->ids, (size_t)p->n, f), p->n);
    assert_int_equal(fread(p->logits, sizeof *p->logits, n, f), n);
}

/* ---- running ---- */

/* Fails if a rank has other logits than rank 0, or another token. */
static void compare_ranks(const vt_executor *base, int32_t rows)
{
    const cpu_executor *x = (const cpu_executor *)base;
    size_t n = (size_t)rows * (size_t)x->model->arch.vocab;
    const vt_program *first = x->rank[0].prog;
    for (int32_t r = 1; r < x->n_ranks; r++) {
        const vt_program *p = x->rank[r].prog;
        assert_memory_equal(p->logits->data, first->logits->data, n * sizeof(float));
        assert_memory_equal(p->token->data, first->token->data, (size_t)rows * sizeof(int32_t));
    }
}

/* Runs one step with ids [begin, end) of the sequence and wants the logits of every position.
 * *worst becomes the largest relative error of the rows. */
static void run_chunk(vt_executor *x, uint64_t id, const prompt *p, int32_t begin, int32_t end,
                      double *worst)
{
    int32_t n = end - begin, position[MAX_PROMPT], seq_of[MAX_PROMPT] = {0}, slot[MAX_PROMPT];
    int32_t page_ids[PAGES], row_token[MAX_PROMPT], state_from = begin > 0 ? 0 : -1, state_to = 0;
    vt_sample_row rows[MAX_PROMPT];
    for (int32_t i = 0; i < PAGES; i++)
        page_ids[i] = (i * 5 + 3) % PAGES; /* not in order: a wrong page shows */
    for (int32_t i = 0; i < n; i++) {
        position[i] = begin + i;
        slot[i] = page_ids[position[i] / PAGE] * PAGE + position[i] % PAGE;
        row_token[i] = i;
        rows[i] = (vt_sample_row){.top_p = 1,
                                  .repetition_penalty = 1,
                                  .n_top = -1,
                                  .pool_slot = -1,
                                  .target = -1,
                                  .pending_slot = -1};
    }
    int32_t q_start[2] = {0, n}, kv_len[1] = {end}, page_start[2] = {0, (end + PAGE - 1) / PAGE};
    vt_step step = {.id = id,
                    .rows = rows,
                    .batch = {.n_tokens = n,
                              .n_seqs = 1,
                              .n_decode = n == 1,
                              .n_rows = n,
                              .n_pages = page_start[1],
                              .page_size = PAGE,
                              .token = p->ids + begin,
                              .position = position,
                              .seq_of = seq_of,
                              .slot = slot,
                              .q_start = q_start,
                              .kv_len = kv_len,
                              .page_start = page_start,
                              .page_ids = page_ids,
                              .state_from = &state_from,
                              .state_to = &state_to,
                              .row_token = row_token}};
    vt_step_result result;
    vt_err err = {0};
    if (x->launch(x, &step, &err) != VT_OK || x->wait(x, &result, &err) != VT_OK)
        fail_msg("%s", err.message);
    compare_ranks(x, n);
    const float *got = x->program(x)->logits->data;
    for (int32_t i = 0; i < n; i++) {
        const float *want = p->logits + (int64_t)(begin + i) * p->vocab;
        double peak = 0, error = 0;
        for (int32_t v = 0; v < p->vocab; v++) {
            double e = fabs((double)got[(int64_t)i * p->vocab + v] - (double)want[v]);
            error = e > error || isnan(e) ? e : error;
            peak = fmax(peak, fabs((double)want[v]));
        }
        if (!(error / peak <= *worst))
            *worst = error / peak;
    }
}

/* Runs the prompt in chunks of `chunk` tokens; the last one may be shorter. */
static double run_prompt(vt_executor *x, const prompt *p, int32_t chunk)
{
    double worst = 0;
    for (int32_t at = 0; at < p->n; at += chunk)
        run_chunk(x, (uint64_t)at + 1, p, at, at + chunk < p->n ? at + chunk : p->n, &worst);
    return worst;
}

static double tolerance_of(const golden_case *c)
{
    if (c->quantised && vt_cpu_get()->level != VT_ISA_PORTABLE)
        return 0.1;
    return c->kv == VT_FP8_E4M3 ? 0.25 : c->kv == VT_F16 ? 5e-3 : 1e-4;
}

static void run_case(const golden_case *c)
{
    static const int32_t chunk[] = {MAX_PROMPT, 5, 1};
    char path[300];
    vt_model *m;
    vt_executor *x;
    vt_err err = {0};
    int32_t head[2];
    double tolerance = tolerance_of(c);
    snprintf(path, sizeof path, MODELS "%s", c->model);
    if (vt_model_load(path, &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    if (c->ranks > m->arch.n_heads) { /* a rank has a head at least */
        vt_model_free(m);
        return;
    }
    for (int32_t i = 0; c->kv_scale > 0 && i < m->arch.n_layers; i++) {
        m->layer[i].kv_k_scale = c->kv_scale;
        m->layer[i].kv_v_scale = c->kv_scale / 2;
    }
    vt_executor_config config = {.limits = {.max_tokens = MAX_PROMPT,
                                            .max_seqs = 1,
                                            .max_rows = MAX_PROMPT,
                                            .max_context = MAX_PROMPT,
                                            .page_size = PAGE,
                                            .n_workers = 2},
                                 .n_pages = PAGES,
                                 .n_pool_slots = 1,
                                 .n_states = 1,
                                 .kv_dtype = c->kv,
                                 .n_ranks = c->ranks,
                                 .n_threads = c->ranks > 2 ? 1 : 2};
    if (vt_executor_cpu_new(m, &config, &x, &err) != VT_OK)
        fail_msg("%s", err.message);
    snprintf(path, sizeof path, MODELS "%s", c->golden);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(head, sizeof *head, 2, f), 2);
    assert_int_equal(head[1], m->arch.vocab);
    double worst = 0;
    for (int32_t i = 0; i < head[0]; i++) {
        prompt p;
        read_prompt(f, head[1], &p);
        for (size_t k = 0; k < sizeof chunk / sizeof *chunk; k++) {
            double w = run_prompt(x, &p, chunk[k]);
            if (!(w <= tolerance))
                fail_msg("%s: prompt of %d in chunks of %d: relative error %.3g, %.3g allowed",
                         c->model, p.n, chunk[k], w, tolerance);
            worst = fmax(worst, w);
        }
        free(p.logits);
    }
    print_message("%-32s %d ranks, largest relative error %.2g\n", c->model,
                  c->ranks ? c->ranks : 1, worst);
    fclose(f);
    x->free(x);
    vt_model_free(m);
}

static void run_cases(const golden_case *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        run_case(&c[i]);
}

#define FOLDER(name)                                  \
    {                                                 \
        name, name "/golden.bin", false, VT_F32, 0, 0 \
    }

static void test_logits_of_llama_and_mistral_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("llama-mha-llama3"),       FOLDER("llama-gqa8-llama3-f32"),
        FOLDER("llama-gqa3-linear-bias"), FOLDER("llama-gqa2-yarn"),
        FOLDER("mistral-gqa4-window"),    FOLDER("mistral-full-f16-sharded"),
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

static void test_logits_of_qwen_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("qwen2-gqa7"), FOLDER("qwen2-window"),    FOLDER("qwen3-gqa2"),
        FOLDER("qwen3-fp8"),  FOLDER("qwen3-gqa5-yarn"),
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

static void test_logits_of_qwen_with_experts_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {FOLDER("qwen3moe-norm-mixed"), FOLDER("qwen3moe-raw"),
                                        FOLDER("qwen3moe-fp8")};
    run_cases(cases, sizeof cases / sizeof *cases);
}

static void test_logits_of_gemma_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {FOLDER("gemma2-caps"), FOLDER("gemma3-windows"),
                                        FOLDER("gemma3-six-linear")};
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* Heads of two sizes, values that are normalised or made of keys, embeddings for each layer, layers
 * that read another's keys and values and are wider, factors of layers, capped logits; experts
 * beside a feed-forward. The folder with embeddings is as published ones are: nested names and
 * config, projections of keys and values that no layer uses. */
static void test_logits_of_gemma4_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("gemma4-per-layer"),
        {"gemma4-per-layer-BF16.gguf", "gemma4-per-layer/golden.bin", false, VT_F32, 0, 0},
        FOLDER("gemma4-experts"),
        {"gemma4-experts-BF16.gguf", "gemma4-experts/golden.bin", false, VT_F32, 0, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

static void test_logits_of_granite_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("granite-four-scales"),
        {"granite-four-scales-BF16.gguf", "granite-four-scales/golden.bin", false, VT_F32, 0, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

static void test_logits_of_smollm3_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("smollm3-nope"),
        {"smollm3-nope-BF16.gguf", "smollm3-nope/golden.bin", false, VT_F32, 0, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

static void test_logits_of_olmo2_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("olmo2-whole-norms"),
        {"olmo2-whole-norms-BF16.gguf", "olmo2-whole-norms/golden.bin", false, VT_F32, 0, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* Linear attention, which has a state in place of keys and values; the folder with experts is as
 * published ones are: names, config and stacked experts of a larger model, of which parts are not
 * run. Qwen3-Next has the projections key head by key head, in FP8 with scales of blocks. */
static void test_logits_of_qwen_with_delta_rules_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("qwen35-delta"),
        FOLDER("qwen35moe-outer"),
        {"qwen35-delta-BF16.gguf", "qwen35-delta/golden.bin", false, VT_F32, 0, 0},
        {"qwen35moe-outer-BF16.gguf", "qwen35moe-outer/golden.bin", false, VT_F32, 0, 0},
        FOLDER("qwen3next-key-heads"),
        {"qwen3next-key-heads-BF16.gguf", "qwen3next-key-heads/golden.bin", false, VT_F32, 0, 0},
        FOLDER("qwen3next-fp8"),
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* Short convolutions, whose sequences have a state, beside attention; experts behind a dense layer.
 */
static void test_logits_of_lfm2_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("lfm2-conv"),
        {"lfm2-conv-BF16.gguf", "lfm2-conv/golden.bin", false, VT_F32, 0, 0},
        FOLDER("lfm2moe-conv"),
        {"lfm2moe-conv-BF16.gguf", "lfm2moe-conv/golden.bin", false, VT_F32, 0, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* State spaces beside attention without positions, and with them beside experts, to whose shares
 * the factor of the residual stream belongs. */
static void test_logits_of_granite_with_state_spaces_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("granite4-mamba"),
        {"granite4-mamba-BF16.gguf", "granite4-mamba/golden.bin", false, VT_F32, 0, 0},
        FOLDER("granite4moe-mamba"),
        {"granite4moe-mamba-BF16.gguf", "granite4moe-mamba/golden.bin", false, VT_F32, 0, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* Layers of one block each: state spaces, attention, and feed-forwards and
 * experts without a gate. */
static void test_logits_of_layers_with_one_block_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("nemotronh-mamba"),
        {"nemotronh-mamba-BF16.gguf", "nemotronh-mamba/golden.bin", false, VT_F32, 0, 0},
        FOLDER("nemotronh-experts"),
        {"nemotronh-experts-BF16.gguf", "nemotronh-experts/golden.bin", false, VT_F32, 0, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* Windows whose layers rotate otherwise, or alone; q, k and v, or gate and up, in one matrix; both
 * lists of longrope; pairs of half a head; norms of rotated heads; queries that grow with their
 * position; a text model among others. */
static void test_logits_of_families_with_a_knob_or_two_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("olmo3-windows-yarn"),
        {"olmo3-windows-yarn-BF16.gguf", "olmo3-windows-yarn/golden.bin", false, VT_F32, 0, 0},
        FOLDER("phi3-longrope"),
        {"phi3-longrope-BF16.gguf", "phi3-longrope/golden.bin", false, VT_F32, 0, 0},
        FOLDER("phi3-longrope-beyond"),
        FOLDER("glm4-interleaved"),
        {"glm4-interleaved-BF16.gguf", "glm4-interleaved/golden.bin", false, VT_F32, 0, 0},
        FOLDER("exaone4-windows-nope"),
        {"exaone4-windows-nope-BF16.gguf", "exaone4-windows-nope/golden.bin", false, VT_F32, 0, 0},
        FOLDER("hunyuan-rotated-norms"),
        {"hunyuan-rotated-norms-BF16.gguf", "hunyuan-rotated-norms/golden.bin", false, VT_F32, 0,
         0},
        FOLDER("hunyuanmoe-shared"),
        {"hunyuanmoe-shared-BF16.gguf", "hunyuanmoe-shared/golden.bin", false, VT_F32, 0, 0},
        FOLDER("ministral3-temper"),
        {"ministral3-temper-BF16.gguf", "ministral3-temper/golden.bin", false, VT_F32, 0, 0},
        FOLDER("mistral3-nested"),
        FOLDER("qwen3vl-nested"),
        {"qwen3vl-nested-BF16.gguf", "qwen3vl-nested/golden.bin", false, VT_F32, 0, 0},
        FOLDER("qwen3vlmoe-transposed"),
        FOLDER("qwen3vlmoe-saved"),
        {"qwen3vlmoe-transposed-BF16.gguf", "qwen3vlmoe-transposed/golden.bin", false, VT_F32, 0,
         0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* Sinks, biases of experts and of the router, a clamped activation; experts in BF16 and as blocks
 * of MXFP4, which the GGUF file has in its own order. */
static void test_logits_of_gpt_oss_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("gpt-oss-sinks"),
        {"gpt-oss-mxfp4", "gpt-oss-mxfp4/golden.bin", true, VT_F32, 0, 0},
        {"gpt-oss-mxfp4-BF16.gguf", "gpt-oss-mxfp4/golden.bin", true, VT_F32, 0, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* Routers of sigmoids with a bias for the choice, among groups and without them; a dense layer
 * before experts, shared experts, layers behind the last one; norms of all heads; other names of
 * experts. */
static void test_logits_of_sigmoid_routers_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("glm4moe-groups"),
        {"glm4moe-groups-BF16.gguf", "glm4moe-groups/golden.bin", false, VT_F32, 0, 0},
        FOLDER("minimaxm2-whole-norms"),
        {"minimaxm2-whole-norms-BF16.gguf", "minimaxm2-whole-norms/golden.bin", false, VT_F32, 0,
         0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* Latent attention: q with a latent and without, YaRN's factor of scores, heads whose v is longer
 * than their k, an epsilon of their own for norms of latents, FP8 whose blocks of scales do not end
 * where heads do. */
static void test_logits_of_latent_attention_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        FOLDER("deepseekv2-latents"),
        {"deepseekv2-latents-BF16.gguf", "deepseekv2-latents/golden.bin", false, VT_F32, 0, 0},
        FOLDER("deepseekv3-groups"),
        {"deepseekv3-groups-BF16.gguf", "deepseekv3-groups/golden.bin", false, VT_F32, 0, 0},
        FOLDER("deepseekv3-fp8"),
        FOLDER("glm4moelite-latents"),
        {"glm4moelite-latents-BF16.gguf", "glm4moelite-latents/golden.bin", false, VT_F32, 0, 0},
        FOLDER("kimi-linear-channels"), /* not rotated, beside delta attention */
        {"kimi-linear-channels-BF16.gguf", "kimi-linear-channels/golden.bin", false, VT_F32, 0, 0},
        FOLDER("mistral4-temper"),
        {"mistral4-temper-BF16.gguf", "mistral4-temper/golden.bin", false, VT_F32, 0, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* The same weights through the other format: permuted q and k, folded norms, tables of
 * frequencies. */
static void test_logits_of_gguf_twins_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        {"llama-mha-llama3-BF16.gguf", "llama-mha-llama3/golden.bin", false, VT_F32, 0, 0},
        {"qwen2-gqa7-BF16.gguf", "qwen2-gqa7/golden.bin", false, VT_F32, 0, 0},
        {"qwen3-gqa5-yarn-BF16.gguf", "qwen3-gqa5-yarn/golden.bin", false, VT_F32, 0, 0},
        {"qwen3moe-norm-mixed-BF16.gguf", "qwen3moe-norm-mixed-BF16.bin", false, VT_F32, 0, 0},
        {"gemma2-caps-BF16.gguf", "gemma2-caps/golden.bin", false, VT_F32, 0, 0},
        {"gemma3-six-linear-BF16.gguf", "gemma3-six-linear/golden.bin", false, VT_F32, 0, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

static void test_logits_of_quantised_models_stay_near_their_dequantised_twins(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        {"llama-quantised-Q8_0.gguf", "llama-quantised-Q8_0.bin", true, VT_F32, 0, 0},
        {"llama-quantised-Q4_K.gguf", "llama-quantised-Q4_K.bin", true, VT_F32, 0, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

#define INT4(name, ranks)                                \
    {                                                    \
        name, name "/golden.bin", true, VT_F32, 0, ranks \
    }

/* AWQ, GPTQ and compressed-tensors: with zeros and without, groups of 32, 64, 128 and whole rows,
 * scales in F16 and BF16, both formats of GPTQ's zeros, modules left out, biases, experts. */
static void test_logits_of_packed_4_bit_folders_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        INT4("int4-awq", 0),        INT4("int4-awq-experts", 0),  INT4("int4-gptq", 0),
        INT4("int4-gptq-zeros", 0), INT4("int4-gptq-v2", 0),      INT4("int4-gptq-experts", 0),
        INT4("int4-packed", 0),     INT4("int4-packed-zeros", 0), INT4("int4-packed-experts", 0),
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

static void test_logits_of_packed_4_bit_folders_over_ranks_equal_transformers(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        INT4("int4-awq", 2),
        INT4("int4-awq-experts", 2),
        INT4("int4-gptq-zeros", 2),
        INT4("int4-packed-experts", 2),
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* The default KV type. Rounding K and V to 11 bits moves the logits of these models, whose
 * attention is sharp, by up to 2e-3 of a row's peak. */
static void test_logits_with_an_f16_cache_move_by_its_rounding(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        {"llama-gqa3-linear-bias", "llama-gqa3-linear-bias/golden.bin", false, VT_F16, 0, 0},
        {"mistral-gqa4-window", "mistral-gqa4-window/golden.bin", false, VT_F16, 0, 0},
        {"gemma2-caps", "gemma2-caps/golden.bin", false, VT_F16, 0, 0},
        {"gemma3-windows", "gemma3-windows/golden.bin", false, VT_F16, 0, 0},
        {"deepseekv2-latents", "deepseekv2-latents/golden.bin", false, VT_F16, 0, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* FP8 has four bits of mantissa. Scales change how values are rounded and nothing else. A scale
 * that is forgotten when storing or loading, or applied twice, moves the logits by their own
 * size. */
static void test_logits_with_an_fp8_cache_move_by_its_rounding(void **state)
{
    (void)state;
    static const golden_case cases[] = {
        {"llama-gqa3-linear-bias", "llama-gqa3-linear-bias/golden.bin", false, VT_FP8_E4M3, 0, 0},
        {"mistral-gqa4-window", "mistral-gqa4-window/golden.bin", false, VT_FP8_E4M3, 0, 0},
        {"gemma3-windows", "gemma3-windows/golden.bin", false, VT_FP8_E4M3, 0, 0},
        {"qwen3-fp8", "qwen3-fp8/golden.bin", false, VT_FP8_E4M3, 0, 0},
        {"qwen3-fp8", "qwen3-fp8/golden.bin", false, VT_FP8_E4M3, 0.07f, 0},
        {"llama-gqa3-linear-bias", "llama-gqa3-linear-bias/golden.bin", false, VT_FP8_E4M3, 3, 0},
    };
    run_cases(cases, sizeof cases / sizeof *cases);
}

/* Every family, dense and with experts, with uneven heads and with KV heads on several ranks. */
static void test_logits_over_ranks_equal_transformers(void **state)
{
    (void)state;
    golden_case cases[] = {
        FOLDER("llama-mha-llama3"),
        FOLDER("llama-gqa8-llama3-f32"),
        FOLDER("llama-gqa3-linear-bias"),
        FOLDER("mistral-gqa4-window"),
        FOLDER("qwen2-gqa7"),
        FOLDER("qwen3-gqa5-yarn"),
        FOLDER("qwen3moe-norm-mixed"),
        FOLDER("qwen3moe-raw"),
        FOLDER("gemma2-caps"),
        FOLDER("gemma3-windows"),
        FOLDER("gemma3-six-linear"),
        FOLDER("granite-four-scales"),
        FOLDER("smollm3-nope"),
        FOLDER("phi3-longrope"),
        FOLDER("glm4-interleaved"),
        FOLDER("exaone4-windows-nope"),
        FOLDER("hunyuan-rotated-norms"),
        FOLDER("ministral3-temper"),
        {"qwen3moe-norm-mixed-BF16.gguf", "qwen3moe-norm-mixed-BF16.bin", false, VT_F32, 0, 0},
        {"mistral-gqa4-window", "mistral-gqa4-window/golden.bin", false, VT_F16, 0, 0},
    };
    for (int32_t ranks = 2; ranks <= 4; ranks++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            cases[i].ranks = ranks;
            run_case(&cases[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_of_llama_and_mistral_equal_transformers),
        cmocka_unit_test(test_logits_of_qwen_equal_transformers),
        cmocka_unit_test(test_logits_of_qwen_with_experts_equal_transformers),
        cmocka_unit_test(test_logits_of_gemma_equal_transformers),
        cmocka_unit_test(test_logits_of_gemma4_equal_transformers),
        cmocka_unit_test(test_logits_of_granite_equal_transformers),
        cmocka_unit_test(test_logits_of_smollm3_equal_transformers),
        cmocka_unit_test(test_logits_of_olmo2_equal_transformers),
        cmocka_unit_test(test_logits_of_qwen_with_delta_rules_equal_transformers),
        cmocka_unit_test(test_logits_of_lfm2_equal_transformers),
        cmocka_unit_test(test_logits_of_granite_with_state_spaces_equal_transformers),
        cmocka_unit_test(test_logits_of_layers_with_one_block_equal_transformers),
        cmocka_unit_test(test_logits_of_families_with_a_knob_or_two_equal_transformers),
        cmocka_unit_test(test_logits_of_gpt_oss_equal_transformers),
        cmocka_unit_test(test_logits_of_sigmoid_routers_equal_transformers),
        cmocka_unit_test(test_logits_of_latent_attention_equal_transformers),
        cmocka_unit_test(test_logits_of_gguf_twins_equal_transformers),
        cmocka_unit_test(test_logits_with_an_f16_cache_move_by_its_rounding),
        cmocka_unit_test(test_logits_with_an_fp8_cache_move_by_its_rounding),
        cmocka_unit_test(test_logits_of_quantised_models_stay_near_their_dequantised_twins),
        cmocka_unit_test(test_logits_of_packed_4_bit_folders_equal_transformers),
        cmocka_unit_test(test_logits_of_packed_4_bit_folders_over_ranks_equal_transformers),
        cmocka_unit_test(test_logits_over_ranks_equal_transformers),
    };
    return cmocka_run_group_tests_name("golden_logits", tests, NULL, NULL);
}
