/* Learned positions over the vector type: see simd_portable.h for how this header is compiled.
 * Tokens are dealt out to the workers. */
#include "ops/access.h"
#include "ops/cut.h"
#include "ops/add_position/add_position_impls.h"
#include "ops/simd_any.h"

static vt_status position_run(const void *args, const vt_lane *lane)
{
    const add_position_args *a = args;
    int64_t n = a->x->dim[1], begin, end;
    vt_lane_share(lane, a->x->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *x = row_f32(a->x, t);
        int64_t p = (int64_t)(a->batch->position[t] + a->first) * a->table->row_stride;
        int64_t type = a->types ? position_type(a->batch, t) * a->types->row_stride : 0;
        for (int64_t i = 0; i < n; i += VF) {
            int lanes = lanes_left(i, n);
            vf v = vf_load_any(a->table->data, a->table->dtype, p + i, lanes);
            if (a->types)
                v = vf_add(v, vf_load_any(a->types->data, a->types->dtype, type + i, lanes));
            vf_store_n(x + i, vf_add(vf_load_n(x + i, lanes), v), lanes);
        }
    }
    return VT_OK;
}

static bool position_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const add_position_args *a = args;
    return a->x->dtype == VT_F32 && dtype_is_float(a->table->dtype) &&
           (!a->types || dtype_is_float(a->types->dtype));
}

static void position_describe(const void *args, const vt_target *t, const vt_size *size,
                              vt_cut *out)
{
    const add_position_args *a = args;
    int64_t tokens = vt_size_rows(a->x, size);
    vt_cut_shape(out, "%lld rows of %lld", (long long)tokens, (long long)a->x->dim[1]);
    vt_cut_cpu(out, t, tokens, (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(position) = {SIMD_IMPL(position, position_supports)};
