// Stamps: when a launch began, when it had waited for the launch before it, and, where the host asks for it, when its
// last CTA ended, in nanoseconds of %globaltimer. The JIT pastes this file in front of a kernel that is compiled with
// STAMPED, and wraps the kernel's entry (jit_stamp.h). Kernels without STAMPED have none of it.
//
// The CTAs of a graph's kernel are awake before the kernel in front of it has ended, and wait for that end. So the end
// of a launch is what the next one sees when it has waited, and a kernel need not stamp its own: that would be work
// between its last store and its end, which every kernel behind it waits for. The first CTA stamps for all of its
// launch, in two plain stores that nothing waits for.
//
// Where no kernel of ours follows, a kernel is compiled to stamp its end (STAMP_ENDS): the last STAMP_PLACES CTAs, in
// the order in which they are launched, store theirs. All CTAs did once; for a kernel of 256 that was 0.7 us, as the
// end of a kernel waits for its stores. Even code for it that does not run cost 1.3 % of a step: others have none.
// STAMP_WAITS words are the kernel's own (ops/comm.cuh). A word is 0 until it is stamped.
//
// With STAMP_CTAS, where the host gives a table of CTAs, each CTA writes its own begin, end and SM into it, in the
// order of blockIdx. Others have none of it: asking for the table at both ends is work of every CTA.
//
// A text's other entries cannot be compiled: what they share with the stamped one names its parameters. So they become
// templates that nobody uses.
#include "stamp_params.h"

#undef KERNEL
#define KERNEL template <int> __global__ void
#define STAMPED_KERNEL extern "C" __global__ void

INLINE u64 stamp_now()
{
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}
INLINE bool stamp_first()
{
    return threadIdx.x == 0 && (blockIdx.x | blockIdx.y | blockIdx.z) == 0;
}
// Written so, it takes no registers from kernels that hold weights in all of theirs: with the condition in the branch
// and an assignment, linear_small spills some of them (tests/unit/test_cuda_kernels.c looks).
INLINE void stamp_once(u64 *word)
{
    if (stamp_first())
        asm volatile("st.global.u64 [%0], %1;" ::"l"(word), "l"(stamp_now()) : "memory");
}
// Called by all threads before anything else.
INLINE void stamp_begin(u64 *at) { stamp_once(at + STAMP_BEGAN); }
INLINE u32 stamp_index() { return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x; }
// Called by all threads of a CTA when they have done everything else.
INLINE void stamp_end(u64 *at)
{
    u32 behind = gridDim.x * gridDim.y * gridDim.z - 1 - stamp_index();
    if (behind >= STAMP_PLACES)
        return;
    __syncthreads();
    if (threadIdx.x == 0)
        at[STAMP_ENDED + behind] = stamp_now();
}
// The words of this CTA.
INLINE u64 *stamp_cta(u64 *table) { return table + (u64)stamp_index() * STAMP_CTA_WORDS; }
// Called by all threads before anything else, where there is a table.
INLINE void stamp_cta_begin(u64 *table)
{
    if (threadIdx.x == 0)
        stamp_cta(table)[STAMP_CTA_BEGAN] = stamp_now();
}
// Called by all threads of a CTA when they have done everything else, where there is a table.
INLINE void stamp_cta_end(u64 *table)
{
    u32 sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    __syncthreads();
    if (threadIdx.x == 0) {
        stamp_cta(table)[STAMP_CTA_ENDED] = stamp_now();
        stamp_cta(table)[STAMP_CTA_SM] = (u64)sm + 1;
    }
}
