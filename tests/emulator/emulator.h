/* The emulated GPU: a libcuda.so.1 and a libnvrtc.so.13 of our own, so that the whole CUDA backend
 * (kernels, graphs, executor, engine) runs on a machine without a GPU, under the tests and under
 * sanitizers. It has NVIDIA's entry points and is found like NVIDIA's libraries, by dlopen:
 *
 *     make emulator
 *     LD_LIBRARY_PATH=build/release/emulator build/vitrine run ... --device cuda
 *
 * It has no code for any op or model. It takes three things from vitrine: the list of driver
 * functions (device/cuda/cuda_api.h, cublaslt_api.h), which are the only ones that it has; the PTX
 * instructions that vitrine's kernels use; and the annotations for the race detector in kernels'
 * text (ptx.cuh).
 *
 *   nvrtc.cc    nvrtcCompileProgram: rewrites a few parts of the kernel's text (inline PTX and
 *               __shared__ become C++), puts device.h in front and gives all to g++ -shared; the
 *               "cubin" is that shared object. nvrtc_text.h names the files that do the rewriting
 *   device.h    what a kernel sees: vector types, threadIdx, shuffles, atomics, math, and a
 *               function for every known PTX instruction; abi.h has what it shares with the
 *               runtime
 *   fiber.cc    a thread of a CTA is a fiber; a CTA (or cluster) runs on one OS thread
 *   warp.cc     warp rendezvous (shuffles, ldmatrix, mma.sync), CTA barriers, cp.async
 *   sm90.cc     mbarriers, TMA, wgmma, clusters
 *   race.cc, race_order.cc   data races: accesses, and what orders them
 *   module.cc   loads "cubins"
 *   cuda.cc     the driver API: the device, its memory; cuda_stream.cc: streams, events, copies,
 *               graphs; cuda_launch.cc: libraries, launches, tensor maps
 *   cublaslt.c  libcublasLt.so.13: the products that src/device/cuda/cublaslt.c asks for
 *   nvml.c      libnvidia-ml.so.1: clocks, power, temperature that never change
 *
 * Names: what C code sees is snake_case (emu_launch, cu_stream_st), types of C++ alone are
 * CamelCase (Thread, Capture), functions and variables are snake_case.
 *
 * It checks more than hardware does. Shared memory is poisoned with NaNs before every CTA and is
 * exactly as large as the launch asked for. A barrier that not all threads reach, or threads that
 * wait for ever, are an error that names the waiting threads (cuLaunch... returns
 * CUDA_ERROR_LAUNCH_FAILED, the text goes to stderr). Under ASan global memory has red zones.
 *
 * VITRINE_EMULATOR=... (comma separated) sets:
 *   cc=N            compute capability: 90 (the default), 80, 86, 89, 120, or 75, on which nothing
 *                   runs. A block has up to 227 KiB of shared memory on 90, 163 on 80, 99 (101,376
 *                   bytes) on 86, 89 and 120. Clusters, TMA and programmatic launch begin with 90;
 *                   only 90 has wgmma.
 *   sms=N           number of SMs (4)
 *   driver=N        what cuDriverGetVersion says (13000)
 *   nvrtc=N         the newest capability that NVRTC compiles for (120)
 *   memory=MIB      memory of a device (2048)
 *   devices=N       number of devices, 1 to 8 (1)
 *   peers=on        the default: each device may access the memory of the others, once that was
 *                   enabled; none: none may; links: those that EMULATED_LINKS (nvml.c) does not
 *                   join by SYS
 *   order=N         seed of the order in which threads run (0: rising)
 *   stream=lazy     the default: queued work runs as late as order and synchronisation allow, so
 *                   that a host that reads too early or overwrites too soon is caught
 *   stream=eager    queued work runs at once
 *   cublaslt=on     the default; broken: cublasLtCreate fails; none: no algorithm is found;
 *                   failing: every product fails
 *   nccl=on         the default; broken: ncclCommInitAll fails; failing: no buffer can be
 *                   registered; wrong: sums are wrong
 *   race            looks for data races (race.h)
 *   fail=N          the N-th kernel since cuInit fails with CUDA_ERROR_LAUNCH_FAILED
 *   fault=N         the N-th kernel touches memory that does not exist: it and every later call get
 *                   CUDA_ERROR_ILLEGAL_ADDRESS until the context is reset or made anew
 *   hang=N          the N-th kernel never ends, and nothing after it on its stream runs: queries
 *                   return CUDA_ERROR_NOT_READY, calls that wait do not return until the context is
 *                   reset or emu_end_hang() is called
 *                   Kernels are counted for fault and hang from when the text of VITRINE_EMULATOR
 *                   last changed. So each strikes once, also in a program that then makes a new
 *                   context and goes on.
 *   refuse=N        the N-th call that makes, copies or launches something gets
 *                   CUDA_ERROR_OUT_OF_MEMORY and does nothing
 * Time is not modelled: events are wall-clock times of the emulation. */
#ifndef EMULATOR_H
#define EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- between cuda.cc and the kernels' side ---- */

typedef struct emu_module emu_module; /* one loaded "cubin" */

/* Loads a shared object from the bytes that nvrtcGetCUBIN returned; on failure NULL, with a text in
 * `message`. Thread-safe. With a size of 0 the ELF header tells the size (cuLibraryLoadData gets
 * none). */
emu_module *emu_module_load(const void *bytes, size_t size, char *message, size_t message_size);
void emu_module_unload(emu_module *m);
/* Size in bytes of static shared memory of the kernel; -1: no such kernel. */
int emu_kernel_static_shared(emu_module *m, const char *name);
/* Its launch bounds, 1024 where it has none; -1: no such kernel. */
int emu_kernel_max_threads(emu_module *m, const char *name);
/* sizeof the kernel's one parameter, which the driver copies at launch; -1: no such
 * kernel. */
int emu_kernel_params_bytes(emu_module *m, const char *name);

typedef struct emu_launch {
    emu_module *module;
    const char *name;
    uint32_t grid[3], block[3], cluster, shared_bytes; /* cluster: CTAs along x, 0 or 1 none */
    const void *params; /* the kernel's one parameter struct, 64-byte aligned copy */
    size_t params_bytes;
    int sm_level;   /* the device's compute capability: instructions it does not have are errors */
    uint64_t order; /* seed, 0: rising */
    /* for the race detector: */
    int overlaps;       /* launched with programmatic stream serialisation */
    const void *stream; /* any pointer that is different for each stream */
    uint32_t device;
} emu_launch;

/* Bytes of shared memory, static and dynamic together, that a block may have on a device of compute
 * capability `cc`. */
static inline uint32_t emu_max_shared(int cc)
{
    return (cc == 90 ? 227u : cc == 80 ? 163u : cc == 75 ? 64u : 99u) << 10;
}

/* Runs every CTA to its end. Returns 0, or -1 with a text. Thread-safe: several launches may run on
 * several OS threads. */
int emu_run(const emu_launch *l, char *message, size_t message_size);

/* A kernel waits for what a kernel of another stream does: threads run the queues of all other
 * streams, and the lock is released for a moment. Returns 0 if there is no driver that runs the
 * kernel. */
int emu_others_go_on(void);
/* Returns whether the current device may access this address: it is not another device's, or its
 * peers' memory was enabled. */
int emu_may_access(const void *p);
/* SMs of a device; by how many nanoseconds %globaltimer grows at a time (32 from capability 9.0 on,
 * 1000 before, as on devices). */
uint32_t emu_sm_count(void), emu_tick_ns(void);

/* For the race detector; the caller holds the driver's lock. emu_race_order: what runs on the
 * stream (NULL: on any) from now on begins after everything before it on its device is done.
 * emu_race_after: it is known on device `to` (-1: by the host, for what it queues later) that
 * all is done that has run on device `from`. emu_race_queue returns a number for what the host
 * knows now; with this number emu_race_queued says that what was queued then runs now on a device.
 * emu_race_memory: names a block of memory for its messages (0 bytes: the block is gone). */
void emu_race_order(const void *stream);
void emu_race_after(int to, int from);
uint32_t emu_race_queue(void);
void emu_race_queued(int device, uint32_t number);
void emu_race_memory(uint64_t address, uint64_t bytes);

/* Queues another library's work on a stream, or adds it to its capture. run() gets a copy of the
 * parameters; addresses in them are device addresses. Returns a cu_result. */
int emu_submit(void *stream, int (*run)(const void *params), const void *params, size_t bytes);

/* For tests. Whether refuse=N has refused a call; the name of the n-th call that could be refused,
 * counted from 1, or NULL; how many objects the last context still held when it was released,
 * loaded libraries included. */
int emu_was_refused(void);
const char *emu_call_name(size_t n);
void emu_refuse(uint64_t n); /* the n-th such call from now on */
size_t emu_pending(void);    /* entries that are still queued on streams */
size_t emu_waiting(void);    /* calls that do not return because a kernel hangs */
void emu_end_hang(void);     /* the kernel that hangs runs now and ends */
size_t emu_left_over(void);

/* A TMA descriptor's content, stored in the CUtensorMap's 128 bytes by cuTensorMapEncodeTiled, read
 * by sm90.cc. */
typedef struct emu_tensor_map {
    uint64_t magic; /* EMU_TENSOR_MAP */
    uint64_t address;
    uint32_t rank, dtype_bytes, swizzle_bytes /* 0 32 64 128 */, fill;
    uint64_t dim[5], stride[4]; /* dim[0] innermost; stride in bytes of dims 1.. */
    uint16_t box[5];
} emu_tensor_map;
#define EMU_TENSOR_MAP 0x70616d726f736e74ull

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
