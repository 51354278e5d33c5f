/* The kernels of the engine, what the three systems call the same kernel, and the ranges that the
 * roofs of a machine allow for the documents' shapes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/report/inside.h"
#include "ops/op.h"

#define NVRTC "CUDA, compiled by NVRTC; CPU"
#define TRITON "triton"

/* peer: SGLang, Mini-SGLang, FlashInfer */
const report_kernel report_kernels[] = {
    {"embed",
     "embed/embed.cu",
     "embed/embed.c",
     "embed/embed.h",
     "embed_args",
     "mini-sglang 02",
     NVRTC,
     {"VocabParallelEmbedding", "indexing (jit/index.cu)", NULL}},
    {"rmsnorm",
     "rmsnorm/rmsnorm.cu",
     "rmsnorm/rmsnorm.c",
     "rmsnorm/rmsnorm.h",
     "rmsnorm_args",
     "flashinfer 04",
     NVRTC,
     {"RMSNorm (sgl_kernel.rmsnorm)", "flashinfer.rmsnorm", "flashinfer.rmsnorm"}},
    {"add_rmsnorm",
     "rmsnorm/rmsnorm.cu",
     "rmsnorm/rmsnorm.c",
     "rmsnorm/rmsnorm.h",
     "rmsnorm_args",
     "flashinfer 04",
     NVRTC,
     {"sgl_kernel.fused_add_rmsnorm", "flashinfer.fused_add_rmsnorm",
      "flashinfer.fused_add_rmsnorm"}},
    {"linear",
     "linear/gemm_sm90.cu",
     "linear/linear.c",
     "linear/linear.h",
     "linear_args",
     "sglang 01",
     NVRTC " and cuBLASLt",
     {"ColumnParallelLinear, RowParallelLinear (torch)", "torch.nn.functional.linear",
      "flashinfer.gemm"}},
    {"rope",
     "rope/rope.cu",
     "rope/rope.c",
     "rope/rope.h",
     "rope_args",
     "flashinfer 05",
     NVRTC,
     {"apply_rope_with_cos_sin_cache_inplace", "apply_rope_with_cos_sin_cache_inplace",
      "flashinfer.apply_rope_with_cos_sin_cache_inplace"}},
    {"rope_store",
     "rope/rope.cu",
     "rope_store/rope_store.c",
     "rope_store/rope_store.h",
     "rope_store_args",
     "flashinfer 05",
     NVRTC,
     {"rope and set_kv_buffer in one call", NULL, "rope_quantize_fp8_append_paged_kv_cache"}},
    {"kv_store",
     "kv_store/kv_store.cu",
     "kv_store/kv_store.c",
     "kv_store/kv_store.h",
     "kv_store_args",
     "mini-sglang 03",
     NVRTC,
     {"set_kv_buffer", "store_cache (jit/store.cu)", "flashinfer.append_paged_kv_cache"}},
    {"attention_prefill",
     "attention/attention_prefill_sm90.cu",
     "attention/attention.c",
     "attention/attention.h",
     "attention_args",
     "flashinfer 02",
     NVRTC,
     {"attention backends: flashinfer, fa3, " TRITON, "attention backends: fa, fi",
      "BatchPrefillWithPagedKVCacheWrapper"}},
    {"attention_decode",
     "attention/attention_decode.cu",
     "attention/attention.c",
     "attention/attention.h",
     "attention_args",
     "flashinfer 03",
     NVRTC,
     {"attention backends: flashinfer, fa3, " TRITON, "attention backends: fa, fi",
      "BatchDecodeWithPagedKVCacheWrapper"}},
    {"short_conv",
     NULL,
     "short_conv/short_conv.c",
     "short_conv/short_conv.h",
     "short_conv_args",
     "mini-sglang 01",
     "CPU",
     {"causal_conv1d_fn, causal_conv1d_update", NULL, NULL}},
    {"silu_mul",
     "silu_mul/silu_mul.cu",
     "silu_mul/silu_mul.c",
     "silu_mul/silu_mul.h",
     "silu_mul_args",
     "mini-sglang 06",
     NVRTC,
     {"sgl_kernel.silu_and_mul", "flashinfer.silu_and_mul", "flashinfer.silu_and_mul"}},
    {"moe_route",
     "moe/moe_route.cu",
     "moe/moe_route.c",
     "moe/moe.h",
     "moe_route_args",
     "mini-sglang 01",
     NVRTC,
     {"sgl_kernel.topk_softmax", "sgl_kernel.topk_softmax", "flashinfer.fused_moe"}},
    {"moe_linear",
     "moe/moe_expert.cu",
     "moe/moe_linear.c",
     "moe/moe.h",
     "moe_linear_args",
     "mini-sglang 01",
     NVRTC,
     {"fused_moe (" TRITON ")", "fused_moe_kernel (" TRITON ")", "flashinfer.fused_moe"}},
    {"all_reduce",
     NULL,
     "all_reduce/all_reduce.c",
     "all_reduce/all_reduce.h",
     "all_reduce_args",
     "mini-sglang 05",
     "CPU",
     {"tensor_model_parallel_all_reduce (NCCL, custom)", "PyNCCLCommunicator.all_reduce",
      "flashinfer.comm"}},
    {"all_gather",
     NULL,
     "all_gather/all_gather.c",
     "all_gather/all_gather.h",
     "all_gather_args",
     "mini-sglang 05",
     "CPU",
     {"tensor_model_parallel_all_gather", "PyNCCLCommunicator.all_gather", "flashinfer.comm"}},
    {"sample",
     "sample/sample.cu",
     "sample/sample.c",
     "sample/sample.h",
     "sample_args",
     "mini-sglang 01",
     NVRTC,
     {"sgl_kernel sampling", "flashinfer.sampling",
      "flashinfer.sampling.top_k_top_p_sampling_from_probs"}},
    {"page_copy",
     "page_copy/page_copy.cu",
     "page_copy/page_copy.c",
     "page_copy/page_copy.h",
     "page_copy_args",
     "mini-sglang 01",
     NVRTC,
     {"copies of KV pages", NULL, NULL}},
    {"prefix_match",
     NULL,
     "prefix_match/prefix_match.c",
     "prefix_match/prefix_match.h",
     "prefix_match_args",
     "mini-sglang radix",
     "CPU",
     {"_key_match_page_size1, _key_match_paged", "fast_compare_key (radix.cpp)", NULL}},
    {0}};

static void put_peer(vt_buf *b, const char *name)
{
    if (name) /* a name as it stands in their sources, or a phrase */
        vt_buf_printf(b, strchr(name, ' ') ? " | %s" : " | `%s`", name);
    else
        vt_buf_puts(b, " | none of its own");
}

void report_catalogue(vt_buf *b)
{
    vt_buf_puts(b, "| op | what it does | kernel | card and contract | type | analysed in | lab |\n"
                   "|---|---|---|---|---|---|---|\n");
    for (const report_kernel *k = report_kernels; k->op; k++) {
        const vt_op *op = vt_op_find(k->op);
        vt_buf_printf(b, "| `%s` | %s | ", k->op, op ? op->what : "");
        if (k->kernel)
            vt_buf_printf(b, "[%s](" TO_SOURCES "src/ops/%s)", k->kernel, k->kernel);
        else
            vt_buf_puts(b, "runs on the host alone");
        vt_buf_printf(b, " | [%s](" TO_SOURCES "src/ops/%s)", k->card, k->card);
        vt_buf_printf(b, " | %s | [analysis.md#%s](analysis.md#%s) | %s |\n", k->type, k->op, k->op,
                      k->lab);
    }
    vt_buf_puts(b, "\nThe same kernels in the systems that this track follows:\n\n"
                   "| op | SGLang | Mini-SGLang | FlashInfer |\n|---|---|---|---|\n");
    for (const report_kernel *k = report_kernels; k->op; k++) {
        vt_buf_printf(b, "| `%s`", k->op);
        for (int i = 0; i < 3; i++)
            put_peer(b, k->peer[i]);
        vt_buf_puts(b, " |\n");
    }
    vt_buf_putc(b, '\n');
}

/* ---- ranges ---- */

/* What a call must move and compute. Activations have 2 bytes an element on a GPU and 4 on a CPU; a
 * KV cache and an embedding table have 2 on both. */
typedef struct range {
    const char *kernel, *shape;
    double activations, stored; /* elements */
    double bytes;               /* beyond them */
    double flops;               /* on the matrix unit, or in fp32 where there is none */
    double fp32;                /* outside of it */
    enum { ON_DEVICE, ON_HOST, ON_LINK } where;
} range;

#define TOKENS_KV (32.0 * 4096)
#define KV_WIDTH (8.0 * 128)
#define Q_WIDTH (32.0 * 128)

static const range ranges[] = {
    {"index (embed)", "64 rows x 4096", 64.0 * 4096, 64.0 * 4096, 0, 0, 0, ON_DEVICE},
    {"store (kv_store)", "64 tokens x 1024, K and V", 2 * 64.0 * 1024, 2 * 64.0 * 1024, 0, 0, 0,
     ON_DEVICE},
    {"prefill attention", "512 tokens, 32 heads, 8 KV heads of 128", 2 * 512 * Q_WIDTH,
     2 * 512 * KV_WIDTH, 0, 4 * Q_WIDTH *(512.0 * 513 / 2), 0, ON_DEVICE},
    {"decode attention", "32 sequences x 4096 KV tokens, 32 heads, 8 KV heads", 2 * 32 * Q_WIDTH,
     2 * TOKENS_KV *KV_WIDTH, 0, 4 * Q_WIDTH *TOKENS_KV, 0, ON_DEVICE},
    {"RMSNorm", "16384 x 4096", 2 * 16384.0 * 4096, 0, 0, 0, 4 * 16384.0 * 4096, ON_DEVICE},
    {"add + RMSNorm, fused", "16384 x 4096", 4 * 16384.0 * 4096, 0, 0, 0, 5 * 16384.0 * 4096,
     ON_DEVICE},
    {"add, then RMSNorm", "16384 x 4096", 5 * 16384.0 * 4096, 0, 0, 0, 5 * 16384.0 * 4096,
     ON_DEVICE},
    {"RoPE", "4096 tokens, 32 and 8 heads of 128", 2 * 4096 * (Q_WIDTH + KV_WIDTH), 0, 0, 0,
     3 * 4096 * (Q_WIDTH + KV_WIDTH), ON_DEVICE},
    {"radix (prefix_match)", "1024 ids", 0, 0, 2 * 1024.0 * 4, 0, 0, ON_HOST},
    {"all-reduce, staged through the host's memory", "8 MiB, 2 ranks", 0, 0, 8.0 * (1 << 20), 0, 0,
     ON_LINK}};

typedef struct bounds {
    double bytes, memory_s, compute_s, launch_s, least_s;
    const char *bound;
} bounds;

/* The rate of the memory that holds the call's bytes: a call that is repeated finds in a cache what
 * the cache can hold. A cache whose size is not known (0) holds nothing. `copies`: as many bytes
 * are written as are read. */
static double rate_for(const vt_roofs *f, double bytes, bool copies, const char **memory)
{
    *memory = "L2";
    if (bytes <= (double)f->l2_size && f->l2_bytes_per_s > 0)
        return f->l2_bytes_per_s;
    *memory = "L3";
    if (bytes <= (double)f->l3_size && f->l3_bytes_per_s > 0)
        return f->l3_bytes_per_s;
    *memory = "memory";
    return copies && f->copy_bytes_per_s > 0 ? f->copy_bytes_per_s : f->memory_bytes_per_s;
}

/* The rate between two ranks. Of a GPU: each byte goes up to the host's memory and then down, at
 * two rates. Of a CPU: half of the copy roof, because a byte of the other rank is read, and
 * written here. */
static double link_rate(const vt_roofs *f)
{
    return f->is_gpu ? 1 / (1 / f->to_device_bytes_per_s + 1 / f->from_device_bytes_per_s)
                     : f->copy_bytes_per_s / 2;
}

static bounds bounds_of(const range *g, const vt_roofs *f)
{
    bounds o = {.bytes = g->bytes + g->activations * (f->is_gpu ? 2 : 4) + g->stored * 2};
    double unit = f->bf16_per_s > 0 ? f->bf16_per_s : f->fp32_per_s;
    const char *memory;
    double rate = rate_for(f, o.bytes, g->flops == 0, &memory);
    /* one thread runs an op of the host, with the L2 of one core; the roof is of all threads */
    if (g->where == ON_HOST && strcmp(memory, "L2") == 0 && f->threads > 1)
        rate /= f->threads;
    o.memory_s = o.bytes / (g->where == ON_LINK ? link_rate(f) : rate);
    o.compute_s = (g->flops > 0 ? g->flops / unit : 0) +
                  (f->fp32_per_s > 0 ? g->fp32 / f->fp32_per_s : 0);
    o.launch_s = g->where == ON_DEVICE ? (f->is_gpu ? f->kernel_s : f->meeting_s) : 0;
    o.least_s = fmax(fmax(o.memory_s, o.compute_s), o.launch_s);
    o.bound = o.least_s == o.memory_s    ? g->where == ON_LINK ? "link" : memory
              : o.least_s == o.compute_s ? "compute"
                                         : "launch";
    return o;
}

static void put_range(vt_buf *b, const range *g, const vt_roofs *f)
{
    bounds o = bounds_of(g, f);
    vt_buf_printf(b, "| %s | %s | ", g->kernel, g->shape);
    if (g->where == ON_HOST && f->is_gpu) {
        vt_buf_puts(b, "not of the GPU: run the lab with --device cpu | | | | |\n");
        return;
    }
    if (!isfinite(o.least_s) || !(o.least_s > 0)) {
        vt_buf_puts(b, "not predicted here: these results have no roof of that link | | | | |\n");
        return;
    }
    lab_put(b, o.bytes, LAB_BYTES);
    vt_buf_printf(b, " | %.3g | %s | ", (g->flops + g->fp32) / o.bytes, o.bound);
    lab_put(b, o.least_s, LAB_SECONDS);
    vt_buf_puts(b, " to ");
    lab_put(b, 2 * o.least_s, LAB_SECONDS);
    vt_buf_puts(b, " | ");
    lab_put(b, o.bytes / (2 * o.least_s), LAB_BYTES_PER_S);
    vt_buf_puts(b, " to ");
    lab_put(b, o.bytes / o.least_s, LAB_BYTES_PER_S);
    vt_buf_puts(b, " |\n");
}

void report_ranges(const report *r, vt_buf *b)
{
    const vt_roofs *f = &r->roofs;
    double unit = f->bf16_per_s > 0 ? f->bf16_per_s : f->fp32_per_s;
    if (r->n_emulated > 0 && !(f->memory_bytes_per_s > 0)) {
        vt_buf_puts(b, "not predicted here, because an emulated GPU has no roofs\n\n");
        return;
    }
    if (!(f->memory_bytes_per_s > 0)) {
        vt_buf_printf(b, "No roofs in these results yet: `vitrine lab %s 00` measures them.\n\n",
                      report_env_track(r));
        return;
    }
    vt_buf_puts(b, "From the roofs of these results: memory ");
    lab_put(b, f->memory_bytes_per_s, LAB_BYTES_PER_S);
    vt_buf_printf(b, ", %s ", f->bf16_per_s > 0 ? "matrix unit (bf16)" : "fp32");
    lab_put(b, unit, LAB_FLOP_PER_S);
    vt_buf_printf(b,
                  ", ridge at %.1f FLOP a byte. The short end of a range is the roof itself; a "
                  "kernel beyond the long end (twice that) is worth a look. A call whose bound "
                  "is the launch shows a low bandwidth without any fault.\n\n",
                  unit / f->memory_bytes_per_s);
    report_caches(r, b);
    vt_buf_puts(b, r->caches_known
                       ? "Calls are repeated, so those whose bytes fit a cache find them there; "
                         "the column \"bound\" names it.\n\n"
                       : "So every range is that of the memory; a call that fits a cache may be "
                         "faster.\n\n");
    vt_buf_puts(b, "| kernel | shape | bytes | FLOP a byte | bound | expected time | that is |\n"
                   "|---|---|---:|---:|---|---:|---:|\n");
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        put_range(b, &ranges[i], f);
    vt_buf_putc(b, '\n');
}
