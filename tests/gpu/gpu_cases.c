/* The cases. Their numbers of tokens lie on both sides of the borders between kernels and tiles: 8,
 * 16, 32 (small), 64, 128 (GEMM). */
#include "gpu_cases.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/random.h"
#include "ops/access.h"
#include "ops/case_draw.h"
#include "ops/cases.h"
#include "ops/kv_store/kv_store.h"
#include "ops/moe/moe.h"
#include "ops/sample/sample.h"

/* Every bf16 value, also infinities and NaNs, as K and as V: the shape has 65,536 of each. */
static void *make_kv_store_all(const vt_case *c, uint64_t seed, vt_arena *arena,
                               vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    kv_store_args *a = kv_store_op.make_args(c, seed, arena, outputs, n_outputs);
    int64_t width = vt_case_get(&kv_store_op, c, "kv_heads") *
                    vt_case_get(&kv_store_op, c, "head_dim");
    for (int64_t i = 0; a && i < a->k->dim[0] * width; i++) {
        float value = vt_bf16_to_f32((uint16_t)i);
        tensor_set((vt_tensor *)(uintptr_t)a->k, i / width, i % width, value);
        tensor_set((vt_tensor *)(uintptr_t)a->v, i / width, i % width, value);
    }
    return a;
}

/* One likely id, and many others whose weights are 1.45 units of the kernel's fixed point. Their
 * sum by chunks is larger than the sum of the rounded weights, which then never reaches a top-p of
 * 1 - 2^-24. */
static void *make_sample_flat_tail(const vt_case *c, uint64_t seed, vt_arena *arena,
                                   vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    sample_args *a = sample_op.make_args(c, seed, arena, outputs, n_outputs);
    for (int64_t r = 0; a && r < a->logits->dim[0]; r++) {
        vt_sample_row *row = (vt_sample_row *)(uintptr_t) & (*a->row)[r];
        row->temperature = 1;
        row->top_p = 1 - 0x1p-24f;
        for (int64_t id = 0; id < a->logits->dim[1]; id++)
            tensor_set((vt_tensor *)(uintptr_t)a->logits, r, id, id == 5 ? 0.0007f : -25.968f);
    }
    return a;
}

/* Outputs in which an id occurs more often than 16 bits can count. */
static void *make_sample_long_output(const vt_case *c, uint64_t seed, vt_arena *arena,
                                     vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    enum { LENGTH = 70000 };
    sample_args *a = sample_op.make_args(c, seed, arena, outputs, n_outputs);
    int32_t *context = vt_arena_alloc(arena, LENGTH, sizeof *context);
    for (int64_t i = 0; context && i < LENGTH; i++)
        context[i] = i < 3 ? (int32_t)i : 4;
    for (int64_t r = 0; a && r < a->logits->dim[0]; r++) {
        vt_sample_row *row = (vt_sample_row *)(uintptr_t) & (*a->row)[r];
        row->context = context;
        row->n_prompt = 2;
        row->n_context = LENGTH;
        row->presence_penalty = 0.5f;
        row->frequency_penalty = 1e-4f;
        row->n_top = 20;
    }
    return context ? a : NULL;
}

/* Experts in pairs, and the first and the last, with equal rows of the router: of equal logits the
 * lower index is chosen first. */
static void *make_moe_route_ties(const vt_case *c, uint64_t seed, vt_arena *arena,
                                 vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs)
{
    moe_route_args *a = moe_route_op.make_args(c, seed, arena, outputs, n_outputs);
    vt_tensor *router = a ? (vt_tensor *)(uintptr_t)a->router : NULL;
    for (int64_t e = 1; a && e < router->dim[0]; e++)
        for (int64_t i = 0; i < router->dim[1] && (e % 2 || e + 1 == router->dim[0]); i++)
            tensor_set(router, e, i, tensor_get(router, e % 2 ? e - 1 : 0, i));
    return a;
}

#define CASE(op_, shape_)          \
    {                              \
        .op = op_, .shape = shape_ \
    }
#define LARGE(op_, shape_)                        \
    {                                             \
        .op = op_, .shape = shape_, .large = true \
    }
#define MADE(op_, shape_, name_, make_)                          \
    {                                                            \
        .op = op_, .shape = shape_, .name = name_, .make = make_ \
    }

const gpu_case gpu_cases[] = {
    /* every path of the small kernel: HALF, pairs, bias, residual, ragged rows and tokens */
    CASE("linear", "tokens=1,type=bf16,cols=24,rows=40,bias=1"),
    CASE("linear", "tokens=3,type=bf16,cols=576,rows=13,residual=1"),
    CASE("linear", "tokens=8,type=bf16,cols=576,rows=576,rows2=192,rows3=192"),
    CASE("linear", "tokens=9,type=bf16,cols=576,rows=576,rows2=192,rows3=192,bias=1"),
    CASE("linear", "tokens=17,type=bf16,cols=576,rows=1536,rows2=1536,epilogue=swiglu"),
    CASE("linear", "tokens=32,type=bf16,cols=1000,rows=1500,rows2=1500,epilogue=geglu,bias=1"),
    CASE("linear", "tokens=1,type=bf16,cols=12288,rows=20,residual=1"),
    /* CTAs of 16 warps: for one group of rows, and for two, the last of which is not there */
    CASE("linear", "tokens=1,type=bf16,cols=1608,rows=1003,bias=1,residual=1"),
    CASE("linear", "tokens=8,type=bf16,cols=2048,rows=2499,residual=1"),
    CASE("linear", "tokens=3,type=bf16,cols=8200,rows=75,residual=1"),
    CASE("linear", "tokens=5,type=bf16,cols=640,rows=5003,logits=1"),
    /* the GEMM: both tile heights, split and whole, ragged edges */
    CASE("linear", "tokens=33,type=bf16,cols=576,rows=576,rows2=192,rows3=192,bias=1"),
    LARGE("linear", "tokens=64,type=bf16,cols=3072,rows=1024,residual=1"),
    CASE("linear", "tokens=65,type=bf16,cols=1000,rows=1000,residual=1"),
    CASE("linear", "tokens=100,type=bf16,cols=576,rows=1536,rows2=1536,epilogue=swiglu"),
    CASE("linear", "tokens=130,type=bf16,cols=1024,rows=3000,rows2=3000,epilogue=geglu,bias=1"),
    CASE("linear", "tokens=1000,type=bf16,cols=1024,rows=2048,rows2=1024,rows3=1024"),
    CASE("linear", "tokens=70,type=bf16,cols=640,rows=5003,logits=1"),
    CASE("linear", "tokens=70,type=bf16,cols=640,rows=5004,logits=1"),
    CASE("linear", "tokens=300,type=bf16,cols=576,rows=1536,rows2=1536,epilogue=geglu"),
    CASE("linear", "tokens=257,type=bf16,cols=1000,rows=2000,bias=1,residual=1"),
    /* clusters of two CTAs on the emulated GPU of 4 SMs; the last one has a tile without rows */
    CASE("linear", "tokens=600,type=bf16,cols=72,rows=1672,rows2=1672,epilogue=swiglu"),
    CASE("linear", "tokens=600,type=bf16,cols=136,rows=3336,bias=1,residual=1"),
    CASE("linear", "tokens=514,type=bf16,cols=72,rows=3332,logits=1"),
    CASE("linear", "tokens=1025,type=bf16,cols=328,rows=2000"),
    /* the split GEMM on 132 SMs: 1, 2, 4 and 8 CTAs per tile, every epilogue, ragged edges */
    CASE("linear", "tokens=17,type=bf16,cols=4104,rows=200,residual=1"),
    CASE("linear", "tokens=40,type=bf16,cols=1000,rows=1000,residual=1"),
    CASE("linear", "tokens=40,type=bf16,cols=456,rows=3304,residual=1"), /* tiles of 32 rows */
    CASE("linear", "tokens=20,type=bf16,cols=264,rows=1600,rows2=1600,epilogue=swiglu"),
    CASE("linear", "tokens=70,type=bf16,cols=2048,rows=1000,residual=1"), /* of 64 tokens */
    CASE("linear", "tokens=64,type=bf16,cols=1000,rows=1504,rows2=1504,epilogue=swiglu"),
    CASE("linear", "tokens=50,type=bf16,cols=200,rows=4096,rows2=4096,epilogue=geglu"),
    CASE("linear", "tokens=64,type=bf16,cols=320,rows=6144,bias=1,residual=1"),
    CASE("linear", "tokens=200,type=bf16,cols=2000,rows=1000,bias=1"),
    CASE("linear", "tokens=60,type=bf16,cols=640,rows=5004,logits=1"),
    CASE("linear", "tokens=40,type=bf16,cols=640,rows=1000,logits=1"),
    CASE("linear", "tokens=90,type=bf16,cols=640,rows=1000,logits=1"),
    /* products that cuBLASLt takes (no pair with a bias, rows in eights): columns of wider tensors,
     * panels */
    CASE("linear", "tokens=70,type=bf16,cols=1000,rows=1000,residual=1"),
    CASE("linear", "tokens=200,type=bf16,cols=2000,rows=1000,residual=1"),
    CASE("linear", "tokens=70,type=q8_0,cols=96,rows=1000,residual=1"),
    CASE("linear", "tokens=90,type=q4_0,cols=192,rows=504,logits=1"),
    CASE("linear",
         "tokens=1,type=q8_0|q4_0|q4_1|q5_0|q5_1,cols=576,rows=576,rows2=192,rows3=192,bias=1"),
    CASE("linear", "tokens=9,type=q8_0|q4_0|q4_1|q5_0|q5_1,cols=160,rows=2500,residual=1"),
    CASE("linear",
         "tokens=20,type=q8_0|q4_0|q4_1|q5_0|q5_1,cols=224,rows=1500,rows2=1500,epilogue=swiglu"),
    CASE("linear", "tokens=40,type=q8_0|q4_0|q4_1|q5_0|q5_1,cols=1056,rows=6,rows2=3,rows3=4"),
    CASE("linear",
         "tokens=65,type=q8_0|q4_0|q4_1|q5_0|q5_1,cols=576,rows=150,rows2=150,epilogue=swiglu"),
    CASE("linear", "tokens=70,type=q8_0|q4_0|q4_1|q5_0|q5_1,cols=96,rows=1000,bias=1,residual=1"),
    CASE("linear", "tokens=3,type=q8_0|q4_0|q4_1|q5_0|q5_1,cols=64,rows=5003,logits=1"),
    CASE("linear", "tokens=66,type=q8_0|q4_0|q4_1|q5_0|q5_1,cols=192,rows=501,logits=1"),
    CASE("linear", "tokens=1,type=q4_k|q5_k|q6_k,cols=768,rows=576,rows2=192,rows3=192,bias=1"),
    CASE("linear", "tokens=9,type=q4_k|q5_k|q6_k,cols=256,rows=2500,residual=1"),
    CASE("linear", "tokens=20,type=q4_k|q5_k|q6_k,cols=256,rows=1500,rows2=1500,epilogue=swiglu"),
    CASE("linear", "tokens=40,type=q4_k|q5_k|q6_k,cols=2304,rows=6,rows2=3,rows3=4"),
    CASE("linear", "tokens=65,type=q4_k|q5_k|q6_k,cols=512,rows=150,rows2=150,epilogue=swiglu"),
    CASE("linear", "tokens=70,type=q4_k|q5_k|q6_k,cols=256,rows=1000,bias=1,residual=1"),
    CASE("linear", "tokens=3,type=q4_k|q5_k|q6_k,cols=256,rows=5003,logits=1"),
    CASE("linear", "tokens=1,type=q2_k,cols=768,rows=576,rows2=192,rows3=192,bias=1"),
    CASE("linear", "tokens=3|9,type=q2_k,cols=256,rows=5003,logits=1"),
    CASE("linear", "tokens=20,type=q2_k,cols=2304,rows=150,rows2=150,epilogue=swiglu"),
    CASE("linear", "tokens=70,type=q2_k,cols=256,rows=1000,bias=1,residual=1"),
    CASE("linear", "tokens=66,type=q4_k|q5_k|q6_k,cols=256,rows=501,logits=1"),
    CASE("linear", "tokens=1,type=fp8,cols=576,rows=576,rows2=192,rows3=192,bias=1"),
    CASE("linear", "tokens=9,type=fp8,cols=160,rows=2500,residual=1"),
    CASE("linear", "tokens=20,type=fp8,cols=224,rows=1500,rows2=1500,epilogue=swiglu"),
    CASE("linear", "tokens=40,type=fp8,cols=1056,rows=6,rows2=3,rows3=4"),
    CASE("linear", "tokens=65,type=fp8,cols=576,rows=150,rows2=150,epilogue=swiglu"),
    CASE("linear", "tokens=70,type=fp8,cols=96,rows=1000,bias=1,residual=1"),
    CASE("linear", "tokens=3,type=fp8,cols=64,rows=5003,logits=1"),
    CASE("linear", "tokens=66,type=fp8,cols=192,rows=501,logits=1"),
    /* FP8 with a scale per block; columns that end inside a chunk; a long row */
    CASE("linear", "tokens=2,type=fp8,cols=1032,rows=300,scales=blocks"),
    CASE("linear", "tokens=65,type=fp8,cols=200,rows=140,rows2=140,epilogue=swiglu,scales=blocks"),
    CASE("linear", "tokens=2,type=fp8,cols=136,rows=150,rows2=70,rows3=80,scales=one"),
    CASE("linear", "tokens=130,type=fp8,cols=136,rows=300,scales=blocks"),
    CASE("linear", "tokens=1,type=q4_1,cols=12288,rows=20,residual=1"),
    CASE("linear", "tokens=2,type=q4_k,cols=12288,rows=20"),
    CASE("linear", "tokens=100,type=q4_1,cols=320,rows=32,rows2=32,epilogue=geglu,bias=1"),
    /* dequantised into wgmma's registers: one unit and an odd number of them, K in 1 to 8 parts,
     * each width and two tiles of tokens, rows that do not fill the last tile */
    CASE("linear", "tokens=20,type=fp8|q8_0|q4_0|q4_1|q5_0|q5_1,cols=128,rows=200,residual=1"),
    CASE("linear",
         "tokens=40,type=fp8|q8_0|q4_0|q4_1|q5_0|q5_1,cols=640,rows=100,rows2=28,rows3=8"),
    CASE("linear", "tokens=100,type=fp8|q8_0|q4_0|q4_1|q5_0|q5_1,cols=1152,rows=264,bias=1"),
    CASE("linear", "tokens=50,type=fp8|q8_0|q4_1,cols=384,rows=296,rows2=296,epilogue=swiglu"),
    CASE("linear", "tokens=20,type=q4_k|q5_k|q6_k,cols=256,rows=200,residual=1"),
    CASE("linear", "tokens=64,type=q4_k|q5_k|q6_k,cols=8192,rows=128,residual=1"),
    CASE("linear", "tokens=64|130,type=q2_k,cols=768,rows=128,residual=1"),
    CASE("linear", "tokens=130,type=q4_k|q5_k|q6_k,cols=768,rows=72,rows2=72,epilogue=geglu"),
    CASE("linear", "tokens=33,type=q4_k|q5_k|q6_k,cols=2304,rows=500,logits=1"),
    /* products in E4M3: each width of a tile, K in parts, several tiles a CTA, tiles that are not
     * filled by tokens or rows, columns of a wider tensor */
    CASE("linear", "tokens=17|40|100,type=fp8,cols=256,rows=128,rows2=256,rows3=56,bias=1,"
                   "scales=blocks"),
    CASE("linear",
         "tokens=33|150|390,type=fp8,cols=384,rows=160,residual=1,sliced=1,scales=blocks"),
    CASE("linear", "tokens=20|60|170,type=fp8,cols=640,rows=72,rows2=72,epilogue=swiglu|geglu,"
                   "scales=blocks"),
    CASE("linear", "tokens=30|64|129,type=fp8,cols=2048,rows=136,residual=1,scales=blocks"),
    CASE("linear",
         "tokens=50|128,type=fp8,cols=4224,rows=64,rows2=64,epilogue=swiglu,scales=blocks"),
    CASE("linear", "tokens=560|700,type=fp8,cols=128,rows=600,residual=1,scales=blocks"),
    CASE("linear",
         "tokens=300|700,type=fp8,cols=256,rows=136,rows2=136,epilogue=swiglu|geglu,scales=blocks"),
    CASE("linear", "tokens=300,type=fp8,cols=640,rows=128,rows2=256,rows3=64,bias=1,scales=blocks"),
    LARGE("linear", "tokens=6000,type=fp8,cols=12288,rows=512,residual=1,scales=blocks"),
    LARGE("linear", "tokens=64,type=q4_k,cols=4096,rows=12288,rows2=12288,epilogue=swiglu"),
    LARGE("linear", "tokens=128,type=q8_0,cols=4096,rows=4096,residual=1"),
    LARGE("linear", "tokens=64,type=q6_k,cols=12288,rows=4096,residual=1"),
    /* two panels */
    LARGE("linear", "tokens=70,type=q4_0,cols=2048,rows=9000,bias=1,residual=1"),
    /* SmolLM2's head; 8B at one token and at a prefill */
    LARGE("linear", "tokens=1,type=q8_0,cols=576,rows=49152,logits=1"),
    LARGE("linear", "tokens=1,type=q4_k,cols=4096,rows=12288,rows2=12288,epilogue=swiglu"),
    LARGE("linear", "tokens=32,type=q4_k,cols=4096,rows=12288,rows2=12288,epilogue=swiglu"),
    LARGE("linear", "tokens=2048,type=q4_k,cols=4096,rows=12288,rows2=12288,epilogue=swiglu"),
    LARGE("linear", "tokens=1,type=q6_k,cols=12288,rows=4096,residual=1"),
    LARGE("linear",
          "tokens=1,type=fp8,cols=4096,rows=12288,rows2=12288,epilogue=swiglu,scales=blocks"),
    /* Qwen3-0.6B at one token and 32; the largest products of 8B */
    LARGE("linear", "tokens=1,type=bf16,cols=2048,rows=1024,residual=1"),
    LARGE("linear", "tokens=1,type=bf16,cols=1024,rows=3072,rows2=3072,epilogue=swiglu"),
    LARGE("linear", "tokens=1,type=bf16,cols=3072,rows=1024,residual=1"),
    LARGE("linear", "tokens=32,type=bf16,cols=1024,rows=3072,rows2=3072,epilogue=swiglu"),
    LARGE("linear", "tokens=64,type=bf16,cols=1024,rows=3072,rows2=3072,epilogue=swiglu"),
    LARGE("linear", "tokens=256,type=bf16,cols=1024,rows=3072,rows2=3072,epilogue=swiglu"),
    LARGE("linear", "tokens=1,type=bf16,cols=1024,rows=151936,logits=1"),
    LARGE("linear", "tokens=1,type=bf16,cols=4096,rows=12288,rows2=12288,epilogue=swiglu"),
    LARGE("linear", "tokens=1,type=bf16,cols=12288,rows=4096,residual=1"),
    LARGE("rmsnorm", "tokens=1,hidden=1024,type=f32"),
    CASE("rmsnorm", "tokens=5,hidden=5120,type=bf16"),
    CASE("rmsnorm", "tokens=2,hidden=8200,type=bf16"),
    LARGE("rmsnorm", "tokens=20011,hidden=128,type=f32"),
    CASE("rmsnorm", "tokens=1201,hidden=24,type=f32"),
    /* as many CTAs as fit on 4 SMs, the emulator's, and on 132; with one more row a CTA walks */
    CASE("rmsnorm", "tokens=12,hidden=4096"),
    CASE("rmsnorm", "tokens=13,hidden=4096"),
    CASE("add_rmsnorm", "tokens=8,hidden=5120"),
    CASE("add_rmsnorm", "tokens=9,hidden=5120"),
    LARGE("rmsnorm", "tokens=396,hidden=5120"),
    LARGE("rmsnorm", "tokens=397,hidden=5120"),
    LARGE("add_rmsnorm", "tokens=264,hidden=4096"),
    LARGE("add_rmsnorm", "tokens=265,hidden=4096"),
    CASE("embed", "tokens=300,type=bf16,vocab=1000,hidden=1024"),
    LARGE("kv_store", "tokens=512,kv_heads=8,head_dim=128,kv_type=bf16,page=64"),
    CASE("attention_prefill", "seqs=4,q_len=300,kv_len=1000,heads=32,kv_heads=8,head_dim=128,kv_"
                              "type=bf16,page=64,step=37"),
    CASE("attention_prefill", "seqs=2,q_len=150,kv_len=400,heads=4,kv_heads=1,head_dim=256,kv_type="
                              "bf16,page=64,window=100,step=37"),
    CASE("attention_prefill",
         "seqs=3,q_len=200,kv_len=200,heads=9,kv_heads=3,head_dim=64,kv_type=bf16,page=16,step=37"),
    CASE("attention_prefill", "seqs=2,q_len=129,kv_len=129,heads=40,kv_heads=8,head_dim=128,kv_"
                              "type=bf16,page=64,step=37"),
    LARGE("attention_prefill", "seqs=2,q_len=1024,kv_len=1024,heads=16,kv_heads=8,head_dim=128,kv_"
                               "type=bf16,page=64,step=37"),
    /* tiles that are cut over KV: part of a tile, several tiles and sequences, a window that begins
     * in a later range, beside tiles that are not cut, sinks */
    CASE("attention_prefill", "seqs=1,q_len=10,kv_len=1500,heads=4,kv_heads=1,head_dim=128,kv_type="
                              "bf16,page=64"),
    CASE("attention_prefill", "seqs=1,q_len=70,kv_len=2100,heads=8,kv_heads=2,head_dim=128,kv_type="
                              "bf16,page=64"),
    CASE("attention_prefill", "seqs=3,q_len=9,kv_len=1100,heads=6,kv_heads=2,head_dim=64,kv_type="
                              "bf16,page=16,step=400,q_step=40"),
    CASE("attention_prefill", "seqs=2,q_len=20,kv_len=1400,heads=4,kv_heads=1,head_dim=256,kv_type="
                              "bf16,page=64,window=500"),
    CASE("attention_prefill", "seqs=2,q_len=30,kv_len=30,heads=4,kv_heads=1,head_dim=128,kv_type="
                              "fp8,page=64,step=1024"),
    CASE("attention_prefill", "seqs=1,q_len=33,kv_len=1300,heads=5,kv_heads=1,head_dim=64,kv_type="
                              "fp8,page=32,window=900"),
    CASE("attention_prefill", "seqs=1,q_len=40,kv_len=1100,heads=4,kv_heads=1,head_dim=64,kv_type="
                              "bf16,page=16,sinks=1"),
    LARGE("attention_prefill",
          "seqs=1,q_len=64,kv_len=8192,heads=32,kv_heads=8,head_dim=128,kv_type="
          "bf16,page=64"),
    LARGE("attention_prefill",
          "seqs=2,q_len=64,kv_len=8192,heads=16,kv_heads=8,head_dim=128,kv_type="
          "fp8,page=64,step=100"),
    LARGE("attention_decode",
          "seqs=1,kv_len=1024,heads=16,kv_heads=8,head_dim=128,kv_type=bf16,page=64,step=37"),
    LARGE("attention_decode",
          "seqs=1,kv_len=4096,heads=32,kv_heads=8,head_dim=128,kv_type=bf16,page=64,step=37"),
    LARGE("attention_decode",
          "seqs=32,kv_len=4096,heads=32,kv_heads=8,head_dim=128,kv_type=bf16,page=64,step=37"),
    LARGE("attention_decode",
          "seqs=256,kv_len=512,heads=16,kv_heads=8,head_dim=128,kv_type=bf16,page=64,step=37"),
    CASE("attention_decode",
         "seqs=3,kv_len=100,heads=64,kv_heads=4,head_dim=128,kv_type=bf16,page=64,step=37"),
    /* several tokens a decode: part of a tile of 16 rows, whole tiles, two and four of them; KV
     * that ends inside a page and a block, that is cut, and that is the step's own alone; few and
     * many decodes */
    CASE("attention_decode", "seqs=1,q_len=3,kv_len=1100,heads=32,kv_heads=8,head_dim=128,kv_type="
                             "bf16,page=64"),
    CASE("attention_decode", "seqs=2,q_len=4,kv_len=400,heads=32,kv_heads=8,head_dim=128,kv_type="
                             "bf16,page=64,step=37"),
    CASE("attention_decode", "seqs=7,q_len=2,kv_len=193,heads=32,kv_heads=8,head_dim=128,kv_type="
                             "bf16,page=64,step=37,q_step=1"),
    CASE("attention_decode", "seqs=5,q_len=8,kv_len=8,heads=16,kv_heads=8,head_dim=128,kv_type="
                             "bf16,page=16,step=31"),
    CASE("attention_decode", "seqs=4,q_len=5,kv_len=530,heads=32,kv_heads=4,head_dim=128,kv_type="
                             "bf16,page=64,step=37,q_step=1"),
    CASE("attention_decode", "seqs=3,q_len=1,kv_len=300,heads=9,kv_heads=3,head_dim=64,kv_type="
                             "bf16,page=16,step=37,q_step=3"),
    CASE("attention_decode", "seqs=2,q_len=7,kv_len=90,heads=40,kv_heads=2,head_dim=64,kv_type="
                             "bf16,page=7,step=37"),
    CASE("attention_decode", "seqs=6,q_len=3,kv_len=300,heads=4,kv_heads=1,head_dim=256,kv_type="
                             "bf16,page=64,window=100,step=37,q_step=1"),
    CASE("attention_decode", "seqs=4,q_len=8,kv_len=64,heads=4,kv_heads=2,head_dim=64,kv_type="
                             "bf16,page=16,window=3,step=37"),
    CASE("attention_decode", "seqs=5,q_len=2,kv_len=300,heads=32,kv_heads=8,head_dim=128,kv_type="
                             "fp8,page=64,step=37,q_step=1"),
    CASE("attention_decode", "seqs=2,q_len=6,kv_len=700,heads=16,kv_heads=8,head_dim=80,kv_type="
                             "fp8,page=16,window=400,step=37"),
    CASE("attention_decode", "seqs=3,q_len=4,kv_len=90,heads=3,kv_heads=1,head_dim=13,kv_type="
                             "bf16,page=5,step=37,q_step=1"),
    LARGE("attention_decode",
          "seqs=64,q_len=8,kv_len=1950,heads=32,kv_heads=8,head_dim=128,kv_type="
          "bf16,page=64,step=3"),
    /* shared pages: too few sequences for a group; groups of two and three; groups with rows for
     * less than a tile, for three tiles, and for tiles that the members do not fill; windows that
     * begin before, in and after the shared part */
    CASE("attention_decode", "seqs=4,kv_len=300,heads=32,kv_heads=8,head_dim=128,kv_type=bf16,page="
                             "64,families=1,shared=4,step=37"),
    CASE("attention_decode", "seqs=5,kv_len=300,heads=32,kv_heads=8,head_dim=128,kv_type=bf16,page="
                             "64,families=2,shared=4,step=37"),
    CASE("attention_decode", "seqs=5,kv_len=193,heads=16,kv_heads=8,head_dim=128,kv_type=bf16,page="
                             "64,families=1,shared=3,step=37"),
    CASE("attention_decode", "seqs=38,kv_len=150,heads=8,kv_heads=2,head_dim=128,kv_type=bf16,page="
                             "64,families=1,shared=2,step=37"),
    CASE("attention_decode", "seqs=23,kv_len=333,heads=9,kv_heads=3,head_dim=64,kv_type=bf16,page="
                             "16,families=3,shared=19,step=37"),
    CASE("attention_decode", "seqs=80,kv_len=70,heads=3,kv_heads=3,head_dim=64,kv_type=bf16,page="
                             "16,families=1,shared=4,step=37"),
    CASE("attention_decode", "seqs=9,kv_len=150,heads=16,kv_heads=1,head_dim=64,kv_type=bf16,page="
                             "5,families=2,shared=25,step=37"),
    CASE("attention_decode", "seqs=14,kv_len=400,heads=40,kv_heads=8,head_dim=128,kv_type=bf16,"
                             "page=64,families=2,shared=5,step=37"),
    CASE("attention_decode", "seqs=9,kv_len=300,heads=4,kv_heads=1,head_dim=256,kv_type=bf16,page="
                             "64,window=200,families=1,shared=4,step=37"),
    CASE("attention_decode", "seqs=5,kv_len=300,heads=4,kv_heads=2,head_dim=64,kv_type=bf16,page="
                             "16,window=30,families=1,shared=18,step=37"),
    CASE("attention_decode", "seqs=5,kv_len=100,heads=32,kv_heads=1,head_dim=64,kv_type=bf16,page="
                             "16,families=1,shared=6,step=37"),
    LARGE("attention_decode", "seqs=5,kv_len=5000,heads=32,kv_heads=8,head_dim=128,kv_type=bf16,"
                              "page=64,families=1,shared=78,step=37"),
    LARGE("attention_decode", "seqs=64,kv_len=1950,heads=32,kv_heads=8,head_dim=128,kv_type=bf16,"
                              "page=64,families=1,shared=30,step=37"),
    /* with the call in front of them: groups below 8, of 8 and above; the newest token in the first
     * block of a warp's ring, in one behind it, alone in a page and in a block; two warps; windows;
     * types and sizes of which that call stays a kernel of its own, and shared pages */
    CASE("attention_decode", "seqs=1,kv_len=1,heads=8,kv_heads=2,before=2"),
    CASE("attention_decode",
         "seqs=3,kv_len=300,heads=9,kv_heads=3,head_dim=64,page=16,step=37,before=1"),
    CASE("attention_decode", "seqs=2,kv_len=3000,heads=16,kv_heads=2,step=1,before=3,sinks=1"),
    CASE("attention_decode", "seqs=5,kv_len=1000,heads=16,kv_heads=8,step=8,before=2"),
    CASE("attention_decode", "seqs=33,kv_len=15,heads=8,kv_heads=2,page=16,step=1,before=2"),
    CASE("attention_decode",
         "seqs=3,kv_len=40,heads=14,kv_heads=1,head_dim=64,page=16,step=7,window=20,before=4"),
    CASE("attention_decode", "seqs=2,kv_len=400,heads=24,kv_heads=2,page=64,step=37,before=2"),
    CASE("attention_decode", "seqs=6,kv_len=200,heads=4,kv_heads=2,head_dim=256,page=32,step=15,"
                             "window=64,cap=50,before=2"),
    CASE("attention_decode",
         "seqs=3,kv_len=300,heads=8,kv_heads=2,kv_type=fp8,page=16,step=37,before=2"),
    CASE("attention_decode",
         "seqs=5,kv_len=70,heads=8,kv_heads=1,head_dim=64,kv_type=fp8,page=16,step=5,before=3"),
    CASE("attention_decode", "seqs=2,kv_len=129,heads=12,kv_heads=1,kv_type=fp8,step=1,before=4"),
    CASE("attention_decode",
         "seqs=5,kv_len=900,heads=7,kv_heads=1,head_dim=256,kv_type=fp8,page=64,step=37,before=1"),
    CASE("attention_decode",
         "seqs=5,kv_len=70,heads=32,kv_heads=4,head_dim=256,page=64,step=5,before=2"),
    CASE("attention_decode",
         "seqs=5,kv_len=70,heads=3,kv_heads=1,head_dim=96,page=5,step=5,before=2"),
    CASE("attention_decode",
         "seqs=5,q_len=2,kv_len=70,heads=4,kv_heads=2,head_dim=64,page=16,step=5,before=1"),
    CASE("attention_decode",
         "seqs=5,kv_len=300,heads=32,kv_heads=8,families=1,shared=4,step=37,before=2"),
    /* FP8 KV: 1 to 16 chunks of 16 in a row, odd numbers of chunks, groups larger than a tile,
     * windows */
    LARGE("kv_store", "tokens=512,kv_heads=8,head_dim=128,kv_type=fp8,page=64"),
    CASE("kv_store",
         "tokens=7,decodes=3,kv_heads=3,head_dim=24,kv_type=fp8,page=5,k_scale=20,v_scale=5000"),
    CASE("attention_prefill", "seqs=4,q_len=300,kv_len=1000,heads=32,kv_heads=8,head_dim=128,kv_"
                              "type=fp8,page=64,step=37"),
    CASE("attention_prefill", "seqs=2,q_len=150,kv_len=400,heads=4,kv_heads=1,head_dim=256,kv_type="
                              "fp8,page=64,window=100,step=37"),
    CASE("attention_prefill",
         "seqs=3,q_len=200,kv_len=200,heads=9,kv_heads=3,head_dim=64,kv_type=fp8,page=16,step=37"),
    CASE(
        "attention_prefill",
        "seqs=2,q_len=129,kv_len=129,heads=40,kv_heads=8,head_dim=128,kv_type=fp8,page=32,step=37"),
    CASE("attention_prefill",
         "seqs=2,q_len=37,kv_len=90,heads=5,kv_heads=5,head_dim=80,kv_type=fp8,page=7,step=37"),
    CASE("attention_prefill", "seqs=2,q_len=20,kv_len=70,heads=36,kv_heads=2,head_dim=48,kv_type="
                              "fp8,page=16,window=33,step=37"),
    CASE("attention_prefill",
         "seqs=1,q_len=30,kv_len=90,heads=3,kv_heads=1,head_dim=13,kv_type=fp8,page=5,step=37"),
    LARGE("attention_prefill", "seqs=2,q_len=1024,kv_len=1024,heads=16,kv_heads=8,head_dim=128,kv_"
                               "type=fp8,page=64,step=37"),
    CASE("attention_decode",
         "seqs=3,kv_len=100,heads=64,kv_heads=4,head_dim=128,kv_type=fp8,page=64,step=37"),
    CASE(
        "attention_decode",
        "seqs=2,kv_len=700,heads=4,kv_heads=1,head_dim=256,kv_type=fp8,page=64,window=512,step=37"),
    CASE("attention_decode",
         "seqs=5,kv_len=1,heads=36,kv_heads=2,head_dim=16,kv_type=fp8,page=7,step=37"),
    CASE("attention_decode",
         "seqs=2,kv_len=333,heads=6,kv_heads=3,head_dim=112,kv_type=fp8,page=16,step=37"),
    CASE("attention_decode",
         "seqs=3,kv_len=130,heads=35,kv_heads=5,head_dim=13,kv_type=fp8,page=5,window=40,step=37"),
    LARGE("attention_decode",
          "seqs=1,kv_len=4096,heads=32,kv_heads=8,head_dim=128,kv_type=fp8,page=64,step=37"),
    LARGE("attention_decode",
          "seqs=32,kv_len=4096,heads=32,kv_heads=8,head_dim=128,kv_type=fp8,page=64,step=37"),
    LARGE("attention_decode",
          "seqs=256,kv_len=512,heads=16,kv_heads=8,head_dim=128,kv_type=fp8,page=64,step=37"),
    CASE("attention_decode", "seqs=23,kv_len=333,heads=9,kv_heads=3,head_dim=64,kv_type=fp8,page="
                             "16,families=3,shared=19,step=37"),
    CASE("attention_decode", "seqs=9,kv_len=300,heads=4,kv_heads=1,head_dim=256,kv_type=fp8,page="
                             "64,window=200,families=1,shared=4,step=37"),
    CASE("attention_decode", "seqs=5,kv_len=193,heads=16,kv_heads=8,head_dim=80,kv_type=fp8,page="
                             "64,families=1,shared=3,step=37"),
    LARGE("attention_decode", "seqs=64,kv_len=1950,heads=32,kv_heads=8,head_dim=128,kv_type=fp8,"
                              "page=64,families=1,shared=30,step=37"),
    /* sinks: rows of one range, of ranges that are merged, of several tokens, of shared pages, of a
     * group larger than a tile; tiles whole, in chunks and cut; windows shorter than a block */
    CASE("attention_decode", "seqs=3,kv_len=300,heads=64,kv_heads=8,head_dim=64,kv_type=bf16|fp8,"
                             "page=64,step=37,sinks=1"),
    CASE("attention_decode", "seqs=1,kv_len=1500,heads=8,kv_heads=1,head_dim=64,kv_type=bf16,page="
                             "16,window=128,sinks=1"),
    CASE("attention_decode", "seqs=2,q_len=3,kv_len=400,heads=16,kv_heads=2,head_dim=64,kv_type="
                             "bf16,page=64,step=37,window=128,sinks=1"),
    CASE("attention_decode", "seqs=5,kv_len=300,heads=16,kv_heads=2,head_dim=64,kv_type=bf16,page="
                             "16,families=1,shared=18,step=37,sinks=1"),
    CASE("attention_decode", "seqs=2,kv_len=90,heads=40,kv_heads=2,head_dim=64,kv_type=bf16,page="
                             "64,step=37,sinks=1"),
    CASE("attention_decode", "seqs=3,kv_len=130,heads=35,kv_heads=5,head_dim=13,kv_type=bf16,page="
                             "5,window=40,step=37,sinks=1"),
    CASE("attention_prefill", "seqs=3,q_len=70,kv_len=200,heads=16,kv_heads=2,head_dim=64,kv_type="
                              "bf16|fp8,page=64,step=37,window=128,sinks=1"),
    CASE("attention_prefill", "seqs=2,q_len=30,kv_len=1100,heads=8,kv_heads=1,head_dim=64,kv_type="
                              "bf16,page=64,step=400,sinks=1"),
    CASE("attention_prefill", "seqs=2,q_len=40,kv_len=90,heads=10,kv_heads=2,head_dim=128,kv_type="
                              "bf16|fp8,page=16,step=37,sinks=1"),
    CASE("attention_prefill", "seqs=2,q_len=9,kv_len=70,heads=35,kv_heads=5,head_dim=13,kv_type="
                              "bf16,page=5,window=4,step=37,sinks=1"),
    /* kernels for any shape: rows of odd length, so that most are aligned to 2 bytes only; every
     * epilogue */
    CASE("linear", "tokens=1,type=bf16,cols=43,rows=40,bias=1,residual=1"),
    CASE("linear", "tokens=9,type=bf16,cols=37,rows=21,rows2=7,rows3=5"),
    CASE("linear", "tokens=17,type=bf16,cols=42,rows=27,rows2=27,epilogue=swiglu,bias=1"),
    CASE("linear", "tokens=1,type=bf16,cols=1001,rows=28,rows2=28,epilogue=geglu"),
    CASE("linear", "tokens=5,type=bf16,cols=36,rows=67,logits=1"),
    /* the GEMM with outputs of odd length */
    CASE("linear", "tokens=40,type=bf16,cols=64,rows=27,residual=1"),
    CASE("linear", "tokens=70,type=bf16,cols=72,rows=29,rows2=29,epilogue=swiglu"),
    CASE("kv_store", "tokens=5,decodes=2,kv_heads=3,head_dim=13,kv_type=bf16,page=5"),
    /* the fast kernel, for which the card has only large cases */
    CASE("rope", "tokens=5,heads=3,kv_heads=1,head_dim=32,dims=32,type=f32"),
    CASE("rope", "tokens=6,heads=2,kv_heads=1,head_dim=64,dims=64,norm=1|2,type=f32,plus_one=1"),
    /* the kernel for any shape */
    CASE("rope", "tokens=6,heads=5,kv_heads=1,head_dim=12,dims=12,norm=1|2,type=f32,plus_one=1"),
    CASE("rope", "tokens=4,heads=3,kv_heads=3,head_dim=13,dims=8,interleaved=1,norm=1|2,type=f32"),
    /* more columns than a warp of the split form loads at once; columns that are not in eights */
    CASE("head_linear", "tokens=3,heads=2,in=704,out=40,rest=8,type=bf16"),
    CASE("head_linear", "tokens=16,heads=2,in=1301,out=17,type=bf16"),
    CASE("head_linear", "tokens=300,heads=2,in=72,out=88,rest=8,type=bf16"),
    CASE("head_linear", "tokens=390,heads=3,in=200,out=264,type=bf16"),
    /* latents and wide heads: one tile of rows, several, a tile that is not full; cut and whole */
    CASE("attention_decode",
         "seqs=1,kv_len=1,heads=16,kv_heads=1,head_dim=576,v_dim=512,kv_type=bf16,page=16"),
    CASE("attention_decode",
         "seqs=1,kv_len=1000,heads=16,kv_heads=1,head_dim=576,v_dim=512,kv_type=bf16,page=64"),
    CASE("attention_decode",
         "seqs=3,kv_len=15,heads=5,kv_heads=1,head_dim=576,v_dim=512,kv_type=bf16,page=7,step=1"),
    CASE(
        "attention_decode",
        "seqs=5,kv_len=17,heads=20,kv_heads=1,head_dim=576,v_dim=512,kv_type=bf16,page=16,step=61"),
    CASE("attention_decode", "seqs=2,kv_len=300,heads=128,kv_heads=1,head_dim=576,v_dim=512,kv_"
                             "type=bf16,page=64,step=37"),
    CASE("attention_decode", "seqs=2,kv_len=300,heads=64,kv_heads=1,head_dim=576,v_dim=512,kv_type="
                             "bf16,page=64,step=700"),
    CASE("attention_decode", "seqs=3,q_len=3,kv_len=300,heads=16,kv_heads=1,head_dim=576,v_dim=512,"
                             "kv_type=bf16,page=16,step=200,q_step=2"),
    CASE("attention_decode",
         "seqs=2,kv_len=300,heads=1,kv_heads=1,head_dim=320,v_dim=256,kv_type=bf16,page=5,step=37"),
    CASE("attention_decode",
         "seqs=3,kv_len=300,heads=8,kv_heads=2,head_dim=512,kv_type=bf16,page=16,step=137"),
    CASE("attention_decode",
         "seqs=2,q_len=4,kv_len=90,heads=16,kv_heads=1,head_dim=512,kv_type=bf16,page=64,step=437"),
    CASE(
        "attention_decode",
        "seqs=40,kv_len=70,heads=16,kv_heads=1,head_dim=576,v_dim=512,kv_type=bf16,page=16,step=9"),
    CASE("attention_prefill", "seqs=3,q_len=9,kv_len=300,heads=16,kv_heads=1,head_dim=576,v_dim="
                              "512,kv_type=bf16,page=16,step=37"),
    CASE("attention_prefill", "seqs=2,q_len=70,kv_len=70,heads=20,kv_heads=1,head_dim=576,v_dim="
                              "512,kv_type=bf16,page=7,step=37"),
    CASE("attention_prefill",
         "seqs=1,q_len=5,kv_len=1200,heads=16,kv_heads=2,head_dim=512,kv_type=bf16,page=64"),
    CASE("attention_prefill", "seqs=2,q_len=70,kv_len=133,heads=35,kv_heads=5,head_dim=13,kv_type="
                              "bf16,page=5,window=40,step=37"),
    CASE("attention_prefill",
         "seqs=1,q_len=30,kv_len=90,heads=3,kv_heads=1,head_dim=272,kv_type=bf16,page=16,step=37"),
    CASE("attention_decode",
         "seqs=3,kv_len=500,heads=7,kv_heads=1,head_dim=12,kv_type=bf16,page=4,step=37"),
    CASE("attention_decode",
         "seqs=3,kv_len=130,heads=35,kv_heads=5,head_dim=13,kv_type=bf16,page=5,window=40,step=37"),
    /* every form of the router's launch; experts beyond a warp's, rows that end inside a chunk */
    CASE("moe_route", "tokens=1,hidden=264,experts=37,k=4,normalise=0"),
    CASE("moe_route", "tokens=1,hidden=2312,experts=3,k=3"),
    CASE("moe_route", "tokens=1|3,hidden=3336,experts=21,k=5,sigmoid=1,choice=1"),
    CASE("moe_route", "tokens=3,hidden=136,experts=130,k=16"),
    CASE("moe_route", "tokens=9,hidden=264,experts=6,k=2,normalise=0"),
    CASE("moe_route", "tokens=16,hidden=2312,experts=64,k=1"),
    CASE("moe_route", "tokens=37,hidden=72,experts=9,k=8"),
    CASE("moe_route", "tokens=64,hidden=1288,experts=10,k=2,normalise=0"),
    CASE("moe_route", "tokens=83,hidden=264,experts=21,k=5"),
    CASE("moe_route", "tokens=1,hidden=2048,experts=64,k=4,sigmoid=1,choice=1,scaled=1"),
    CASE("moe_route",
         "tokens=64,hidden=264,experts=256,k=8,sigmoid=1,choice=1,groups=8,kept=4,scaled=1"),
    CASE("moe_route", "tokens=530,hidden=72,experts=64,k=4,sigmoid=1,groups=32,kept=9,normalise=0"),
    CASE("moe_route", "tokens=5,hidden=8,experts=1024,k=16,sigmoid=1,choice=1,groups=4,kept=1"),
    CASE("moe_route", "tokens=37,hidden=264,experts=40,k=3,sigmoid=1,choice=1,own=1,mine=7"),
    CASE("moe_route", "tokens=530,hidden=72,experts=33,k=3"),
    CASE("moe_route", "tokens=5,hidden=8,experts=1024,k=8"),
    /* gpt-oss: biases of the router and of experts, the clamped activation; every kernel */
    CASE("moe_route", "tokens=1|37,hidden=264,experts=32,k=4,bias=1"),
    /* whole experts of ranks: another rank's are -1 */
    CASE("moe_route", "tokens=1|37,hidden=264,experts=21,k=5,mine=7"),
    CASE("moe_route", "tokens=530,hidden=72,experts=33,k=3,mine=1"),
    CASE("moe_route", "tokens=9,hidden=42,experts=16,k=4,sigmoid=1,choice=1,scaled=1,own=1,mine=5"),
    CASE("moe_linear", "tokens=1|5|16,hidden=64,ffn=40,experts=3,k=4,all=9,type=bf16,bias=1"),
    CASE("moe_linear", "tokens=33,hidden=64,ffn=40,experts=3,k=3,all=20,type=bf16,accumulate=1"),
    CASE("moe_linear", "tokens=300,hidden=200,ffn=136,experts=2,k=2,all=7,type=bf16,padding=30"),
    CASE("moe_linear", "tokens=9,hidden=42,ffn=27,experts=2,k=3,all=7,type=bf16,bias=1"),
    CASE("moe_linear", "tokens=1|2|45,hidden=160,ffn=96,experts=3,k=4,all=9,type=q8_0,bias=1"),
    CASE("moe_linear", "tokens=1,hidden=160,ffn=96,experts=1,k=2,all=40,type=q8_0,accumulate=1"),
    CASE("moe_linear", "tokens=1,hidden=160,ffn=96,experts=36,k=33,all=40,type=q8_0"),
    CASE("moe_linear", "tokens=90,hidden=192,ffn=128,experts=2,k=3,all=5,type=q4_0,padding=9"),
    CASE("moe_linear", "tokens=7,hidden=136,ffn=40,experts=2,k=3,all=5,type=fp8,scales=one"),
    CASE("moe_linear",
         "tokens=1|6|45,hidden=160,ffn=96,experts=5,k=3,type=mxfp4,activation=clamped,"
         "bias=1"),
    CASE("moe_linear",
         "tokens=1|9|100,hidden=72,ffn=104,experts=4,k=3,type=bf16,activation=clamped,"
         "bias=1,padding=1"),
    CASE("moe_linear", "tokens=40,hidden=200,ffn=136,experts=2,k=1,type=bf16,bias=1,accumulate=1"),
    CASE("moe_linear",
         "tokens=5,hidden=42,ffn=27,experts=5,k=3,type=bf16,activation=clamped,bias=1"),
    /* tiles that CTAs find themselves, up to 16 tokens; sorted ones; padding */
    CASE("moe_linear", "tokens=1,hidden=64,ffn=40,experts=9,k=4,type=bf16,padding=1"),
    CASE("moe_linear", "tokens=16,hidden=64,ffn=40,experts=3,k=3,type=bf16"),
    CASE("moe_linear", "tokens=13,hidden=64,ffn=40,experts=40,k=16,type=bf16,padding=4"),
    CASE("moe_linear", "tokens=17,hidden=64,ffn=40,experts=3,k=2,type=bf16,accumulate=1"),
    CASE("moe_linear", "tokens=7,hidden=64,ffn=40,experts=20,k=17,type=bf16,padding=2"),
    CASE("moe_linear", "tokens=300,hidden=64,ffn=24,experts=300,k=3,type=bf16,padding=40,"
                       "accumulate=1"),
    /* many slots an expert: every width of tiles, several tiles of an expert; rows and columns that
     * end inside a tile */
    CASE("moe_linear", "tokens=40,hidden=72,ffn=104,experts=3,k=2,type=bf16"),
    CASE("moe_linear", "tokens=100,hidden=136,ffn=72,experts=4,k=2,type=bf16,activation=gelu"),
    CASE("moe_linear", "tokens=300,hidden=200,ffn=136,experts=3,k=2,type=bf16,accumulate=1"),
    CASE("moe_linear", "tokens=700,hidden=64,ffn=72,experts=2,k=1,type=bf16,padding=100"),
    LARGE("moe_linear", "tokens=512,hidden=512,ffn=256,experts=8,k=4,type=bf16"),
    CASE("moe_linear", "tokens=40|300,hidden=200,ffn=136,experts=3,k=2,type=bf16,activation=relu2"),
    CASE("moe_linear", "tokens=100,hidden=72,ffn=328,experts=4,k=3,type=bf16,activation=relu2,"
                       "accumulate=1,padding=20"),
    CASE("moe_linear", "tokens=90,hidden=192,ffn=320,experts=2,k=2,type=q8_0|q4_0|mxfp4,"
                       "activation=relu2"),
    CASE("moe_linear", "tokens=90,hidden=256,ffn=256,experts=4,k=2,type=q4_k|q6_k,activation=relu2,"
                       "padding=9"),
    CASE("moe_linear", "tokens=40,hidden=192,ffn=64,experts=3,k=2,all=7,type=fp8,scales=one,"
                       "activation=relu2,accumulate=1"),
    CASE("moe_linear", "tokens=1,hidden=160,ffn=96,experts=9,k=4,type=q8_0,padding=1"),
    CASE("moe_linear", "tokens=6,hidden=160,ffn=96,experts=5,k=3,type=q8_0,padding=2"),
    CASE("moe_linear", "tokens=9,hidden=42,ffn=27,experts=5,k=3,type=bf16,padding=4,accumulate=1"),
    CASE("moe_linear",
         "tokens=5,hidden=42,ffn=27,experts=5,k=3,type=bf16,activation=gelu,accumulate=1"),
    CASE("moe_linear", "tokens=1,hidden=160,ffn=96,experts=5,k=2,type=q8_0|q5_0"),
    CASE("moe_linear", "tokens=4,hidden=160,ffn=96,experts=5,k=3,type=q8_0|q5_0,activation=gelu"),
    CASE("moe_linear", "tokens=7,hidden=160,ffn=96,experts=4,k=2,type=q8_0|q5_0,accumulate=1"),
    CASE("moe_linear", "tokens=45,hidden=160,ffn=96,experts=4,k=2,type=q8_0|q5_0"),
    CASE("moe_linear", "tokens=1,hidden=608,ffn=96,experts=5,k=2,type=q4_0"),
    CASE("moe_linear", "tokens=4,hidden=608,ffn=96,experts=5,k=3,type=q4_0,activation=gelu"),
    CASE("moe_linear", "tokens=7,hidden=608,ffn=96,experts=4,k=2,type=q4_0,accumulate=1"),
    CASE("moe_linear", "tokens=45,hidden=608,ffn=96,experts=4,k=2,type=q4_0"),
    CASE("moe_linear", "tokens=1,hidden=160,ffn=352,experts=5,k=2,type=q4_1"),
    CASE("moe_linear", "tokens=4,hidden=160,ffn=352,experts=5,k=3,type=q4_1,activation=gelu"),
    CASE("moe_linear", "tokens=7,hidden=160,ffn=352,experts=4,k=2,type=q4_1,accumulate=1"),
    CASE("moe_linear", "tokens=45,hidden=160,ffn=352,experts=4,k=2,type=q4_1"),
    CASE("moe_linear", "tokens=1,hidden=96,ffn=160,experts=5,k=2,type=q5_1"),
    CASE("moe_linear", "tokens=4,hidden=96,ffn=160,experts=5,k=3,type=q5_1,activation=gelu"),
    CASE("moe_linear", "tokens=7,hidden=96,ffn=160,experts=4,k=2,type=q5_1,accumulate=1"),
    CASE("moe_linear", "tokens=45,hidden=96,ffn=160,experts=4,k=2,type=q5_1"),
    CASE("moe_linear", "tokens=1,hidden=512,ffn=256,experts=5,k=2,type=q4_k"),
    CASE("moe_linear", "tokens=4,hidden=512,ffn=256,experts=5,k=3,type=q4_k,activation=gelu"),
    CASE("moe_linear", "tokens=7,hidden=512,ffn=256,experts=4,k=2,type=q4_k,accumulate=1"),
    CASE("moe_linear", "tokens=45,hidden=512,ffn=256,experts=4,k=2,type=q4_k"),
    CASE("moe_linear", "tokens=4,hidden=512,ffn=256,experts=5,k=3,type=q2_k"),
    CASE("moe_linear", "tokens=1,hidden=256,ffn=256,experts=5,k=2,type=q5_k"),
    CASE("moe_linear", "tokens=4,hidden=256,ffn=256,experts=5,k=3,type=q5_k,activation=gelu"),
    CASE("moe_linear", "tokens=7,hidden=256,ffn=256,experts=4,k=2,type=q5_k,accumulate=1"),
    CASE("moe_linear", "tokens=45,hidden=256,ffn=256,experts=4,k=2,type=q5_k"),
    CASE("moe_linear", "tokens=1,hidden=256,ffn=512,experts=5,k=2,type=q6_k"),
    CASE("moe_linear", "tokens=4,hidden=256,ffn=512,experts=5,k=3,type=q6_k,activation=gelu"),
    CASE("moe_linear", "tokens=7,hidden=256,ffn=512,experts=4,k=2,type=q6_k,accumulate=1"),
    CASE("moe_linear", "tokens=45,hidden=256,ffn=512,experts=4,k=2,type=q6_k"),
    /* FP8: one scale per matrix, one per block; rows and columns that end inside a block, a unit, a
     * chunk and a tile; more experts than slots; more slots of one expert than a tile has */
    CASE("moe_linear", "tokens=1,hidden=136,ffn=40,experts=17,k=2,type=fp8,scales=one"),
    CASE("moe_linear", "tokens=7,hidden=608,ffn=96,experts=4,k=3,type=fp8,scales=one,activation="
                       "gelu,accumulate=1"),
    CASE("moe_linear", "tokens=1,hidden=264,ffn=136,experts=5,k=3,type=fp8,scales=blocks"),
    CASE("moe_linear",
         "tokens=9,hidden=136,ffn=264,experts=6,k=2,type=fp8,scales=blocks,activation=gelu"),
    CASE("moe_linear",
         "tokens=45,hidden=1032,ffn=152,experts=3,k=2,type=fp8,scales=blocks,accumulate=1"),
    CASE("moe_linear", "tokens=33,hidden=256,ffn=128,experts=40,k=1,type=fp8,scales=blocks"),
    /* quantised weights and many slots an expert: half a unit at the end, rows that end inside an
     * item, every width of tiles, several tiles of an expert */
    CASE("moe_linear",
         "tokens=45,hidden=192,ffn=320,experts=4,k=3,type=mxfp4,activation=clamped,bias=1"),
    CASE("moe_linear", "tokens=70,hidden=320,ffn=64,experts=5,k=2,type=q8_0|q4_0|q5_1,padding=3"),
    CASE("moe_linear",
         "tokens=100,hidden=256,ffn=512,experts=3,k=2,type=q4_k|q6_k|q2_k,accumulate=1"),
    CASE("moe_linear", "tokens=300,hidden=192,ffn=128,experts=3,k=2,type=fp8,scales=blocks"),
    CASE("moe_linear", "tokens=700,hidden=64,ffn=192,experts=2,k=1,type=fp8,scales=one,padding=100,"
                       "activation=gelu"),
    LARGE("moe_linear", "tokens=1,hidden=2048,ffn=768,experts=16,k=8,type=q4_k"),
    LARGE("moe_linear", "tokens=64,hidden=2048,ffn=768,experts=16,k=8,type=q4_k"),
    LARGE("moe_linear", "tokens=1,hidden=2048,ffn=768,experts=16,k=8,type=fp8,scales=blocks"),
    LARGE("moe_linear", "tokens=64,hidden=2048,ffn=768,experts=16,k=8,type=fp8,scales=blocks"),
    MADE("kv_store", "tokens=512,kv_heads=1,head_dim=128,kv_type=fp8,page=16,v_scale=3",
         "every bf16 as fp8, scales", make_kv_store_all),
    MADE("kv_store",
         "tokens=5042,kv_heads=1,head_dim=13,kv_type=fp8,page=5,k_scale=700,v_scale=90000",
         "every bf16 as fp8, scales, head_dim=13", make_kv_store_all),
    MADE("moe_route", "tokens=6,hidden=64,experts=41,k=8,type=f32", "equal experts",
         make_moe_route_ties),
    MADE("moe_route", "tokens=3,hidden=37,experts=7,k=7,normalise=0,type=f32",
         "equal experts, odd rows", make_moe_route_ties),
    MADE("sample", "rows=4,vocab=60000,kind=plain,spread=0",
         "one likely id, the others beyond top-p", make_sample_flat_tail),
    MADE("sample", "rows=2,vocab=21,kind=greedy,spread=10", "70000 times the same output",
         make_sample_long_output),
    {.op = NULL},
};

bool gpu_random_call(const vt_op *op, uint64_t seed, int32_t number, gpu_call *out)
{
    uint64_t state = vt_fnv1a(VT_FNV_OFFSET, op->name, strlen(op->name)) +
                     seed * 0x9e3779b97f4a7c15u + (uint64_t)number * 0xbf58476d1ce4e5b9u;
    *out = (gpu_call){.seed = case_random(&state), .make = op->make_args};
    if (op->n_operands == 0 || !vt_op_draw(op, &state, &out->c))
        return false;
    snprintf(out->name, sizeof out->name, "random %d: %s", number, out->c.name);
    return true;
}

vt_status gpu_calls_of(const vt_op *op, const gpu_case *g, gpu_call *out, int32_t *n, vt_err *err)
{
    vt_case text[GPU_MOST_CALLS];
    TRY(vt_cases_from_text(op, g->shape, text, GPU_MOST_CALLS, n, err));
    for (int32_t i = 0; i < *n; i++) {
        gpu_call *k = &out[i];
        k->c = text[i];
        k->seed = 42;
        k->make = g->make ? g->make : op->make_args;
        k->large = g->large;
        snprintf(k->name, sizeof k->name, "%s", g->name ? g->name : k->c.name);
    }
    return VT_OK;
}
