// A row of N bf16 elements in the registers of LANES threads, for norms that read it more than once:
//
//   lane l   vectors l, l + LANES, l + 2 LANES ... of VEC elements (8 or 1)
//
// THREADS / LANES rows share a CTA. LANES is a power of two up to 32, or THREADS (row_cuda.h). Elements
// behind the row's end are zeros. Needs N, VEC, THREADS and LANES.
constexpr int kPer = ((N + VEC - 1) / VEC + LANES - 1) / LANES, kRows = THREADS / LANES;

// The row's elements that this lane has.
struct RowPart {
    float v[kPer][VEC];
};

// Calls f(i, k, column) for each element of the lane that the row has.
template <typename F> INLINE void each_element(u32 lane, F f)
{
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        u32 at = (i * LANES + lane) * VEC;
        if (at < N)
#pragma unroll
            for (int k = 0; k < VEC; k++)
                f(i, k, at + k);
    }
}

// Loads a row; zeros where it is not there.
INLINE void load_row(RowPart &r, const u16 *from, u32 lane, bool there)
{
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        u32 at = (i * LANES + lane) * VEC;
        if constexpr (VEC == 8) {
            f32x8 f = unpack8(there && at < N ? load16(from + at) : make_uint4(0, 0, 0, 0));
#pragma unroll
            for (int k = 0; k < VEC; k++)
                r.v[i][k] = f.v[k];
        } else {
            r.v[i][0] = there && at < N ? bf16_f32(from[at]) : 0.f;
        }
    }
}

// Loads the lane's elements of fp32 weights that are 16-byte aligned and that no kernel writes, 16 bytes at a time:
// one by one they keep L1 busy for longer than the row does.
INLINE void load_weights(RowPart &r, const float *from, u32 lane)
{
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        u32 at = (i * LANES + lane) * VEC;
        if constexpr (VEC == 8) {
#pragma unroll
            for (int k = 0; k < VEC; k += 4) {
                float4 f = at < N ? __ldg((const float4 *)(from + at + k)) : make_float4(0.f, 0.f, 0.f, 0.f);
                r.v[i][k] = f.x, r.v[i][k + 1] = f.y, r.v[i][k + 2] = f.z, r.v[i][k + 3] = f.w;
            }
        } else {
            r.v[i][0] = at < N ? __ldg(from + at) : 0.f;
        }
    }
}

INLINE void store_row(const RowPart &r, u16 *to, u32 lane)
{
#pragma unroll
    for (int i = 0; i < kPer; i++) {
        u32 at = (i * LANES + lane) * VEC;
        if (at >= N)
            continue;
        if constexpr (VEC == 8) {
            f32x8 f;
#pragma unroll
            for (int k = 0; k < VEC; k++)
                f.v[k] = r.v[i][k];
            store16(to + at, pack8(f));
        } else {
            to[at] = f32_bf16(r.v[i][0]);
        }
    }
}

// The sum over the row's lanes, which all of them get: by shuffles, then one value a warp through `part`, floats of
// shared memory that nobody reads any more. All threads of the CTA call it.
INLINE float row_sum(float sum, float *part)
{
#pragma unroll
    for (int d = (LANES < 32 ? LANES : 32) / 2; d > 0; d /= 2)
        sum += __shfl_xor_sync(~0u, sum, d);
    if constexpr (LANES > 32) {
        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0.f;
#pragma unroll
        for (int i = 0; i < THREADS / 32; i++)
            sum += part[i];
    }
    return sum;
}
