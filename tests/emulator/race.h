/* Data races between a kernel's threads, between kernels that overlap, and between kernels of
 * several devices: VITRINE_EMULATOR=race.
 *
 *   kernel text ──g++ -fsanitize=thread──> every load and store calls device.h's __tsan_...
 *     ──> race_access (race.cc): the accesses so far to each 4 bytes, and whether this thread knows
 *         of them (race_order.cc)
 *
 * Two accesses to the same byte by different threads are a race if at least one of them writes and
 * nothing orders them. The method is FastTrack's: every thread has a clock, which advances when the
 * thread publishes something (at a barrier, an arrival, a fence). An access is (thread, clock).
 * Another thread knows of it once it has received that clock. A thread's knowledge has layers,
 * because orders have scopes and proxies:
 *
 *   seen      everything that is ordered before it; ordinary accesses are checked against this
 *   fenced    what it had seen at its last __threadfence(); its atomics publish this
 *   proxied   what it had seen at its last fence.proxy.async; wgmma and TMA are checked against
 *             this when they touch bytes that ordinary writes have written
 *   pending   what its atomics have read of others' publications: seen from its next fence on
 *   far       in each: other CTAs (by publications), and earlier kernels (by the launch or by
 *             griddepcontrol.wait, and those that a publishing thread knew)
 *
 * Barriers join all layers of all threads that take part. Clocks of a CTA are a dense table, which
 * threads share as long as they know the same.
 *
 * Devices run at the same time. The emulator has their kernels take turns where one waits for
 * another's flag, so a launch can be suspended (race_suspend) while one of another device runs. A
 * launch knows those before it on its device, and of other devices what it has taken from flags,
 * what its device waited for (cuStreamWaitEvent), and what the host had waited for when it queued
 * the launch. The host counts as one thread. */
#ifndef EMU_RACE_H
#define EMU_RACE_H

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

struct Thread;
struct Warp;
struct Cta;
struct Group;
struct Wgmma;
struct BulkStore;
struct TmaLoad;

template <class T> class Ref
{
  public:
    Ref() {}
    explicit Ref(T *adopted) : p(adopted) {}
    Ref(const Ref &o) : p(o.p)
    {
        if (p)
            p->refs++;
    }
    Ref(Ref &&o) : p(o.p) { o.p = nullptr; }
    Ref &operator=(Ref o)
    {
        std::swap(p, o.p);
        return *this;
    }
    ~Ref()
    {
        if (p && p->refs-- == 1)
            T::destroy(p);
    }
    T *get() const { return p; }
    T *operator->() const { return p; }
    explicit operator bool() const { return p; }
    bool operator==(const Ref &o) const { return p == o.p; }
    bool operator!=(const Ref &o) const { return p != o.p; }

  private:
    T *p = nullptr;
};

/* For each lane of a group, the clock up to which its accesses are known; after these, the least
 * clock of each warp. Two extra warps stand for work that runs beside threads: one has a lane for
 * each mbarrier (TMA loads), the other a lane for each warp (its wgmmas). A shared table never
 * changes. */
struct Dense {
    uint32_t refs, warps, clock[1];
    uint32_t *least() { return clock + 32 * warps; }
    const uint32_t *least() const { return clock + 32 * warps; }
    static Ref<Dense> make(uint32_t warps);
    static Ref<Dense> copy(const Dense *);
    static void destroy(Dense *);
    void settle(); /* computes least */
};

/* A launch's name is its number on its device, from 1 on, and the device. */
enum { RACE_DEVICES = 8 };
inline uint32_t launch_name(uint32_t number, uint32_t device)
{
    return number * RACE_DEVICES + device;
}

/* Which launches a thread knows to have ended: of each device all up to a number, and some of the
 * 64 after it. */
struct Horizon {
    struct Of {
        uint32_t all = 0;
        uint64_t more = 0;
    } device[RACE_DEVICES];
    bool has(uint32_t launch) const
    {
        const Of &d = device[launch % RACE_DEVICES];
        uint32_t n = launch / RACE_DEVICES;
        return n <= d.all || (n - d.all - 1 < 64 && (d.more >> (n - d.all - 1) & 1));
    }
    void add(uint32_t launch);
    void join(const Horizon &o);
    bool operator==(const Horizon &o) const;
};

struct Far {
    uint32_t refs;
    Horizon over;
    /* by rising number; of launches in `over` there are none */
    std::vector<std::pair<uint32_t, Ref<Dense>>> groups;
    static void destroy(Far *f);
};

struct Known {
    Ref<Dense> seen, fenced, proxied;
    Ref<Far> far, far_fenced, pending;
};

struct RaceThread {
    Known k;
    uint32_t now = 1, fenced_now = 0,
             proxied_now = 0; /* the thread's own clock; k's entry for it is not used */
};

/* Computes the maximum of tables. Shares the first table as long as that is the maximum. */
class Joiner
{
  public:
    void add(const Ref<Dense> &base, uint32_t index, uint32_t own);
    void add(const Ref<Dense> &base);
    void raise(uint32_t index, uint32_t clock); /* there must be one */
    Ref<Dense> publish();

  private:
    Ref<Dense> to, last;
    bool own = false;
    void owned();
};

/* The clocks that the threads arriving at a barrier publish. */
class Gather
{
  public:
    void add(const Thread *t);
    void add(const Known &k);
    Known publish();
    void raise(uint32_t index, uint32_t clock) { seen.raise(index, clock); }
    uint32_t latest = 0; /* latest clock of the threads that have arrived */
  private:
    Joiner seen, fenced, proxied;
    Ref<Far> far, far_fenced, pending;
};

struct RaceMbar {
    uint32_t lane = 0, phases = 0;
    Gather arriving;
    Known done;
    bool any = false, any_done = false;
};

/* A device's launches. */
struct RaceDevice {
    uint32_t launches = 0; /* that have begun */
    bool runs = false;     /* the last of them has not ended */
    /* what is known where the last launch lets the next one begin, and where it ends: launches, and
     * groups of other devices */
    Ref<Far> at_go, at_end, last_go, last_end;
    bool chained = false; /* a launch may overlap the last one: nothing between them orders all */
    const void *stream = nullptr; /* of the last one */
    Horizon told; /* what later launches know besides: by the host, and by other devices' events */
    std::vector<std::string> names; /* of this epoch's launches; the first is number first */
    uint32_t first = 1;
};

/* The state of one launch and its present group. */
struct RaceLaunch {
    Group *group = nullptr;
    RaceDevice *device = nullptr;
    uint32_t launch = 0, groups = 0 /* that have begun */, record = 0, stamp = 0;
    Ref<Dense> nothing;
    Ref<Far> begun, waited; /* what a thread knows at first, and after griddepcontrol.wait */
    /* the group */
    std::unordered_map<uint32_t, RaceMbar> mbar;
    std::unordered_map<uint32_t, Gather> early; /* barriers: from threads that only arrive */
    Gather cluster;
    Known cluster_done;
    std::unordered_map<const void *, Ref<Far>> published_shared;
    /* reports */
    uint32_t races = 0;
    std::string first;
};

/* The detector's state. One launch at a time uses it, under a mutex. */
struct Race : RaceLaunch {
    uint32_t epoch = 1, stamps = 0;
    RaceDevice devices[RACE_DEVICES];
    Horizon host;                /* what the host has waited for */
    std::vector<Horizon> queued; /* host, at moments when something was queued */
    struct Record {
        uint32_t launch, x, y, z, warps_a_cta;
    };
    std::vector<Record> records;
    std::unordered_map<const void *, Ref<Far>> published;
    /* What st.release.sys has written to each address, in order. */
    struct Given {
        uint32_t value, record, warp, lanes, clock;
        Ref<Far> known;
    };
    std::unordered_map<const void *, std::vector<Given>> flags;
};
extern Race &race;

/* ---- race.cc: accesses ---- */

enum : uint8_t {
    RACE_READ = 0,
    RACE_WRITE = 1,
    RACE_ATOMIC = 2,
    RACE_ASYNC = 4,      /* by the async proxy */
    RACE_PENDING = 8,    /* issued and not finished: ordered before no other access yet */
    RACE_SITE = 16,      /* `site` is a text and not a program counter */
    RACE_MANY = 32,      /* reads by several CTAs */
    RACE_DISCARDED = 64, /* a read whose value is thrown away (LOADS_ARE_DISCARDED) */
    RACE_EQUAL = 128 /* a write of a value that other threads write here too (STORES_ARE_EQUAL) */
};

void race_access(emu_thread *e, const void *p, uint32_t bytes, uint32_t kind, const void *site);
/* An instruction's access, at t->site. */
void race_touch(Thread *t, const void *p, uint32_t bytes, uint32_t kind);
/* The same for work that runs beside the threads: `lane` of the extra warp `which`. */
void race_touch_as(Thread *t, uint32_t which, uint32_t lane, uint32_t clock, const void *p,
                   uint32_t bytes, uint32_t kind);
/* Accesses that t issued as pending are done, as far as t knows. */
void race_finish(Thread *t, const void *p, uint32_t bytes, uint32_t kind);

/* Returns NULL, or why the launch cannot be followed. */
const char *race_launch_begin(Group *g);
/* Another device's kernels run between the two. */
RaceLaunch race_suspend();
void race_resume(RaceLaunch &&l);
/* False when there were races: their text is in race.first. */
bool race_launch_end(Group *g);
void race_group_begin(Group *g);

/* ---- race_order.cc: which accesses a thread knows of ---- */

bool race_knows(const Thread *t, uint32_t record, uint32_t launch, uint32_t warp, uint32_t lanes,
                uint32_t clock, bool proxied);
void race_arrive(Thread *t, Gather *to);
void race_take(Thread *t, const Known &k);
/* All lanes of the warp synchronise. */
void race_warp(Warp *w, uint32_t lanes);
void race_barrier_early(Thread *t, uint32_t id);
/* `lanes` of each warp wait at the barrier, and go on. */
void race_barrier(Cta *c, uint32_t id, const uint32_t *lanes);
void race_mbar_init(Thread *t, uint32_t address);
void race_mbar_arrive(Thread *t, uint32_t address);
void race_mbar_complete(uint32_t address);
void race_mbar_wait(Thread *t, uint32_t address);
void race_wgmma_done(Thread *t, Warp *four, uint32_t groups);
void race_fence(Thread *t, bool proxy);
/* An atomic or volatile access: what it publishes and takes. */
void race_atomic(Thread *t, const void *p, bool reads, bool writes, bool acquires);
/* A packet to another device, which carries its number: whoever has received it knows that the
 * launches have ended that its sender had waited for, and nothing of what their stores wrote
 * since. */
void race_packet(Thread *t, const void *p, bool writes);
/* Flags between devices. A flag is read as late as allowed: race_take_flag returns the oldest value
 * that this thread does not know to be overwritten. So a thread that waits for too small a number
 * does not know of more than that number tells, however far the other device has gone on. */
uint32_t race_take_flag(Thread *t, const uint32_t *p);
void race_give_flag(Thread *t, uint32_t *p, uint32_t value);
void race_pdl_go(Thread *t);
void race_pdl_wait(Thread *t);
void race_thread_end(Thread *t);
Ref<Far> race_far(const Horizon &over);
/* Adds to *at the launches of `far` and its groups of other devices. *last: what was added last. */
void race_carry(Ref<Far> *at, Ref<Far> *last, const Ref<Far> &far);
Ref<Far> race_join(const Ref<Far> &a, const Ref<Far> &b);

enum { RACE_MBARS = 0, RACE_WGMMAS = 1, RACE_EXTRA = 2 }; /* extra warps */

#endif
