// The contract of `vitrine lab kernel FILE.cu --op OP`. A file has three lines that matter:
//
//     #include "lab_kernel.cuh"
//     #include "rmsnorm_params.h"           // the struct that the engine's own kernel of this op gets
//
//     LAB_KERNEL(rmsnorm_params, 256)       // that struct, and the threads of a CTA
//     {
//         ...                               // the kernel; its parameters are `p`
//     }
//
//     LAB_LAUNCH(rmsnorm_params)            // runs once for each shape, before the kernel
//     {
//         launch.grid = p.n_rows;           // CTAs; `sms` is the number of SMs
//     }                                     // also: launch.grid_y, launch.grid_z, launch.shared_bytes
//
// LAB_KERNEL comes first. LAB_LAUNCH may read numbers of `p`, but not what its pointers point at; its
// answer must depend on the shape alone. `extern __shared__` memory has launch.shared_bytes bytes.
// There is besides: everything of ptx.cuh (u16, u32, load16, store16, bf16_f32, pack8, warp_sum ...), no header of
// CUDA, and integer macros of the call:
//
//     op             struct                   macros
//     rmsnorm        rmsnorm_params.h         HIDDEN, ROWS (1: row[] says which row of x), PLUS_ONE
//     add_rmsnorm    rmsnorm_params.h         HIDDEN, PLUS_ONE; residual is read and written
//     embed          embed_params.h           HIDDEN, SCALED (1: times scale); tokens[t] < 0: pool[-1 - tokens[t]]
//     silu_mul       silu_mul_params.h        N, GELU
//     kv_store       kv_store_params.h, kv.cuh   KV_HEADS, HEAD_DIM, PAGE, FP8
//
// Activations are BF16 as bits (u16), norm weights fp32. In the lab's cases rows lie close together and begin at a
// multiple of 16 bytes where a row has a multiple of 8 elements. The comments at the head of src/ops/OP/OP.h have the
// mathematics. A kernel may write its outputs and nothing else.

struct lab_launch {
    u32 grid, grid_y, grid_z, threads, shared_bytes;
};

template <class Params> struct lab_ask {
    lab_launch *out;
    i32 sms;
    Params p;
};

#define LAB_KERNEL(params, cta_threads)            \
    constexpr u32 lab_threads = (cta_threads);     \
    KERNEL __launch_bounds__(cta_threads) lab_kernel(const __grid_constant__ params p)

#define LAB_LAUNCH(params)                                                        \
    INLINE void lab_choose(const params &p, i32 sms, lab_launch &launch);         \
    KERNEL lab_launch_of(const __grid_constant__ lab_ask<params> ask)             \
    {                                                                             \
        lab_launch launch = {1, 1, 1, lab_threads, 0};                            \
        lab_choose(ask.p, ask.sms, launch);                                       \
        *ask.out = launch;                                                        \
    }                                                                             \
    INLINE void lab_choose(const params &p, i32 sms, lab_launch &launch)
