/* RMSNorm over the vector type: see simd_portable.h for how this header is compiled. Rows are dealt
 * out to the workers. One worker sums a row in four interleaved partial sums, so its bits do not
 * depend on the number of workers. One pass reads x for the sum, a second (from L1) scales it. */
#include <math.h>

#include "ops/access.h"
#include "ops/cut.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rmsnorm/rmsnorm_impls.h"
#include "ops/rmsnorm/rmsnorm_row.h"

/* 1 / sqrt(mean(x^2) + eps) of x[0..n). */
static inline float inverse_rms(const float *x, int64_t n, float eps)
{
    return 1.0f / sqrtf(square_sum(x, n) / (float)n + eps);
}

static vt_status rmsnorm_run(const void *args, const vt_lane *lane)
{
    const rmsnorm_args *a = args;
    int64_t n = a->y->dim[1], begin, end;
    vt_lane_share(lane, a->y->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = row_f32(a->x, a->row ? (*a->row)[t] : t);
        scale_row(x, a->weight, a->plus_one ? 1 : 0, inverse_rms(x, n, a->eps), row_f32(a->y, t),
                  n);
    }
    return VT_OK;
}

static vt_status add_rmsnorm_run(const void *args, const vt_lane *lane)
{
    const rmsnorm_args *a = args;
    int64_t n = a->y->dim[1], begin, end;
    vt_lane_share(lane, a->y->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = row_f32(a->x, t);
        float *r = row_f32(a->residual, t);
        for (int64_t i = 0; i < n; i += VF) {
            int lanes = lanes_left(i, n);
            vf_store_n(r + i, vf_add(vf_load_n(x + i, lanes), vf_load_n(r + i, lanes)), lanes);
        }
        scale_row(r, a->weight, a->plus_one ? 1 : 0, inverse_rms(r, n, a->eps), row_f32(a->y, t),
                  n);
    }
    return VT_OK;
}

/* The variant "add-then-norm": what two ops would do, with the barrier between them. The sums of a
 * worker's rows may have left its L1 when it normalises them. */
static inline vt_status add_then_norm_run(const void *args, const vt_lane *lane)
{
    const rmsnorm_args *a = args;
    int64_t n = a->y->dim[1], begin, end;
    vt_lane_share(lane, a->y->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = row_f32(a->x, t);
        float *r = row_f32(a->residual, t);
        for (int64_t i = 0; i < n; i += VF) {
            int lanes = lanes_left(i, n);
            vf_store_n(r + i, vf_add(vf_load_n(x + i, lanes), vf_load_n(r + i, lanes)), lanes);
        }
    }
    vt_team_barrier(lane->team, lane->worker);
    rmsnorm_args norm = *a;
    norm.x = a->residual;
    norm.residual = NULL;
    return rmsnorm_run(&norm, lane);
}

static inline vt_cost add_then_norm_extra(const void *args, const vt_target *t,
                                          const vt_batch *batch)
{
    (void)t;
    const rmsnorm_args *a = args;
    return (vt_cost){.read = {.activations = vt_batch_bytes(a->residual, batch)}};
}

static bool rmsnorm_supports(const void *args, const vt_target *t, const vt_size *upto)
{
    (void)t, (void)upto;
    const rmsnorm_args *a = args;
    return a->x->dtype == VT_F32 && a->y->dtype == VT_F32 && dtype_is_float(a->weight->dtype) &&
           (!a->residual || a->residual->dtype == VT_F32);
}

static void rmsnorm_describe(const void *args, const vt_target *t, const vt_size *size, vt_cut *out)
{
    const rmsnorm_args *a = args;
    int64_t rows = vt_size_rows(a->y, size);
    vt_cut_shape(out, "%lld rows of %lld", (long long)rows, (long long)a->y->dim[1]);
    vt_cut_cpu(out, t, rows, (int32_t)(VF * sizeof(float)));
}

const vt_impl SIMD_ROW(rmsnorm) = {SIMD_IMPL(rmsnorm, rmsnorm_supports)};

const vt_impl SIMD_ROW(add_rmsnorm) = {.name = SIMD_NAME,
                                       .device = VT_DEVICE_CPU,
                                       .isa = SIMD_ISA,
                                       .supports = rmsnorm_supports,
                                       .run = add_rmsnorm_run,
                                       .describe = rmsnorm_describe};

#ifndef SIMD_PORTABLE /* a variant has no portable form */
const vt_impl SIMD_ROW(add_then_norm) = {.name = "add-then-norm-" SIMD_NAME,
                                         .device = VT_DEVICE_CPU,
                                         .isa = SIMD_ISA,
                                         .supports = rmsnorm_supports,
                                         .run = add_then_norm_run,
                                         .describe = rmsnorm_describe,
                                         .extra = add_then_norm_extra};
#endif
