// Copies the first slots of a page to another, in every layer's K and V pool (a prefix hit that
// ends inside a page).
//
// pools [layers * 2, pages, KV_HEADS, PAGE, HEAD_DIM] bf16, POOL_STRIDE bytes apart as a parameter.
// copies [n] {from, to, n_tokens}. Grid: x = copies, y = layers * 2 pools, z = kv heads; 128
// threads copy n_tokens * HEAD_DIM elements.
// Template: KV_HEADS, HEAD_DIM, PAGE.

struct PageCopy {
    i32 from, to, n_tokens;
};
struct PageCopyParams {
    u8 *pools;
    const PageCopy *copies;
    u64 pool_stride; // bytes
};

KERNEL __launch_bounds__(128) page_copy(const __grid_constant__ PageCopyParams p)
{
    pdl_go();
    pdl_wait();
    PageCopy c = p.copies[blockIdx.x];
    u16 *pool = (u16 *)(p.pools + blockIdx.y * p.pool_stride);
    const u16 *from = pool + ((i64)c.from * KV_HEADS + blockIdx.z) * PAGE * HEAD_DIM;
    u16 *to = pool + ((i64)c.to * KV_HEADS + blockIdx.z) * PAGE * HEAD_DIM;
    if constexpr (HEAD_DIM % 8 == 0) {
        for (int i = threadIdx.x; i < c.n_tokens * (HEAD_DIM / 8); i += 128)
            store16(to + i * 8, load16(from + i * 8));
    } else {
        for (int i = threadIdx.x; i < c.n_tokens * HEAD_DIM; i += 128)
            to[i] = from[i];
    }
}
