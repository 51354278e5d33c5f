/* The square of ReLU over the vector type: see simd_portable.h for how this header is compiled. */
#include "ops/access.h"
#include "ops/cut.h"
#include "ops/relu2/relu2.h"
#include "ops/relu2/relu2_impls.h"
#include "ops/simd_any.h"

enum { RELU2_CHUNK = 1024 }; /* elements of a row that are one piece of work */

static vt_status relu2_run(const void *args, const vt_lane *lane)
{
    const relu2_args *a = args;
    int64_t n = a->y->dim[1], chunks = vt_ceil_div(n, RELU2_CHUNK), begin, end;
    vt_lane_share(lane, a->y->dim[0] * chunks, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t i = unit % chunks * RELU2_CHUNK;
        int64_t last = i + RELU2_CHUNK < n ? i + RELU2_CHUNK : n;
        const float *x = row_f32(a->x, unit / chunks);
        float *y = row_f32(a->y, unit / chunks);
        for (; i < last; i += VF) {
            int lanes = lanes_left(i, last);
            vf v = vf_max(vf_load_n(x + i, lanes), vf_zero());
            vf_store_n(y + i, vf_mul(v, v), lanes);
        }
    }
    return VT_OK;
}

static bool relu2_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const relu2_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32;
}

static void relu2_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const relu2_args *a = args;
    int64_t rows = vt_size_rows(a->y, size), n = a->y->dim[1];
    vt_cut_shape(out, "%lld rows of %lld", (long long)rows, (long long)n);
    out->tile[0] = 1;
    out->tile[1] = RELU2_CHUNK;
    vt_cut_cpu(out, t, rows * vt_ceil_div(n, RELU2_CHUNK), (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(relu2) = {SIMD_IMPL(relu2, relu2_supports)};
