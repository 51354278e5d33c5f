// Stamps: when a launch's first CTA began and when its last one ended, in nanoseconds of %globaltimer. The JIT pastes
// this file in front of a kernel that is compiled with STAMPED, and wraps the kernel's entry in stamp_begin() and
// stamp_end() (jit_stamp.h). Kernels without STAMPED have none of it.
//
// A launch has STAMP_PLACES places, among which its CTAs spread by their SM, so that few of them meet at one address:
//
//   at[0]  the largest ~begin of the CTAs of this place    at[1]  the largest end
//
// Zero means that no CTA has stamped: so a begin is kept as its complement, and clearing the places is a memset.
#include "stamp_params.h"

INLINE u64 *stamp_place(u64 *at)
{
    u32 sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return at + sm % STAMP_PLACES * 2;
}
INLINE u64 stamp_now()
{
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}
// Called by all threads of a CTA before anything else, so also before the kernel waits for the one before it.
INLINE void stamp_begin(u64 *at)
{
    if (threadIdx.x == 0)
        atomicMax(stamp_place(at), ~stamp_now());
}
// Called by all threads of a CTA when they have done everything else.
INLINE void stamp_end(u64 *at)
{
    __syncthreads();
    if (threadIdx.x == 0)
        atomicMax(stamp_place(at) + 1, stamp_now());
}
