/* The accesses to every 4 bytes, what each new one is checked against, and reports. The head of
 * race.h explains the method.
 *
 *   address ──> cell {stamp, head} ──> entry ──> entry ──> ...      in a pool
 *
 * An entry stands for the accesses of one kind, by lanes of one warp at one clock, to the same
 * bytes of the 4. It is removed when a later access that is ordered after it covers it. So a chain
 * holds the accesses that may still be one half of a race. Cells of shared memory start empty with
 * every CTA. Cells of global memory start empty when something orders all work so far before all
 * that follows; the stamp tells to which such period a cell belongs. Reads of global memory by
 * several CTAs become one entry, because all of them read weights. */
#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <sys/mman.h>

#include "runtime.h"

Race &race = *new Race;

namespace
{

enum : uint32_t { PENDING = ~0u, WARP_BITS = 10, MOST_RECORDS = 1u << (32 - WARP_BITS) };

struct Entry {
    const void *site;
    uint32_t actor /* record << WARP_BITS | warp */, clock, lanes, next;
    uint8_t bytes, kind;
};
struct Cell {
    uint32_t stamp, head;
};

void *room(size_t bytes)
{
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("emulator: memory for accesses");
        abort();
    }
    return p;
}

struct Pool {
    enum : uint32_t { MOST = 1u << 29 };
    Entry *at = nullptr;
    uint32_t used = 1, free = 0;
    void clear() { used = 1, free = 0; }
    uint32_t take()
    {
        uint32_t i = free;
        if (i) {
            free = at[i].next;
            return i;
        }
        if (!at)
            at = (Entry *)room((size_t)MOST * sizeof(Entry));
        if (used == MOST) {
            fprintf(stderr, "emulator: race: too many accesses to remember\n");
            abort();
        }
        return used++;
    }
    void drop(uint32_t i)
    {
        at[i].next = free;
        free = i;
    }
};

enum { REGION_BITS = 22, NEAR = 256 };
struct Shadow {
    Pool shared[RACE_DEVICES], global; /* a device's launch keeps its own while others run */
    Cell *shared_cells[RACE_DEVICES] = {nullptr};
    std::unordered_map<uint64_t, Cell *> regions; /* of 4 MiB each */
    uint64_t near_number[NEAR];
    Cell *near_cells[NEAR];
    Shadow() { memset(near_number, 0xff, sizeof near_number); }
    Cell *global_cell(uint64_t address)
    {
        uint64_t number = address >> REGION_BITS, slot = number % NEAR;
        if (near_number[slot] != number) {
            Cell *&cells = regions[number];
            if (!cells)
                cells = (Cell *)room(sizeof(Cell) << (REGION_BITS - 2));
            near_number[slot] = number;
            near_cells[slot] = cells;
        }
        return near_cells[slot] + (address >> 2 & ((1u << (REGION_BITS - 2)) - 1));
    }
} &shadow = *new Shadow;

struct Access {
    Thread *t;
    const void *site;
    uint64_t address; /* of the whole */
    uint32_t size, actor, clock, bit;
    uint8_t kind;
    bool shared;
};

/* ---- reports ---- */

/* Device memory that exists: address -> bytes. */
std::map<uint64_t, uint64_t> &memory = *new std::map<uint64_t, uint64_t>;

std::string text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
std::string text_of(const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

std::string describe_memory(uint64_t address)
{
    auto m = memory.upper_bound(address);
    if (m == memory.begin() || (--m, address - m->first >= m->second))
        return text_of("global memory at 0x%llx", (unsigned long long)address);
    return text_of("byte %llu of a block of %llu bytes at 0x%llx",
                   (unsigned long long)(address - m->first), (unsigned long long)m->second,
                   (unsigned long long)m->first);
}

std::string place(const void *site, uint8_t kind)
{
    if (!site)
        return "?";
    return kind & RACE_SITE ? std::string((const char *)site) : describe_code(site);
}

const char *verb(uint8_t kind, bool done)
{
    if (kind & RACE_ATOMIC)
        return kind & RACE_WRITE ? (done ? "updated atomically" : "updates atomically")
                                 : (done ? "read atomically" : "reads atomically");
    if (kind & RACE_ASYNC)
        return kind & RACE_WRITE ? (done ? "written by TMA" : "has TMA write")
                                 : (done ? "read by TMA or wgmma" : "has TMA or wgmma read");
    return kind & RACE_WRITE ? (done ? "written" : "writes") : (done ? "read" : "reads");
}

std::string thread_of(const Race::Record &r, uint32_t warp, uint32_t lanes)
{
    uint32_t lane = (uint32_t)__builtin_ctz(lanes), rank = warp / r.warps_a_cta;
    return text_of("CTA (%u, %u, %u), thread %u", r.x + rank, r.y, r.z,
                   (warp - rank * r.warps_a_cta) * 32 + lane);
}

/* The lanes of an entry whose accesses are not ordered before this thread's. */
uint32_t unknown_lanes(const Access &a, const Entry &e, const Race::Record &r, bool proxied)
{
    uint32_t out = 0;
    for (uint32_t left = e.lanes; left; left &= left - 1)
        if (!race_knows(a.t, e.actor >> WARP_BITS, r.launch, e.actor & 1023, left & -left, e.clock,
                        proxied))
            out |= left & -left;
    return out ? out : e.lanes;
}

void report(const Access &a, const Entry &e, uint32_t offset, bool proxied)
{
    static std::set<std::pair<const void *, const void *>> &said =
        *new std::set<std::pair<const void *, const void *>>;
    if (race.races == 0)
        said.clear();
    if (!said.insert({a.site, e.site}).second || ++race.races > 20)
        return;
    const Race::Record &r = race.records[e.actor >> WARP_BITS];
    const Thread *t = a.t;
    uint32_t warp = e.actor & 1023;
    std::string where, who;
    if (a.shared) {
        uint64_t at = a.address - (uint64_t)(uintptr_t)race.group->arenas;
        where = text_of("shared memory at %u", (uint32_t)(at % ARENA) + offset);
        if (race.group->cta.size() > 1)
            where += text_of(" of CTA %u of the cluster", (uint32_t)(at / ARENA));
    } else {
        where = describe_memory(a.address + offset);
    }
    if (e.kind & RACE_MANY)
        who = text_of("several CTAs, one of them (%u, %u, %u)", r.x, r.y, r.z);
    else if (warp >= race.group->warp.size() && e.actor >> WARP_BITS == race.record)
        who = text_of("CTA (%u, %u, %u)", r.x, r.y, r.z);
    else
        who = thread_of(r, warp, unknown_lanes(a, e, r, proxied));
    uint32_t device = r.launch % RACE_DEVICES, own = race.launch % RACE_DEVICES;
    const RaceDevice &d = race.devices[device];
    const char *name = d.names[r.launch / RACE_DEVICES - d.first].c_str();
    if (device != own)
        who = text_of("kernel %s of device %u, ", name, device) + who;
    else if (r.launch != race.launch)
        who = text_of("kernel %s, %u before it, ", name, (race.launch - r.launch) / RACE_DEVICES) +
              who;
    bool only_proxy = proxied &&
                      race_knows(t, e.actor >> WARP_BITS, r.launch, warp, e.lanes, e.clock, false);
    std::string text = text_of("%s, CTA (%u, %u, %u), thread %u, ", race.group->launch->name,
                               t->block.x, t->block.y, t->block.z, t->index) +
                       place(a.site, a.kind) +
                       text_of(": a race: it %s %u bytes, ", verb(a.kind, false), a.size) + where +
                       " was " + verb(e.kind, true) + " by " + who + ", " + place(e.site, e.kind) +
                       (only_proxy           ? ", and no fence.proxy.async is between them"
                        : e.clock == PENDING ? ", which no thread has waited for"
                        : device != own || r.launch == race.launch
                            ? ", and nothing orders the two"
                            : ", and no griddepcontrol.wait is between them");
    if (race.races == 1)
        race.first = text;
    else
        fprintf(stderr, "emulator: %s\n", text.c_str());
}

/* ---- an access to a cell ---- */

/* Returns true if t is ordered after all groups of this launch that have begun, beside its own. */
bool knows_all_groups(const Thread *t)
{
    uint32_t n = 0;
    for (auto &g : t->race.k.far->groups)
        n += race.records[g.first].launch == race.launch && g.first != race.record;
    return n == race.groups - 1;
}

bool conflict(uint8_t a, uint8_t b) { return ((a | b) & RACE_WRITE) && !(a & b & RACE_ATOMIC); }

enum : uint8_t { SAME = (uint8_t) ~(RACE_SITE | RACE_MANY) };

/* Stores of equal values (STORES_ARE_EQUAL) do not race with each other. An access that is ordered
 * after one of them races with none of them. */
bool is_excused(const Cell &c, const Pool &pool, uint8_t bytes, const Access &a, const Entry &e,
                bool proxied)
{
    if (!((a.kind | e.kind) & RACE_EQUAL))
        return false;
    if (a.kind & e.kind & RACE_EQUAL)
        return true;
    if (a.kind & e.kind & RACE_WRITE) /* the other access stores another value */
        return false;
    for (uint32_t i = c.head; i; i = pool.at[i].next) {
        const Entry &x = pool.at[i];
        if (!(x.kind & RACE_EQUAL) || (bytes & e.bytes & ~x.bytes))
            continue;
        if (a.kind & RACE_EQUAL) /* e's accesses were checked against this one when they came */
            return true;
        if (race_knows(a.t, x.actor >> WARP_BITS, race.records[x.actor >> WARP_BITS].launch,
                       x.actor & 1023, x.lanes, x.clock, proxied))
            return true;
    }
    return false;
}

void touch(Cell &c, Pool &pool, uint32_t stamp, uint8_t bytes, uint32_t offset, const Access &a)
{
    if (c.stamp != stamp)
        c = {stamp, 0};
    bool merged = false, reads = !(a.kind & RACE_WRITE);
    uint32_t many = 0;
    for (uint32_t *link = &c.head, i; (i = *link);) {
        Entry &e = pool.at[i];
        if (e.actor == a.actor && e.clock == a.clock && e.bytes == bytes &&
            !((e.kind ^ a.kind) & SAME) && a.clock != PENDING) {
            if (e.lanes & a.bit)
                return;
            if (reads) {
                e.lanes |= a.bit;
                merged = true;
                link = &e.next;
                continue;
            }
        }
        uint32_t record = e.actor >> WARP_BITS, launch = race.records[record].launch;
        if (a.kind & RACE_DISCARDED &&
            launch == race.launch) { /* entries of other kernels still count */
            link = &e.next;
            continue;
        }
        bool both_atomic = a.kind & e.kind & RACE_ATOMIC;
        bool covered = !(e.bytes & ~bytes) && (!reads || !(e.kind & RACE_WRITE)) &&
                       !(a.kind & RACE_DISCARDED),
             ordered = false;
        if (conflict(a.kind, e.kind) && (e.bytes & bytes)) {
            bool proxied = (a.kind & RACE_ASYNC) && !(e.kind & RACE_ASYNC) && (e.kind & RACE_WRITE);
            if (e.kind & RACE_MANY)
                ordered = launch == race.launch ? knows_all_groups(a.t)
                                                : a.t->race.k.far->over.has(launch);
            else
                ordered = race_knows(a.t, record, launch, e.actor & 1023, e.lanes, e.clock,
                                     proxied);
            if (!ordered && !is_excused(c, pool, bytes, a, e, proxied))
                report(a, e, offset, proxied);
        } else if (covered && !both_atomic) {
            ordered = e.kind & RACE_MANY
                          ? launch != race.launch && a.t->race.k.far->over.has(launch)
                          : race_knows(a.t, record, launch, e.actor & 1023, e.lanes, e.clock,
                                       false);
        }
        bool drop = covered && (ordered || both_atomic) && !(a.kind & e.kind & RACE_EQUAL);
        if (!drop && covered && reads && e.clock != PENDING) {
            if (e.actor == a.actor) { /* what is ordered after the new read is so after the old */
                e.lanes &= ~a.bit;
                drop = !e.lanes;
            } else if (record != race.record && launch == race.launch) {
                drop = many;
                if (many)
                    pool.at[many].bytes |= e.bytes;
                many = many ? many : i;
                e.kind |= drop ? 0 : RACE_MANY;
            }
        }
        if (drop) {
            *link = e.next;
            pool.drop(i);
        } else {
            link = &e.next;
        }
    }
    if (merged)
        return;
    if (a.kind & RACE_DISCARDED)
        return;
    uint32_t i = pool.take();
    pool.at[i] = {a.site, a.actor, a.clock, a.bit, c.head, bytes, a.kind};
    c.head = i;
}

Cell &cell_of(uint64_t address, bool shared)
{
    return shared ? shadow.shared_cells[race.launch % RACE_DEVICES]
                                       [(address - (uint64_t)(uintptr_t)race.group->arenas) >> 2]
                  : *shadow.global_cell(address);
}

Pool &pool_of(bool shared)
{
    return shared ? shadow.shared[race.launch % RACE_DEVICES] : shadow.global;
}

bool is_shared(uint64_t address)
{
    return address - (uint64_t)(uintptr_t)race.group->arenas < (uint64_t)16 * ARENA;
}

/* Calls f(address of 4 bytes, which of them, offset from p). */
template <class F> void each_cell(uint64_t address, uint32_t bytes, F f)
{
    for (uint64_t end = address + bytes, at = address & ~(uint64_t)3; at < end; at += 4) {
        uint32_t from = at < address ? (uint32_t)(address - at) : 0,
                 to = end - at < 4 ? (uint32_t)(end - at) : 4;
        f(at, (uint8_t)(((1u << to) - 1) & ~((1u << from) - 1)), (uint32_t)(at + from - address));
    }
}

void access(const Access &a)
{
    Pool &pool = pool_of(a.shared);
    uint32_t stamp = a.shared ? race.stamp : race.epoch;
    each_cell(a.address, a.size, [&](uint64_t at, uint8_t bytes, uint32_t offset) {
        touch(cell_of(at, a.shared), pool, stamp, bytes, offset, a);
    });
}

} // namespace

void race_access(emu_thread *e, const void *p, uint32_t bytes, uint32_t kind, const void *site)
{
    Thread *t = (Thread *)e;
    const emu_launch *l = race.group->launch;
    if ((size_t)((const char *)p - (const char *)l->params) < l->params_bytes ||
        (size_t)((const char *)p - (const char *)&emu_runtime) < sizeof emu_runtime || bytes == 0)
        return;
    access({t, site, (uint64_t)(uintptr_t)p, bytes, race.record << WARP_BITS | t->warp->index,
            kind & RACE_PENDING ? (uint32_t)PENDING : t->race.now, 1u << t->lane,
            (uint8_t)((kind & ~RACE_PENDING) |
                      (kind & RACE_WRITE ? (e->equals ? RACE_EQUAL : 0)
                                         : (e->discards ? RACE_DISCARDED : 0))),
            is_shared((uint64_t)(uintptr_t)p)});
}

void race_touch(Thread *t, const void *p, uint32_t bytes, uint32_t kind)
{
    race_access(t, p, bytes, kind | RACE_SITE, t->site);
}

void race_touch_as(Thread *t, uint32_t which, uint32_t lane, uint32_t clock, const void *p,
                   uint32_t bytes, uint32_t kind)
{
    access({t, t->site, (uint64_t)(uintptr_t)p, bytes,
            race.record << WARP_BITS | ((uint32_t)race.group->warp.size() + which), clock,
            1u << lane, (uint8_t)(kind | RACE_SITE), is_shared((uint64_t)(uintptr_t)p)});
}

void race_finish(Thread *t, const void *p, uint32_t bytes, uint32_t kind)
{
    uint64_t address = (uint64_t)(uintptr_t)p;
    bool shared = is_shared(address);
    uint32_t actor = race.record << WARP_BITS | t->warp->index,
             stamp = shared ? race.stamp : race.epoch;
    Pool &pool = pool_of(shared);
    each_cell(address, bytes, [&](uint64_t at, uint8_t, uint32_t) {
        Cell &c = cell_of(at, shared);
        for (uint32_t i = c.stamp == stamp ? c.head : 0; i; i = pool.at[i].next) {
            Entry &e = pool.at[i];
            if (e.clock == PENDING && e.actor == actor && e.lanes == 1u << t->lane &&
                !((e.kind ^ kind) & RACE_WRITE))
                e.clock = t->race.now;
        }
    });
}

/* ---- launches ---- */

/* All accesses so far are ordered before all that follow, so they are forgotten. */
static void new_epoch()
{
    race.epoch++;
    race.records.clear();
    for (RaceDevice &d : race.devices) {
        d.names.clear();
        d.first = d.launches + 1;
        for (Ref<Far> *at : {&d.at_go, &d.at_end}) /* the groups' records are gone */
            *at = *at ? race_far((*at)->over) : Ref<Far>();
        d.last_go = d.last_end = Ref<Far>();
    }
    race.published.clear();
    race.flags.clear();
    shadow.global.clear();
}

/* What is known once all has ended that has run on a device. */
static Horizon all_of(const RaceDevice &d)
{
    Horizon h = d.told;
    if (d.at_end)
        h.join(d.at_end->over);
    h.device[&d - race.devices].all = d.launches - d.runs;
    h.device[&d - race.devices].more = 0;
    return h;
}

static bool knows_everything(const Horizon &h)
{
    for (int i = 0; i < RACE_DEVICES; i++)
        if (h.device[i].all < race.devices[i].launches)
            return false;
    return true;
}

void emu_race_order(const void *stream)
{
    for (RaceDevice &d : race.devices)
        if (d.stream == stream || !stream)
            d.chained = false;
}

void emu_race_after(int to, int from)
{
    Horizon h = all_of(race.devices[from]);
    if (to < 0)
        race.host.join(h);
    else if (to != from)
        race.devices[to].told.join(h);
}

uint32_t emu_race_queue()
{
    if (race.queued.empty() || !(race.queued.back() == race.host))
        race.queued.push_back(race.host);
    return (uint32_t)race.queued.size() - 1;
}

void emu_race_queued(int device, uint32_t number)
{
    race.devices[device].told.join(race.queued[number]);
}

void emu_race_memory(uint64_t address, uint64_t bytes)
{
    memory.erase(address);
    if (bytes)
        memory[address] = bytes;
}

const char *race_launch_begin(Group *g)
{
    const emu_launch *l = g->launch;
    RaceDevice &d = race.devices[l->device];
    if (d.runs)
        return "two kernels of one device run at once, which the race detector does not follow";
    Cell *&cells = shadow.shared_cells[l->device];
    if (!cells)
        cells = (Cell *)room((size_t)16 * ARENA / 4 * sizeof(Cell));
    bool alone = true;
    for (RaceDevice &other : race.devices)
        alone = alone && !other.runs;
    if (race.records.size() > MOST_RECORDS / 2 && alone) { /* no more can be told apart */
        for (RaceDevice &other : race.devices)
            emu_race_after((int)l->device, (int)(&other - race.devices));
        d.chained = false;
    }
    Ref<Far> before, after;
    if (l->overlaps && d.chained && d.stream == l->stream) {
        before = race_join(d.at_go, race_far(d.told));
        Horizon ended = d.told;
        ended.join(d.at_end->over);
        ended.add(launch_name(d.launches, l->device));
        after = race_join(d.at_end, race_far(ended));
    } else {
        before = after = race_join(race_far(all_of(d)), d.at_end);
        if (knows_everything(before->over)) {
            new_epoch();
            before = after = race_far(before->over);
        }
    }
    d.launches++;
    d.names.push_back(l->name);
    d.runs = d.chained = true;
    d.stream = l->stream;
    d.at_go = d.at_end = d.last_go = d.last_end = before;
    RaceLaunch fresh;
    fresh.group = g;
    fresh.device = &d;
    fresh.launch = launch_name(d.launches, l->device);
    fresh.nothing = Dense::make((uint32_t)g->warp.size() + RACE_EXTRA);
    fresh.begun = before;
    fresh.waited = after;
    race_resume(std::move(fresh));
    return nullptr;
}

bool race_launch_end(Group *)
{
    race.group = nullptr;
    race.device->runs = false;
    if (race.races > 1)
        race.first += text_of(" (and %u races more)", race.races - 1);
    return race.races == 0;
}

RaceLaunch race_suspend() { return std::move(static_cast<RaceLaunch &>(race)); }

void race_resume(RaceLaunch &&l) { static_cast<RaceLaunch &>(race) = std::move(l); }

void race_group_begin(Group *g)
{
    const Cta &c = g->cta[0];
    race.record = (uint32_t)race.records.size();
    race.records.push_back({race.launch, c.block.x, c.block.y, c.block.z, c.n_warps});
    race.groups++;
    race.stamp = ++race.stamps ? race.stamps : ++race.stamps;
    pool_of(true).clear();
    race.mbar.clear();
    race.early.clear();
    race.published_shared.clear();
    race.cluster = Gather();
    race.cluster_done = Known();
    RaceThread fresh;
    fresh.k = {race.nothing, race.nothing, race.nothing, race.begun, race.begun, Ref<Far>()};
    for (uint32_t i = 0; i < g->n_threads; i++) {
        g->threads[i]->race = fresh;
        g->threads[i]->stored.clear();
    }
    for (Cta &cta : g->cta)
        cta.race_went = false;
}
