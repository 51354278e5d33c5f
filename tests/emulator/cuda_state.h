/* What the files of the emulated driver share: its errors, its objects, and its state, which one
 * mutex protects. The head of cuda.cc explains the design. */
#ifndef EMULATOR_CUDA_STATE_H
#define EMULATOR_CUDA_STATE_H

#define _Alignas alignas
#include "activity.h"
#include "device/cuda/cuda_api.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "emulator.h"

/* Every function of cuda_api.h's table, with our name here and NVIDIA's in the library. If a
 * declaration changes there, this does not compile; if a function is added, this does not link. */
extern "C" {
#define DECLARE(member, symbol, params) \
    __attribute__((visibility("default"))) cu_result drv_##member params __asm__(symbol);
CUDA_DRIVER_FUNCTIONS(DECLARE)
CUDA_DRIVER_OPTIONAL(DECLARE)
#undef DECLARE
}

#define ERRORS(E)                                                                                 \
    E(0, SUCCESS, "no error")                                                                     \
    E(1, INVALID_VALUE, "invalid argument")                                                       \
    E(2, OUT_OF_MEMORY, "out of memory")                                                          \
    E(3, NOT_INITIALIZED, "initialization error")                                                 \
    E(101, INVALID_DEVICE, "invalid device ordinal")                                              \
    E(200, INVALID_IMAGE, "device kernel image is invalid")                                       \
    E(201, INVALID_CONTEXT, "invalid device context")                                             \
    E(400, INVALID_HANDLE, "invalid resource handle")                                             \
    E(401, ILLEGAL_STATE, "the operation cannot be performed in the present state")               \
    E(500, NOT_FOUND, "named symbol not found")                                                   \
    E(600, NOT_READY, "device not ready")                                                         \
    E(700, ILLEGAL_ADDRESS, "an illegal memory access was encountered")                           \
    E(709, CONTEXT_IS_DESTROYED, "context is destroyed")                                          \
    E(704, PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")                         \
    E(217, PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices")     \
    E(719, LAUNCH_FAILED, "unspecified launch failure")                                           \
    E(801, NOT_SUPPORTED, "operation not supported")                                              \
    E(900, STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")        \
    E(901, STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture") \
    E(902, STREAM_CAPTURE_MERGE,                                                                  \
      "operation would result in a merge of separate capture sequences")                          \
    E(903, STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began")      \
    E(904, STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work")                         \
    E(905, STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream")   \
    E(907, CAPTURED_EVENT,                                                                        \
      "operation not permitted on an event last recorded in a capturing stream")                  \
    E(908, STREAM_CAPTURE_WRONG_THREAD,                                                           \
      "attempt to terminate a thread-local capture sequence from another thread")                 \
    E(912, INVALID_CLUSTER_SIZE, "invalid cluster size")

enum {
#define E(code, name, text) name = code,
    ERRORS(E)
#undef E
};

/* One entry of a stream's queue. If it returns HANGS it has not ended: it stays at the front of the
 * queue and is called again when a call needs it done. */
typedef std::function<cu_result()> Work;
enum { HANGS = -1 };
typedef std::vector<Work> WorkList;

struct Capture {
    pthread_t thread;
    cu_stream origin;
    std::shared_ptr<WorkList> nodes = std::make_shared<WorkList>();
    uint64_t first_node = 0; /* the number of nodes[0] */
    bool invalid = false;
};

struct Gpu;

struct cu_stream_st : std::enable_shared_from_this<cu_stream_st> {
    Gpu *on = nullptr; /* the GPU whose stream it is */
    bool running =
        false;           /* a thread runs its front, and may have released the lock in a kernel that
                             waits for another stream */
    bool helped = false; /* a thread was started that runs its queue */
    std::deque<Work> queue;
    uint64_t queued = 0, done = 0; /* queue[0] is number done + 1 */
    size_t staged = 0;
    bool blocking = false;
    std::shared_ptr<Capture> cap;
    /* in a capture: this stream's nodes so far, and how many of them the first stream waits for */
    uint64_t position = 0, joined = 0;
};
typedef std::shared_ptr<cu_stream_st> StreamRef;

struct cu_event_st {
    bool timing = true;
    StreamRef on; /* none: never recorded */
    uint64_t number = 0;
    int polls = 0;
    int64_t when_ns = 0;
    std::shared_ptr<Capture> cap;
    uint64_t position = 0;
};
typedef std::shared_ptr<cu_event_st> EventRef;

struct cu_graph_st {
    std::shared_ptr<WorkList> nodes;
    uint64_t first_node;
};
struct cu_graph_exec_st {
    std::shared_ptr<const WorkList> nodes;
    uint64_t first_node;
};

struct ModuleImage {
    emu_module *module = nullptr;
    ~ModuleImage()
    {
        if (module)
            emu_module_unload(module);
    }
};
struct cu_kernel_st {
    std::shared_ptr<ModuleImage> image;
    std::string name;
    int static_shared, max_dynamic, params_bytes, max_threads;
};
struct cu_library_st {
    std::shared_ptr<ModuleImage> image;
    bool lost = false; /* the context was reset: this can only be unloaded */
    std::map<std::string, std::unique_ptr<cu_kernel_st>> kernel;
};

/* which devices may access each other's memory */
enum Peers { PEERS_ON, PEERS_NONE, PEERS_LINKS };

/* the settings of VITRINE_EMULATOR (emulator.h) */
struct Settings {
    int cc = 90, sms = 4, driver = 13000;
    int devices = 1;
    uint64_t memory = 2048ull << 20, order = 0, fail = 0, refuse = 0, fault = 0, hang = 0;
    bool lazy = true, races = false;
    Peers peers = PEERS_ON;
};

struct Backing { /* memory from cuMemCreate */
    Gpu *on = nullptr;
    int fd = -1;
    uint64_t bytes = 0;
    ~Backing();
};

struct Mapping {
    uint64_t bytes;
    std::shared_ptr<Backing> memory;
    bool open;
};

enum { MOST_NAMED = 4096, MOST_GPUS = 8 };

/* What all GPUs share. */
struct Driver {
    std::mutex lock;
    Settings set;
    bool initialised = false;
    uint64_t kernels = 0;         /* run since cuInit */
    uint64_t all_kernels = 0;     /* run since VITRINE_EMULATOR was last changed */
    std::string setting;          /* VITRINE_EMULATOR, as it was read last */
    uint64_t calls = 0;           /* calls since cuInit that refuse=N counts */
    const char *name[MOST_NAMED]; /* the names of these calls */
    size_t left_over = 0;         /* objects in the context that was released last */
    size_t helpers = 0;           /* threads that run streams for kernels that wait for them */
    std::vector<std::shared_ptr<Capture>> captures; /* captures that have not ended */
};
extern Driver &driver;

/* One GPU, and what belongs to its context. */
struct Gpu {
    int index = 0;
    int context_refs = 0;
    bool context_lives = false;      /* retained, and not reset since it was last retained */
    uint64_t context = 0;            /* number of the living context, or of the last one */
    cu_result failed = 0;            /* sticky */
    bool reads[MOST_GPUS] = {false}; /* the context may access the memory of these GPUs */
    const void *hung = nullptr;      /* the parameters of the kernel that hangs */
    size_t waiting = 0;              /* calls that wait for the hang to end */
    std::condition_variable changed; /* a hang has ended, or its context has */
    uint64_t used = 0;
    std::map<uint64_t, uint64_t> block, pinned, reserved; /* address -> bytes */
    std::map<uint64_t, Mapping> mapped;
    std::map<cu_mem_handle, std::shared_ptr<Backing>> handle;
    cu_mem_handle next_handle = 1;
    std::map<cu_stream, StreamRef> stream; /* NULL is the legacy stream */
    std::vector<StreamRef> orphan;         /* destroyed while work was queued */
    std::map<cu_event, EventRef> event;
    std::map<cu_graph, std::unique_ptr<cu_graph_st>> graph;
    std::map<cu_graph_exec, std::unique_ptr<cu_graph_exec_st>> exec;
    std::map<cu_library, std::unique_ptr<cu_library_st>> library;
    std::map<cu_kernel, cu_kernel_st *> kernel;
};

extern Gpu *const all_gpus; /* [MOST_GPUS], of which the first Settings.devices exist */
/* The GPU whose context is current on this thread; while queued work runs, that of its stream. */
extern thread_local Gpu *current_gpu;
#define gpu (*current_gpu)

/* Makes another GPU the current one until the end of a scope. */
struct OnGpu {
    Gpu *before = current_gpu;
    explicit OnGpu(Gpu *g) { current_gpu = g; }
    ~OnGpu() { current_gpu = before; }
    OnGpu(const OnGpu &) = delete;
    OnGpu &operator=(const OnGpu &) = delete;
};

extern thread_local uint64_t current_context;
extern thread_local const char *call_name;

enum : uint64_t { CHUNK = 2 << 20, ALIGN = 256, MOST_STAGED = 64 << 20 };
enum { MOST_QUEUED = 4096, POLLS = 3 };

/* Prints the current call's name and what was wrong to stderr; returns r. */
__attribute__((format(printf, 2, 3))) cu_result fail(cu_result r, const char *format, ...);

/* ---- every call ---- */

/* SUCCESS if cuInit was called and this thread's current context lives; after a failed kernel, its
 * error. */
cu_result usable();
/* OUT_OF_MEMORY for the call that refuse=N names; calls that free or wait are not counted. */
cu_result refused();
/* An error if this thread captures a stream; the capture also becomes invalid. During a capture,
 * calls that wait for work outside of it, or change such work, are not allowed. */
cu_result outside_capture();

#define LOCK(name)                                  \
    std::lock_guard<std::mutex> hold_(driver.lock); \
    call_name = name
#define ENTER(name)               \
    LOCK(name);                   \
    if (cu_result r_ = usable())  \
        return r_;                \
    if (cu_result r_ = refused()) \
    return r_

template <class M, class H> typename M::mapped_type *find(M &map, H handle)
{
    auto it = map.find(handle);
    return it == map.end() ? nullptr : &it->second;
}

#define FIND(variable, map, handle)         \
    auto *variable = find(gpu.map, handle); \
    if (!variable)                          \
    return fail(INVALID_HANDLE, #map " %p does not exist", (void *)(handle))
#define FIND_STREAM(variable, handle)            \
    if (!(handle) && !gpu.stream.count(nullptr)) \
        gpu.stream[nullptr] = new_stream();      \
    FIND(variable##_found, stream, handle);      \
    StreamRef variable = *variable##_found

/* ---- addresses (cuda.cc) ---- */

/* Returns how many bytes from addr on are memory of the current GPU; 0: addr is not. */
uint64_t device_bytes(uint64_t addr);
/* The GPU, if any, that this device number names. */
Gpu *gpu_of(cu_device d);
cu_result check_device(const char *what, uint64_t addr, uint64_t bytes,
                       cu_result code = INVALID_VALUE);
/* *pinned: whether the range lies in a block of cuMemHostAlloc. */
cu_result check_host(const char *what, const void *p, uint64_t bytes, bool *pinned);

/* ---- streams (cuda_stream.cc) ---- */

StreamRef new_stream();
/* Runs the stream's queue up to that number. It stops before a kernel that hangs. While a kernel
 * waits for what another stream does, the lock is released (emu_others_go_on), so what a caller has
 * found in a map may be gone when this returns. */
void run_until(cu_stream_st &s, uint64_t number);
void run_everything();
/* The same for calls that wait: they return when the work is done, or with an error when the
 * context ends. They release the lock while a kernel hangs. */
cu_result wait_until(StreamRef s, uint64_t number);
cu_result wait_for_everything();
/* Appends to the stream, or to its capture; with stream=eager it runs at once. `staged`: bytes that
 * the closure holds. */
cu_result submit(cu_stream handle, cu_stream_st &s, Work w, size_t staged = 0);
/* The work, which tells the emulated libcupti when it ran: a kernel's name, or bytes moved. */
Work told(int work, const std::string &name, uint64_t bytes, Work w);

#endif
