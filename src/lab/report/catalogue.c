/* The kernels of the engine, what the three systems call the same kernel, and the ranges that the
 * roofs of a machine allow for the documents' shapes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/report/inside.h"
#include "ops/op.h"

#define NVRTC "CUDA, compiled by NVRTC; CPU"
#define TRITON "triton"
#define GATE "sigmoid_gate/sigmoid_gate"

/* The files of the card and of the contract without their suffixes, the struct without "_args";
 * then SGLang, Mini-SGLang, FlashInfer. */
#define KERNEL(op, kernel, card, header, args, lab, type, ...)                       \
    {                                                                                \
        op, kernel, card ".c", header ".h", args "_args", lab, type, { __VA_ARGS__ } \
    }

/* The same where all of these have the op's name. */
#define OWN(op, kernel, ...) KERNEL(#op, kernel, #op "/" #op, #op "/" #op, #op, __VA_ARGS__)

const report_kernel report_kernels[] = {
    OWN(embed, "embed/embed.cu", "mini-sglang 02", NVRTC, "VocabParallelEmbedding",
        "indexing (jit/index.cu)", NULL),
    OWN(rmsnorm, "rmsnorm/rmsnorm.cu", "flashinfer 04", NVRTC, "RMSNorm (sgl_kernel.rmsnorm)",
        "flashinfer.rmsnorm", "flashinfer.rmsnorm"),
    KERNEL("add_rmsnorm", "rmsnorm/rmsnorm.cu", "rmsnorm/rmsnorm", "rmsnorm/rmsnorm", "rmsnorm",
           "flashinfer 04", NVRTC, "sgl_kernel.fused_add_rmsnorm", "flashinfer.fused_add_rmsnorm",
           "flashinfer.fused_add_rmsnorm"),
    OWN(linear, "linear/gemm_sm90.cu", "sglang 01", NVRTC " and cuBLASLt",
        "ColumnParallelLinear, RowParallelLinear (torch)", "torch.nn.functional.linear",
        "flashinfer.gemm"),
    OWN(lora, "lora/lora.cu", "mini-sglang 01", NVRTC,
        "sgemm_lora_a_fwd, sgemm_lora_b_fwd (" TRITON ")", NULL,
        "flashinfer.gemm.SegmentGEMMWrapper"),
    OWN(rope, "rope/rope.cu", "flashinfer 05", NVRTC, "apply_rope_with_cos_sin_cache_inplace",
        "apply_rope_with_cos_sin_cache_inplace",
        "flashinfer.apply_rope_with_cos_sin_cache_inplace"),
    OWN(rope_store, "rope/rope.cu", "flashinfer 05", NVRTC, "rope and set_kv_buffer in one call",
        NULL, "rope_quantize_fp8_append_paged_kv_cache"),
    OWN(kv_store, "kv_store/kv_store.cu", "mini-sglang 03", NVRTC, "set_kv_buffer",
        "store_cache (jit/store.cu)", "flashinfer.append_paged_kv_cache"),
    KERNEL("attention_prefill", "attention/attention_prefill_sm90.cu", "attention/attention",
           "attention/attention", "attention", "flashinfer 02", NVRTC,
           "attention backends: flashinfer, fa3, " TRITON, "attention backends: fa, fi",
           "BatchPrefillWithPagedKVCacheWrapper"),
    KERNEL("attention_decode", "attention/attention_decode.cu", "attention/attention",
           "attention/attention", "attention", "flashinfer 03", NVRTC,
           "attention backends: flashinfer, fa3, " TRITON, "attention backends: fa, fi",
           "BatchDecodeWithPagedKVCacheWrapper"),
    OWN(head_linear, "head_linear/head_linear.cu", "mini-sglang 01", NVRTC,
        "torch.bmm with absorbed kv_b_proj", NULL, NULL),
    OWN(short_conv, "short_conv/short_conv.cu", "mini-sglang 01", NVRTC,
        "causal_conv1d_fn, causal_conv1d_update", NULL, NULL),
    OWN(gated_delta, "gated_delta/gated_delta.cu", "mini-sglang 01", NVRTC,
        "chunk_gated_delta_rule (" TRITON ")", NULL, NULL),
    OWN(selective_state, "selective_state/selective_state.cu", "mini-sglang 01", NVRTC,
        "selective_state_update, mamba_chunk_scan_combined (" TRITON ")", NULL, NULL),
    OWN(gated_norm, "gated_norm/gated_norm.cu", "mini-sglang 01", NVRTC,
        "RMSNorm with a gate (" TRITON ")", NULL, NULL),
    KERNEL("head_split", GATE ".cu:head_gate", GATE, GATE, "head_gate", "mini-sglang 01", NVRTC,
           "torch slices", NULL, NULL),
    KERNEL("head_gate", GATE ".cu:head_gate", GATE, GATE, "head_gate", "mini-sglang 01", NVRTC,
           "torch sigmoid and product", NULL, NULL),
    KERNEL("row_gate", GATE ".cu:row_gate", GATE, GATE, "row_gate", "mini-sglang 01", NVRTC,
           "torch sigmoid and product", NULL, NULL),
    OWN(add_position, "add_position/add_position.cu", "mini-sglang 01", NVRTC,
        "BertEmbedding (torch)", NULL, NULL),
    OWN(part_norm, "part_norm/part_norm.cu", "mini-sglang 01", NVRTC, "Gemma RMSNorm (torch)", NULL,
        NULL),
    OWN(segment_sum, "segment_sum/segment_sum.cu", "mini-sglang 01", NVRTC,
        "Pooling of sentence-transformers (torch)", NULL, NULL),
    OWN(logit_cap, "logit_cap/logit_cap.cu", "mini-sglang 01", NVRTC, "torch.tanh of logits", NULL,
        NULL),
    OWN(layernorm, "layernorm/layernorm.cu", "mini-sglang 01", NVRTC, "torch.nn.LayerNorm", NULL,
        NULL),
    OWN(gelu, "gelu/gelu.cu", "mini-sglang 01", NVRTC, "torch.nn.functional.gelu", NULL, NULL),
    OWN(relu2, "relu2/relu2.cu", "mini-sglang 01", NVRTC, "relu2_no_mul (vLLM)", NULL, NULL),
    OWN(silu_mul, "silu_mul/silu_mul.cu", "mini-sglang 01", NVRTC, "sgl_kernel.silu_and_mul",
        "flashinfer.silu_and_mul", "flashinfer.silu_and_mul"),
    KERNEL("moe_route", "moe/moe_route.cu", "moe/moe_route", "moe/moe", "moe_route",
           "mini-sglang 01", NVRTC, "sgl_kernel.topk_softmax", "sgl_kernel.topk_softmax",
           "flashinfer.fused_moe"),
    KERNEL("moe_linear", "moe/moe_expert.cu", "moe/moe_linear", "moe/moe", "moe_linear",
           "mini-sglang 01", NVRTC, "fused_moe (" TRITON ")", "fused_moe_kernel (" TRITON ")",
           "flashinfer.fused_moe"),
    OWN(all_reduce, "all_reduce/all_reduce.cu:all_reduce_one_shot", "mini-sglang 05", NVRTC,
        "tensor_model_parallel_all_reduce (NCCL, custom)", "PyNCCLCommunicator.all_reduce",
        "flashinfer.comm"),
    OWN(all_reduce_rmsnorm, "all_reduce_rmsnorm/all_reduce_rmsnorm.cu:all_reduce_rmsnorm_one_shot",
        "mini-sglang 05", NVRTC, "flashinfer_allreduce_residual_rmsnorm", NULL,
        "flashinfer.comm.trtllm_allreduce_fusion"),
    KERNEL("square_sums", "sharded_rmsnorm/square_sums.cu", "sharded_rmsnorm/sharded_rmsnorm",
           "sharded_rmsnorm/sharded_rmsnorm", "square_sums", "mini-sglang 05", NVRTC,
           "rms_sumsq_serial (" TRITON ")", NULL, NULL),
    OWN(sharded_rmsnorm, "sharded_rmsnorm/sharded_rmsnorm.cu:sharded_rmsnorm_push",
        "mini-sglang 05", NVRTC, "all_reduce, rms_apply_serial (" TRITON ")", NULL, NULL),
    OWN(reduce_scatter, "reduce_scatter/reduce_scatter.cu:reduce_scatter_one_shot",
        "mini-sglang 05", NVRTC, "tensor_model_parallel_reduce_scatter (NCCL)", NULL,
        "flashinfer.comm"),
    OWN(all_gather, "all_gather/all_gather.cu", "mini-sglang 05", NVRTC,
        "tensor_model_parallel_all_gather", "PyNCCLCommunicator.all_gather", "flashinfer.comm"),
    OWN(sample, "sample/sample.cu", "mini-sglang 01", NVRTC, "sgl_kernel sampling",
        "flashinfer.sampling", "flashinfer.sampling.top_k_top_p_sampling_from_probs"),
    OWN(page_copy, "page_copy/page_copy.cu", "mini-sglang 01", NVRTC, "copies of KV pages", NULL,
        NULL),
    OWN(prefix_match, NULL, "mini-sglang radix", "CPU", "_key_match_page_size1, _key_match_paged",
        "fast_compare_key (radix.cpp)", NULL),
    {0}};

static json_t *view_rows(const vt_impl *const *rows)
{
    json_t *out = json_array();
    for (; rows && *rows; rows++)
        out = report_append(out, json_pack("{s:s s:s s:b}", "name", (*rows)->name, "device",
                                           (*rows)->device == VT_DEVICE_CUDA ? "GPU" : "CPU",
                                           "library", (*rows)->library != NULL));
    return out;
}

/* Returns true if the text has the op's name as a word: "rope" is not in "rope_store". */
static bool names(const char *text, const char *op)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    size_t n = strlen(op);
    for (const char *p = strstr(text, op); p; p = strstr(p + 1, op))
        if ((p == text || !strchr(word, p[-1])) && (!p[n] || !strchr(word, p[n])))
            return true;
    return false;
}

static bool knob_names(const json_t *knob, const char *op)
{
    return names(report_string(knob, "where"), op) || names(report_string(knob, "what"), op) ||
           names(report_string(knob, "name"), op);
}

/* A knob is about the kernel that it names; one that names none is about that of its lab. */
static bool is_about(const report *r, const json_t *knob, const report_kernel *k)
{
    size_t track = strlen(lab_track_name[r->track]);
    if (knob_names(knob, k->op))
        return true;
    for (const report_kernel *other = report_kernels; other->op; other++)
        if (knob_names(knob, other->op))
            return false;
    return strncmp(k->lab, lab_track_name[r->track], track) == 0 && k->lab[track] == ' ' &&
           strcmp(k->lab + track + 1, report_string(knob, "lab")) == 0;
}

/* The file of the GPU kernel; null: there is none. */
static json_t *kernel_file(const report_kernel *k)
{
    return k->kernel ? json_stringn(k->kernel, strcspn(k->kernel, ":")) : json_null();
}

/* The kernel's function: after the colon, or else the file's name. */
static json_t *kernel_entry(const report_kernel *k)
{
    const char *colon = k->kernel ? strchr(k->kernel, ':') : NULL,
               *slash = k->kernel ? strrchr(k->kernel, '/') : NULL;
    if (colon)
        return json_string(colon + 1);
    return slash ? json_stringn(slash + 1, strcspn(slash + 1, ".")) : json_null();
}

json_t *report_view_kernels(const report *r, const json_t *knobs)
{
    json_t *out = json_array(), *knob;
    for (const report_kernel *k = report_kernels; k->op; k++) {
        const vt_op *op = vt_op_find(k->op);
        json_t *about = json_array(), *peers = json_array();
        char tolerance[32];
        size_t i;
        if (!op)
            continue;
        json_array_foreach((json_t *)(uintptr_t)knobs, i, knob)
        {
            if (is_about(r, knob, k))
                about = report_append(about, json_incref(knob));
        }
        for (i = 0; i < 3; i++)
            peers = report_append(peers, k->peer[i] ? json_string(k->peer[i]) : json_null());
        snprintf(tolerance, sizeof tolerance, "%.1e", op->tolerance);
        out = report_append(
            out,
            json_pack("{s:s s:s s:o s:o s:s s:s s:s s:s s:s# s:s s:s s:s s:o s:o s:o s:o}", "op",
                      k->op, "what", op->what, "kernel", kernel_file(k), "entry", kernel_entry(k),
                      "card", k->card, "header", k->header, "args", k->args, "lab", k->lab, "track",
                      k->lab, (int)strcspn(k->lab, " "), "type", k->type, "tolerance", tolerance,
                      "reason", op->tolerance_reason, "impls", view_rows(op->impls), "variants",
                      view_rows(op->variants), "knobs", about, "peers", peers));
    }
    return out;
}

/* ---- ranges ---- */

/* The bytes and the arithmetic that a call needs. Activations have 2 bytes an element on a GPU and
 * 4 on a CPU; a KV cache and an embedding table have 2 on both. */
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
    {"store (kv_store), random slots", "4096 tokens x 1024, K and V", 2 * 4096.0 * 1024,
     2 * 4096.0 * 1024, 0, 0, 0, ON_DEVICE},
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
 * the cache can hold. A cache whose size is not known (0) holds nothing. Memory's rate is that of
 * reading, as in the labs: a norm fused with its addition is faster than memory copies. */
static double rate_for(const vt_roofs *f, double bytes, const char **memory)
{
    *memory = "L2";
    if (bytes <= (double)f->l2_size && f->l2_bytes_per_s > 0)
        return f->l2_bytes_per_s;
    *memory = "L3";
    if (bytes <= (double)f->l3_size && f->l3_bytes_per_s > 0)
        return f->l3_bytes_per_s;
    *memory = "memory";
    return f->memory_bytes_per_s;
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
    double rate = rate_for(f, o.bytes, &memory);
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

static json_t *view_range(const range *g, const vt_roofs *f)
{
    bounds o = bounds_of(g, f);
    char intensity[32];
    const char *none = g->where == ON_HOST && f->is_gpu
                           ? "not of the GPU: run the lab with --device cpu"
                       : !isfinite(o.least_s) || !(o.least_s > 0)
                           ? "not predicted here: these results have no roof of that link"
                           : NULL;
    bool computes = strcmp(o.bound, "compute") == 0;
    double work = computes ? g->flops + g->fp32 : o.bytes;
    vt_unit rate = computes ? VT_FLOP_PER_S : VT_BYTES_PER_S;
    snprintf(intensity, sizeof intensity, "%.3g", (g->flops + g->fp32) / o.bytes);
    return json_pack(
        "{s:s s:s s:s? s:s s:s s:o s:o s:o s:o s:o}", "kernel", g->kernel, "shape", g->shape,
        "none", none, "intensity", intensity, "bound", o.bound, "bytes",
        report_figure(o.bytes, VT_BYTES), "least", report_figure(o.least_s, VT_SECONDS), "most",
        report_figure(2 * o.least_s, VT_SECONDS), "slow",
        report_figure(work / (2 * o.least_s), rate), "fast", report_figure(work / o.least_s, rate));
}

bool report_view_ranges(const report *r, json_t *view)
{
    const vt_roofs *f = &r->roofs;
    double unit = f->bf16_per_s > 0 ? f->bf16_per_s : f->fp32_per_s;
    char at[32];
    json_t *all = json_array();
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && f->memory_bytes_per_s > 0; i++)
        all = report_append(all, view_range(&ranges[i], f));
    snprintf(at, sizeof at, "%.1f", unit / f->memory_bytes_per_s);
    json_t *ridge = json_pack("{s:o s:s s:o s:s}", "memory",
                              report_figure(f->memory_bytes_per_s, VT_BYTES_PER_S), "unit",
                              f->bf16_per_s > 0 ? "matrix unit (bf16)" : "fp32", "rate",
                              report_figure(unit, VT_FLOP_PER_S), "at", at);
    bool whole = json_object_set_new(view, "ranges", all) == 0;
    return json_object_set_new(view, "ridge", ridge) == 0 && whole;
}
