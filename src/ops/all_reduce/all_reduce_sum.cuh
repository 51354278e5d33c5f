// The kernels that sum over ranks (all_reduce.cu) share this: vectors of 8 bf16 of all ranks, their sum, and the
// packets of push. It is included behind comm.cuh, with RANKS defined; P: their parameters, with x, inbox and comm.

// One vector of every rank.
struct Row {
    uint4 x[RANKS];
};
template <class P> INLINE Row load_row(const P &p, u64 i)
{
    Row row;
#pragma unroll
    for (u32 r = 0; r < RANKS; r++)
        row.x[r] = load_peer16(p.x[r] + i * 8);
    return row;
}

// The sum of the ranks, in their order.
INLINE f32x8 sum_of(const Row &row)
{
    f32x8 sum;
#pragma unroll
    for (u32 r = 0; r < RANKS; r++) {
        f32x8 x = unpack8(row.x[r]);
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum.v[k] = r == 0 ? x.v[k] : sum.v[k] + x.v[k];
    }
    return sum;
}

INLINE uint4 add_residual(uint4 residual, uint4 sums)
{
    f32x8 a = unpack8(residual), b = unpack8(sums);
#pragma unroll
    for (int k = 0; k < 8; k++)
        a.v[k] += b.v[k];
    return pack8(a);
}

// ---- push ----
// Sends a vector to rank r, as vector i of this rank.
template <class P> INLINE void push_to(const P &p, u32 call, u32 r, u64 i, uint4 v)
{
    uint4 *to = (uint4 *)p.inbox[r] + packet_of<RANKS>(call, p.comm.rank, 2 * i);
    store_packet(to, v.x, v.y, packet_number(call));
    store_packet(to + 1, v.z, v.w, packet_number(call));
}
// Sends vector i of this rank to its peers.
template <class P> INLINE void push_vector(const P &p, u32 call, u64 i, uint4 mine)
{
#pragma unroll
    for (u32 r = 0; r < RANKS; r++)
        if (r != p.comm.rank)
            push_to(p, call, r, i, mine);
}
// Waits for vector i of the peers.
template <class P> INLINE Row await_vectors(const P &p, u32 call, u64 i, uint4 mine)
{
    Row row;
    u32 number = packet_number(call), rank = p.comm.rank;
#pragma unroll
    for (u32 r = 0; r < RANKS; r++) {
        row.x[r] = mine;
        if (r == rank)
            continue;
        const uint4 *from = (const uint4 *)p.inbox[rank] + packet_of<RANKS>(call, r, 2 * i);
        uint2 a = await_packet(p.comm, from, number, r),
              b = await_packet(p.comm, from + 1, number, r);
        row.x[r] = make_uint4(a.x, a.y, b.x, b.y);
    }
    return row;
}
