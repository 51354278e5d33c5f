/* segment_sum on CUDA: the plan that finds the segments, and the launch of segment_sum.cu. */
#include "ops/cuda_impls.h"
#include "ops/cut.h"
#include "ops/segment_sum/segment_sum_impls.h"
#include "ops/segment_sum/segment_sum_params.h"

/* A step has at most as many segments as rows, and as sequences. */
static int32_t segments_items(const void *args, const vt_target *t, const vt_size *size,
                              const vt_batch *batch)
{
    (void)args, (void)batch;
    return size->rows < t->limits.max_seqs ? size->rows : t->limits.max_seqs;
}

static size_t segments_bytes(const void *args, const vt_target *t, const vt_size *size,
                             int32_t items)
{
    (void)args, (void)t, (void)size;
    return (size_t)items * sizeof(segment_rows);
}

static int32_t segments_fill(const void *args, const vt_target *t, const vt_size *size,
                             const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)args, (void)t, (void)size, (void)side;
    segment_rows *s = out;
    int32_t n = 0;
    for (int32_t row = 0, next; row < batch->n_rows; row = next, n++) {
        next = vt_segment_end(batch, row);
        if (n < items)
            s[n] = (segment_rows){.first = row, .n = next - row};
    }
    for (int32_t i = n; i < items; i++)
        s[i] = (segment_rows){0};
    return n;
}

static const vt_host_plan segments_plan = {
    .name = "segments", .items = segments_items, .bytes = segments_bytes, .fill = segments_fill};

enum { THREADS = 256, COLUMNS = 64 }; /* as in segment_sum.cu */

static cuda_launch launch_of(const segment_sum_args *a, int64_t segments)
{
    int32_t n = (int32_t)a->x->dim[1];
    return (cuda_launch){.spec = JIT_SPEC("segment_sum.cu", "segment_sum", {"n", n}),
                         .grid = {cuda_blocks(n, COLUMNS), (uint32_t)segments, 1},
                         .threads = THREADS};
}

static bool segment_sum_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)upto;
    const segment_sum_args *a = args;
    return a->x->dtype == VT_BF16 && a->sum->row_stride == a->rest->row_stride &&
           t->limits.max_seqs <= 65535; /* the most rows of a grid */
}

static vt_status segment_sum_run(const void *args, const vt_lane *lane)
{
    const segment_sum_args *a = args;
    vt_size size = {.rows = (int32_t)a->x->dim[0]};
    cuda_launch l = launch_of(a, segments_items(args, lane->target, &size, NULL));
    segment_sum_params p = {.x = a->x->data,
                            .segment = lane->plan,
                            .sum = a->sum->data,
                            .rest = a->rest->data,
                            .x_stride = (int32_t)a->x->row_stride,
                            .y_stride = (int32_t)a->sum->row_stride};
    return vt_cuda_launch(lane->cuda, &l, &p, sizeof p);
}

static void segment_sum_describe(const void *args, const vt_target *t, const vt_size *size,
                                 vt_cut *out)
{
    const segment_sum_args *a = args;
    cuda_launch l = launch_of(a, segments_items(args, t, size, NULL));
    vt_cut_shape(out, "%lld rows of %lld", (long long)vt_size_rows(a->x, size),
                 (long long)a->x->dim[1]);
    vt_cut_grid(out, t, &l, 2);
}

const vt_impl segment_sum_cuda = {CUDA_ROW("segments", segment_sum, segment_sum_supports),
                                  .fixed_order = true, .plan = &segments_plan};
