/* Published numbers, recomputed from the shapes that they state and from data sheets
 * (physics.h). */
#include "lab/kit/physics.h"

#include <math.h>

#include "device/hardware.h"

#define SXM "a100-80gb-sxm"
#define US *1e-6
#define MS *1e-3
#define KIB *1024.0
#define MIB *1048576.0

/* NVLink 3 of an A100: 12 links of 25 GB/s in each direction (NVIDIA's data sheet: 600 GB/s both
 * ways). */
#define NVLINK3 300e9

const lab_claim lab_claims[] = {
    {"index of 64 rows x 4096 fp16 in 10 us is at 70 to 80 % of peak", SXM, LAB_CLAIM_MEMORY, 1 MIB,
     10 US, 0, "512 KiB read and 512 KiB written",
     "a twentieth of the peak: the call is bound by its launch", "mini-sglang 02", true},
    {"the same index kernel reaches 1.56 TB/s, 78 % of peak", SXM, LAB_CLAIM_TIME, 512 KIB, 1.56e12,
     0, "512 KiB",
     "shorter than any kernel's launch; the 10 us of the line above are 30 times that",
     "mini-sglang 02", true},
    {"store of 64 tokens x 1024 (K and V, 512 KB as stated) in 15 us is at 55 to 75 %", SXM,
     LAB_CLAIM_MEMORY, 1 MIB, 15 US, 0, "512 KiB read and 512 KiB written",
     "a thirtieth, and 64 x 1024 fp16 of K and V are 256 KiB, half of what is stated: bound by its "
     "launch",
     "mini-sglang 03", true},
    {"all-reduce of 8 MB, 2 ranks, in 20 us at 85 to 95 % of NVLink", SXM, LAB_CLAIM_LINK, 8 MIB,
     20 US, NVLINK3, "each rank must send all 8 MiB", "more than the link carries: at least 28 us",
     "mini-sglang 05"},
    {"a copy of 8 MB inside the device takes 4 us", SXM, LAB_CLAIM_MEMORY, 16 MIB, 4 US, 0,
     "8 MiB read and 8 MiB written", "twice what the memory moves: possible from the L2 alone",
     "mini-sglang 05", true},
    {"64 all-reduces of 30 us are 5 % and acceptable (time to first token 28 ms)", SXM,
     LAB_CLAIM_SHARE, 64 * 30 US, 28 MS, 0, "64 x 30 us of 28 ms", "7 % of a prefill",
     "mini-sglang 05"},
    {"the same 64 all-reduces in a token of 8 ms", SXM, LAB_CLAIM_SHARE, 64 * 30 US, 8 MS, 0,
     "64 x 30 us of 8 ms", "a quarter of the decode: the share depends on the phase",
     "mini-sglang 05"},
    {"TMA producer warps feed the attention of an A100", SXM, LAB_CLAIM_LEVEL, 90, 0, 0,
     "TMA needs sm_90", "an A100 has cp.async and no TMA", "sglang 05"},
    {"QKV [512 x 4096] x [4096 x 12288] in 0.15 ms at 48 % of the tensor cores", SXM,
     LAB_CLAIM_MATRIX, 2.0 * 512 * 4096 * 12288, 0.15 MS, 0, "2 x 512 x 4096 x 12288 FLOP",
     "above the peak: the time or the shape is wrong", "sglang 01"},
    {"output projection [512 x 4096] x [4096 x 4096] in 0.05 ms", SXM, LAB_CLAIM_MATRIX,
     2.0 * 512 * 4096 * 4096, 0.05 MS, 0, "2 x 512 x 4096 x 4096 FLOP", "above the peak likewise",
     "sglang 01"},
    {"flash attention of 512 tokens in 0.45 ms uses 35 % of the tensor cores", SXM,
     LAB_CLAIM_MATRIX, 4.0 * 512 * 512 * 4096, 0.45 MS, 0,
     "4 x 512 x 512 x 4096 FLOP, half of it masked", "a tenth of what is claimed, at most",
     "flashinfer 02", true},
    {"the same attention uses 72 % of the memory bandwidth", SXM, LAB_CLAIM_MEMORY,
     4.0 * 512 * 4096 * 2, 0.45 MS, 0, "Q, K, V and O of 512 x 4096 fp16",
     "neither roof binds: a kernel that slow waits for something else", "flashinfer 02", true},
    {"rms_norm of 512 x 4096 in 0.02 ms is at 85 % of the memory", SXM, LAB_CLAIM_MEMORY,
     2.0 * 512 * 4096 * 2, 0.02 MS, 0, "read and written once in fp16",
     "a fifth; so small a norm is bound by its launch", "flashinfer 04"},
    {"embedding of 512 tokens in 0.08 ms is at 78 % of the memory", SXM, LAB_CLAIM_MEMORY,
     2.0 * 512 * 4096 * 2, 0.08 MS, 0, "512 rows of 4096 fp16, read and written", "a twentieth",
     "mini-sglang 02"},
    {"96 KB of shared memory a block and 47 % occupancy", SXM, LAB_CLAIM_BLOCKS, 96 KIB, 8, 64,
     "8 warps a block, 64 warps an SM", "one block an SM; 4 warps would be half of that again",
     "sglang 05"},
    {"add fused with the norm saves 40 % of the traffic", SXM, LAB_CLAIM_SHARE, 1, 5, 0,
     "4 passes over the rows instead of 5", "a fifth of the bytes, not two", "flashinfer 04"},
    {"half of the prompt in the cache skips 65 % of the attention", SXM, LAB_CLAIM_SHARE, 0.5 * 0.5,
     1, 0, "causal: the first half attends to a quarter of all pairs", "a quarter", "sglang 02"},
    {"half of the prompt in the cache takes a prefill from 38 to 12 ms", SXM, LAB_CLAIM_SECONDS,
     0.5, 38 MS, 0, "half of the linears remain, and three quarters of the attention",
     "not below this time", "sglang 02"},
    {"the gap between tokens grows from 8.2 to 10.3 ms over 128 tokens, because of the KV cache",
     SXM, LAB_CLAIM_NEEDS, 128.0 * 2 * 32 * 4096 * 2, 0, 0,
     "128 tokens x K and V x 32 layers x 4096 fp16",
     "a sixtieth of the 2.1 ms: something else "
     "grows",
     "sglang 01"},
    {"128 such tokens take 1,109 ms", SXM, LAB_CLAIM_SECONDS, 128, (8.2 + 10.3) / 2 MS, 0,
     "the mean of 8.2 and 10.3 ms", "75 ms more than published", "sglang 01"},
    {"two kernels at 72 % reach a bandwidth-time product of 144 %", SXM, LAB_CLAIM_SHARE, 2 * 0.72,
     2, 0, "two shares of the same roof, averaged", "shares of one roof are not added",
     "mini-sglang 03"},
    {"decode of 32 sequences needs its KV split in 8", SXM, LAB_CLAIM_SHARE, 32 * 8, 108, 0,
     "32 sequences x 8 KV heads for 108 SMs", "every SM has work without a split", "flashinfer 03"},
    {"a server of a 0.6B model gives a token in 5 to 10 ms", SXM, LAB_CLAIM_NEEDS, 0.6e9 * 2, 0, 0,
     "0.6e9 weights of 2 bytes, read once a token",
     "a tenth of the published time: host and launches, not memory, fill the rest", "sglang 01"},
    {"the index kernel's time, read in a profile of the same system, is 19.3 us", SXM,
     LAB_CLAIM_MEMORY, 1 MIB, 19.3 US, 0, "the same shape, published as 10 us elsewhere",
     "two times for one kernel: neither says anything about bandwidth", "mini-sglang 02", true},
    {0}};

/* A rate over a time, and its share of a roof. */
static void put_rate(vt_buf *out, double bytes, double s, double roof)
{
    vt_text_printf(out, "%f B / %f s = %f B/s = %f share of %f B/s", bytes, s, bytes / s,
                   bytes / s / roof, roof);
}

static void put_quotient(vt_buf *out, double bytes, double rate)
{
    vt_text_printf(out, "%f B / %f B/s = %f s", bytes, rate, bytes / rate);
}

void lab_claim_recompute(const lab_claim *c, vt_buf *out)
{
    vt_err err = {0};
    const vt_hardware *h = vt_hardware_find(c->hardware, &err);
    if (!h)
        return;
    switch (c->kind) {
    case LAB_CLAIM_MEMORY:
        put_rate(out, c->a, c->b, h->roofs.memory_bytes_per_s);
        break;
    case LAB_CLAIM_MATRIX:
        vt_text_printf(out, "%.3g GFLOP / %f s = %f FLOP/s = %f share of %f FLOP/s", c->a / 1e9,
                       c->b, c->a / c->b, c->a / c->b / h->roofs.bf16_per_s, h->roofs.bf16_per_s);
        break;
    case LAB_CLAIM_LINK:
        put_rate(out, c->a, c->b, c->c);
        break;
    case LAB_CLAIM_TIME:
        put_quotient(out, c->a, c->b);
        break;
    case LAB_CLAIM_NEEDS:
        put_quotient(out, c->a, h->roofs.memory_bytes_per_s);
        break;
    case LAB_CLAIM_SHARE:
        vt_text_printf(out, "%.4g / %.4g = %f share", c->a, c->b, c->a / c->b);
        break;
    case LAB_CLAIM_SECONDS:
        vt_text_printf(out, "%.4g x %f s = %f s", c->a, c->b, c->a * c->b);
        break;
    case LAB_CLAIM_LEVEL:
        vt_buf_printf(out, "sm_%d < sm_%.0f", h->kernel_level, c->a);
        break;
    case LAB_CLAIM_BLOCKS: {
        double blocks = floor(h->max_shared_bytes / c->a);
        vt_text_printf(out, "%d KiB / %.0f KiB = %.0f block; %.0f x %.0f / %.0f warps = %f share",
                       h->max_shared_bytes >> 10, c->a / 1024, blocks, blocks, c->b, c->c,
                       blocks * c->b / c->c);
        break;
    }
    }
}

/* The least times of some of these calls by every data sheet. */
static void put_sheets(vt_buf *out)
{
    static const char *const name[] = {SXM, "a100-80gb-pcie", "h100", "h200"};
    vt_buf_puts(out,
                "## The same calls by other data sheets\n\n"
                "| hardware | memory | bf16 | index, 1 MiB | QKV, 51.5 GFLOP | weights of 0.6B, "
                "1.2 GB |\n|---|---:|---:|---:|---:|---:|\n");
    for (int i = 0; i < 4; i++) {
        vt_err err = {0};
        const vt_hardware *h = vt_hardware_find(name[i], &err);
        if (!h)
            continue;
        double memory = h->roofs.memory_bytes_per_s, bf16 = h->roofs.bf16_per_s;
        vt_text_printf(out, "| `%s` (%s) | %f B/s | %f FLOP/s | %f s | %f s | %f s |\n", name[i],
                       h->source, memory, bf16, (1 MIB) / memory, 2.0 * 512 * 4096 * 12288 / bf16,
                       1.2e9 / memory);
    }
}

void lab_physics_page(vt_buf *out)
{
    int n = 0;
    vt_buf_puts(
        out, "# Published numbers that physics does not allow\n\n"
             "Tutorials on LLM serving repeat numbers that a line of arithmetic refutes. Each row "
             "divides what the published shape must move or compute by the published time, and "
             "holds it against the data sheet. The last column is the lab that measures the same "
             "on your machine. This page is written by `vitrine lab physics`.\n\n"
             "| # | published | hardware | amount | recomputed | what follows | measure it |\n"
             "|---:|---|---|---|---|---|---|\n");
    for (const lab_claim *c = lab_claims; c->claim; c++) {
        vt_buf_printf(out, "| %d | %s | `%s` | %s | ", ++n, c->claim, c->hardware, c->from);
        lab_claim_recompute(c, out);
        vt_buf_printf(out, " | %s | `vitrine lab %s` |\n", c->verdict, c->lab);
    }
    vt_buf_puts(
        out,
        "\nFour more are contradictions rather than numbers. The same store kernel is described as "
        "one fused launch and as two. Its thread count is given as 128 and as 256. Attention is "
        "said to dominate the time of a GPU of which the profile beside it gives 23 % to "
        "attention. A library's comparison of ids is called faster than any vector code: `vitrine "
        "lab mini-sglang radix` runs both. And low bandwidth beside busy SMs does not mean that "
        "registers are spilled: look at local loads and stores first.\n\n");
    put_sheets(out);
}
