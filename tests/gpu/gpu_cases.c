/* The cases. linear: tokens, type, cols, rows of up to three parts, epilogue, flags (1 bias, 2
 * residual, 8 paired, 16 FP8 with a scale a block, 32 FP8 with one a part); attention: sequences,
 * q_len, kv_len, 1000 heads + kv_heads, head_dim, pool type, page, window. Token numbers straddle
 * the borders between kernels and tiles: 8, 16, 32 (small), 64, 128 (GEMM). */
#include "gpu_cases.h"

#include "model/model.h"
#include "ops/access.h"
#include "ops/cases.h"
#include "ops/kv_store/kv_store.h"
#include "ops/moe/moe.h"
#include "ops/sample/sample.h"

#define LINEAR(what, bench_, ...)                                                 \
    {                                                                             \
        .op = "linear", .c = {.name = what, .p = {__VA_ARGS__}, .bench = bench_ } \
    }
#define HEAD(what, bench_, ...)                                                                    \
    {                                                                                              \
        .op = "linear", .f32_out = true, .c = {.name = what, .p = {__VA_ARGS__}, .bench = bench_ } \
    }
#define CASE(op_, what, bench_, ...)                                         \
    {                                                                        \
        .op = op_, .c = {.name = what, .p = {__VA_ARGS__}, .bench = bench_ } \
    }

/* A quantised type: one launch and two, half and whole groups of rows (fewer and more than 16 rows
 * an SM), pairs and stacked parts whose rows do not fill their tiles, a last unit of one to three
 * chunks, panels under every epilogue. */
#define QUANT(name, t)                                                                           \
    LINEAR(name " 1 x 960 x 576", false, 1, t, 576, 576, 192, 192, LINEAR_NONE, 1),              \
        LINEAR(name " 9 x 2500 x 160 residual", false, 9, t, 160, 2500, 0, 0, LINEAR_NONE, 2),   \
        LINEAR(name " 20 x 3000 x 224 swiglu", false, 20, t, 224, 1500, 1500, 0, LINEAR_SWIGLU,  \
               8),                                                                               \
        LINEAR(name " 40 x 13 x 1056", false, 40, t, 1056, 6, 3, 4, LINEAR_NONE, 0),             \
        LINEAR(name " 65 x 300 x 576 swiglu", false, 65, t, 576, 150, 150, 0, LINEAR_SWIGLU, 8), \
        LINEAR(name " 70 x 1000 x 96 bias residual", false, 70, t, 96, 1000, 0, 0, LINEAR_NONE,  \
               3),                                                                               \
        HEAD(name " 3 x 5003 x 64", false, 3, t, 64, 5003, 0, 0, LINEAR_NONE, 0),                \
        HEAD(name " 66 x 501 x 192", false, 66, t, 192, 501, 0, 0, LINEAR_NONE, 0)
#define QUANT_K(name, t)                                                                          \
    LINEAR(name " 1 x 960 x 768", false, 1, t, 768, 576, 192, 192, LINEAR_NONE, 1),               \
        LINEAR(name " 9 x 2500 x 256 residual", false, 9, t, 256, 2500, 0, 0, LINEAR_NONE, 2),    \
        LINEAR(name " 20 x 3000 x 256 swiglu", false, 20, t, 256, 1500, 1500, 0, LINEAR_SWIGLU,   \
               8),                                                                                \
        LINEAR(name " 40 x 13 x 2304", false, 40, t, 2304, 6, 3, 4, LINEAR_NONE, 0),              \
        LINEAR(name " 65 x 300 x 512 swiglu", false, 65, t, 512, 150, 150, 0, LINEAR_SWIGLU, 8),  \
        LINEAR(name " 70 x 1000 x 256 bias residual", false, 70, t, 256, 1000, 0, 0, LINEAR_NONE, \
               3),                                                                                \
        HEAD(name " 3 x 5003 x 256", false, 3, t, 256, 5003, 0, 0, LINEAR_NONE, 0),               \
        HEAD(name " 66 x 501 x 256", false, 66, t, 256, 501, 0, 0, LINEAR_NONE, 0)

/* Experts in tiles: columns shared by 4 and 2 chunks, one tile of columns, two; several tiles of
 * slots of one expert; rows and columns that fill no tile or unit; accumulated. */
#define EXPERTS(name, t, hidden, ffn)                                                              \
    CASE("moe_linear", name " experts 1 token", false, 1, hidden, ffn, 5, 2, t, 0, VT_ACT_SILU),   \
        CASE("moe_linear", name " experts 4 tokens gelu", false, 4, hidden, ffn, 5, 3, t, 0,       \
             VT_ACT_GELU_TANH),                                                                    \
        CASE("moe_linear", name " experts 7 tokens accumulate", false, 7, hidden, ffn, 4, 2, t, 1, \
             VT_ACT_SILU),                                                                         \
        CASE("moe_linear", name " experts 45 tokens", false, 45, hidden, ffn, 4, 2, t, 0,          \
             VT_ACT_SILU)

/* Every bf16 value, infinities and NaNs too, as K and as V. p: as the card's, for 65,536 of each */
static void *make_kv_store_all(const vt_case *c, uint64_t seed, vt_arena *arena,
                               vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    kv_store_args *a = kv_store_op.make_args(c, seed, arena, outputs, n_outputs);
    int64_t width = c->p[2] * c->p[3];
    for (int64_t i = 0; a && i < a->k->dim[0] * width; i++) {
        float value = vt_bf16_to_f32((uint16_t)i);
        tensor_set((vt_tensor *)(uintptr_t)a->k, i / width, i % width, value);
        tensor_set((vt_tensor *)(uintptr_t)a->v, i / width, i % width, value);
    }
    return a;
}

/* One likely id, and a row of others whose weights are 1.45 units of the kernel's fixed point:
 * their sum by chunks is larger than that of the rounded ones, which then never reaches a top-p of
 * 1 - 2^-24. p: rows, vocab */
static void *make_sample_flat_tail(const vt_case *c, uint64_t seed, vt_arena *arena,
                                   vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    vt_case plain = {.p = {c->p[0], c->p[1], 1, 0}};
    sample_args *a = sample_op.make_args(&plain, seed, arena, outputs, n_outputs);
    for (int64_t r = 0; a && r < c->p[0]; r++) {
        vt_sample_row *row = (vt_sample_row *)(uintptr_t) & (*a->row)[r];
        row->temperature = 1;
        row->top_p = 1 - 0x1p-24f;
        for (int64_t id = 0; id < c->p[1]; id++)
            tensor_set((vt_tensor *)(uintptr_t)a->logits, r, id, id == 5 ? 0.0007f : -25.968f);
    }
    return a;
}

/* Outputs that hold an id more often than 16 bits count. p: rows, vocab, tokens */
static void *make_sample_long_output(const vt_case *c, uint64_t seed, vt_arena *arena,
                                     vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    vt_case plain = {.p = {c->p[0], c->p[1], 0, 10}};
    sample_args *a = sample_op.make_args(&plain, seed, arena, outputs, n_outputs);
    int32_t *context = vt_arena_alloc(arena, (size_t)c->p[2], sizeof *context);
    for (int64_t i = 0; context && i < c->p[2]; i++)
        context[i] = i < 3 ? (int32_t)i : 4;
    for (int64_t r = 0; a && r < c->p[0]; r++) {
        vt_sample_row *row = (vt_sample_row *)(uintptr_t) & (*a->row)[r];
        row->context = context;
        row->n_prompt = 2;
        row->n_context = (int32_t)c->p[2];
        row->presence_penalty = 0.5f;
        row->frequency_penalty = 1e-4f;
        row->n_top = 20;
    }
    return context ? a : NULL;
}

const gpu_case gpu_cases[] = {
    /* every path of the small kernel: HALF, pairs, bias, residual, ragged rows and tokens */
    LINEAR("bf16 1 x 40 x 24", false, 1, VT_BF16, 24, 40, 0, 0, LINEAR_NONE, 1),
    LINEAR("bf16 3 x 13 x 576 residual", false, 3, VT_BF16, 576, 13, 0, 0, LINEAR_NONE, 2),
    LINEAR("bf16 8 x 960 x 576", false, 8, VT_BF16, 576, 576, 192, 192, LINEAR_NONE, 0),
    LINEAR("bf16 9 x 960 x 576 bias", false, 9, VT_BF16, 576, 576, 192, 192, LINEAR_NONE, 1),
    LINEAR("bf16 17 x 3072 x 576 swiglu", false, 17, VT_BF16, 576, 1536, 1536, 0, LINEAR_SWIGLU, 8),
    LINEAR("bf16 32 x 3000 x 1000 geglu bias", false, 32, VT_BF16, 1000, 1500, 1500, 0,
           LINEAR_GEGLU, 9),
    LINEAR("bf16 1 x 20 x 12288", false, 1, VT_BF16, 12288, 20, 0, 0, LINEAR_NONE, 2),
    HEAD("bf16 5 x 5003 x 640", false, 5, VT_BF16, 640, 5003, 0, 0, LINEAR_NONE, 0),
    /* the GEMM: both tile heights, split and whole, ragged edges */
    LINEAR("bf16 33 x 960 x 576 bias", false, 33, VT_BF16, 576, 576, 192, 192, LINEAR_NONE, 1),
    LINEAR("bf16 64 x 1024 x 3072 residual", true, 64, VT_BF16, 3072, 1024, 0, 0, LINEAR_NONE, 2),
    LINEAR("bf16 65 x 1000 x 1000 residual", false, 65, VT_BF16, 1000, 1000, 0, 0, LINEAR_NONE, 2),
    LINEAR("bf16 100 x 3072 x 576 swiglu", false, 100, VT_BF16, 576, 1536, 1536, 0, LINEAR_SWIGLU,
           8),
    LINEAR("bf16 130 x 6000 x 1024 geglu bias", false, 130, VT_BF16, 1024, 3000, 3000, 0,
           LINEAR_GEGLU, 9),
    LINEAR("bf16 1000 x 4096 x 1024", false, 1000, VT_BF16, 1024, 2048, 1024, 1024, LINEAR_NONE, 0),
    HEAD("bf16 70 x 5003 x 640", false, 70, VT_BF16, 640, 5003, 0, 0, LINEAR_NONE, 0),
    HEAD("bf16 70 x 5004 x 640", false, 70, VT_BF16, 640, 5004, 0, 0, LINEAR_NONE, 0),
    LINEAR("bf16 300 x 1536 x 576 geglu", false, 300, VT_BF16, 576, 1536, 1536, 0, LINEAR_GEGLU, 8),
    LINEAR("bf16 257 x 2000 x 1000 bias residual", false, 257, VT_BF16, 1000, 2000, 0, 0,
           LINEAR_NONE, 3),
    /* the split GEMM on 132 SMs: 1, 2, 4 and 8 CTAs a tile, every epilogue, ragged edges */
    LINEAR("bf16 17 x 200 x 4104 residual", false, 17, VT_BF16, 4104, 200, 0, 0, LINEAR_NONE, 2),
    LINEAR("bf16 40 x 1000 x 1000 residual", false, 40, VT_BF16, 1000, 1000, 0, 0, LINEAR_NONE, 2),
    LINEAR("bf16 64 x 3008 x 1000 swiglu", false, 64, VT_BF16, 1000, 1504, 1504, 0, LINEAR_SWIGLU,
           8),
    LINEAR("bf16 50 x 8192 x 200 geglu", false, 50, VT_BF16, 200, 4096, 4096, 0, LINEAR_GEGLU, 8),
    LINEAR("bf16 64 x 6144 x 320 bias residual", false, 64, VT_BF16, 320, 6144, 0, 0, LINEAR_NONE,
           3),
    LINEAR("bf16 200 x 1000 x 2000 bias", false, 200, VT_BF16, 2000, 1000, 0, 0, LINEAR_NONE, 1),
    HEAD("bf16 60 x 5004 x 640", false, 60, VT_BF16, 640, 5004, 0, 0, LINEAR_NONE, 0),
    HEAD("bf16 40 x 1000 x 640", false, 40, VT_BF16, 640, 1000, 0, 0, LINEAR_NONE, 0),
    HEAD("bf16 90 x 1000 x 640", false, 90, VT_BF16, 640, 1000, 0, 0, LINEAR_NONE, 0),
    /* what cuBLASLt takes (no bias, no pair, rows in eights): columns of wider tensors, panels */
    LINEAR("bf16 70 x 1000 x 1000 residual sliced", false, 70, VT_BF16, 1000, 1000, 0, 0,
           LINEAR_NONE, 6),
    LINEAR("bf16 200 x 1000 x 2000 residual", false, 200, VT_BF16, 2000, 1000, 0, 0, LINEAR_NONE,
           2),
    LINEAR("Q8_0 70 x 1000 x 96 residual", false, 70, VT_Q8_0, 96, 1000, 0, 0, LINEAR_NONE, 2),
    HEAD("Q4_0 90 x 504 x 192", false, 90, VT_Q4_0, 192, 504, 0, 0, LINEAR_NONE, 0),
    QUANT("Q8_0", VT_Q8_0),
    QUANT("Q4_0", VT_Q4_0),
    QUANT("Q4_1", VT_Q4_1),
    QUANT("Q5_0", VT_Q5_0),
    QUANT("Q5_1", VT_Q5_1),
    QUANT_K("Q4_K", VT_Q4_K),
    QUANT_K("Q5_K", VT_Q5_K),
    QUANT_K("Q6_K", VT_Q6_K),
    QUANT("FP8", VT_FP8_E4M3),
    /* FP8 with scales a block (flag 16); columns that end inside a chunk; a long row */
    LINEAR("FP8 blocks 2 x 300 x 1032", false, 2, VT_FP8_E4M3, 1032, 300, 0, 0, LINEAR_NONE, 16),
    LINEAR("FP8 blocks 65 x 280 x 200 swiglu", false, 65, VT_FP8_E4M3, 200, 140, 140, 0,
           LINEAR_SWIGLU, 24),
    LINEAR("FP8 2 x 300 x 136 a scale a part", false, 2, VT_FP8_E4M3, 136, 150, 70, 80, LINEAR_NONE,
           32),
    LINEAR("FP8 blocks 130 x 300 x 136", false, 130, VT_FP8_E4M3, 136, 300, 0, 0, LINEAR_NONE, 16),
    LINEAR("Q4_1 1 x 20 x 12288 residual", false, 1, VT_Q4_1, 12288, 20, 0, 0, LINEAR_NONE, 2),
    LINEAR("Q4_K 2 x 20 x 12288", false, 2, VT_Q4_K, 12288, 20, 0, 0, LINEAR_NONE, 0),
    LINEAR("Q4_1 100 x 64 x 300 geglu bias", false, 100, VT_Q4_1, 320, 32, 32, 0, LINEAR_GEGLU, 9),
    /* two panels */
    LINEAR("Q4_0 70 x 9000 x 2048", true, 70, VT_Q4_0, 2048, 9000, 0, 0, LINEAR_NONE, 3),
    /* SmolLM2's head; 8B at one token and at a prefill */
    HEAD("Q8_0 head 1 x 49152 x 576", true, 1, VT_Q8_0, 576, 49152, 0, 0, LINEAR_NONE, 0),
    LINEAR("8B Q4_K gate+up 1 x 24576 x 4096", true, 1, VT_Q4_K, 4096, 12288, 12288, 0,
           LINEAR_SWIGLU, 8),
    LINEAR("8B Q4_K gate+up 32 x 24576 x 4096", true, 32, VT_Q4_K, 4096, 12288, 12288, 0,
           LINEAR_SWIGLU, 8),
    LINEAR("8B Q4_K gate+up 2048 x 24576 x 4096", true, 2048, VT_Q4_K, 4096, 12288, 12288, 0,
           LINEAR_SWIGLU, 8),
    LINEAR("8B Q6_K down 1 x 4096 x 12288", true, 1, VT_Q6_K, 12288, 4096, 0, 0, LINEAR_NONE, 2),
    LINEAR("8B FP8 gate+up 1 x 24576 x 4096", true, 1, VT_FP8_E4M3, 4096, 12288, 12288, 0,
           LINEAR_SWIGLU, 24),
    /* Qwen3-0.6B at one token and 32; 8B's largest */
    LINEAR("0.6B o 1 x 1024 x 2048", true, 1, VT_BF16, 2048, 1024, 0, 0, LINEAR_NONE, 2),
    LINEAR("0.6B gate+up 1 x 6144 x 1024", true, 1, VT_BF16, 1024, 3072, 3072, 0, LINEAR_SWIGLU, 8),
    LINEAR("0.6B down 1 x 1024 x 3072", true, 1, VT_BF16, 3072, 1024, 0, 0, LINEAR_NONE, 2),
    LINEAR("0.6B gate+up 32 x 6144 x 1024", true, 32, VT_BF16, 1024, 3072, 3072, 0, LINEAR_SWIGLU,
           8),
    LINEAR("0.6B gate+up 64 x 6144 x 1024", true, 64, VT_BF16, 1024, 3072, 3072, 0, LINEAR_SWIGLU,
           8),
    LINEAR("0.6B gate+up 256 x 6144 x 1024", true, 256, VT_BF16, 1024, 3072, 3072, 0, LINEAR_SWIGLU,
           8),
    HEAD("0.6B head 1 x 151936 x 1024", true, 1, VT_BF16, 1024, 151936, 0, 0, LINEAR_NONE, 0),
    LINEAR("8B gate+up 1 x 24576 x 4096", true, 1, VT_BF16, 4096, 12288, 12288, 0, LINEAR_SWIGLU,
           8),
    LINEAR("8B down 1 x 4096 x 12288", true, 1, VT_BF16, 12288, 4096, 0, 0, LINEAR_NONE, 2),
    CASE("rmsnorm", "tokens=1 hidden=1024", true, 1, 1024, 0, VT_F32),
    CASE("rmsnorm", "tokens=5 hidden=5120", false, 5, 5120, 0, VT_BF16),
    CASE("rmsnorm", "tokens=2 hidden=8200", false, 2, 8200, 0, VT_BF16),
    CASE("rmsnorm", "tokens=20011 hidden=128", true, 20011, 128, 0, VT_F32),
    CASE("rmsnorm", "tokens=1201 hidden=24", false, 1201, 24, 0, VT_F32),
    CASE("embed", "bf16 300 x 1024", false, 300, VT_BF16, 1000, 1024, 0),
    CASE("kv_store", "tokens=512 kv_heads=8 d=128 page=64", true, 512, 0, 8, 128, VT_BF16, 64),
    CASE("attention_prefill", "4 x 300 kv=1000 heads=32/8 d=128 page=64", false, 4, 300, 1000,
         32008, 128, VT_BF16, 64),
    CASE("attention_prefill", "2 x 150 kv=400 heads=4/1 d=256 page=64 w=100", false, 2, 150, 400,
         4001, 256, VT_BF16, 64, 100),
    CASE("attention_prefill", "3 x 200 heads=9/3 d=64 page=16", false, 3, 200, 200, 9003, 64,
         VT_BF16, 16),
    CASE("attention_prefill", "2 x 129 kv=129 heads=40/8 d=128 page=64", false, 2, 129, 129, 40008,
         128, VT_BF16, 64),
    CASE("attention_prefill", "2 x 1024 heads=16/8 d=128 page=64", true, 2, 1024, 1024, 16008, 128,
         VT_BF16, 64),
    CASE("attention_decode", "1 x 1024 heads=16/8 d=128 page=64", true, 1, 1, 1024, 16008, 128,
         VT_BF16, 64),
    CASE("attention_decode", "1 x 4096 heads=32/8 d=128 page=64", true, 1, 1, 4096, 32008, 128,
         VT_BF16, 64),
    CASE("attention_decode", "32 x 4096 heads=32/8 d=128 page=64", true, 32, 1, 4096, 32008, 128,
         VT_BF16, 64),
    CASE("attention_decode", "256 x 512 heads=16/8 d=128 page=64", true, 256, 1, 512, 16008, 128,
         VT_BF16, 64),
    CASE("attention_decode", "3 x 100 heads=64/4 d=128 page=64", false, 3, 1, 100, 64004, 128,
         VT_BF16, 64),
    /* shared pages: too few sequences to be a group, a pair and three, groups with rows for less
     * than a tile, for three, for tiles that members do not fill; windows that begin before, in and
     * behind the shared part */
    CASE("attention_decode", "4 x 300 heads=32/8 d=128 page=64 shared=256", false, 4, 41001, 300,
         32008, 128, VT_BF16, 64),
    CASE("attention_decode", "5 x 300 heads=32/8 d=128 page=64 2 x shared=256", false, 5, 42001,
         300, 32008, 128, VT_BF16, 64),
    CASE("attention_decode", "5 x 193 heads=16/8 d=128 page=64 shared=192", false, 5, 31001, 193,
         16008, 128, VT_BF16, 64),
    CASE("attention_decode", "38 x 150 heads=8/2 d=128 page=64 shared=128", false, 38, 21001, 150,
         8002, 128, VT_BF16, 64),
    CASE("attention_decode", "23 x 333 heads=9/3 d=64 page=16 3 x shared=304", false, 23, 193001,
         333, 9003, 64, VT_BF16, 16),
    CASE("attention_decode", "80 x 70 heads=3/3 d=64 page=16 shared=64", false, 80, 41001, 70, 3003,
         64, VT_BF16, 16),
    CASE("attention_decode", "9 x 150 heads=16/1 d=64 page=5 2 x shared=125", false, 9, 252001, 150,
         16001, 64, VT_BF16, 5),
    CASE("attention_decode", "14 x 400 heads=40/8 d=128 page=64 2 x shared=320", false, 14, 52001,
         400, 40008, 128, VT_BF16, 64),
    CASE("attention_decode", "9 x 300 heads=4/1 d=256 page=64 w=200 shared=256", false, 9, 41001,
         300, 4001, 256, VT_BF16, 64, 200),
    CASE("attention_decode", "5 x 300 heads=4/2 d=64 page=16 w=30 shared=288", false, 5, 181001,
         300, 4002, 64, VT_BF16, 16, 30),
    CASE("attention_decode", "5 x 100 heads=32/1 d=64 page=16 shared=96", false, 5, 61001, 100,
         32001, 64, VT_BF16, 16),
    CASE("attention_decode", "5 x 5000 heads=32/8 d=128 page=64 shared=4992", true, 5, 781001, 5000,
         32008, 128, VT_BF16, 64),
    CASE("attention_decode", "64 x 1950 heads=32/8 d=128 page=64 shared=1920", true, 64, 301001,
         1950, 32008, 128, VT_BF16, 64),
    /* FP8 KV: 1 to 16 chunks of 16 in a row, odd numbers of them, groups beyond a tile, windows */
    CASE("kv_store", "tokens=512 kv_heads=8 d=128 fp8 page=64", true, 512, 0, 8, 128, VT_FP8_E4M3,
         64),
    CASE("kv_store", "tokens=7+3 kv_heads=3 d=24 fp8 page=5 scales", false, 7, 3, 3, 24,
         VT_FP8_E4M3, 5, 20, 5000),
    CASE("attention_prefill", "4 x 300 kv=1000 heads=32/8 d=128 fp8 page=64", false, 4, 300, 1000,
         32008, 128, VT_FP8_E4M3, 64),
    CASE("attention_prefill", "2 x 150 kv=400 heads=4/1 d=256 fp8 page=64 w=100", false, 2, 150,
         400, 4001, 256, VT_FP8_E4M3, 64, 100),
    CASE("attention_prefill", "3 x 200 heads=9/3 d=64 fp8 page=16", false, 3, 200, 200, 9003, 64,
         VT_FP8_E4M3, 16),
    CASE("attention_prefill", "2 x 129 heads=40/8 d=128 fp8 page=32", false, 2, 129, 129, 40008,
         128, VT_FP8_E4M3, 32),
    CASE("attention_prefill", "2 x 37 kv=90 heads=5/5 d=80 fp8 page=7", false, 2, 37, 90, 5005, 80,
         VT_FP8_E4M3, 7),
    CASE("attention_prefill", "2 x 20 kv=70 heads=36/2 d=48 fp8 page=16 w=33", false, 2, 20, 70,
         36002, 48, VT_FP8_E4M3, 16, 33),
    CASE("attention_prefill", "1 x 30 kv=90 heads=3/1 d=13 fp8 page=5", false, 1, 30, 90, 3001, 13,
         VT_FP8_E4M3, 5),
    CASE("attention_prefill", "2 x 1024 heads=16/8 d=128 fp8 page=64", true, 2, 1024, 1024, 16008,
         128, VT_FP8_E4M3, 64),
    CASE("attention_decode", "3 x 100 heads=64/4 d=128 fp8 page=64", false, 3, 1, 100, 64004, 128,
         VT_FP8_E4M3, 64),
    CASE("attention_decode", "2 x 700 heads=4/1 d=256 fp8 page=64 w=512", false, 2, 1, 700, 4001,
         256, VT_FP8_E4M3, 64, 512),
    CASE("attention_decode", "5 x 1 heads=36/2 d=16 fp8 page=7", false, 5, 1, 1, 36002, 16,
         VT_FP8_E4M3, 7),
    CASE("attention_decode", "2 x 333 heads=6/3 d=112 fp8 page=16", false, 2, 1, 333, 6003, 112,
         VT_FP8_E4M3, 16),
    CASE("attention_decode", "3 x 130 heads=35/5 d=13 fp8 page=5 w=40", false, 3, 1, 130, 35005, 13,
         VT_FP8_E4M3, 5, 40),
    CASE("attention_decode", "1 x 4096 heads=32/8 d=128 fp8 page=64", true, 1, 1, 4096, 32008, 128,
         VT_FP8_E4M3, 64),
    CASE("attention_decode", "32 x 4096 heads=32/8 d=128 fp8 page=64", true, 32, 1, 4096, 32008,
         128, VT_FP8_E4M3, 64),
    CASE("attention_decode", "256 x 512 heads=16/8 d=128 fp8 page=64", true, 256, 1, 512, 16008,
         128, VT_FP8_E4M3, 64),
    CASE("attention_decode", "23 x 333 heads=9/3 d=64 fp8 page=16 3 x shared=304", false, 23,
         193001, 333, 9003, 64, VT_FP8_E4M3, 16),
    CASE("attention_decode", "9 x 300 heads=4/1 d=256 fp8 page=64 w=200 shared=256", false, 9,
         41001, 300, 4001, 256, VT_FP8_E4M3, 64, 200),
    CASE("attention_decode", "5 x 193 heads=16/8 d=80 fp8 page=64 shared=192", false, 5, 31001, 193,
         16008, 80, VT_FP8_E4M3, 64),
    CASE("attention_decode", "64 x 1950 heads=32/8 d=128 fp8 page=64 shared=1920", true, 64, 301001,
         1950, 32008, 128, VT_FP8_E4M3, 64),
    /* cuda-any: rows of odd length, so that most begin at 2 bytes; every epilogue */
    LINEAR("bf16 1 x 40 x 43 bias residual", false, 1, VT_BF16, 43, 40, 0, 0, LINEAR_NONE, 3),
    LINEAR("bf16 9 x 33 x 37", false, 9, VT_BF16, 37, 21, 7, 5, LINEAR_NONE, 0),
    LINEAR("bf16 17 x 27 x 42 swiglu bias", false, 17, VT_BF16, 42, 27, 27, 0, LINEAR_SWIGLU, 9),
    LINEAR("bf16 1 x 28 x 1001 geglu", false, 1, VT_BF16, 1001, 28, 28, 0, LINEAR_GEGLU, 8),
    HEAD("bf16 5 x 67 x 36", false, 5, VT_BF16, 36, 67, 0, 0, LINEAR_NONE, 0),
    /* the GEMM with outputs of odd length */
    LINEAR("bf16 40 x 27 x 64 residual", false, 40, VT_BF16, 64, 27, 0, 0, LINEAR_NONE, 2),
    LINEAR("bf16 70 x 29 x 72 swiglu", false, 70, VT_BF16, 72, 29, 29, 0, LINEAR_SWIGLU, 8),
    CASE("kv_store", "tokens=5+2 kv_heads=3 d=13 page=5", false, 5, 2, 3, 13, VT_BF16, 5),
    /* the fast kernel, of which the card has large cases alone */
    CASE("rope", "tokens=5 3/1x32", false, 5, 3, 1, 32, 32),
    CASE("rope", "tokens=6 2/1x64 norms plus_one", false, 6, 2, 1, 64, 64, 0, VT_F32 + 1, 1),
    /* cuda-any */
    CASE("rope", "tokens=6 5/1x12 norms plus_one", false, 6, 5, 1, 12, 12, 0, VT_F32 + 1, 1),
    CASE("rope", "tokens=4 3/3x13 dims=8 interleaved norms", false, 4, 3, 3, 13, 8, 1, VT_F32 + 1),
    CASE("attention_prefill", "2 x 70 kv=133 heads=35/5 d=13 page=5 w=40", false, 2, 70, 133, 35005,
         13, VT_BF16, 5, 40),
    CASE("attention_prefill", "1 x 30 kv=90 heads=3/1 d=272 page=16", false, 1, 30, 90, 3001, 272,
         VT_BF16, 16),
    CASE("attention_decode", "3 x 500 heads=7/1 d=12 page=4", false, 3, 1, 500, 7001, 12, VT_BF16,
         4),
    CASE("attention_decode", "3 x 130 heads=35/5 d=13 page=5 w=40", false, 3, 1, 130, 35005, 13,
         VT_BF16, 5, 40),
    CASE("moe_linear", "tokens=5 42x27 experts=5 k=3 gelu accumulate", false, 5, 42, 27, 5, 3,
         VT_BF16, 1, VT_ACT_GELU_TANH),
    EXPERTS("Q8_0", VT_Q8_0, 160, 96),
    EXPERTS("Q4_0", VT_Q4_0, 608, 96),
    EXPERTS("Q4_1", VT_Q4_1, 160, 352),
    EXPERTS("Q5_0", VT_Q5_0, 160, 96),
    EXPERTS("Q5_1", VT_Q5_1, 96, 160),
    EXPERTS("Q4_K", VT_Q4_K, 512, 256),
    EXPERTS("Q5_K", VT_Q5_K, 256, 256),
    EXPERTS("Q6_K", VT_Q6_K, 256, 512),
    /* FP8: a scale a matrix, a scale a block; rows and columns that end inside a block, a unit, a
     * chunk and a tile; more experts than slots; slots of one expert beyond a tile */
    CASE("moe_linear", "FP8 experts 1 token", false, 1, 136, 40, 17, 2, VT_FP8_E4M3, MOE_CASE_SCALE,
         VT_ACT_SILU),
    CASE("moe_linear", "FP8 experts 7 tokens gelu accumulate", false, 7, 608, 96, 4, 3, VT_FP8_E4M3,
         MOE_CASE_SCALE | MOE_CASE_ACCUMULATE, VT_ACT_GELU_TANH),
    CASE("moe_linear", "FP8 blocks experts 1 token", false, 1, 264, 136, 5, 3, VT_FP8_E4M3,
         MOE_CASE_BLOCKS, VT_ACT_SILU),
    CASE("moe_linear", "FP8 blocks experts 9 tokens gelu", false, 9, 136, 264, 6, 2, VT_FP8_E4M3,
         MOE_CASE_BLOCKS, VT_ACT_GELU_TANH),
    CASE("moe_linear", "FP8 blocks experts 45 tokens accumulate", false, 45, 1032, 152, 3, 2,
         VT_FP8_E4M3, MOE_CASE_BLOCKS | MOE_CASE_ACCUMULATE, VT_ACT_SILU),
    CASE("moe_linear", "FP8 blocks 33 tokens of 40 experts", false, 33, 256, 128, 40, 1,
         VT_FP8_E4M3, MOE_CASE_BLOCKS, VT_ACT_SILU),
    CASE("moe_linear", "Q4_K tokens=1 2048x768 experts=16 k=8", true, 1, 2048, 768, 16, 8, VT_Q4_K,
         0, VT_ACT_SILU),
    CASE("moe_linear", "Q4_K tokens=64 2048x768 experts=16 k=8", true, 64, 2048, 768, 16, 8,
         VT_Q4_K, 0, VT_ACT_SILU),
    CASE("moe_linear", "FP8 blocks tokens=1 2048x768 experts=16 k=8", true, 1, 2048, 768, 16, 8,
         VT_FP8_E4M3, MOE_CASE_BLOCKS, VT_ACT_SILU),
    CASE("moe_linear", "FP8 blocks tokens=64 2048x768 experts=16 k=8", true, 64, 2048, 768, 16, 8,
         VT_FP8_E4M3, MOE_CASE_BLOCKS, VT_ACT_SILU),
    {.op = "kv_store",
     .c = {.name = "every bf16 fp8 scales", .p = {512, 0, 1, 128, VT_FP8_E4M3, 16, 0, 3}},
     .make = make_kv_store_all},
    {.op = "kv_store",
     .c = {.name = "every bf16 d=13 fp8 scales", .p = {5042, 0, 1, 13, VT_FP8_E4M3, 5, 700, 90000}},
     .make = make_kv_store_all},
    {.op = "sample",
     .c = {.name = "rows=4 vocab=60000 one likely, the others beyond top-p", .p = {4, 60000}},
     .make = make_sample_flat_tail},
    {.op = "sample",
     .c = {.name = "rows=2 vocab=21 70000 times the same output", .p = {2, 21, 70000}},
     .make = make_sample_long_output},
    {.op = NULL},
};
