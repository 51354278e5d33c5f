/* Hopper: mbarriers, TMA, wgmma, clusters.
 *
 * The 8 bytes of an mbarrier in shared memory hold the pending arrivals, the arrivals per phase,
 * the bytes still to come (biased), the phase, and a mark that poisoned memory does not have. TMA
 * loads arrive when no thread can run (or at a random moment if the order is random). TMA stores
 * and wgmmas happen when a thread waits for them, so a missing wait gives wrong results. */
#include <cmath>
#include <cstring>

#include "runtime.h"

static void need_sm90(Thread *t, const char *what)
{
    if (t->group->launch->sm_level < 90)
        fail(t, "%s needs sm_90; this device is sm_%d", what, t->group->launch->sm_level);
}

/* ---- mbarriers ---- */

struct Mbar {
    uint64_t pending : 20, expected : 20, tx : 21, phase : 1, mark : 2;
};
enum { TX_ZERO = 1 << 20, MARK = 1, MOST_ARRIVALS = (1 << 20) - 1 };

static Mbar *mbar_at(Thread *t, uint32_t address, const char *what)
{
    Mbar *b = (Mbar *)shared_at(t, address, 8, 8, what);
    if (b->mark != MARK)
        fail(t, "%s: there is no mbarrier at shared address %u", what, address & 0xffffff);
    return b;
}

/* Ends the phase if all arrivals and all bytes have come; its waiters go on. */
static void settle(Cta *c, Mbar *b)
{
    if (b->pending || b->tx != TX_ZERO)
        return;
    if (c->group->races)
        race_mbar_complete(c->rank << 24 | (uint32_t)((char *)b - c->shared));
    b->phase ^= 1;
    b->pending = b->expected;
    for (Thread **at = &c->waiters; *at;) {
        Thread *t = *at;
        if (t->mbar == (uint64_t *)b && t->parity != b->phase) {
            *at = t->next_waiter;
            wake(t->warp, 1u << t->lane);
        } else {
            at = &t->next_waiter;
        }
    }
}

static void mbar_init(emu_thread *e, unsigned address, unsigned count)
{
    Thread *t = (Thread *)e;
    need_sm90(t, "mbarrier");
    if (count == 0 || count > MOST_ARRIVALS)
        fail(t, "mbarrier.init with %u arrivals", count);
    Mbar *b = (Mbar *)shared_at(t, address, 8, 8, "mbarrier.init");
    b->pending = b->expected = count;
    b->tx = TX_ZERO;
    b->phase = 0;
    b->mark = MARK;
    if (t->group->races) {
        race_touch(t, b, 8, RACE_WRITE);
        race_mbar_init(t, address);
    }
}

static void mbar_arrive(emu_thread *e, unsigned address, unsigned count, unsigned bytes)
{
    Thread *t = (Thread *)e;
    Mbar *b = mbar_at(t, address, "mbarrier.arrive");
    if (b->tx + bytes >= 2 * TX_ZERO)
        fail(t, "an mbarrier expects more than %d bytes", TX_ZERO - 1);
    if (count > b->pending)
        fail(t, "more arrivals in a phase of an mbarrier than the %u it was made for",
             (uint32_t)b->expected);
    if (t->group->races) {
        race_touch(t, b, 8, RACE_WRITE | RACE_ATOMIC);
        if (count)
            race_mbar_arrive(t, address);
    }
    b->tx += bytes;
    b->pending -= count;
    settle(&t->group->cta[address >> 24], b);
}

static bool has_passed(Thread *t, Mbar *b, uint32_t address, uint32_t parity)
{
    if (t->group->races)
        race_touch(t, b, 8, RACE_ATOMIC);
    if (b->phase == (parity & 1))
        return false;
    if (t->group->races)
        race_mbar_wait(t, address);
    return true;
}

static int mbar_test(emu_thread *e, unsigned address, unsigned parity)
{
    Thread *t = (Thread *)e;
    if (has_passed(t, mbar_at(t, address, "mbarrier.test_wait"), address, parity))
        return 1;
    yield(t);
    return 0;
}

static void mbar_wait(emu_thread *e, unsigned address, unsigned parity)
{
    Thread *t = (Thread *)e;
    Mbar *b = mbar_at(t, address, "mbarrier.try_wait");
    if (has_passed(t, b, address, parity))
        return;
    Cta *c = &t->group->cta[address >> 24];
    t->mbar = (uint64_t *)b;
    t->parity = parity & 1;
    t->next_waiter = c->waiters;
    c->waiters = t;
    wait_for(t, "the mbarrier at shared address %u, parity %u", address & 0xffffff, parity);
    has_passed(t, b, address, parity);
}

static void bytes_arrive(Thread *t, uint32_t address, uint32_t bytes)
{
    Mbar *b = mbar_at(t, address, "TMA's mbarrier");
    if (b->tx < bytes)
        fail(t, "more bytes have arrived at an mbarrier than it can count");
    b->tx -= bytes;
    settle(&t->group->cta[address >> 24], b);
}

/* ---- TMA ---- */

static const emu_tensor_map *map_of(Thread *t, const void *p, int rank, uint32_t shared_address)
{
    const emu_tensor_map *m = (const emu_tensor_map *)p;
    need_sm90(t, "TMA");
    if ((uintptr_t)p % 64 || m->magic != EMU_TENSOR_MAP)
        fail(t, "%p is no tensor map (made by cuTensorMapEncodeTiled, 64-byte aligned)", p);
    if ((int)m->rank != rank)
        fail(t, "a tensor map of rank %u used with %d coordinates", m->rank, rank);
    if (shared_address % 128)
        fail(t, "TMA at shared address %u, which is no multiple of 128", shared_address & 0xffffff);
    return m;
}

static uint32_t box_bytes(const emu_tensor_map *m)
{
    uint32_t bytes = m->dtype_bytes;
    for (uint32_t d = 0; d < m->rank; d++)
        bytes *= m->box[d];
    return bytes;
}

static uint32_t swizzled(uint32_t offset, uint32_t span)
{
    return span < 32 ? offset : offset ^ ((offset >> 7 & (span / 16 - 1)) << 4);
}

/* f(shared, global, n, low, high) for every 16 bytes or fewer of a box in shared memory; those from
 * low to high are in the tensor. */
template <class F>
static void each_piece(Thread *t, const emu_tensor_map *m, const int *at, uint32_t address, F f)
{
    uint32_t inner = m->box[0] * m->dtype_bytes, rows = box_bytes(m) / inner;
    shared_at(t, address, box_bytes(m), 128, "TMA");
    char *base = t->group->cta[address >> 24].shared;
    long long first = (long long)at[0], width = (long long)m->dim[0], lead = first < 0 ? -first : 0;
    long long inside = width - first < m->box[0] ? width - first : m->box[0];
    uint32_t from = (uint32_t)(lead > m->box[0] ? m->box[0] : lead) * m->dtype_bytes;
    uint32_t to = inside > 0 ? (uint32_t)inside * m->dtype_bytes : 0;
    for (uint32_t r = 0; r < rows; r++) {
        char *global = (char *)(uintptr_t)m->address + first * (long long)m->dtype_bytes;
        bool valid = from < to;
        for (uint32_t d = 1, left = r; d < m->rank; left /= m->box[d], d++) {
            long long x = (long long)at[d] + left % m->box[d];
            valid = valid && x >= 0 && x < (long long)m->dim[d];
            global += x * (long long)m->stride[d - 1];
        }
        for (uint32_t b = 0; b < inner; b += 16) {
            char *here = base + swizzled((address & 0xffffff) + r * inner + b, m->swizzle_bytes);
            uint32_t n = inner - b < 16 ? inner - b : 16, low = from > b ? from - b : 0,
                     high = to > b ? to - b : 0;
            low = !valid || low > n ? n : low;
            high = !valid ? n : high > n ? n : high < low ? low : high;
            f(here, global + b, n, low, high);
        }
    }
}

/* Copies a box from or to the tensor. Elements outside the tensor read as zeros and are not
 * written. */
static void move_box(Thread *t, const emu_tensor_map *m, const int *at, uint32_t address, bool load)
{
    each_piece(t, m, at, address,
               [&](char *here, char *global, uint32_t n, uint32_t low, uint32_t high) {
                   if (load) {
                       memset(here, 0, low);
                       memcpy(here + low, global + low, high - low);
                       memset(here + high, 0, n - high);
                   } else {
                       memcpy(global + low, here + low, high - low);
                   }
               });
}

bool load_arrives(Group *g)
{
    if (g->loads_done == g->loads.size()) {
        g->loads.clear();
        g->loads_done = 0;
        return false;
    }
    TmaLoad l = g->loads[g->loads_done++];
    Thread *t = l.issuer;
    if (l.map) {
        move_box(t, l.map, l.at, l.to, true);
    } else {
        memcpy(shared_at(t, l.to, l.bytes, 16, "a bulk copy"), l.from, l.bytes);
    }
    bytes_arrive(t, l.mbar, l.bytes);
    return true;
}

/* For the race detector: a wait for the mbarrier's present phase orders the load's writes. */
static void touch_as_load(Thread *t, uint32_t mbar, const void *p, uint32_t bytes, uint32_t kind)
{
    const RaceMbar &b = race.mbar[mbar];
    race_touch_as(t, RACE_MBARS, b.lane, b.phases + 1, p, bytes, kind | RACE_ASYNC);
}

static void tma_load(emu_thread *e, const void *map, unsigned to, unsigned mbar, int rank,
                     const int *at)
{
    Thread *t = (Thread *)e;
    const emu_tensor_map *m = map_of(t, map, rank, to);
    TmaLoad l = {t, m, nullptr, to, mbar, box_bytes(m), {}};
    shared_at(t, to, l.bytes, 128, "TMA");
    mbar_at(t, mbar, "TMA's mbarrier");
    memcpy(l.at, at, (size_t)rank * sizeof *at);
    t->group->loads.push_back(l);
    if (t->group->races)
        each_piece(t, m, at, to,
                   [&](char *here, char *global, uint32_t n, uint32_t low, uint32_t high) {
                       touch_as_load(t, mbar, global + low, high - low, RACE_READ);
                       touch_as_load(t, mbar, here, n, RACE_WRITE);
                   });
}

static void bulk_load(emu_thread *e, unsigned to, const void *from, unsigned bytes, unsigned mbar)
{
    Thread *t = (Thread *)e;
    need_sm90(t, "cp.async.bulk");
    if (bytes % 16 || (uintptr_t)from % 16)
        fail(t, "cp.async.bulk of %u bytes from %p: multiples of 16 only", bytes, from);
    char *here = shared_at(t, to, bytes, 16, "cp.async.bulk");
    mbar_at(t, mbar, "cp.async.bulk's mbarrier");
    TmaLoad l = {t, nullptr, from, to, mbar, bytes, {}};
    t->group->loads.push_back(l);
    if (t->group->races) {
        touch_as_load(t, mbar, from, bytes, RACE_READ);
        touch_as_load(t, mbar, here, bytes, RACE_WRITE);
    }
}

static void tma_store(emu_thread *e, const void *map, unsigned from, int rank, const int *at)
{
    Thread *t = (Thread *)e;
    BulkStore s = {map_of(t, map, rank, from), from, {}};
    memcpy(s.at, at, (size_t)rank * sizeof *at);
    t->stores.add(s);
    if (t->group->races)
        each_piece(t, s.map, at, from,
                   [&](char *here, char *global, uint32_t, uint32_t low, uint32_t high) {
                       race_touch(t, here + low, high - low, RACE_READ | RACE_ASYNC | RACE_PENDING);
                       race_touch(t, global + low, high - low,
                                  RACE_WRITE | RACE_ASYNC | RACE_PENDING);
                   });
}

static void finish_store(Thread *t, const BulkStore &s, bool global_too)
{
    each_piece(t, s.map, s.at, s.from,
               [&](char *here, char *global, uint32_t, uint32_t low, uint32_t high) {
                   if (global_too)
                       race_finish(t, global + low, high - low, RACE_WRITE);
                   else
                       race_finish(t, here + low, high - low, RACE_READ);
               });
}

static void bulk_commit(emu_thread *e) { ((Thread *)e)->stores.commit(); }

/* .read: the sources of the stores may be written again. Their targets are complete only after a
 * wait without .read. */
static void bulk_wait_read(emu_thread *e, unsigned pending)
{
    Thread *t = (Thread *)e;
    Pending<BulkStore> &p = t->stores;
    uint32_t groups = p.groups_until(pending);
    for (uint32_t i = p.done; groups > p.groups_done && i < p.end_of(groups); i++) {
        move_box(t, p.at(i)->map, p.at(i)->at, p.at(i)->from, false);
        if (t->group->races) {
            finish_store(t, *p.at(i), false);
            t->stored.push_back(*p.at(i));
        }
    }
    p.finish(groups);
}

static void bulk_wait(emu_thread *e, unsigned pending)
{
    Thread *t = (Thread *)e;
    bulk_wait_read(e, pending);
    if (pending == 0 && t->group->races) {
        for (const BulkStore &s : t->stored)
            finish_store(t, s, true);
        t->stored.clear();
    }
}

/* ---- wgmma ----
 *
 * The tensor cores begin when all four warps of a warpgroup have issued. So a thread that waits for
 * a group waits until all 128 lanes have committed it, and then does the work for all of them. (One
 * thread may therefore release a stage for its warpgroup.) A warp owns 16 of the 64 rows. */

static void touch_operands(Thread *t, const Wgmma &m);

static void wgmma_fence(emu_thread *e) { ((Thread *)e)->wgmma_fenced = true; }

static void wgmma(emu_thread *e, float *d, emu_u64 a, const unsigned *a_registers, emu_u64 b, int n,
                  int flags)
{
    Thread *t = (Thread *)e;
    if (t->group->launch->sm_level != 90)
        fail(t, "wgmma needs sm_90; this device is sm_%d", t->group->launch->sm_level);
    if (!t->wgmma_fenced)
        fail(t, "a wgmma without a wgmma.fence before it");
    if (t->index / 128 * 128 + 128 > t->cta->n_warps * 32)
        fail(t, "wgmma outside a whole warpgroup");
    Wgmma w = {d, a, b, {}, n, flags, a_registers != nullptr};
    if (a_registers)
        memcpy(w.registers, a_registers, sizeof w.registers);
    t->wgmmas.add(w);
    if (t->group->races && t->lane == 0)
        touch_operands(t, w);
}

static Warp *warpgroup_of(Thread *t)
{
    Warp *w = t->warp;
    return w - t->index / 32 % 4;
}

static void wgmma_commit(emu_thread *e)
{
    Thread *t = (Thread *)e;
    Warp *w = t->warp;
    t->wgmmas.commit();
    uint32_t group = t->wgmmas.committed();
    if (group - w->committed > 15)
        fail(t, "is more than 15 groups of wgmma ahead of its warp");
    if (++w->commits[group % 16] < 32)
        return;
    w->commits[group % 16] = 0;
    w->committed = group;
    for (Warp *each = warpgroup_of(t), *end = each + 4; each < end; each++) {
        wake(each, each->wgmma_waiting);
        each->wgmma_waiting = 0;
    }
}

/* A matrix descriptor: where elements lie in shared memory. */
struct Operand {
    uint32_t start, lbo, sbo, span; /* span: bytes of the swizzle, 0: none */
    bool transposed;                /* rows of K with the other dimension contiguous */
};

static Operand operand_of(uint64_t d, bool transposed)
{
    static const uint32_t spans[4] = {0, 128, 64, 32};
    return {(uint32_t)(d & 0x3fff) << 4, (uint32_t)(d >> 16 & 0x3fff) << 4,
            (uint32_t)(d >> 32 & 0x3fff) << 4, spans[d >> 62], transposed};
}

/* Eight elements with the contiguous index `major` (a multiple of 8) of row `minor`. */
static const uint16_t *eight(Thread *t, const Operand &o, uint32_t minor, uint32_t major)
{
    uint32_t at;
    if (!o.span)
        at = o.start + minor / 8 * (o.transposed ? o.lbo : o.sbo) +
             major / 8 * (o.transposed ? o.sbo : o.lbo) + minor % 8 * 16;
    else if (o.transposed)
        at = o.start + major * 2 / o.span * o.lbo + minor / 8 * o.sbo + minor % 8 * o.span +
             major * 2 % o.span;
    else
        at = o.start + minor / 8 * o.sbo + minor % 8 * o.span + major * 2;
    return (const uint16_t *)shared_at(t, t->shared_base | swizzled(at, o.span), 16, 16, "wgmma");
}

enum { MAX_N = 256 };

/* Not instrumented by sanitizers: it works on local variables alone. n is a multiple of 8. */
EMU_CLONES __attribute__((no_sanitize("address", "undefined"))) static void
multiply_16xnx16(float (*c)[MAX_N], const float (*a)[16], const float (*b)[MAX_N], int n)
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < n; j += 8) {
            float8 sum = *(const float8 *)&c[i][j];
            for (int k = 0; k < 16; k++)
                sum += a[i][k] * *(const float8 *)&b[k][j];
            *(float8 *)&c[i][j] = sum;
        }
}

static float e4m3(uint8_t v)
{
    float size = v & 0x78 ? ldexpf((float)(8 + (v & 7)), (v >> 3 & 15) - 10) : ldexpf(v & 7, -9);
    return (v & 0x7f) == 0x7f ? NAN : v & 0x80 ? -size : size;
}

/* Columns 16 half .. 16 half + 15 of the K of E4M3 operands. */
static void load_a_e4m3(Warp *w, const Wgmma &m, uint32_t index, uint32_t half, float (*a)[16])
{
    float sign = m.flags & EMU_NEGATE_A ? -1.f : 1.f;
    if (!m.a_in_registers) {
        uint32_t row0 = w->lane[0]->index / 32 % 4 * 16;
        for (uint32_t i = 0; i < 16; i++) {
            const uint8_t *v = (const uint8_t *)eight(w->lane[0], operand_of(m.a, false), row0 + i,
                                                      half * 8);
            for (uint32_t e = 0; e < 16; e++)
                a[i][e] = sign * e4m3(v[e]);
        }
        return;
    }
    for (int lane = 0; lane < 32; lane++) {
        const uint32_t *r = w->lane[lane]->wgmmas.at(index)->registers + 2 * half;
        for (int e = 0; e < 8; e++)
            a[lane / 4 + e / 4 * 8][lane % 4 * 4 + e % 4] =
                sign * e4m3((uint8_t)(r[e / 4] >> 8 * (e % 4)));
    }
}

static void load_b_e4m3(Warp *w, const Wgmma &m, uint32_t half, float (*b)[MAX_N])
{
    float sign = m.flags & EMU_NEGATE_B ? -1.f : 1.f;
    Operand o = operand_of(m.b, false);
    for (uint32_t j = 0; j < (uint32_t)m.n; j++) {
        const uint8_t *v = (const uint8_t *)eight(w->lane[0], o, j, half * 8);
        for (uint32_t e = 0; e < 16; e++)
            b[e][j] = sign * e4m3(v[e]);
    }
}

/* A: 16 rows of this warp; B: all of its columns. */
static void load_a(Warp *w, const Wgmma &m, uint32_t index, float (*a)[16])
{
    float sign = m.flags & EMU_NEGATE_A ? -1.f : 1.f;
    if (m.a_in_registers) {
        for (int lane = 0; lane < 32; lane++) {
            int g = lane / 4, q = lane % 4 * 2;
            const uint32_t *r = w->lane[lane]->wgmmas.at(index)->registers;
            for (int e = 0; e < 8; e++)
                a[g + e / 2 % 2 * 8][q + e % 2 + e / 4 * 8] = sign * bf16((uint16_t)(r[e / 2] >>
                                                                                     16 * (e % 2)));
        }
        return;
    }
    Operand o = operand_of(m.a, m.flags & EMU_TRANSPOSE_A);
    uint32_t row0 = w->lane[0]->index / 32 % 4 * 16;
    for (uint32_t i = 0; i < 16; i++)
        for (uint32_t half = 0; half < 2; half++) {
            const uint16_t *v = o.transposed ? eight(w->lane[0], o, i, row0 + half * 8)
                                             : eight(w->lane[0], o, row0 + i, half * 8);
            for (uint32_t e = 0; e < 8; e++)
                (o.transposed ? a[half * 8 + e][i] : a[i][half * 8 + e]) = sign * bf16(v[e]);
        }
}

static void load_b(Warp *w, const Wgmma &m, float (*b)[MAX_N])
{
    float sign = m.flags & EMU_NEGATE_B ? -1.f : 1.f;
    Operand o = operand_of(m.b, m.flags & EMU_TRANSPOSE_B);
    uint32_t n = (uint32_t)m.n;
    if (o.transposed) {
        for (uint32_t k = 0; k < 16; k++)
            for (uint32_t j = 0; j < n; j += 8) {
                const uint16_t *v = eight(w->lane[0], o, k, j);
                for (uint32_t e = 0; e < 8; e++)
                    b[k][j + e] = sign * bf16(v[e]);
            }
    } else {
        for (uint32_t j = 0; j < n; j++)
            for (uint32_t half = 0; half < 16; half += 8) {
                const uint16_t *v = eight(w->lane[0], o, j, half);
                for (uint32_t e = 0; e < 8; e++)
                    b[half + e][j] = sign * bf16(v[e]);
            }
    }
}

/* For the race detector: a warp reads its rows of A and all of B until the wgmma's group is waited
 * for. */
static void touch_operands(Thread *t, const Wgmma &m)
{
    uint32_t group = t->wgmmas.committed() + 1, row0 = t->index / 32 % 4 * 16;
    auto read = [&](const Operand &o, uint32_t first, uint32_t rows) {
        uint32_t minors = o.transposed ? 16 : rows, majors = o.transposed ? rows : 16;
        for (uint32_t i = 0; i < minors; i++)
            for (uint32_t j = 0; j < majors; j += 8)
                race_touch_as(
                    t, RACE_WGMMAS, t->warp->index % 32, group,
                    eight(t, o, (o.transposed ? 0 : first) + i, (o.transposed ? first : 0) + j), 16,
                    RACE_READ | RACE_ASYNC);
    };
    if (!m.a_in_registers)
        read(operand_of(m.a, m.flags & EMU_TRANSPOSE_A), row0, 16);
    read(operand_of(m.b, m.flags & EMU_TRANSPOSE_B), 0, (uint32_t)m.n);
}

/* The accumulators of a warp: lane 4 g + t holds (g, 8 j + 2 t), + 1, and row g + 8 likewise. */
static void move_c(Warp *w, uint32_t index, int n, float (*c)[MAX_N], bool store)
{
    for (int lane = 0; lane < 32; lane++) {
        float *d = w->lane[lane]->wgmmas.at(index)->d;
        int g = lane / 4, q = lane % 4 * 2;
        for (int j = 0; j < n / 8; j++)
            for (int e = 0; e < 4; e++) {
                float *in = &c[g + e / 2 * 8][j * 8 + q + e % 2];
                if (store)
                    d[4 * j + e] = *in;
                else
                    *in = d[4 * j + e];
            }
    }
}

/* Computes the groups of one warp up to number `groups`. */
static void multiply(Warp *w, uint32_t groups)
{
    Pending<Wgmma> &p = w->lane[0]->wgmmas;
    alignas(64) float a[16][16], b[16][MAX_N], c[16][MAX_N];
    const Wgmma *held = nullptr; /* the wgmma whose accumulators are in c */
    uint32_t end = p.end_of(groups), i = p.done;
    for (; i < end; i++) {
        const Wgmma *m = p.at(i);
        for (int lane = 1; lane < 32; lane++) {
            const Wgmma *o = w->lane[lane]->wgmmas.at(i);
            if (!o || o->b != m->b || o->a != m->a || o->n != m->n || o->flags != m->flags)
                return fail(w->lane[lane], "lanes of a warp disagree on a wgmma");
        }
        if (!held || held->d != m->d) {
            if (held)
                move_c(w, i - 1, held->n, c, true);
            move_c(w, i, m->n, c, false);
        }
        held = m;
        if (!(m->flags & EMU_ACCUMULATE))
            memset(c, 0, sizeof c);
        for (uint32_t half = 0; m->flags & EMU_E4M3 && half < 2; half++) {
            load_a_e4m3(w, *m, i, half, a);
            load_b_e4m3(w, *m, half, b);
            multiply_16xnx16(c, a, b, m->n);
        }
        if (m->flags & EMU_E4M3)
            continue;
        load_a(w, *m, i, a);
        load_b(w, *m, b);
        multiply_16xnx16(c, a, b, m->n);
    }
    if (held)
        move_c(w, i - 1, held->n, c, true);
    for (Thread *t : w->lane)
        t->wgmmas.finish(groups);
}

static void finish_wgmmas(Thread *t, Warp *four, uint32_t groups);

static void wgmma_wait(emu_thread *e, unsigned pending)
{
    Thread *t = (Thread *)e;
    uint32_t groups = t->wgmmas.groups_until(pending);
    Warp *four = warpgroup_of(t);
    if (groups > t->wgmmas.groups_done)
        finish_wgmmas(t, four, groups);
    if (t->group->races && groups)
        race_wgmma_done(t, four, groups);
}

static void finish_wgmmas(Thread *t, Warp *four, uint32_t groups)
{
    for (int i = 0; i < 4; i++)
        while (four[i].committed < groups) {
            t->warp->wgmma_waiting |= 1u << t->lane;
            wait_for(t, "the other warps of its warpgroup to commit wgmma group %u", groups, 0);
        }
    for (int i = 0; i < 4; i++)
        multiply(&four[i], groups);
}

/* ---- clusters ---- */

static void cluster_settle(Group *g)
{
    if (g->cluster_arrived < g->live || !g->cluster_arrived)
        return;
    g->cluster_arrived = 0;
    g->cluster_generation++;
    if (g->races)
        race.cluster_done = race.cluster.publish();
    for (Warp &w : g->warp)
        if (w.cluster_waiting) {
            wake(&w, w.cluster_waiting);
            w.cluster_waiting = 0;
        }
}

static void cluster_arrive(emu_thread *e)
{
    Thread *t = (Thread *)e;
    need_sm90(t, "barrier.cluster");
    if (t->cluster_arrived)
        fail(t, "barrier.cluster.arrive twice without a wait");
    t->cluster_arrived = true;
    t->cluster_generation = t->group->cluster_generation;
    t->group->cluster_arrived++;
    if (t->group->races)
        race_arrive(t, &race.cluster);
    cluster_settle(t->group);
}

static void cluster_wait(emu_thread *e)
{
    Thread *t = (Thread *)e;
    if (!t->cluster_arrived)
        fail(t, "barrier.cluster.wait without an arrive");
    t->cluster_arrived = false;
    if (t->group->cluster_generation != t->cluster_generation) {
        go_last(t); /* so that a CTA that ends too early is noticed */
    } else {
        t->warp->cluster_waiting |= 1u << t->lane;
        wait_for(t, "the other threads of the cluster", 0, 0);
    }
    if (t->group->races)
        race_take(t, race.cluster_done);
}

void cluster_after_exit(Group *g) { cluster_settle(g); }

emu_api emu_sm90();
emu_api emu_sm90()
{
    emu_api a = {};
    a.mbar_init = mbar_init;
    a.mbar_arrive = mbar_arrive;
    a.mbar_wait = mbar_wait;
    a.mbar_test = mbar_test;
    a.tma_load = tma_load;
    a.tma_store = tma_store;
    a.bulk_load = bulk_load;
    a.bulk_commit = bulk_commit;
    a.bulk_wait = bulk_wait;
    a.bulk_wait_read = bulk_wait_read;
    a.wgmma_fence = wgmma_fence;
    a.wgmma = wgmma;
    a.wgmma_commit = wgmma_commit;
    a.wgmma_wait = wgmma_wait;
    a.cluster_arrive = cluster_arrive;
    a.cluster_wait = cluster_wait;
    return a;
}
