/* libcuda.so.1 of the emulated GPUs: one or several, whose memory is this process's memory.
 *
 *   cuMemAlloc    malloc (so that ASan has red zones), filled with 0xff: an uninitialised float
 *                 reads as NaN
 *   cuMemCreate   a memfd, mapped into a reservation of PROT_NONE pages: a stray pointer faults
 *   a stream      a queue of closures: `submit` appends, `run_until` runs from the front up to a
 *                 number. With stream=lazy nothing runs before a call needs it done: a
 *                 synchronisation, a repeated poll, a free. Pinned memory is read and written when
 *                 the copy runs. Pageable memory is treated as by the driver: sources are staged at
 *                 the call, destinations make the call wait.
 *   an event      (stream, number of its record): complete when the stream has done that many
 *   a capture     collects the same closures in a list; a graph is that list, a launch of it one
 *                 entry of a stream
 *
 * One mutex is held during every call, also while kernels run; emu_run's own threads never call the
 * driver. A kernel that waits for a kernel of another stream (a load with .sys scope in a loop, as
 * ranks meet) releases it, and threads run the other streams meanwhile: so such kernels take turns.
 * What belongs to a context is found only where that context is current. A misuse gives the same error as NVIDIA's driver, and a line on stderr that says what was
 * wrong. */
#include "cuda_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Never destroyed: threads may still call while the process ends. */
Driver &driver = *new Driver;
Gpu *const all_gpus = new Gpu[MOST_GPUS];
thread_local Gpu *current_gpu = all_gpus;
thread_local uint64_t current_context;
thread_local const char *call_name = "";

/* Every entry of the table, so that a missing function is a linker error. */
extern "C" {
extern void *const emulated_driver[];
__attribute__((used)) void *const emulated_driver[] = {
#define ENTRY(member, symbol, params) (void *)drv_##member,
    CUDA_DRIVER_FUNCTIONS(ENTRY) CUDA_DRIVER_OPTIONAL(ENTRY)
#undef ENTRY
};
}

Backing::~Backing()
{
    if (fd >= 0)
        close(fd);
    if (on)
        on->used -= bytes;
}

cu_result fail(cu_result r, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "emulator: %s: %s\n", call_name, text);
    return r;
}

/* ---- settings ---- */

static bool known_capability(unsigned long long cc)
{
    for (unsigned long long known : {75, 80, 86, 89, 90, 120})
        if (cc == known)
            return true;
    return false;
}

static cu_result parse_one(Settings *s, const std::string &item)
{
    size_t eq = item.find('=');
    std::string key = item.substr(0, eq),
                value = eq == std::string::npos ? "" : item.substr(eq + 1);
    char *end = nullptr;
    unsigned long long n = strtoull(value.c_str(), &end, 10);
    bool number = !value.empty() && !*end;
    if (key == "cc" && number && known_capability(n))
        s->cc = (int)n;
    else if (key == "driver" && number)
        s->driver = (int)n;
    else if (key == "sms" && number && n > 0 && n <= 1024)
        s->sms = (int)n;
    else if (key == "devices" && number && n > 0 && n <= MOST_GPUS)
        s->devices = (int)n;
    else if (key == "peers" && (value == "on" || value == "none" || value == "links"))
        s->peers = value == "on" ? PEERS_ON : value == "none" ? PEERS_NONE : PEERS_LINKS;
    else if (key == "memory" && number && n > 0)
        s->memory = n << 20;
    else if (key == "order" && number)
        s->order = n;
    else if (key == "fail" && number)
        s->fail = n;
    else if (key == "fault" && number)
        s->fault = n;
    else if (key == "hang" && number)
        s->hang = n;
    else if (key == "refuse" && number)
        s->refuse = n;
    else if (item == "race")
        s->races = true; /* nvrtc.cc reads it too */
    else if (key == "stream" && (value == "lazy" || value == "eager"))
        s->lazy = value == "lazy";
    else if (key == "cublaslt" &&
             (value == "on" || value == "broken" || value == "none" || value == "failing"))
        return SUCCESS; /* cublaslt.c reads it */
    else if (key == "nccl" &&
             (value == "on" || value == "broken" || value == "failing" || value == "wrong"))
        return SUCCESS; /* nccl.c reads it */
    else if (key == "nvrtc" && number)
        return SUCCESS; /* nvrtc.cc reads it */
    else
        return fail(INVALID_VALUE,
                    "VITRINE_EMULATOR has '%s', expected cc=75|80|86|89|90|120, sms=N, memory=MIB, "
                    "devices=1..8, peers=on|none|links, order=N, fail=N, "
                    "fault=N, hang=N, "
                    "refuse=N, driver=N, nvrtc=N, cublaslt=on|broken|none|failing, "
                    "nccl=on|broken|failing|wrong, race or "
                    "stream=eager|lazy",
                    item.c_str());
    return SUCCESS;
}

static cu_result parse_settings()
{
    Settings s;
    const char *at = getenv("VITRINE_EMULATOR");
    for (std::string rest = at ? at : ""; !rest.empty();) {
        size_t comma = rest.find(',');
        if (cu_result r = parse_one(&s, rest.substr(0, comma)))
            return r;
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
    if (driver.setting != (at ? at : "")) {
        driver.setting = at ? at : "";
        driver.all_kernels = 0;
    }
    driver.set = s;
    driver.kernels = driver.calls = 0;
    return SUCCESS;
}

/* ---- the state of a call ---- */

cu_result usable()
{
    if (!driver.initialised)
        return fail(NOT_INITIALIZED, "before cuInit");
    if (current_context == 0)
        return fail(INVALID_CONTEXT, "no context is current on this thread");
    if (!gpu.context_lives || current_context != gpu.context)
        return fail(CONTEXT_IS_DESTROYED,
                    "the context that is current on this thread was released or reset");
    return gpu.failed;
}

cu_result refused()
{
    static const char *const never[] = {
        "cuMemFree",          "cuMemFreeHost",       "cuMemAddressFree",   "cuMemUnmap",
        "cuMemRelease",       "cuStreamDestroy",     "cuEventDestroy",     "cuGraphDestroy",
        "cuGraphExecDestroy", "cuStreamSynchronize", "cuEventSynchronize", "cuStreamEndCapture"};
    for (const char *name : never)
        if (!strcmp(call_name, name))
            return SUCCESS;
    if (driver.calls < MOST_NAMED)
        driver.name[driver.calls] = call_name;
    return ++driver.calls == driver.set.refuse ? OUT_OF_MEMORY : SUCCESS;
}

void emu_refuse(uint64_t n)
{
    std::lock_guard<std::mutex> hold(driver.lock);
    driver.set.refuse = driver.calls + n;
}

size_t emu_pending()
{
    std::lock_guard<std::mutex> hold(driver.lock);
    size_t n = 0;
    for (int i = 0; i < MOST_GPUS; i++) {
        for (auto &s : all_gpus[i].stream)
            n += s.second->queue.size();
        for (auto &s : all_gpus[i].orphan)
            n += s->queue.size();
    }
    return n;
}

const char *emu_call_name(size_t n)
{
    std::lock_guard<std::mutex> hold(driver.lock);
    return n > 0 && n <= driver.calls && n <= MOST_NAMED ? driver.name[n - 1] : nullptr;
}

int emu_was_refused()
{
    std::lock_guard<std::mutex> hold(driver.lock);
    return driver.set.refuse > 0 && driver.calls >= driver.set.refuse;
}

size_t emu_left_over()
{
    std::lock_guard<std::mutex> hold(driver.lock);
    size_t n = driver.left_over;
    for (int i = 0; i < MOST_GPUS; i++)
        n += all_gpus[i].library.size();
    return n;
}

cu_result outside_capture()
{
    cu_result r = SUCCESS;
    for (auto &c : driver.captures)
        if (pthread_equal(c->thread, pthread_self())) {
            c->invalid = true;
            r = fail(STREAM_CAPTURE_UNSUPPORTED, "this thread captures a stream");
        }
    return r;
}

/* ---- addresses ---- */

/* The entry of `map` (address -> bytes) that holds addr. */
template <class M>
static typename M::iterator holder(M &map, uint64_t addr,
                                   uint64_t (*bytes)(const typename M::mapped_type &))
{
    auto it = map.upper_bound(addr);
    if (it == map.begin())
        return map.end();
    --it;
    return addr - it->first < bytes(it->second) ? it : map.end();
}
static uint64_t plain_bytes(const uint64_t &n) { return n; }
static uint64_t mapping_bytes(const Mapping &m) { return m.bytes; }

Gpu *gpu_of(cu_device d)
{
    if (d >= 0 && d < driver.set.devices)
        return &all_gpus[d];
    fail(INVALID_DEVICE, "device %d; there are %d, 0 the first", d, driver.set.devices);
    return nullptr;
}

uint64_t device_bytes(uint64_t addr)
{
    auto b = holder(gpu.block, addr, plain_bytes);
    if (b != gpu.block.end())
        return b->first + b->second - addr;
    uint64_t at = addr;
    for (auto m = holder(gpu.mapped, at, mapping_bytes); m != gpu.mapped.end() && m->second.open;
         m = holder(gpu.mapped, at, mapping_bytes))
        at = m->first + m->second.bytes;
    return at - addr;
}

static bool overlaps_device(uint64_t addr, uint64_t bytes)
{
    if (device_bytes(addr) || holder(gpu.reserved, addr, plain_bytes) != gpu.reserved.end())
        return true;
    auto b = gpu.block.lower_bound(addr), r = gpu.reserved.lower_bound(addr);
    return (b != gpu.block.end() && b->first < addr + bytes) ||
           (r != gpu.reserved.end() && r->first < addr + bytes);
}

cu_result check_device(const char *what, uint64_t addr, uint64_t bytes, cu_result code)
{
    uint64_t there = device_bytes(addr);
    if (there >= bytes)
        return SUCCESS;
    if (there)
        return fail(
            code, "%s 0x%llx + %llu bytes: only %llu bytes of that allocation or mapping follow",
            what, (unsigned long long)addr, (unsigned long long)bytes, (unsigned long long)there);
    bool in_range = holder(gpu.reserved, addr, plain_bytes) != gpu.reserved.end();
    return fail(code, "%s 0x%llx is %s", what, (unsigned long long)addr,
                in_range ? "in a reservation, but not mapped or not open for access"
                         : "not device memory");
}

cu_result check_host(const char *what, const void *p, uint64_t bytes, bool *pinned)
{
    uint64_t addr = (uint64_t)(uintptr_t)p;
    if (!p)
        return fail(INVALID_VALUE, "%s is NULL", what);
    if (overlaps_device(addr, bytes))
        return fail(INVALID_VALUE, "%s %p + %llu bytes is device memory", what, p,
                    (unsigned long long)bytes);
    *pinned = false;
    for (int i = 0; i < MOST_GPUS; i++) { /* pinned memory is portable */
        auto b = holder(all_gpus[i].pinned, addr, plain_bytes);
        if (b == all_gpus[i].pinned.end())
            continue;
        *pinned = true;
        if (bytes > b->first + b->second - addr)
            return fail(INVALID_VALUE, "%s %p + %llu bytes passes the end of its pinned block",
                        what, p, (unsigned long long)bytes);
    }
    return SUCCESS;
}

/* ---- the device ---- */

/* CUPTI has watched ranges of kernels: the emulated libcupti sets it (cupti.c). */
extern "C" {
__attribute__((visibility("default"))) int emu_cupti_watched;
}

cu_result drv_init(unsigned flags)
{
    LOCK("cuInit");
    if (emu_cupti_watched)
        return fail(NOT_INITIALIZED,
                    "cuInit after CUPTI has watched ranges: on an H100 it waits for ever");
    if (flags != 0)
        return fail(INVALID_VALUE, "flags %u, expected 0", flags);
    int refs = 0;
    for (int i = 0; i < MOST_GPUS; i++)
        refs += all_gpus[i].context_refs;
    if (refs == 0) /* a test may change the devices between two contexts */
        if (cu_result r = parse_settings())
            return r;
    driver.initialised = true;
    return SUCCESS;
}

cu_result drv_driver_version(int *version)
{
    LOCK("cuDriverGetVersion");
    *version = driver.set.driver;
    return SUCCESS;
}

static const struct {
    cu_result code;
    const char *name, *text;
} error_table[] = {
#define E(code, name, text) {code, "CUDA_ERROR_" #name, text},
    ERRORS(E)
#undef E
};

cu_result drv_error_name(cu_result r, const char **name)
{
    for (auto &e : error_table)
        if (e.code == r) {
            *name = r == SUCCESS ? "CUDA_SUCCESS" : e.name;
            return SUCCESS;
        }
    *name = nullptr;
    return INVALID_VALUE;
}

cu_result drv_error_string(cu_result r, const char **text)
{
    for (auto &e : error_table)
        if (e.code == r) {
            *text = e.text;
            return SUCCESS;
        }
    *text = nullptr;
    return INVALID_VALUE;
}

cu_result drv_device_count(int *n)
{
    *n = driver.set.devices;
    return driver.initialised ? SUCCESS : NOT_INITIALIZED;
}

cu_result drv_device_get(cu_device *d, int ordinal)
{
    LOCK("cuDeviceGet");
    if (!gpu_of(ordinal))
        return INVALID_DEVICE;
    *d = ordinal;
    return SUCCESS;
}

cu_result drv_device_name(char *name, int size, cu_device d)
{
    if (!gpu_of(d) || size <= 0)
        return INVALID_DEVICE;
    snprintf(name, (size_t)size, "Emulated GPU");
    return SUCCESS;
}

cu_result drv_device_attribute(int *value, int attribute, cu_device d)
{
    LOCK("cuDeviceGetAttribute");
    if (!gpu_of(d))
        return INVALID_DEVICE;
    switch (attribute) {
    case CU_ATTR_CLOCK_KHZ:
        *value = 1500000;
        return SUCCESS;
    case CU_ATTR_SM_COUNT:
        *value = driver.set.sms;
        return SUCCESS;
    case CU_ATTR_MEMORY_CLOCK_KHZ:
        *value = 2000000;
        return SUCCESS;
    case CU_ATTR_BUS_WIDTH:
        *value = 1024;
        return SUCCESS;
    case CU_ATTR_L2_BYTES:
        *value = 32 << 20;
        return SUCCESS;
    case CU_ATTR_CC_MAJOR:
        *value = driver.set.cc / 10;
        return SUCCESS;
    case CU_ATTR_CC_MINOR:
        *value = driver.set.cc % 10;
        return SUCCESS;
    case CU_ATTR_PCI_BUS: /* the same PCI address as in nvml.c */
        *value = 1 + d;
        return SUCCESS;
    case CU_ATTR_PCI_DEVICE:
    case CU_ATTR_PCI_DOMAIN:
        *value = 0;
        return SUCCESS;
    case CU_ATTR_MAX_SHARED_OPTIN:
        *value = (int)emu_max_shared(driver.set.cc);
        return SUCCESS;
    default:
        return fail(INVALID_VALUE, "attribute %d is not in the emulator", attribute);
    }
}

cu_result drv_device_total(size_t *bytes, cu_device d)
{
    LOCK("cuDeviceTotalMem");
    if (!gpu_of(d))
        return INVALID_DEVICE;
    *bytes = driver.set.memory;
    return SUCCESS;
}

cu_result drv_context_retain(cu_context *c, cu_device d)
{
    LOCK("cuDevicePrimaryCtxRetain");
    if (!driver.initialised)
        return fail(NOT_INITIALIZED, "before cuInit");
    Gpu *g = gpu_of(d);
    if (!g)
        return INVALID_DEVICE;
    g->index = d;
    g->context_refs++;
    if (!g->context_lives) /* a number that says whose it is */
        g->context = (g->context / MOST_GPUS + 1) * MOST_GPUS + (uint64_t)d;
    g->context_lives = true;
    *c = (cu_context)(uintptr_t)g->context;
    return SUCCESS;
}

/* Frees everything that the context still holds. */
static void destroy_context()
{
    emu_race_order(nullptr);
    emu_race_after(-1, gpu.index);
    for (auto *map : {&gpu.block, &gpu.reserved})
        for (auto &b : *map)
            emu_race_memory(b.first, 0);
    /* work that never ran may hold its own stream, as the recording of an event does */
    for (auto &s : gpu.stream)
        s.second->queue.clear();
    for (auto &s : gpu.orphan)
        s->queue.clear();
    gpu.stream.clear();
    gpu.orphan.clear();
    gpu.event.clear();
    driver.captures.clear();
    gpu.graph.clear();
    gpu.exec.clear();
    for (auto &b : gpu.block) {
        gpu.used -= (b.second + ALIGN - 1) / ALIGN * ALIGN;
        free((void *)b.first);
    }
    for (auto &p : gpu.pinned)
        free((void *)p.first);
    for (auto &r : gpu.reserved)
        munmap((void *)r.first, r.second);
    gpu.block.clear();
    gpu.pinned.clear();
    gpu.mapped.clear();
    gpu.reserved.clear();
    gpu.handle.clear();
    gpu.failed = SUCCESS;
    gpu.hung = nullptr;
    for (bool &reads : gpu.reads)
        reads = false;
    gpu.context_lives = false;
    gpu.changed.notify_all(); /* calls that wait for this context's work return */
}

/* Counts the objects that the program did not free, and names them on stderr. */
static void count_left_over()
{
    if (!gpu.failed && (!gpu.block.empty() || !gpu.mapped.empty() || !gpu.pinned.empty()))
        fprintf(stderr,
                "emulator: released a context with %zu blocks, %zu mappings and %zu pinned blocks "
                "alive\n",
                gpu.block.size(), gpu.mapped.size(), gpu.pinned.size());
    driver.left_over = gpu.block.size() + gpu.mapped.size() + gpu.pinned.size() +
                       gpu.reserved.size() + gpu.handle.size() + gpu.stream.size() -
                       gpu.stream.count(nullptr) + gpu.event.size() + gpu.graph.size() +
                       gpu.exec.size();
}

cu_result drv_context_release(cu_device d)
{
    LOCK("cuDevicePrimaryCtxRelease");
    Gpu *g = gpu_of(d);
    if (!g || g->context_refs == 0)
        return fail(INVALID_CONTEXT, "the context is not retained");
    OnGpu on(g);
    if (--gpu.context_refs > 0)
        return SUCCESS;
    run_everything(); /* except work after a kernel that hangs */
    count_left_over();
    destroy_context();
    return SUCCESS;
}

/* Frees everything that the context holds, for all callers that retained it; queued work never
 * runs. Their references stay counted and must be released; the next cuDevicePrimaryCtxRetain makes
 * a new context. A library's code would outlive its context, but the state of its kernels after a
 * fault is not documented. So here their handles become invalid too, and the library can only be
 * unloaded. */
cu_result drv_context_reset(cu_device d)
{
    LOCK("cuDevicePrimaryCtxReset");
    if (!driver.initialised)
        return fail(NOT_INITIALIZED, "before cuInit");
    Gpu *g = gpu_of(d);
    if (!g)
        return INVALID_DEVICE;
    OnGpu on(g);
    for (auto &l : gpu.library) {
        l.second->lost = true;
        for (auto &k : l.second->kernel)
            gpu.kernel.erase(k.second.get());
    }
    destroy_context();
    return SUCCESS;
}

cu_result drv_context_set(cu_context c)
{
    LOCK("cuCtxSetCurrent");
    uint64_t number = (uint64_t)(uintptr_t)c;
    Gpu *g = number ? &all_gpus[number % MOST_GPUS] : current_gpu;
    if (number != 0 && (number != g->context || !g->context_lives))
        return fail(INVALID_CONTEXT, "this context does not exist");
    current_context = number;
    current_gpu = g;
    return SUCCESS;
}

/* ---- peers ---- */

/* Returns true if EMULATED_LINKS (nvml.c) has another word than SYS for the two devices. */
static bool linked(int d, int peer)
{
    const char *p = getenv("EMULATED_LINKS");
    for (int row = 0; p && row < d; row++)
        p = (p = strchr(p, '\n')) ? p + 1 : nullptr;
    for (int column = 0; p && column < peer; column++) {
        p += strcspn(p, " \n");
        p = *p == ' ' ? p + strspn(p, " ") : nullptr;
    }
    return p && strncmp(p, "SYS", 3) != 0;
}

static bool may_access(int d, int peer)
{
    return driver.set.peers == PEERS_ON || (driver.set.peers == PEERS_LINKS && linked(d, peer));
}

cu_result drv_peer_can(int *can, cu_device d, cu_device peer)
{
    LOCK("cuDeviceCanAccessPeer");
    if (!gpu_of(d) || !gpu_of(peer))
        return INVALID_DEVICE;
    *can = d != peer && may_access(d, peer);
    return SUCCESS;
}

cu_result drv_peer_enable(cu_context peer, unsigned flags)
{
    ENTER("cuCtxEnablePeerAccess");
    uint64_t number = (uint64_t)(uintptr_t)peer;
    Gpu *g = &all_gpus[number % MOST_GPUS];
    if (flags != 0)
        return fail(INVALID_VALUE, "flags %u", flags);
    if (number != g->context || !g->context_lives || g == current_gpu)
        return fail(INVALID_CONTEXT, "this is no context of another device");
    if (!may_access(gpu.index, g->index))
        return fail(PEER_ACCESS_UNSUPPORTED, "VITRINE_EMULATOR has peers=none or links");
    if (gpu.reads[g->index])
        return PEER_ACCESS_ALREADY_ENABLED;
    gpu.reads[g->index] = true;
    return SUCCESS;
}

uint32_t emu_sm_count() { return (uint32_t)driver.set.sms; }
uint32_t emu_tick_ns() { return driver.set.cc >= 90 ? 32 : 1000; }

int emu_may_access(const void *p)
{
    uint64_t addr = (uint64_t)(uintptr_t)p;
    for (int i = 0; i < MOST_GPUS; i++) {
        Gpu *g = &all_gpus[i];
        OnGpu on(g);
        if (device_bytes(addr))
            return g == on.before || on.before->reads[i];
    }
    return 1; /* pinned memory, or none that the driver knows */
}

/* ---- memory ---- */

cu_result drv_mem_info(size_t *free_bytes, size_t *total)
{
    ENTER("cuMemGetInfo");
    *free_bytes = driver.set.memory - gpu.used;
    *total = driver.set.memory;
    return SUCCESS;
}

static void *filled_block(size_t align, size_t bytes)
{
    void *p = nullptr;
    if (posix_memalign(&p, align, bytes) != 0)
        return nullptr;
    memset(p, 0xff, bytes);
    return p;
}

cu_result drv_mem_alloc(cu_ptr *p, size_t bytes)
{
    ENTER("cuMemAlloc");
    if (cu_result r = outside_capture())
        return r;
    if (bytes == 0)
        return fail(INVALID_VALUE, "0 bytes");
    uint64_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (whole < bytes || whole > driver.set.memory - gpu.used)
        return OUT_OF_MEMORY;
    void *block = filled_block(
        ALIGN, bytes); /* not rounded up: ASan's red zone begins after the last byte */
    if (!block)
        return OUT_OF_MEMORY;
    gpu.used += whole;
    gpu.block[(uint64_t)(uintptr_t)block] = bytes;
    emu_race_memory((uint64_t)(uintptr_t)block, bytes);
    *p = (cu_ptr)(uintptr_t)block;
    return SUCCESS;
}

cu_result drv_mem_free(cu_ptr p)
{
    ENTER("cuMemFree");
    if (p == 0)
        return SUCCESS;
    if (cu_result r = outside_capture())
        return r;
    auto it = gpu.block.find(p);
    if (it == gpu.block.end())
        return fail(INVALID_VALUE, "0x%llx is not a block of cuMemAlloc", (unsigned long long)p);
    if (cu_result r = wait_for_everything()) /* the driver waits too */
        return r;
    it = gpu.block.find(p); /* another thread may have changed the map meanwhile */
    if (it == gpu.block.end())
        return fail(INVALID_VALUE, "0x%llx was freed twice", (unsigned long long)p);
    gpu.used -= (it->second + ALIGN - 1) / ALIGN * ALIGN;
    free((void *)it->first);
    emu_race_memory(it->first, 0);
    gpu.block.erase(it);
    return gpu.failed;
}

cu_result drv_host_alloc(void **p, size_t bytes, unsigned flags)
{
    ENTER("cuMemHostAlloc");
    if (cu_result r = outside_capture())
        return r;
    if (bytes == 0 || flags & ~7u)
        return fail(INVALID_VALUE, "%zu bytes, flags 0x%x", bytes, flags);
    if (!(*p = filled_block(4096, bytes)))
        return OUT_OF_MEMORY;
    gpu.pinned[(uint64_t)(uintptr_t)*p] = bytes;
    return SUCCESS;
}

cu_result drv_host_free(void *p)
{
    ENTER("cuMemFreeHost");
    if (cu_result r = outside_capture())
        return r;
    if (!gpu.pinned.count((uint64_t)(uintptr_t)p))
        return fail(INVALID_VALUE, "%p is not a block of cuMemHostAlloc", p);
    if (cu_result r = wait_for_everything())
        return r;
    if (!gpu.pinned.erase((uint64_t)(uintptr_t)p))
        return fail(INVALID_VALUE, "%p was freed twice", p);
    free(p);
    return gpu.failed;
}

/* ---- virtual memory ---- */

static cu_result check_prop(const cu_mem_prop *p)
{
    if (!p || p->type != CU_MEM_TYPE_PINNED || p->location.type != CU_MEM_LOCATION_DEVICE ||
        p->location.id != gpu.index)
        return fail(INVALID_VALUE, "expected pinned memory on device %d", gpu.index);
    return SUCCESS;
}

cu_result drv_mem_granularity(size_t *bytes, const cu_mem_prop *p, int option)
{
    LOCK("cuMemGetAllocationGranularity");
    if (option != 0 && option != 1)
        return fail(INVALID_VALUE, "option %d", option);
    *bytes = CHUNK;
    return check_prop(p);
}

cu_result drv_mem_reserve(cu_ptr *p, size_t bytes, size_t align, cu_ptr at,
                          unsigned long long flags)
{
    ENTER("cuMemAddressReserve");
    (void)at; /* the address is only a hint */
    if (bytes == 0 || bytes % CHUNK || align & (align - 1) || flags)
        return fail(
            INVALID_VALUE,
            "%zu bytes aligned to %zu, flags %llu: expected a multiple of %llu bytes, a power of "
            "two, 0",
            bytes, align, flags, (unsigned long long)CHUNK);
    uint64_t edge = align > CHUNK ? align : CHUNK;
    char *base = (char *)mmap(nullptr, bytes + edge, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return OUT_OF_MEMORY;
    char *begin = (char *)(((uint64_t)(uintptr_t)base + edge - 1) / edge * edge);
    if (begin > base)
        munmap(base, (size_t)(begin - base));
    if (base + edge > begin)
        munmap(begin + bytes, (size_t)(base + edge - begin));
    gpu.reserved[(uint64_t)(uintptr_t)begin] = bytes;
    emu_race_memory((uint64_t)(uintptr_t)begin, bytes);
    *p = (cu_ptr)(uintptr_t)begin;
    return SUCCESS;
}

cu_result drv_mem_unreserve(cu_ptr p, size_t bytes)
{
    ENTER("cuMemAddressFree");
    auto it = gpu.reserved.find(p);
    if (it == gpu.reserved.end() || it->second != bytes)
        return fail(INVALID_VALUE, "0x%llx + %zu bytes is not a whole reservation",
                    (unsigned long long)p, bytes);
    auto m = gpu.mapped.lower_bound(p);
    if (m != gpu.mapped.end() && m->first < p + bytes)
        return fail(INVALID_VALUE, "0x%llx is still mapped", (unsigned long long)m->first);
    munmap((void *)p, bytes);
    emu_race_memory(p, 0);
    gpu.reserved.erase(it);
    return SUCCESS;
}

cu_result drv_mem_create(cu_mem_handle *h, size_t bytes, const cu_mem_prop *p,
                         unsigned long long flags)
{
    ENTER("cuMemCreate");
    if (cu_result r = check_prop(p))
        return r;
    if (bytes == 0 || bytes % CHUNK || flags)
        return fail(INVALID_VALUE, "%zu bytes, flags %llu: expected a multiple of %llu bytes, 0",
                    bytes, flags, (unsigned long long)CHUNK);
    if (bytes > driver.set.memory - gpu.used)
        return OUT_OF_MEMORY;
    auto b = std::make_shared<Backing>();
    b->on = current_gpu;
    b->bytes = bytes;
    gpu.used += bytes;
    b->fd = memfd_create("emulated-gpu", MFD_CLOEXEC);
    std::vector<char> poison(CHUNK, (char)0xff);
    if (b->fd < 0)
        return OUT_OF_MEMORY;
    for (uint64_t at = 0; at < bytes; at += CHUNK)
        if (pwrite(b->fd, poison.data(), CHUNK, (off_t)at) != (ssize_t)CHUNK)
            return OUT_OF_MEMORY;
    *h = gpu.next_handle++;
    gpu.handle[*h] = b;
    return SUCCESS;
}

cu_result drv_mem_release(cu_mem_handle h)
{
    ENTER("cuMemRelease");
    if (!gpu.handle.erase(h)) /* mappings keep the memory alive */
        return fail(INVALID_VALUE, "handle %llu does not exist", h);
    return SUCCESS;
}

cu_result drv_mem_map(cu_ptr p, size_t bytes, size_t offset, cu_mem_handle h,
                      unsigned long long flags)
{
    ENTER("cuMemMap");
    auto *memory = find(gpu.handle, h);
    auto range = holder(gpu.reserved, p, plain_bytes);
    if (!memory || offset != 0 || flags || bytes != (*memory)->bytes)
        return fail(INVALID_VALUE,
                    "%zu bytes at offset %zu of handle %llu: expected all of an existing handle",
                    bytes, offset, h);
    if (range == gpu.reserved.end() || p % CHUNK || bytes > range->first + range->second - p)
        return fail(INVALID_VALUE, "0x%llx + %zu bytes is not inside a reservation",
                    (unsigned long long)p, bytes);
    auto next = gpu.mapped.lower_bound(p);
    if (holder(gpu.mapped, p, mapping_bytes) != gpu.mapped.end() ||
        (next != gpu.mapped.end() && next->first < p + bytes))
        return fail(INVALID_VALUE, "0x%llx + %zu bytes is mapped already", (unsigned long long)p,
                    bytes);
    if (mmap((void *)p, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, (*memory)->fd, 0) == MAP_FAILED)
        return OUT_OF_MEMORY;
    gpu.mapped[p] = {bytes, *memory, false};
    return SUCCESS;
}

/* The mappings that together are exactly [p, p + bytes). Empty: the range has a hole, or begins or
 * ends inside a mapping. */
static std::vector<uint64_t> mappings_of(uint64_t p, uint64_t bytes)
{
    std::vector<uint64_t> out;
    uint64_t at = p;
    for (auto m = gpu.mapped.find(p); m != gpu.mapped.end() && m->first == at && at < p + bytes;
         ++m) {
        out.push_back(at);
        at += m->second.bytes;
    }
    return at == p + bytes ? out : std::vector<uint64_t>();
}

/* Does not wait for queued work: work that still uses the range faults, as on a device. */
cu_result drv_mem_unmap(cu_ptr p, size_t bytes)
{
    ENTER("cuMemUnmap");
    auto parts = mappings_of(p, bytes);
    if (bytes == 0 || parts.empty())
        return fail(INVALID_VALUE, "0x%llx + %zu bytes is not one or more whole mappings",
                    (unsigned long long)p, bytes);
    for (uint64_t at : parts)
        gpu.mapped.erase(at);
    mmap((void *)p, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
    return SUCCESS;
}

cu_result drv_mem_access(cu_ptr p, size_t bytes, const cu_mem_access *a, size_t n)
{
    ENTER("cuMemSetAccess");
    auto parts = mappings_of(p, bytes);
    if (bytes == 0 || parts.empty())
        return fail(INVALID_VALUE, "0x%llx + %zu bytes is not one or more whole mappings",
                    (unsigned long long)p, bytes);
    if (n != 1 || a->location.type != CU_MEM_LOCATION_DEVICE || a->location.id != gpu.index ||
        a->flags != CU_MEM_ACCESS_READ_WRITE)
        return fail(INVALID_VALUE, "expected one entry: device %d, read and write", gpu.index);
    for (uint64_t at : parts)
        gpu.mapped[at].open = true;
    mprotect((void *)p, bytes, PROT_READ | PROT_WRITE);
    return SUCCESS;
}
