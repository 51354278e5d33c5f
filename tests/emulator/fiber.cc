/* Fibers: stacks, switching, the choice of the next fiber, and running a launch from its first CTA
 * to its last. */
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#if !defined __x86_64__
#include <ucontext.h>
#endif

#include "runtime.h"

enum { STACK = EMU_ASAN ? 256 << 10 : 64 << 10, GUARD = 4096, PATIENCE = 2000000 };

/* ---- switching ---- */

#if defined __x86_64__
/* Pushes the callee-saved registers, stores the stack pointer in *save, and does the reverse with
 * the other fiber's stack. */
extern "C" void emu_swap(void **save, void *to);
extern "C" void emu_first(void);
asm(R"(
    .text
    .type emu_swap, @function
    .hidden emu_swap
    .globl emu_swap
emu_swap:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emu_swap, . - emu_swap
    .type emu_first, @function
    .hidden emu_first
    .globl emu_first
emu_first:
    movq %r15, %rdi
    call emu_fiber
    ud2
    .size emu_first, . - emu_first
)");
#else
struct Context {
    ucontext_t c;
};
#endif

extern "C" __attribute__((visibility("hidden"), used)) void emu_fiber(Thread *t);

static void prepare(Thread *t)
{
#if EMU_ASAN /* the frames of the fiber that had this stack before never returned */
    __asan_unpoison_memory_region(t->stack + GUARD, STACK - GUARD);
#endif
#if defined __x86_64__
    void **top = (void **)(t->stack + STACK - 64 -
                           64 * (t->index % 32)); /* not all in one cache set */
    *--top = (void *)emu_first;                   /* returned to, with the stack aligned to 16 */
    for (int i = 0; i < 6; i++)
        *--top = i == 5 ? (void *)t : nullptr; /* r15 is pushed last */
    t->sp = top;
#else
    Context *c = (Context *)t->sp;
    if (!c)
        t->sp = c = (Context *)calloc(1, sizeof *c);
    getcontext(&c->c);
    c->c.uc_stack.ss_sp = t->stack + GUARD;
    c->c.uc_stack.ss_size = STACK - GUARD;
    makecontext(&c->c, (void (*)(void))emu_fiber, 2, (uint32_t)(uint64_t)t,
                (uint32_t)((uint64_t)t >> 32));
#endif
}

static void go(Group *g, Thread *to)
{
    Thread *from = g->current;
    g->current = to;
#if EMU_ASAN
    bool home = to == &g->main;
    __sanitizer_start_switch_fiber(&from->fake_stack, home ? g->home : to->stack + GUARD,
                                   home ? g->home_bytes : STACK - GUARD);
#endif
#if defined __x86_64__
    emu_swap(&from->sp, to->sp);
#else
    swapcontext(&((Context *)from->sp)->c, &((Context *)to->sp)->c);
#endif
#if EMU_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(from->fake_stack, &bottom, &size);
#endif
}

/* ---- the choice of the next fiber ---- */

uint32_t random_of(Group *g, uint32_t below)
{
    g->random ^= g->random << 13;
    g->random ^= g->random >> 7;
    g->random ^= g->random << 17;
    return (uint32_t)((g->random >> 32) * below >> 32);
}

void wake(Warp *w, uint32_t lanes)
{
    if (!lanes) /* otherwise a warp whose lanes all wait would be chosen */
        return;
    Group *g = w->cta->group;
    w->ready |= lanes;
    g->ready[w->index / 64] |= 1ull << w->index % 64;
}

static void not_ready(Thread *t)
{
    Warp *w = t->warp;
    w->ready &= ~(1u << t->lane);
    if (!w->ready)
        t->group->ready[w->index / 64] &= ~(1ull << w->index % 64);
}

/* The first set bit from `from` on, wrapping around. */
static Warp *ready_warp(Group *g, uint32_t from)
{
    uint32_t words = (uint32_t)g->ready.size(), n = (uint32_t)g->warp.size();
    from = from >= n ? 0 : from;
    for (uint32_t i = 0, at = from / 64; i <= words; i++, at = at + 1 == words ? 0 : at + 1) {
        uint64_t bits = g->ready[at];
        if (i == 0)
            bits &= ~0ull << from % 64;
        else if (i == words)
            bits &= ~(~0ull << from % 64);
        if (bits)
            return &g->warp[at * 64 + (uint32_t)__builtin_ctzll(bits)];
    }
    return nullptr;
}

static Thread *next_ready(Group *g)
{
    Warp *w = g->current->warp;
    for (;;) {
        if (g->launch->order) {
            if (g->loads_done < g->loads.size() && random_of(g, 16) == 0)
                load_arrives(g);
            if ((w = ready_warp(g, random_of(g, (uint32_t)g->warp.size())))) {
                uint32_t turn = random_of(g, 32),
                         turned = w->ready >> turn | w->ready << (32 - turn) % 32;
                return w->lane[((uint32_t)__builtin_ctz(turned) + turn) % 32];
            }
        } else {
            if (w && w->ready)
                return w->lane[__builtin_ctz(w->ready)];
            if ((w = ready_warp(g, w ? w->index + 1 : 0)))
                return w->lane[__builtin_ctz(w->ready)];
        }
        if (!load_arrives(g))
            return nullptr;
    }
}

/* Switches to the next fiber, or to the main one if there is none. */
static void leave(Group *g)
{
    Thread *next = next_ready(g);
    if (!next)
        next = &g->main;
    if (next != g->current)
        go(g, next);
}

void wait_for(Thread *t, const char *what, uint32_t a, uint32_t b)
{
    t->waits = what;
    t->wait_a = a;
    t->wait_b = b;
    t->group->idle_yields = 0;
    not_ready(t);
    leave(t->group);
    t->waits = nullptr;
}

/* Lets all other ready threads run first. */
void go_last(Thread *t)
{
    Group *g = t->group;
    Warp *w = ready_warp(g, 0);
    if (!g->launch->order && w->lane[__builtin_ctz(w->ready)] != t)
        go(g, w->lane[__builtin_ctz(w->ready)]);
}

/* For loops that poll a value until another thread changes it. */
void yield(Thread *t)
{
    Group *g = t->group;
    if (++g->idle_yields > PATIENCE)
        fail(t, "spins on something that no thread here will change; CTAs of different clusters "
                "run one after another");
    if (g->live == 1)
        return;
    Warp *w = t->warp;
    uint32_t others = w->ready & (~1u << t->lane);
    Warp *next = others ? w : ready_warp(g, w->index + 1);
    uint32_t lane = (uint32_t)__builtin_ctz(others ? others : next->ready);
    if (next->lane[lane] != t)
        go(g, next->lane[lane]);
}

/* Held while a kernel is followed by the race detector, and let go while others run. */
static std::mutex &one_at_a_time = *new std::mutex;

static bool others_go_on(Group *g)
{
    if (!g->races)
        return emu_others_go_on() || true;
    RaceLaunch own = race_suspend();
    one_at_a_time.unlock();
    bool some = emu_others_go_on();
    one_at_a_time.lock();
    race_resume(std::move(own));
    return some;
}

void yield_to_others(Thread *t)
{
    enum { OFTEN = 8 };
    Group *g = t->group;
    g->idle_yields = 0; /* the kernel ends such waits by its own clock */
    if (++g->waits_for_others % OFTEN == 0 && !others_go_on(g))
        fail(t, "waits for another kernel, and no driver runs one");
    yield(t);
}

void fail(Thread *t, const char *format, ...)
{
    Group *g = t->group;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    snprintf(g->message, sizeof g->message, "%s, CTA (%u, %u, %u), thread %u%s%s: %s",
             g->launch->name, t->block.x, t->block.y, t->block.z, t->index, t->site ? ", " : "",
             t->site ? t->site : "", text);
    g->failed = true;
    go(g, &g->main); /* for ever: the group is given up */
    abort();
}

void emu_fiber(Thread *t)
{
    Group *g = t->group;
#if EMU_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (!g->home_bytes) { /* the first fiber: it comes from the stack of the launching thread */
        g->home = bottom;
        g->home_bytes = size;
    }
#endif
    g->kernel->call(g->launch->params);
    if (!t->wgmmas.idle())
        fail(t, "ends with a wgmma that it has not waited for");
    if (!t->stores.idle())
        fail(t, "ends with a TMA store that it has not waited for");
    if (g->races)
        race_thread_end(t);
    g->idle_yields = 0;
    not_ready(t);
    t->warp->live &= ~(1u << t->lane);
    t->cta->live--;
    g->live--;
    lane_exits(t);
    barriers_after_exit(t->cta);
    cluster_after_exit(g);
    leave(g);
    abort();
}

/* ---- shared memory ---- */

char *shared_at(Thread *t, uint32_t address, uint32_t bytes, uint32_t align, const char *what)
{
    Group *g = t->group;
    uint32_t rank = address >> 24, offset = address & 0xffffff;
    if (rank >= g->cta.size())
        fail(t, "%s: shared address %#x is of CTA %u of the cluster, which has %zu", what, address,
             rank, g->cta.size());
    if (offset > g->shared_bytes || bytes > g->shared_bytes - offset)
        fail(t, "%s: %u bytes at shared address %u: the CTA has %u bytes", what, bytes, offset,
             g->shared_bytes);
    if (align && offset % align)
        fail(t, "%s: shared address %u is no multiple of %u", what, offset, align);
    if (!g->cta[rank].live)
        fail(t, "%s: shared memory of CTA %u of the cluster, which has ended", what, rank);
    return g->cta[rank].shared + offset;
}

/* Sets all bytes of shared memory to 0xff, which are NaNs as floats and as bf16. The bytes after it
 * get a pattern that `intact` checks when the CTA has ended. */
static void poison(Group *g, Cta *c)
{
#if EMU_ASAN
    __asan_unpoison_memory_region(c->shared, ARENA);
    memset(c->shared, 0xff, g->shared_bytes);
    __asan_poison_memory_region(c->shared + g->shared_bytes, ARENA - g->shared_bytes);
#else
    memset(c->shared, 0xff, g->shared_bytes + 256);
#endif
}

static bool intact(Group *g, Cta *c)
{
    if (EMU_ASAN)
        return true;
    for (uint32_t i = 0; i < 256; i++)
        if ((uint8_t)c->shared[g->shared_bytes + i] != 0xff)
            return false;
    return true;
}

/* ---- a group ---- */

static void *map_or_die(size_t bytes, size_t align)
{
    char *p = (char *)mmap(nullptr, bytes + align, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        perror("emulator: mmap");
        abort();
    }
    return (char *)(((uintptr_t)p + align - 1) & ~(uintptr_t)(align - 1));
}

static void grow(Group *g, uint32_t threads)
{
    enum { BLOCK = 64 };
    while (g->threads.size() < threads) {
        char *stacks = (char *)map_or_die((size_t)BLOCK * STACK, STACK);
        for (int i = 0; i < BLOCK; i++) {
            Thread *t = new Thread();
            t->stack = stacks + (size_t)i * STACK;
            t->stack_bytes = STACK;
            mprotect(t->stack, GUARD, PROT_NONE);
            g->threads.push_back(t);
        }
    }
    if (!g->arenas)
        g->arenas = (char *)map_or_die((size_t)16 * ARENA, ARENA);
}

static void set_up(Group *g, const emu_launch *l, const emu_kernel *k, uint32_t ctas,
                   uint32_t threads, uint32_t shared_bytes)
{
    g->launch = l;
    g->kernel = k;
    uint32_t warps = (threads + 31) / 32;
    grow(g, ctas * threads);
    g->n_threads = ctas * threads;
    g->cta.resize(ctas);
    g->warp.resize(ctas * warps);
    g->ready.assign((g->warp.size() + 63) / 64, 0);
    g->shared_bytes = shared_bytes;
    g->random = l->order * 0x9e3779b97f4a7c15ull | 1;
    for (uint32_t r = 0; r < ctas; r++) {
        Cta *c = &g->cta[r];
        c->group = g;
        c->rank = r;
        c->n_warps = warps;
        c->first_warp = r * warps;
        c->shared = g->arenas + (size_t)r * ARENA;
        for (uint32_t i = 0; i < threads; i++) {
            Thread *t = g->threads[r * threads + i];
            Warp *w = &g->warp[r * warps + i / 32];
            t->thread = {i % l->block[0], i / l->block[0] % l->block[1],
                         i / l->block[0] / l->block[1]};
            t->block_dim = {l->block[0], l->block[1], l->block[2]};
            t->grid_dim = {l->grid[0], l->grid[1], l->grid[2]};
            t->api = &emu_runtime;
            t->params = l->params;
            t->shared = c->shared;
            t->shared_base = r << 24;
            t->shared_bytes = shared_bytes;
            t->lane = i % 32;
            t->cluster_rank = r;
            t->cluster_size = ctas;
            t->group = g;
            t->cta = c;
            t->warp = w;
            t->index = i;
            w->lane[i % 32] = t;
        }
    }
#if EMU_ASAN
    if (g->failed) /* a failed launch leaves its fibers' stacks as they are */
        for (Thread *t : g->threads)
            __asan_unpoison_memory_region(t->stack + GUARD, STACK - GUARD);
#endif
    g->failed = false;
}

static void begin(Group *g, uint32_t x, uint32_t y, uint32_t z)
{
    uint32_t threads = g->n_threads / (uint32_t)g->cta.size();
    for (Cta &c : g->cta) {
        c.block = {x + c.rank, y, z};
        c.live = threads;
        c.waiters = nullptr;
        memset(c.barrier, 0, sizeof c.barrier);
        poison(g, &c);
        for (uint32_t i = 0; i < c.n_warps; i++) {
            Warp *w = &g->warp[c.first_warp + i];
            uint32_t lanes = threads - i * 32;
            w->cta = &c;
            w->index = c.first_warp + i;
            w->live = lanes >= 32 ? ~0u : (1u << lanes) - 1;
            w->ready = w->active = w->cluster_waiting = w->wgmma_waiting = w->committed = 0;
            memset(w->commits, 0, sizeof w->commits);
            memset(w->meet, 0, sizeof w->meet);
            wake(w, w->live);
        }
    }
    for (uint32_t i = 0; i < g->n_threads; i++) {
        Thread *t = g->threads[i];
        t->block = t->cta->block;
        t->site = t->waits = nullptr;
        t->discards = t->equals = false;
        t->cluster_generation = 0;
        t->cluster_arrived = t->wgmma_fenced = false;
        t->copies.clear();
        t->wgmmas.clear();
        t->stores.clear();
        prepare(t);
    }
    g->live = g->n_threads;
    g->cluster_generation = g->cluster_arrived = 0;
    g->idle_yields = 0;
    g->loads.clear();
    g->loads_done = 0;
    if (g->races)
        race_group_begin(g);
}

/* Writes which threads wait for what; neighbours that wait for the same share a line. */
static void describe_deadlock(Group *g)
{
    size_t size = sizeof g->message, n = 0;
    n += (size_t)snprintf(g->message, size, "%s: no thread can go on.", g->launch->name);
    for (uint32_t i = 0, j; i < g->n_threads && n < size; i = j) {
        Thread *t = g->threads[i];
        for (j = i + 1; j < g->n_threads; j++) {
            Thread *u = g->threads[j];
            if (u->cta != t->cta || u->waits != t->waits || u->site != t->site ||
                u->wait_a != t->wait_a || u->wait_b != t->wait_b)
                break;
        }
        if (!t->waits)
            continue;
        n += (size_t)snprintf(g->message + n, size - n,
                              "\n  CTA (%u, %u, %u), threads %u to %u, %s: wait for ", t->block.x,
                              t->block.y, t->block.z, t->index, t->index + j - i - 1,
                              t->site ? t->site : "?");
        if (n < size)
            n += (size_t)snprintf(g->message + n, size - n, t->waits, t->wait_a, t->wait_b);
    }
}

static thread_local Group *running;

static bool run_group(Group *g)
{
    g->current = &g->main;
    g->home_bytes = 0;
    running = g;
    while (g->live && !g->failed) {
        Thread *next = next_ready(g);
        if (!next) {
            describe_deadlock(g);
            g->failed = true;
            break;
        }
        go(g, next);
    }
    running = nullptr;
    for (Cta &c : g->cta)
        if (!g->failed && !intact(g, &c)) {
            snprintf(g->message, sizeof g->message,
                     "%s, CTA (%u, %u, %u): wrote beyond its %u bytes of shared memory",
                     g->launch->name, c.block.x, c.block.y, c.block.z, g->shared_bytes);
            g->failed = true;
        }
    return !g->failed;
}

/* ---- a launch ---- */

/* Handles a signal in a kernel: prints kernel and thread, then lets the signal end the process. */
static void on_fault(int signal, siginfo_t *info, void *)
{
    Group *g = running;
    Thread *t = g ? g->current : nullptr;
    char text[512];
    if (t && t != &g->main) {
        int n = snprintf(
            text, sizeof text,
            "emulator: %s, CTA (%u, %u, %u), thread %u, after %s: signal %d at address %p\n",
            g->launch->name, t->block.x, t->block.y, t->block.z, t->index,
            t->site ? t->site : "its begin", signal, info->si_addr);
        if (write(2, text, (size_t)n) < 0)
            abort();
    }
    ::signal(signal, SIG_DFL);
    raise(signal);
}

static void catch_faults()
{
    static std::once_flag once;
    enum { BYTES = 16384 };
    static thread_local std::unique_ptr<char[]> stack;
    if (EMU_ASAN)
        return;
    std::call_once(once, [] {
        for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
            struct sigaction old, now = {};
            now.sa_sigaction = on_fault;
            now.sa_flags = SA_SIGINFO | SA_ONSTACK;
            if (sigaction(s, nullptr, &old) == 0 && old.sa_handler == SIG_DFL)
                sigaction(s, &now, nullptr);
        }
    });
    stack_t old, own = {};
    if (sigaltstack(nullptr, &old) == 0 && (old.ss_flags & SS_DISABLE)) {
        stack.reset(new char[BYTES]);
        own.ss_sp = stack.get();
        own.ss_size = BYTES;
        sigaltstack(&own, nullptr);
    }
}

static std::mutex pool_lock;
/* Never destroyed, because a leak checker looks after the destructors have run. */
static std::vector<Group *> &pool = *new std::vector<Group *>;

static Group *take()
{
    std::lock_guard<std::mutex> hold(pool_lock);
    if (pool.empty())
        return new Group();
    Group *g = pool.back();
    pool.pop_back();
    return g;
}

static bool acceptable(const emu_launch *l, const emu_kernel *k, uint32_t cluster,
                       uint32_t shared_bytes, char *message, size_t size)
{
    uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
    uint32_t most = emu_max_shared(l->sm_level);
    if (!k)
        snprintf(message, size, "%s: the module has no such kernel", l->name);
    else if (threads == 0 || threads > 1024 || threads > k->max_threads)
        snprintf(message, size, "%s: %llu threads a CTA; its launch bounds allow %u", l->name,
                 (unsigned long long)threads, k->max_threads);
    else if (cluster > 8 || l->grid[0] % cluster)
        snprintf(message, size, "%s: a grid of %u CTAs along x in clusters of %u", l->name,
                 l->grid[0], cluster);
    else if (cluster > 1 && l->sm_level < 90)
        snprintf(message, size, "%s: clusters need sm_90, this device is sm_%d", l->name,
                 l->sm_level);
    else if (shared_bytes > most)
        snprintf(message, size, "%s: %u bytes of shared memory; a CTA may have %u", l->name,
                 shared_bytes, most);
    else if (l->params_bytes && l->params_bytes != k->params_bytes)
        snprintf(message, size, "%s: %zu bytes of parameters; the kernel takes %u", l->name,
                 l->params_bytes, k->params_bytes);
    else
        return true;
    return false;
}

int emu_run(const emu_launch *l, char *message, size_t message_size)
{
    const emu_kernel *k = find_kernel(l->module, l->name);
    uint32_t cluster = l->cluster ? l->cluster : 1,
             shared_bytes = dynamic_offset(l->module) + l->shared_bytes;
    if (!acceptable(l, k, cluster, shared_bytes, message, message_size))
        return -1;
    catch_faults();
    std::unique_lock<std::mutex> alone(one_at_a_time, std::defer_lock);
    Group *g = take();
    set_up(g, l, k, cluster, l->block[0] * l->block[1] * l->block[2], shared_bytes);
    bool fine = true;
    if ((g->races = looks_for_races(l->module))) {
        alone.lock();
        const char *why = race_launch_begin(g);
        if (why)
            snprintf(g->message, sizeof g->message, "%s: %s", l->name, why);
        fine = !why;
        g->races = fine;
    }
    for (uint32_t z = 0; z < l->grid[2] && fine; z++)
        for (uint32_t y = 0; y < l->grid[1] && fine; y++)
            for (uint32_t x = 0; x < l->grid[0] && fine; x += cluster) {
                begin(g, x, y, z);
                fine = run_group(g);
            }
    if (!fine)
        snprintf(message, message_size, "%s", g->message);
    if (g->races && !race_launch_end(g) && fine) {
        snprintf(message, message_size, "%s", race.first.c_str());
        fine = false;
    }
    std::lock_guard<std::mutex> hold(pool_lock);
    pool.push_back(g);
    return fine ? 0 : -1;
}
