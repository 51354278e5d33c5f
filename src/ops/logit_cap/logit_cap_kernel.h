/* The cap of logits over the vector type: see simd_portable.h for how this header is compiled.
 *
 *   tanh(v) = 1 - 2 / (1 + e^(2 v))
 *
 * which is right to 1.2e-7 in absolute terms: as much as a logit near 0 may be off when it is
 * compared with others. */
#include "ops/access.h"
#include "ops/cut.h"
#include "ops/logit_cap/logit_cap.h"
#include "ops/logit_cap/logit_cap_impls.h"
#include "ops/simd_any.h"

enum { CAP_CHUNK = 4096 }; /* elements of a row that are one piece of work */

static vt_status logit_cap_run(const void *args, const vt_lane *lane)
{
    const logit_cap_args *a = args;
    int64_t n = a->y->dim[1], chunk = CAP_CHUNK, chunks = vt_ceil_div(n, chunk), begin, end;
    vf cap = vf_set1(a->cap), twice = vf_set1(2 * LOG2E / a->cap), one = vf_set1(1);
    vt_lane_share(lane, a->y->dim[0] * chunks, 1, &begin, &end);
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t i = unit % chunks * chunk, last = i + chunk < n ? i + chunk : n;
        float *y = row_f32(a->y, unit / chunks);
        for (; i < last; i += VF) {
            int lanes = lanes_left(i, last);
            vf e = vf_exp2(vf_mul(vf_load_n(y + i, lanes), twice));
            vf tanh = vf_sub(one, vf_div(vf_set1(2), vf_add(one, e)));
            vf_store_n(y + i, vf_mul(cap, tanh), lanes);
        }
    }
    return VT_OK;
}

static bool logit_cap_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const logit_cap_args *a = args;
    return a->y->dtype == VT_F32;
}

static void logit_cap_describe(const void *args, const vt_target *t, const vt_size *size,
                               vt_cut *out)
{
    const logit_cap_args *a = args;
    int64_t rows = vt_size_rows(a->y, size), n = a->y->dim[1];
    vt_cut_shape(out, "%lld rows of %lld", (long long)rows, (long long)n);
    out->tile[0] = 1;
    out->tile[1] = CAP_CHUNK;
    vt_cut_cpu(out, t, rows * vt_ceil_div(n, CAP_CHUNK), (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(logit_cap) = {SIMD_IMPL(logit_cap, logit_cap_supports)};
