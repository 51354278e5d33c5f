// How the ranks of a group meet inside a kernel. Every CTA has a flag for each rank in the memory of each rank:
//
//   flag[r][b][p]    in rank r's memory, written by rank p: the number of the meeting that CTA b of rank p has come to
//
// CTA b of a rank writes the number to its peers and waits until the peers' CTAs b have written it here. So it polls
// its own memory, and what CTAs b of all ranks wrote before the meeting can be read behind it. Numbers grow from
// meeting to meeting (and are compared around 2^32), so flags need no reset.
//
// A wait ends after limit_ns at the latest, and soon after another rank has failed: then results mean nothing, and
// *failed says who did not come.
#include "comm_inbox_params.h"
#include "comm_params.h"

INLINE u32 load_flag(const u32 *p)
{
    u32 v;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
INLINE u32 load_relaxed(const u32 *p)
{
    u32 v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
INLINE void store_flag(u32 *p, u32 v)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
INLINE u64 time_ns()
{
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
// Reads what a peer wrote, past caches that may hold older values.
INLINE uint4 load_peer16(const void *p)
{
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
INLINE u16 load_peer2(const u16 *p)
{
    u16 v;
    asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
    return v;
}

// How long a thread has waited.
struct Wait {
    u32 polls;
    u64 end;
};
// Called behind every poll that found nothing of rank `peer`. False: the wait ends.
INLINE bool wait_on(const comm_params &c, Wait &w, u32 peer)
{
    constexpr u32 kOften = 256; // polls between two looks at the clock
    if (++w.polls % kOften)
        return true;
    if (load_relaxed(c.failed))
        return false;
    u64 now = time_ns();
    w.end = w.end ? w.end : now + c.limit_ns;
    if (c.limit_ns == 0 || now < w.end)
        return true;
    store_flag(c.failed, comm_failure(peer, c.order));
    return false;
}

// Waits until a flag has come to `number`. `peer` is the rank that writes it.
INLINE void await_flag(const comm_params &c, const u32 *flag, u32 number, u32 peer)
{
    Wait w = {0, 0};
    while ((i32)(load_flag(flag) - number) < 0 && wait_on(c, w, peer))
        ;
}

// A packet: two words of data and, behind each, the number of its call. It is there when both numbers are: words of 8
// bytes are written and read as a whole.
INLINE void store_packet(void *p, u32 a, u32 b, u32 number)
{
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(a), "r"(number),
                 "r"(b), "r"(number)
                 : "memory");
}
INLINE uint4 load_packet(const void *p)
{
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}
constexpr u64 kPackets = COMM_INBOX_BYTES / 16; // of a rank in an inbox

// Where packet i of rank `from` lies in an inbox, in call number `call`.
template <u32 kRanks> INLINE u64 packet_of(u32 call, u32 from, u64 i)
{
    return (call % COMM_INBOXES * kRanks + from) * kPackets + i;
}
INLINE u32 packet_number(u32 call) { return call | 1u << 31; }

INLINE uint2 await_packet(const comm_params &c, const void *p, u32 number, u32 peer)
{
    Wait w = {0, 0};
    uint4 v = load_packet(p);
    while ((v.y != number || v.w != number) && wait_on(c, w, peer))
        v = load_packet(p);
    return make_uint2(v.x, v.z);
}

// A stamped call (device/cuda/stamp.cuh) notes for each of its meetings the shortest time that a CTA waited there: so
// long no CTA could do anything else. wait_begins() and wait_ended() stand around a wait; others than stamped kernels
// have nothing of them.
#ifdef STAMPED
constexpr bool kNoteWaits = true;
#else
constexpr bool kNoteWaits = false;
#endif
INLINE u64 wait_begins() { return kNoteWaits ? time_ns() : 0; }
INLINE void wait_ended(const comm_params &c, u32 meeting, u64 since)
{
    if (kNoteWaits && threadIdx.x == 0)
        atomicMax((u64 *)c.waited + meeting, ~(time_ns() - since));
}

// The meetings of one call have numbers in a row, of which a call may use MEETINGS.
INLINE u32 comm_number(const comm_params &c) { return (*c.base + c.order) * COMM_MEETINGS; }

// All threads of the CTA call it, behind pdl_wait(). What they wrote before is seen by the peers' CTAs of this number.
template <u32 kRanks> INLINE void comm_meet(const comm_params &c, u32 number)
{
    u32 cta = blockIdx.x * COMM_GPU_RANKS, peer = threadIdx.x;
    __syncthreads();
    u64 since = wait_begins();
    if (peer < kRanks && peer != c.rank) {
        store_flag(c.flag[peer] + cta + c.rank, number);
        await_flag(c, c.flag[c.rank] + cta + peer, number, peer);
    }
    __syncthreads();
    wait_ended(c, number % COMM_MEETINGS, since);
}
