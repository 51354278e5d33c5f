/* Inside the runtime: a launch is run group by group, a group being the CTAs of one cluster (or one
 * CTA), all of whose threads are fibers of one OS thread.
 *
 *   Group ── cta[] ── warp[] ── lane[32] ──> Thread (a fiber: stack, what it waits for)
 *     ready: one bit a warp          warp.ready: one bit a lane
 *
 * A fiber runs until it has to wait. Then it picks the next ready fiber and switches to it
 * directly. The fiber that completes a rendezvous or a barrier sets the ready bits of the others
 * and goes on. If no fiber is ready, pending TMA loads arrive one by one; if there are none, it is
 * a deadlock. */
#ifndef EMU_RUNTIME_H
#define EMU_RUNTIME_H

#include <cstdint>
#include <cstdio>
#include <vector>

#include "abi.h"
#include "emulator.h"

#if defined __SANITIZE_ADDRESS__
#define EMU_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define EMU_CLONES
#else
#define EMU_ASAN 0
#if defined __x86_64__
#define EMU_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define EMU_CLONES
#endif
#endif

/* Eight columns of a product, at any alignment. */
typedef float float8 __attribute__((vector_size(32), aligned(4), may_alias));

__attribute__((always_inline)) static inline float bf16(uint16_t v)
{
    uint32_t u = (uint32_t)v << 16;
    float f;
    __builtin_memcpy(&f, &u, sizeof f);
    return f;
}

enum { MAX_SHARED = 227 << 10, ARENA = 256 << 10, BARRIERS = 16 };

struct Warp;
struct Cta;
struct Group;

#include "race.h"

struct Copy { /* a cp.async that has not happened yet */
    uint32_t to, bytes, read;
    const void *from;
};
struct Wgmma {
    float *d;
    uint64_t a, b;
    uint32_t registers[4];
    int n, flags;
    bool a_in_registers;
};
struct BulkStore {
    const emu_tensor_map *map;
    uint32_t from;
    int at[5];
};
/* Work that a thread has issued, in committed groups. The first wait for a group does its work.
 * Numbers count from the beginning of the kernel; work before first_* is done and forgotten. */
template <class T> struct Pending {
    std::vector<T> work;
    std::vector<uint32_t>
        ends; /* for each committed group, the number of its last piece of work plus one */
    uint32_t first = 0, first_group = 0, done = 0, groups_done = 0;
    void clear()
    {
        work.clear();
        ends.clear();
        first = first_group = done = groups_done = 0;
    }
    void add(const T &t) { work.push_back(t); }
    uint32_t committed() const { return first_group + (uint32_t)ends.size(); }
    void commit() { ends.push_back(first + (uint32_t)work.size()); }
    bool idle() const { return done == first + work.size(); }
    const T *at(uint32_t i) const { return i - first < work.size() ? &work[i - first] : nullptr; }
    /* How many groups must be done so that at most `pending` are left, and the number of the last
     * piece of work in them. */
    uint32_t groups_until(uint32_t pending) const
    {
        return committed() > pending ? committed() - pending : 0;
    }
    uint32_t end_of(uint32_t groups) const
    {
        return groups > first_group ? ends[groups - first_group - 1] : first;
    }
    void finish(uint32_t groups)
    {
        if (groups <= groups_done)
            return;
        done = end_of(groups);
        groups_done = groups;
        if (groups_done == committed() && idle()) {
            first = done;
            first_group = groups_done;
            work.clear();
            ends.clear();
        }
    }
};

struct Thread : emu_thread {
    Group *group;
    Cta *cta;
    Warp *warp;
    uint32_t index; /* in its CTA */
    void *sp;
    const char *
        waits; /* what it waits for, a printf format of wait_a and wait_b; NULL: it does not wait */
    uint32_t wait_a, wait_b;
    /* rendezvous */
    int kind, param, width;
    uint64_t value, result;
    void *args;
    /* mbarriers */
    Thread *next_waiter;
    uint64_t *mbar;
    uint32_t parity, cluster_generation;
    bool cluster_arrived, wgmma_fenced;
    Pending<Copy> copies;
    Pending<Wgmma> wgmmas;
    Pending<BulkStore> stores;
    void *fake_stack;
    RaceThread race;
    /* for the race detector: stores whose source has been read, but whose target may not be
     * written yet */
    std::vector<BulkStore> stored;
};

typedef void (*warp_op)(Warp *w, uint32_t lanes);

struct Rendezvous {
    uint32_t mask, arrived;
    warp_op op;
    const char *site;
};

struct Warp {
    Cta *cta;
    uint32_t index;                                /* in the group */
    uint32_t live, ready, active, cluster_waiting; /* a bit a lane; active: a bit a rendezvous */
    uint32_t wgmma_waiting,
        committed;       /* a bit a lane; the number of groups that all lanes have committed */
    uint8_t commits[16]; /* lanes that committed a group, by its number mod 16 */
    Thread *lane[32];
    Rendezvous meet[32]; /* those that some members have reached, found by their mask */
};

struct Barrier {
    bool used;
    uint32_t threads; /* 0: all */
    int sum;
    uint32_t arrived[32], waiting[32], syncs[32]; /* by warp */
    const char *site[32];
};

struct Cta {
    Group *group;
    uint32_t rank, live, n_warps, first_warp;
    emu_dim block;
    char *shared;
    Barrier barrier[BARRIERS];
    Thread *waiters; /* for mbarriers */
    bool race_went;  /* griddepcontrol.launch_dependents */
};

struct TmaLoad {
    Thread *issuer;
    const emu_tensor_map *map; /* NULL: plain bytes */
    const void *from;
    uint32_t to, mbar, bytes;
    int at[5];
};

struct Group {
    const emu_launch *launch;
    const emu_kernel *kernel;
    std::vector<Thread *> threads; /* stay with their stacks from launch to launch */
    std::vector<Cta> cta;
    std::vector<Warp> warp;
    std::vector<uint64_t> ready;
    char *arenas = nullptr; /* one for each CTA of the largest cluster */
    uint32_t shared_bytes, live, n_threads, cluster_generation, cluster_arrived;
    uint64_t random, idle_yields;
    uint32_t waits_for_others; /* calls of yield_to_others */
    Thread main, *current;
    const void *home; /* the launching thread's stack, for ASan */
    size_t home_bytes;
    std::vector<TmaLoad> loads;
    size_t loads_done;
    bool failed, races; /* looks for races */
    char message[2048];
};

extern const emu_api emu_runtime;

/* fiber.cc */
void wait_for(Thread *t, const char *what, uint32_t a,
              uint32_t b); /* returns after a call of wake */
void wake(Warp *w, uint32_t lanes);
/* Ends the launch with this message and never returns to a fiber. (With noreturn, ASan would take
 * the switch of stacks for an error.) */
void fail(Thread *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *shared_at(Thread *t, uint32_t address, uint32_t bytes, uint32_t align, const char *what);
uint32_t random_of(Group *g, uint32_t below);
void yield(Thread *t);
/* For loops that wait for a kernel of another stream. */
void yield_to_others(Thread *t);
void go_last(Thread *t);

/* warp.cc */
void meet(Thread *t, uint32_t mask, warp_op op);
void meet_all(Thread *t, warp_op op); /* .sync.aligned: every lane that has not exited */
void lane_exits(Thread *t);
void barriers_after_exit(Cta *c);

/* sm90.cc */
bool load_arrives(Group *g); /* one pending TMA load; false: none */
void cluster_after_exit(Group *g);

/* module.cc */
const emu_kernel *find_kernel(emu_module *m, const char *name);
uint32_t dynamic_offset(emu_module *m);
bool looks_for_races(emu_module *m);
std::string describe_code(const void *pc);

#endif
