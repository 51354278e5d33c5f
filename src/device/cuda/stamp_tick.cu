// Measures by how many nanoseconds %globaltimer grows at a time: the least difference between two readings that differ.
//
// Grid: one CTA of one warp, whose first thread reads until the timer has grown 32 times, or 2^20 times in vain.
#include "stamp_params.h"

KERNEL __launch_bounds__(32) stamp_tick(const __grid_constant__ stamp_tick_params p)
{
    pdl_go();
    pdl_wait();
    if (threadIdx.x > 0)
        return;
    u64 least = ~0ull, last = 0;
    for (int reads = 0, grown = 0; grown <= 32 && reads < 1 << 20; reads++) {
        u64 now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (now == last)
            continue;
        if (grown++ > 0 && now - last < least)
            least = now - last;
        last = now;
    }
    *p.tick_ns = least;
}
