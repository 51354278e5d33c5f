// Copies the first slots of one page to another page, in every layer's K and V pool. A prefix hit
// that ends inside a page needs it.
//
// pools [layers * 2, pages, KV_HEADS, PAGE, ROW bytes], pool_stride bytes apart.
// copies [n] {from, to, n_tokens}. Grid: x = copies, y = layers * 2 pools, z = kv heads; the 128
// threads of a CTA copy n_tokens * ROW bytes.
// Template: KV_HEADS, ROW, PAGE.
#include "page_copy_params.h"

KERNEL __launch_bounds__(128) page_copy(const __grid_constant__ page_copy_params p)
{
    pdl_go();
    pdl_wait();
    page_copy_item c = p.copies[blockIdx.x];
    u8 *pool = p.pools + blockIdx.y * p.pool_stride;
    const u8 *from = pool + ((i64)c.from * KV_HEADS + blockIdx.z) * PAGE * ROW;
    u8 *to = pool + ((i64)c.to * KV_HEADS + blockIdx.z) * PAGE * ROW;
    if constexpr (ROW % 16 == 0) {
        for (int i = threadIdx.x; i < c.n_tokens * (ROW / 16); i += 128)
            store16(to + i * 16, load16(from + i * 16));
    } else {
        for (int i = threadIdx.x; i < c.n_tokens * ROW; i += 128)
            to[i] = from[i];
    }
}
