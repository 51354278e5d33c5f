/* Variants of embed on CUDA: embed_rows.cu with one parameter changed at a time. No engine chooses
 * them. A gather moves the same bytes in all of them, so none is expected to be faster than the
 * chosen row; they are here so that this can be measured.
 *
 *   rows             one warp copies a row, 128 threads a CTA
 *   rows-2, rows-4   two and four warps copy a row
 *   rows-adaptive    warps a row, and threads a CTA, by the number of rows
 *   rows-full        registers are limited, so that 2,048 threads fit on an SM
 *   rows-32b         each lane copies 32 bytes that are neighbours
 *   rows-keep-y      L2 shall keep y, which the next kernel reads, rather than the table
 *   rows-keep-table  L2 shall keep the table, in which tokens repeat, rather than y
 *   rows-staged      through shared memory with cp.async
 *   rows-shuffle     one lane reads the token, a shuffle gives it to the others */
#include "ops/embed/embed_impls.h"

#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/embed/embed.h"
#include "ops/embed/embed_params.h"
#include "ops/linear/linear_pack_cuda.h"

enum { KEEP_Y = 1, KEEP_TABLE = 2, WARP = 32 };

/* One variant: the template parameters of embed_rows.cu. 0: 1 split, 128 threads, 8 CTAs an SM, 16
 * bytes. */
typedef struct rows_form {
    int32_t splits, occupancy, vector, hint;
    bool staged, shuffle, adaptive;
} rows_form;

enum { THREADS = 128, OCCUPANCY = 8 };

/* Warps per row. The adaptive form goes by the bytes of a row, as Mini-SGLang does. */
static int32_t splits_of(const rows_form *f, int64_t row_bytes)
{
    if (f->adaptive)
        return row_bytes % 2048 == 0 ? 4 : row_bytes % 1024 == 0 ? 2 : 1;
    return f->splits ? f->splits : 1;
}

static bool rows_supports(const embed_args *a, const rows_form *f)
{
    int64_t bytes = 2 * a->y->dim[1];
    int32_t unit = f->vector ? f->vector : 16;
    return !a->part && a->table->dtype == VT_BF16 && a->y->dtype == VT_BF16 && a->scale == 1 &&
           bytes <= INT32_MAX && bytes % ((int64_t)unit * splits_of(f, bytes)) == 0;
}

/* The adaptive form has as few warps in a CTA as it takes to give every SM a CTA. */
static int32_t threads_of(const rows_form *f, const vt_target *t, int64_t warps)
{
    int32_t threads = THREADS;
    while (f->adaptive && threads > WARP && vt_ceil_div(warps * WARP, threads) < t->sm_count)
        threads /= 2;
    return threads;
}

static cuda_launch launch_of(const embed_args *a, const vt_target *t, const rows_form *f,
                             int64_t tokens)
{
    int32_t bytes = 2 * (int32_t)a->y->dim[1], splits = splits_of(f, bytes);
    int32_t threads = threads_of(f, t, tokens * splits);
    return (cuda_launch){.spec = JIT_SPEC("embed_rows.cu", "embed_rows", {"row_bytes", bytes},
                                          {"splits", splits}, {"threads", threads},
                                          {"occupancy", f->occupancy ? f->occupancy : OCCUPANCY},
                                          {"vector", f->vector ? f->vector : 16}, {"hint", f->hint},
                                          {"staged", f->staged}, {"shuffle", f->shuffle}),
                         .grid = {cuda_blocks(tokens * splits * WARP, threads), 1, 1},
                         .threads = (uint32_t)threads};
}

static vt_status rows_run(const embed_args *a, const vt_lane *lane, const rows_form *f)
{
    int64_t tokens = a->y->dim[0];
    embed_params p = {.table = a->table->data,
                      .tokens = *a->tokens,
                      .pool = a->token_pool ? *a->token_pool : NULL,
                      .y = a->y->data,
                      .n_tokens = (int32_t)tokens,
                      .scale = 1};
    cuda_launch l = launch_of(a, lane->target, f, tokens);
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void rows_describe(const embed_args *a, const vt_target *t, const vt_size *size,
                          const rows_form *f, vt_cut *out)
{
    int64_t tokens = vt_size_rows(a->y, size);
    int32_t splits = splits_of(f, 2 * a->y->dim[1]);
    cuda_launch l = launch_of(a, t, f, tokens);
    vt_cut_shape(out, "%lld rows of %lld from %lld", (long long)tokens, (long long)a->y->dim[1],
                 (long long)a->table->dim[0]);
    vt_cut_roles(out,
                 splits == 1   ? "1 warp a row"
                 : splits == 2 ? "2 warps a row"
                               : "4 warps a row",
                 NULL);
    vt_cut_grid(out, t, &l, f->vector ? f->vector : 16);
}

/* A row of a card has functions and no data, so each form needs functions of its own. */
#define ROWS(id, label, ...)                                                                       \
    static const rows_form form_##id = {__VA_ARGS__};                                              \
    static bool supports_##id(const void *a, const vt_target *t, const vt_size *upto)              \
    {                                                                                              \
        (void)t, (void)upto;                                                                       \
        return rows_supports(a, &form_##id);                                                       \
    }                                                                                              \
    static vt_status run_##id(const void *a, const vt_lane *lane)                                  \
    {                                                                                              \
        return rows_run(a, lane, &form_##id);                                                      \
    }                                                                                              \
    static void describe_##id(const void *a, const vt_target *t, const vt_size *size, vt_cut *out) \
    {                                                                                              \
        rows_describe(a, t, size, &form_##id, out);                                                \
    }                                                                                              \
    const vt_impl embed_rows_##id = {.name = label,                                                \
                                     .device = VT_DEVICE_CUDA,                                     \
                                     .fixed_order = true,                                          \
                                     .supports = supports_##id,                                    \
                                     .run = run_##id,                                              \
                                     .describe = describe_##id,                                    \
                                     .packing = &linear_table_packing}

ROWS(1, "rows", .splits = 1);
ROWS(2, "rows-2", .splits = 2);
ROWS(4, "rows-4", .splits = 4);
ROWS(adaptive, "rows-adaptive", .adaptive = true);
ROWS(full, "rows-full", .occupancy = 16);
ROWS(32_bytes, "rows-32b", .vector = 32);
ROWS(keep_y, "rows-keep-y", .hint = KEEP_Y);
ROWS(keep_table, "rows-keep-table", .hint = KEEP_TABLE);
ROWS(staged, "rows-staged", .staged = true);
ROWS(shuffle, "rows-shuffle", .shuffle = true);
