/* Activity records of the emulated libcupti (cupti.c). The emulated driver tells of nodes and of
 * work that runs (activity.h). A kernel takes 1,000 ns, a copy or a fill 500, and the next one
 * begins 200 ns after its end, on a clock that is set when records are switched on.
 *
 * EMULATED_CUPTI, beside the words of cupti.c:
 *   records=0   there is no room for any buffer
 *   lose=N      N records are dropped
 *   nodes=0     nobody is told of nodes
 *   kernel_ns=N a kernel takes N ns
 *
 * As in CUDA 12 and 13, a record of a kernel has 208 bytes and more than our declaration knows. */
#include "cupti.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "activity.h"

#define DECLARE(member, symbol, params) API int emu_##member params __asm__(symbol);
CUPTI_ACTIVITY_FUNCTIONS(DECLARE)
#undef DECLARE

enum { KERNEL_NS = 1000, MOVE_NS = 500, GAP_NS = 200, TAIL = 56, KINDS = 64 };

/* As long as the real one. */
typedef struct kernel_record {
    cupti_record_kernel is;
    uint8_t tail[TAIL];
} kernel_record;

static struct {
    pthread_mutex_t lock;
    cupti_called *called;
    void *user;
    uint32_t events; /* bits of callbacks that are on */
    cupti_room *room;
    cupti_filled *filled;
    uint8_t on[KINDS];
    uint8_t *buffer;
    size_t bytes, used;
    uint32_t calls;
    uint64_t now_ns;
    size_t dropped;
    int64_t to_lose;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local uint64_t pushed[8];
static _Thread_local int n_pushed;

/* ---- records ---- */

static void give_back(void)
{
    if (all.buffer)
        all.filled(NULL, 0, all.buffer, all.bytes, all.used);
    all.buffer = NULL;
    all.used = 0;
}

static void put(const void *record, size_t bytes)
{
    size_t most;
    if (all.to_lose > 0) {
        all.to_lose--;
        all.dropped++;
        return;
    }
    if (all.buffer && all.used + bytes > all.bytes)
        give_back();
    if (!all.buffer && !planted("records=0"))
        all.room(&all.buffer, &all.bytes, &most);
    if (!all.buffer || bytes > all.bytes) {
        all.dropped++;
        return;
    }
    memcpy(all.buffer + all.used, record, bytes);
    all.used += bytes;
}

static uint64_t planted_ns(const char *word, uint64_t fallback)
{
    const char *p = planted(word);
    return p ? strtoull(p, NULL, 10) : fallback;
}

static void ran(int work, const char *name, uint64_t bytes, uint64_t node, uint32_t call)
{
    int kind = work == EMU_KERNEL ? CUPTI_RECORD_KERNEL
               : work == EMU_COPY ? CUPTI_RECORD_COPY
                                  : CUPTI_RECORD_FILL;
    pthread_mutex_lock(&all.lock);
    uint64_t begin = all.now_ns,
             end = begin + (work == EMU_KERNEL ? planted_ns("kernel_ns=", KERNEL_NS) : MOVE_NS);
    kernel_record k = {.is = {kind, .begin_ns = begin, .end_ns = end, .name = name, .node = node,
                              .correlation = call}};
    cupti_record_copy c = {kind,           .begin_ns = begin, .end_ns = end,
                           .bytes = bytes, .node = node,      .correlation = call};
    cupti_record_fill f = {kind,           .begin_ns = begin, .end_ns = end,
                           .bytes = bytes, .node = node,      .correlation = call};
    if (all.on[kind]) {
        all.now_ns = end + GAP_NS;
        if (work == EMU_KERNEL)
            put(&k, sizeof k);
        else
            put(work == EMU_COPY ? (void *)&c : (void *)&f, sizeof c);
    }
    pthread_mutex_unlock(&all.lock);
}

static uint32_t called(void)
{
    pthread_mutex_lock(&all.lock);
    uint32_t number = ++all.calls;
    cupti_record_outside o = {CUPTI_RECORD_OUTSIDE, CUPTI_OUTSIDE_CUSTOM, 0, number, 0};
    if (n_pushed > 0 && all.on[CUPTI_RECORD_OUTSIDE] && all.on[CUPTI_RECORD_CALL]) {
        o.id = pushed[n_pushed - 1];
        put(&o, sizeof o);
    }
    pthread_mutex_unlock(&all.lock);
    return number;
}

/* ---- nodes: a handle is the node's number ---- */

static void tell(uint32_t event, uint64_t node, uint64_t from)
{
    cupti_graph_data g = {.node = (void *)(uintptr_t)node, .from_node = (void *)(uintptr_t)from};
    cupti_resource r = {.descriptor = &g};
    if (all.called && all.events >> event & 1 && !planted("nodes=0"))
        all.called(all.user, CUPTI_DOMAIN_RESOURCE, event, &r);
}

static void captured(uint64_t node) { tell(CUPTI_NODE_CREATED, node, 0); }

static void cloned(uint64_t first, uint64_t from, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        tell(CUPTI_NODE_CLONED, first + i, from + i);
}

static void ended(uint64_t first, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        tell(CUPTI_NODE_ENDS, first + i, 0);
}

int emu_node_id(void *node, uint64_t *out)
{
    *out = (uint64_t)(uintptr_t)node;
    return node ? CUPTI_OK : CUPTI_ERROR_BAD_PARAMETER;
}

/* ---- the interface ---- */

static void tell_driver(int on)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    emu_activity *hooks = driver ? dlsym(driver, "emu_activity_hooks") : NULL;
    if (hooks)
        *hooks = on ? (emu_activity){captured, cloned, ended, called, ran} : (emu_activity){0};
    if (driver)
        dlclose(driver);
}

int emu_subscribe(cupti_subscriber *out, cupti_called *f, void *user)
{
    if (all.called || planted("watched"))
        return CUPTI_ERROR_SUBSCRIBERS;
    all.called = f;
    all.user = user;
    *out = (cupti_subscriber)&all;
    tell_driver(1);
    return CUPTI_OK;
}

int emu_unsubscribe(cupti_subscriber subscriber)
{
    if (subscriber != (cupti_subscriber)&all || !all.called)
        return CUPTI_ERROR_BAD_PARAMETER;
    tell_driver(0);
    all.called = NULL;
    all.events = 0;
    return CUPTI_OK;
}

int emu_enable_call(uint32_t on, cupti_subscriber subscriber, int domain, uint32_t id)
{
    if (subscriber != (cupti_subscriber)&all || domain != CUPTI_DOMAIN_RESOURCE || id >= 32)
        return CUPTI_ERROR_BAD_PARAMETER;
    all.events = on ? all.events | 1u << id : all.events & ~(1u << id);
    return CUPTI_OK;
}

int emu_activity_room(cupti_room *room, cupti_filled *filled)
{
    all.room = room;
    all.filled = filled;
    return room && filled ? CUPTI_OK : CUPTI_ERROR_BAD_PARAMETER;
}

int emu_activity_on(int kind)
{
    if (kind <= 0 || kind >= KINDS || !all.room)
        return CUPTI_ERROR_BAD_PARAMETER;
    pthread_mutex_lock(&all.lock);
    all.on[kind] = 1;
    if (kind == CUPTI_RECORD_KERNEL)
        emu_timestamp(&all.now_ns);
    all.to_lose = (int64_t)planted_ns("lose=", 0);
    pthread_mutex_unlock(&all.lock);
    return CUPTI_OK;
}

int emu_activity_off(int kind)
{
    if (kind <= 0 || kind >= KINDS || !all.on[kind])
        return CUPTI_ERROR_BAD_PARAMETER;
    all.on[kind] = 0;
    return CUPTI_OK;
}

int emu_activity_flush(uint32_t flags)
{
    (void)flags;
    pthread_mutex_lock(&all.lock);
    give_back();
    pthread_mutex_unlock(&all.lock);
    return CUPTI_OK;
}

static size_t bytes_of(int kind)
{
    return kind == CUPTI_RECORD_KERNEL    ? sizeof(kernel_record)
           : kind == CUPTI_RECORD_OUTSIDE ? sizeof(cupti_record_outside)
                                          : sizeof(cupti_record_copy);
}

int emu_activity_next(uint8_t *buffer, size_t bytes, cupti_record **record)
{
    uint8_t *at = *record ? (uint8_t *)*record + bytes_of((*record)->kind) : buffer;
    if (at >= buffer + bytes)
        return CUPTI_ERROR_NO_MORE;
    *record = (cupti_record *)(void *)at;
    return CUPTI_OK;
}

int emu_activity_dropped(struct cu_context_st *context, uint32_t stream, size_t *dropped)
{
    (void)context, (void)stream;
    *dropped = all.dropped;
    all.dropped = 0;
    return CUPTI_OK;
}

int emu_outside_push(int kind, uint64_t id)
{
    if (kind != CUPTI_OUTSIDE_CUSTOM || n_pushed == 8)
        return CUPTI_ERROR_BAD_PARAMETER;
    pushed[n_pushed++] = id;
    return CUPTI_OK;
}

int emu_outside_pop(int kind, uint64_t *last)
{
    if (kind != CUPTI_OUTSIDE_CUSTOM || n_pushed == 0)
        return CUPTI_ERROR_BAD_PARAMETER;
    *last = pushed[--n_pushed];
    return CUPTI_OK;
}

int emu_timestamp(uint64_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    *out = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    return CUPTI_OK;
}
