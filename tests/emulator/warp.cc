/* Operations of several lanes: shuffles, votes, ldmatrix, mma.sync, barriers; and cp.async.
 *
 * Each lane leaves its arguments in its Thread and waits; the last one to arrive does the work of
 * all. Lanes that have exited are not waited for; a shuffle reads NaN from them. */
#include <cstring>
#include <ctime>

#include "runtime.h"

/* ---- rendezvous ---- */

static bool same_site(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void complete(Warp *w, Rendezvous *r, uint32_t but)
{
    uint32_t lanes = r->arrived;
    r->arrived = 0;
    w->active &= ~(1u << (r - w->meet));
    r->op(w, lanes);
    wake(w, lanes & ~but);
}

static void vote_op(Warp *w, uint32_t lanes);
static void sync_op(Warp *w, uint32_t lanes);

void meet(Thread *t, uint32_t mask, warp_op op)
{
    Warp *w = t->warp;
    uint32_t bit = 1u << t->lane;
    if (!(mask & bit))
        fail(t, "the member mask %#x does not name lane %u, which calls", mask, t->lane);
    Rendezvous *r = nullptr;
    for (uint32_t active = w->active; active && !r; active &= active - 1)
        if (w->meet[__builtin_ctz(active)].mask == mask)
            r = &w->meet[__builtin_ctz(active)];
    if (!r) {
        uint32_t i = (uint32_t)__builtin_ctz(~w->active);
        r = &w->meet[i];
        *r = {mask, 0, op, t->site};
        w->active |= 1u << i;
    } else if (r->op != op || (op != vote_op && op != sync_op && !same_site(r->site, t->site))) {
        fail(t, "lanes of a warp have diverged: others (%#x) are at %s", r->arrived,
             r->site ? r->site : "?");
    }
    r->arrived |= bit;
    if (mask & w->live & ~r->arrived)
        wait_for(t, "the other lanes of its warp (member mask %#x)", mask, 0);
    else
        complete(w, r, bit);
}

void meet_all(Thread *t, warp_op op) { meet(t, ~0u, op); }

/* A lane has exited: lanes that waited only for it go on. */
void lane_exits(Thread *t)
{
    Warp *w = t->warp;
    for (uint32_t active = w->active; active; active &= active - 1) {
        Rendezvous *r = &w->meet[__builtin_ctz(active)];
        if (!(r->mask & w->live & ~r->arrived))
            complete(w, r, 0);
    }
}

/* ---- shuffles and votes ---- */

static int source_of(int kind, int lane, int param, int width)
{
    int first = lane & ~(width - 1), last = lane | (width - 1), from = lane;
    switch (kind) {
    case EMU_IDX:
        return first | (param & (width - 1));
    case EMU_UP:
        from = lane - param;
        return from < first ? lane : from;
    case EMU_DOWN:
        from = lane + param;
        return from > last ? lane : from;
    default:
        from = lane ^ param;
        return from > last ? lane : from;
    }
}

static void shuffle_op(Warp *w, uint32_t lanes)
{
    for (uint32_t left = lanes; left; left &= left - 1) {
        Thread *t = w->lane[__builtin_ctz(left)];
        int from = source_of(t->kind, (int)t->lane, t->param, t->width);
        t->result = from >= 0 && from < 32 && (lanes >> from & 1) ? w->lane[from]->value : ~0ull;
    }
}

static emu_u64 shuffle(emu_thread *e, unsigned mask, int kind, emu_u64 value, int param, int width)
{
    Thread *t = (Thread *)e;
    if (width < 1 || width > 32 || (width & (width - 1)))
        fail(t, "a shuffle of width %d", width);
    t->kind = kind;
    t->value = value;
    t->param = param;
    t->width = width;
    meet(t, mask, shuffle_op);
    return t->result;
}

static void vote_op(Warp *w, uint32_t lanes)
{
    uint32_t ballot = 0;
    for (uint32_t left = lanes; left; left &= left - 1)
        ballot |= (uint32_t)(w->lane[__builtin_ctz(left)]->value != 0) << __builtin_ctz(left);
    for (uint32_t left = lanes; left; left &= left - 1)
        w->lane[__builtin_ctz(left)]->result = (uint64_t)lanes << 32 | ballot;
}

static unsigned vote(emu_thread *e, unsigned mask, int predicate, unsigned *members)
{
    Thread *t = (Thread *)e;
    t->value = predicate != 0;
    meet(t, mask, vote_op);
    *members = (uint32_t)(t->result >> 32);
    return (uint32_t)t->result;
}

static void sync_op(Warp *w, uint32_t lanes)
{
    if (w->cta->group->races)
        race_warp(w, lanes);
}

static void sync_warp(emu_thread *e, unsigned mask) { meet((Thread *)e, mask, sync_op); }

static void reduce_op(Warp *w, uint32_t lanes)
{
    Thread *first = w->lane[__builtin_ctz(lanes)];
    uint64_t all = first->value;
    for (uint32_t left = lanes & (lanes - 1); left; left &= left - 1) {
        uint64_t v = w->lane[__builtin_ctz(left)]->value;
        switch (first->kind) {
        case 0:
            all += v;
            break;
        case 1:
            all = (uint32_t)v > (uint32_t)all ? v : all;
            break;
        case 2:
            all = (uint32_t)v < (uint32_t)all ? v : all;
            break;
        case 3:
            all = (int)v > (int)all ? v : all;
            break;
        default:
            all = (int)v < (int)all ? v : all;
        }
    }
    for (uint32_t left = lanes; left; left &= left - 1)
        w->lane[__builtin_ctz(left)]->result = all;
}

static emu_u64 reduce(emu_thread *e, unsigned mask, int kind, emu_u64 value)
{
    Thread *t = (Thread *)e;
    t->kind = kind;
    t->value = value;
    meet(t, mask, reduce_op);
    return t->result;
}

/* ---- ldmatrix: lane 8 i + r names row r of matrix i ---- */

static void ldmatrix_op(Warp *w, uint32_t lanes)
{
    Thread *first = w->lane[__builtin_ctz(lanes)];
    uint32_t n = (uint32_t)first->param;
    const uint16_t *row[32];
    for (uint32_t i = 0; i < 8 * n; i++) {
        if (!(lanes >> i & 1))
            return fail(first, "ldmatrix without lane %u", i);
        Thread *t = w->lane[i];
        row[i] = (const uint16_t *)shared_at(t, (uint32_t)t->value, 16, 16, "ldmatrix");
        if (t->group->races)
            race_touch(t, row[i], 16, RACE_READ);
    }
    for (uint32_t left = lanes; left; left &= left - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(left);
        uint32_t *out = (uint32_t *)w->lane[lane]->args;
        for (uint32_t i = 0; i < n; i++)
            if (first->kind)
                out[i] = row[8 * i + lane % 4 * 2][lane / 4] |
                         (uint32_t)row[8 * i + lane % 4 * 2 + 1][lane / 4] << 16;
            else
                memcpy(&out[i], row[8 * i + lane / 4] + lane % 4 * 2, 4);
    }
}

static void ldmatrix(emu_thread *e, unsigned address, int n, int transposed, unsigned *out)
{
    Thread *t = (Thread *)e;
    t->value = address;
    t->param = n;
    t->kind = transposed;
    t->args = out;
    meet_all(t, ldmatrix_op);
}

/* ---- stmatrix.x4, .trans: lane 8 i + r names row r of matrix i ---- */

static void stmatrix_op(Warp *w, uint32_t lanes)
{
    for (uint32_t i = 0; i < 32; i++) {
        if (!(lanes >> i & 1))
            return fail(w->lane[__builtin_ctz(lanes)], "stmatrix without lane %u", i);
        Thread *t = w->lane[i];
        uint16_t *row = (uint16_t *)shared_at(t, (uint32_t)t->value, 16, 16, "stmatrix");
        if (t->group->races)
            race_touch(t, row, 16, RACE_WRITE);
        for (uint32_t e = 0; e < 8; e++) {
            uint32_t high = t->kind ? i % 8 : e,
                     lane = t->kind ? 4 * e + high / 2 : i % 8 * 4 + high / 2;
            const uint32_t *from = (const uint32_t *)w->lane[lane]->args;
            row[e] = (uint16_t)(from[i / 8] >> high % 2 * 16);
        }
    }
}

static void stmatrix(emu_thread *e, unsigned address, const unsigned *registers, int transposed)
{
    Thread *t = (Thread *)e;
    t->value = address;
    t->kind = transposed;
    t->args = (void *)registers;
    meet_all(t, stmatrix_op);
}

/* ---- mma.sync.m16n8k16: lane 4 g + t, fragments as ptx.cuh has them ---- */

struct MmaArgs {
    float *c;
    const uint32_t *ab;
};

/* Not instrumented by sanitizers: it works on local variables alone, and is most of the cost of a
 * matrix product. */
EMU_CLONES __attribute__((no_sanitize("address", "undefined"))) static void
multiply_16x8x16(float (*c_of)[4], const uint32_t (*ab_of)[6])
{
    float a[16][16], b[16][8], c[16][8];
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, q = lane % 4 * 2;
        const uint32_t *ab = ab_of[lane];
        for (int e = 0; e < 2; e++) {
            a[g][q + e] = bf16((uint16_t)(ab[0] >> 16 * e));
            a[g + 8][q + e] = bf16((uint16_t)(ab[1] >> 16 * e));
            a[g][q + 8 + e] = bf16((uint16_t)(ab[2] >> 16 * e));
            a[g + 8][q + 8 + e] = bf16((uint16_t)(ab[3] >> 16 * e));
            b[q + e][g] = bf16((uint16_t)(ab[4] >> 16 * e));
            b[q + 8 + e][g] = bf16((uint16_t)(ab[5] >> 16 * e));
            c[g][q + e] = c_of[lane][e];
            c[g + 8][q + e] = c_of[lane][2 + e];
        }
    }
    for (int i = 0; i < 16; i++) {
        float8 sum = *(const float8 *)c[i];
        for (int k = 0; k < 16; k++)
            sum += a[i][k] * *(const float8 *)b[k];
        *(float8 *)c[i] = sum;
    }
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, q = lane % 4 * 2;
        c_of[lane][0] = c[g][q];
        c_of[lane][1] = c[g][q + 1];
        c_of[lane][2] = c[g + 8][q];
        c_of[lane][3] = c[g + 8][q + 1];
    }
}

static void mma_op(Warp *w, uint32_t lanes)
{
    float c[32][4];
    uint32_t ab[32][6];
    if (lanes != ~0u)
        return fail(w->lane[__builtin_ctz(lanes)], "mma.sync with %d lanes",
                    __builtin_popcount(lanes));
    for (int lane = 0; lane < 32; lane++) {
        const MmaArgs *m = (const MmaArgs *)w->lane[lane]->args;
        memcpy(c[lane], m->c, sizeof c[lane]);
        memcpy(ab[lane], m->ab, sizeof ab[lane]);
    }
    multiply_16x8x16(c, ab);
    for (int lane = 0; lane < 32; lane++)
        memcpy(((const MmaArgs *)w->lane[lane]->args)->c, c[lane], sizeof c[lane]);
}

static void mma_bf16(emu_thread *e, float *c, const unsigned *ab)
{
    MmaArgs args = {c, ab};
    ((Thread *)e)->args = &args;
    meet_all((Thread *)e, mma_op);
}

/* ---- barriers: warps are counted, as hardware does, when all their lanes have come ---- */

static bool release(Cta *c, uint32_t id)
{
    Barrier *b = &c->barrier[id];
    uint32_t arrived = 0;
    for (uint32_t i = 0; i < c->n_warps; i++) {
        uint32_t live = c->group->warp[c->first_warp + i].live;
        if (b->arrived[i] ? live & ~b->arrived[i] : !b->threads && live)
            return false;
        arrived += b->arrived[i] ? 32 : 0;
    }
    if (arrived < b->threads)
        return false;
    if (c->group->races)
        race_barrier(c, id, b->syncs);
    for (uint32_t i = 0; i < c->n_warps; i++) {
        Warp *w = &c->group->warp[c->first_warp + i];
        for (uint32_t left = b->arrived[i]; left; left &= left - 1)
            w->lane[__builtin_ctz(left)]->result = (uint64_t)b->sum;
        if (b->waiting[i])
            wake(w, b->waiting[i]);
    }
    memset(b, 0, sizeof *b);
    return true;
}

static int barrier(emu_thread *e, unsigned id, unsigned threads, int wait, int predicate)
{
    Thread *t = (Thread *)e;
    Cta *c = t->cta;
    uint32_t warp = t->index / 32, bit = 1u << t->lane;
    if (id >= BARRIERS || threads % 32)
        fail(t, "barrier %u over %u threads: there are 16, and threads come by warps", id, threads);
    Barrier *b = &c->barrier[id];
    if (b->used && b->threads != threads)
        fail(t, "barrier %u is waited for with %u threads and with %u", id, b->threads, threads);
    if (b->arrived[warp] & bit)
        fail(t, "arrives twice at barrier %u", id);
    if (b->arrived[warp] && !same_site(b->site[warp], t->site))
        fail(t, "lanes of a warp are at different barriers: others (%#x) at %s", b->arrived[warp],
             b->site[warp]);
    b->used = true;
    b->threads = threads;
    b->sum += predicate > 0;
    b->site[warp] = t->site;
    b->arrived[warp] |= bit;
    if (wait)
        b->syncs[warp] |= bit;
    else if (t->group->races)
        race_barrier_early(t, id);
    bool whole = !(t->warp->live & ~b->arrived[warp]);
    if (whole && release(c, id))
        return (int)t->result;
    if (!wait)
        return 0;
    b->waiting[warp] |= bit;
    wait_for(t, threads ? "barrier %u (%u threads)" : "barrier %u", id, threads);
    return (int)t->result;
}

void barriers_after_exit(Cta *c)
{
    if (c->live)
        for (uint32_t id = 0; id < BARRIERS; id++)
            if (c->barrier[id].used)
                release(c, id);
}

/* ---- cp.async: happens when a thread waits for it, or at once if the order is random ---- */

static void copy(Thread *t, const Copy &c)
{
    char *to = shared_at(t, c.to, c.bytes, c.bytes, "cp.async");
    if (c.read)
        memcpy(to, c.from, c.read);
    memset(to + c.read, 0, c.bytes - c.read);
}

static void cp_async(emu_thread *e, unsigned to, const void *from, unsigned bytes, unsigned read)
{
    Thread *t = (Thread *)e;
    Copy c = {to, bytes, read, from};
    if (bytes != 4 && bytes != 8 && bytes != 16)
        fail(t, "cp.async of %u bytes", bytes);
    if (read && (uintptr_t)from % bytes)
        fail(t, "cp.async of %u bytes from address %p", bytes, from);
    shared_at(t, to, bytes, bytes, "cp.async");
    if (t->group->races) {
        race_touch(t, from, read, RACE_READ);
        race_touch(t, shared_at(t, to, bytes, bytes, "cp.async"), bytes, RACE_WRITE | RACE_PENDING);
    }
    if (t->group->launch->order && !t->group->races && random_of(t->group, 2))
        copy(t, c);
    else
        t->copies.add(c);
}

static void cp_commit(emu_thread *e) { ((Thread *)e)->copies.commit(); }

static void cp_wait(emu_thread *e, unsigned pending)
{
    Thread *t = (Thread *)e;
    Pending<Copy> &p = t->copies;
    uint32_t groups = p.groups_until(pending);
    for (uint32_t i = p.done; groups > p.groups_done && i < p.end_of(groups); i++) {
        const Copy &c = *p.at(i);
        copy(t, c);
        if (t->group->races)
            race_finish(t, shared_at(t, c.to, c.bytes, c.bytes, "cp.async"), c.bytes, RACE_WRITE);
    }
    p.finish(groups);
}

/* ---- the table ---- */

static char *shared(emu_thread *e, unsigned address, unsigned bytes)
{
    return shared_at((Thread *)e, address, bytes, bytes, "a load or store");
}
static void fail_text(emu_thread *e, const char *text) { fail((Thread *)e, "%s", text); }
static void yield_of(emu_thread *e) { yield((Thread *)e); }
static void fence(emu_thread *e, int proxy)
{
    if (((Thread *)e)->group->races)
        race_fence((Thread *)e, proxy);
}
static void pdl_wait(emu_thread *e)
{
    if (((Thread *)e)->group->races)
        race_pdl_wait((Thread *)e);
}
static void pdl_go(emu_thread *e)
{
    if (((Thread *)e)->group->races)
        race_pdl_go((Thread *)e);
}
static void others(emu_thread *e) { yield_to_others((Thread *)e); }
static void peer(emu_thread *e, const void *p)
{
    if (!emu_may_access(p))
        fail((Thread *)e, "address %p is memory of a device whose access was not enabled", p);
}
static emu_u64 now_ns(emu_thread *)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    emu_u64 ns = (emu_u64)t.tv_sec * 1000000000 + (emu_u64)t.tv_nsec, tick = emu_tick_ns();
    return ns / tick * tick;
}
static unsigned sm(emu_thread *e)
{
    uint64_t cta = e->block.x +
                   (uint64_t)e->grid_dim.x * (e->block.y + (uint64_t)e->grid_dim.y * e->block.z);
    return (unsigned)(cta % emu_sm_count());
}
static void atomic(emu_thread *e, const void *p, unsigned bytes, unsigned kind, const void *site)
{
    race_access(e, p, bytes, (kind & EMU_WRITE ? RACE_WRITE : 0) | RACE_ATOMIC, site);
    if (kind & EMU_PACKET)
        race_packet((Thread *)e, p, kind & EMU_WRITE);
    else
        race_atomic((Thread *)e, p, kind & EMU_READ, kind & EMU_WRITE, kind & EMU_ACQUIRE);
}
static unsigned take_flag(emu_thread *e, const unsigned *p, const void *site)
{
    race_access(e, p, sizeof *p, RACE_ATOMIC, site);
    return race_take_flag((Thread *)e, p);
}
static void give_flag(emu_thread *e, unsigned *p, unsigned value, const void *site)
{
    race_access(e, p, sizeof *p, RACE_WRITE | RACE_ATOMIC, site);
    race_give_flag((Thread *)e, p, value);
}

emu_api emu_sm90(); /* sm90.cc's part of the table */
static emu_api whole_table()
{
    emu_api a = emu_sm90();
    a.shuffle = shuffle;
    a.vote = vote;
    a.reduce = reduce;
    a.ldmatrix = ldmatrix;
    a.stmatrix = stmatrix;
    a.mma_bf16 = mma_bf16;
    a.barrier = barrier;
    a.shared = shared;
    a.cp_async = cp_async;
    a.cp_commit = cp_commit;
    a.cp_wait = cp_wait;
    a.yield = yield_of;
    a.fail = fail_text;
    a.sync_warp = sync_warp;
    a.pdl_wait = pdl_wait;
    a.pdl_go = pdl_go;
    a.fence = fence;
    a.others = others;
    a.peer = peer;
    a.now_ns = now_ns;
    a.sm = sm;
    a.access = race_access;
    a.atomic = atomic;
    a.take_flag = take_flag;
    a.give_flag = give_flag;
    return a;
}
const emu_api emu_runtime = whole_table();
