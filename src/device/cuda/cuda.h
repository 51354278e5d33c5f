/* One NVIDIA GPU: context, memory, streams, launches, graphs.
 *
 * How a kernel is written, compiled and launched:
 *   1. src/ops/<op>/<name>.cu: header-free text; `ptx.cuh` is pasted in front (types, PTX
 *      wrappers). The entry is extern "C" __global__ with one `const __grid_constant__` parameter
 *      struct, which src/ops/<op>/<name>_params.h declares for kernel and host alike (such headers
 *      are embedded too). Template parameters are macros (HIDDEN, THREADS ...), always integers;
 *      PDL (0 or 1) and LEVEL (80 or 90) are added here.
 *   2. src/ops/<op>/<op>_cuda.c: `const vt_impl <op>_cuda_impl`; its run() fills the same struct:
 *          vt_cuda_launch(lane->cuda,
 *                         &(cuda_launch){.spec = JIT_SPEC("x.cu", "x", {"hidden", 1024}),
 *                                        .grid = {n, 1, 1}, .threads = 256},
 *                         &params, sizeof params)
 *   3. run() is first called on a lane with `collect` set, which only notes the specs; then
 *      vt_cuda_compile makes all cubins in parallel; then run() launches. A launch of a spec that
 *      was never collected compiles it on the spot (and is counted in `late_compiles`).
 * Device addresses are plain pointers in vt_tensor.data and in the batch's arrays; sizes are
 * host numbers.
 *
 * PDL: with lane->pdl every kernel is launched with programmatic stream serialisation, so every
 * kernel must execute pdl_wait() before it touches anything another kernel wrote or may still read,
 * and calls pdl_go() after its weight loads are issued (an early trigger is slower than none:
 * docs/cuda.md).
 *
 * A vt_cuda belongs to the process; its functions may be called by any thread after vt_cuda_enter
 * on that thread. Launches of one lane come from one thread. */
#ifndef VT_DEVICE_CUDA_CUDA_H
#define VT_DEVICE_CUDA_CUDA_H

#include <stdatomic.h>
#include <stdbool.h>

#include "device/cuda/cuda_api.h"
#include "device/cuda/jit.h"

typedef struct cuda_kernel {
    cu_library library;
    cu_kernel kernel; /* NULL: not loaded yet */
    int32_t max_shared;
    int64_t params_bytes; /* size of its parameter struct; -1: the driver (12.3) cannot tell */
    /* Its newest launch, one captured for a graph too; threads 0: none yet. */
    uint32_t grid[3], threads, dynamic_shared, cluster;
    uint32_t shared_percent; /* the hint that the driver was given; 0: none */
} cuda_kernel;

typedef struct vt_cuda {
    cuda_driver driver;
    cu_device device;
    cu_context context;
    int32_t ordinal, sm_count, cc_major, cc_minor, l2_bytes, max_shared_bytes, driver_version;
    int32_t level; /* 80: mma.sync and cp.async; 90: wgmma and TMA too (needs cc 9.0) */
    size_t total_bytes;
    char name[96], arch[16];
    vt_jit *jit;
    cuda_kernel *kernel; /* [n_kernels], by the JIT's index */
    int32_t n_kernels, late_compiles;
    struct cublaslt *cublaslt; /* cublaslt.h; NULL: it was not opened yet */
    int32_t cublaslt_use;      /* VITRINE_CUBLASLT */
    uint64_t n_resets;         /* of the GPU's context in this process, when it was retained */
    atomic_bool hung;          /* work on the GPU does not end: vt_cuda_set_hung */
} vt_cuda;

/* Checks whether a model can run on GPU `ordinal`: driver, GPU and NVRTC exist, are new enough and
 * fit each other. The error says what is wrong. Makes no context. */
vt_status vt_cuda_usable(int32_t ordinal, vt_err *err);

/* The implementation level is the device's, capped by VITRINE_CUDA_LEVEL (80 or 90). */
vt_status vt_cuda_open(int32_t ordinal, vt_cuda **out, vt_err *err);
void vt_cuda_close(vt_cuda *c);
/* Makes a vt_cuda without a device: run() on a collecting lane notes kernels, and vt_jit_compile
 * compiles them for `arch`. For tests and for making a bundle on another machine. */
vt_status vt_cuda_offline(const char *arch, int32_t level, int32_t sm_count, vt_cuda **out,
                          vt_err *err);
/* Makes the device's context current on this thread. Fails if the context was reset or hangs. */
vt_status vt_cuda_enter(vt_cuda *c, vt_err *err);
vt_status vt_cuda_check(const vt_cuda *c, cu_result r, const char *what, vt_err *err);
/* Lets kernels of `c`, whose context is current, access all memory of vt_cuda_alloc of another GPU.
 * Fails where the two have no peer access; does nothing for the same GPU. */
vt_status vt_cuda_sees_peer(const vt_cuda *c, const vt_cuda *peer, bool *out, vt_err *err);
vt_status vt_cuda_open_peer(vt_cuda *c, const vt_cuda *peer, vt_err *err);

/* ---- a context that can no longer be used ----
 *
 * A kernel that touches memory that is not there, and other faults, leave the context in an error
 * that every later call returns. The primary context is then reset, and a new one retained.
 *
 * All vt_cuda of a process share the GPU's primary context, and so do other libraries in it. A
 * context of our own (cuCtxCreate) would not: a fault would concern its owner alone. But it costs
 * some hundred MiB and a fifth of a second for every vt_cuda after the first (the roofs and each
 * further engine open one), and kernels of two contexts take turns on the GPU. So the context is
 * shared, and resets are counted: whoever finds that another vt_cuda has reset the context takes
 * the new one and does not reset it again. */

/* Returns true if another vt_cuda of this process has reset the context since this one retained it.
 * Then none of its streams, events, graphs and kernels exists, and no call may be given one. */
bool vt_cuda_was_reset(const vt_cuda *c);
/* Returns true if the context was reset or returns errors for good. Waits for the work on
 * `stream`. */
bool vt_cuda_is_lost(vt_cuda *c, cu_stream stream);
/* Resets the primary context, unless another vt_cuda has done so, and makes the new one current.
 * What the JIT has compiled is kept; vt_cuda_compile loads it again. The caller has given up every
 * other object of the old context. */
vt_status vt_cuda_renew(vt_cuda *c, vt_err *err);
/* Notes that work on the GPU does not end. Whatever waits for the GPU would not return, so later
 * calls of vt_cuda_enter fail and vt_cuda_close frees host memory only. */
void vt_cuda_set_hung(vt_cuda *c);
/* Returns true if any vt_cuda of this process hangs. The process should then end by _exit, because
 * the driver's own exit handler may wait for the GPU. */
bool vt_cuda_any_hung(void);

/* Compiles and loads everything noted. */
vt_status vt_cuda_compile(vt_cuda *c, jit_progress progress, void *user, vt_err *err);

/* ---- memory ---- */

static inline cu_ptr cuda_address(const void *p) { return (cu_ptr)(uintptr_t)p; }

vt_status vt_cuda_alloc(vt_cuda *c, size_t bytes, void **out, vt_err *err); /* not initialised */
void vt_cuda_free(vt_cuda *c, void *p);
vt_status vt_cuda_pinned(vt_cuda *c, size_t bytes, void **out,
                         vt_err *err); /* host memory the device reads */
void vt_cuda_pinned_free(vt_cuda *c, void *p);

/* A range of addresses that is reserved whole and gets memory as needed: it grows without moving,
 * so graphs and tensor maps that hold its addresses stay valid. It has parts of equal size,
 * `stride` apart, each of which has memory from its start on. */
typedef struct cuda_range {
    void *base;
    size_t stride, mapped, chunk; /* of a part: addresses, bytes with memory, their granularity */
    int32_t n_parts, n_growths;
    cu_mem_handle *handle; /* [n_growths][n_parts] */
    size_t *growth;        /* [n_growths] bytes that each part grew by */
} cuda_range;

vt_status cuda_range_init_parts(vt_cuda *c, int32_t n_parts, size_t bytes, cuda_range *r,
                                vt_err *err);
static inline vt_status cuda_range_init(vt_cuda *c, size_t bytes, cuda_range *r, vt_err *err)
{
    return cuda_range_init_parts(c, 1, bytes, r, err);
}
/* Makes sure that at least `bytes` of every part have memory; on failure as many as before have. */
vt_status cuda_range_grow(vt_cuda *c, cuda_range *r, size_t bytes, vt_err *err);
/* Gives all memory and addresses back; false if the driver refuses, and then *r is as before. */
bool cuda_range_try_release(vt_cuda *c, cuda_range *r);
/* The same, but what the driver refuses to take is forgotten. */
void cuda_range_release(vt_cuda *c, cuda_range *r);
/* Frees the description alone; no call to the driver. */
void cuda_range_forget(cuda_range *r);

/* Upload of many pieces: `n_threads` host threads fill pinned buffers (two each) by produce() and
 * copy them, so that conversion, page-cache reads and the bus overlap. produce(arg, out, begin,
 * bytes) writes bytes [begin, begin + bytes) of the piece in the form that the device is to get;
 * `begin` is a multiple of `grain`. */
typedef struct cuda_upload {
    void *to;
    size_t bytes, grain;
    void (*produce)(const void *arg, void *out, size_t begin, size_t bytes);
    const void *arg;
} cuda_upload;

/* `stop`, which may be NULL, is looked at before every part: if true, the upload ends early and
 * without an error. */
vt_status vt_cuda_upload(vt_cuda *c, const cuda_upload *pieces, int32_t n, int32_t n_threads,
                         const atomic_bool *stop, vt_err *err);

/* ---- launches ---- */

/* Where kernels are launched: a stream and how. What one call of an op works on (its plan,
 * workspace, tickets) is in vt_lane (ops/op.h). */
struct cuda_launch;
struct vt_cuda_lane {
    vt_cuda *cuda;
    cu_stream stream;
    bool collect;       /* note the kernels, launch nothing */
    bool own;           /* while it collects, cuBLASLt is not asked */
    bool pdl;           /* programmatic dependent launch between this stream's kernels */
    bool apart;         /* kernels do not overlap, so that each can be timed */
    int32_t n_launches; /* kernels launched, with those of graphs, since the caller zeroed this */
    int32_t *note;      /* [max_note] the JIT's index of each, except in graphs; NULL: not wanted */
    int32_t max_note;
    /* Launches as their callers ask for them, collected ones too: tests compare them with what a
     * row describes. [max_record], of which the first n_record are used; NULL: not wanted */
    struct cuda_launch *record;
    int32_t max_record, n_record;
    /* Changes a launch before it is collected or made: a lab runs a kernel of the user's in the
     * place of a row's. NULL: launches are as the rows ask for them */
    vt_status (*replace)(void *user, struct vt_cuda_lane *lane, struct cuda_launch *l,
                         const void *params, size_t params_bytes, vt_err *err);
    void *replace_user;
    struct cuda_stamps *stamps; /* kernels run stamped (stamps.h); NULL: they run as they are */
    vt_err err;                 /* of the first failed launch */
};
typedef struct vt_cuda_lane vt_cuda_lane;

/* Zeroed words that the calls of a stream share one after the other (vt_lane.tickets). */
enum { CUDA_TICKETS = 1 << 16 };

typedef struct cuda_launch {
    jit_spec spec;
    uint32_t grid[3], threads, shared_bytes, cluster; /* cluster 0 or 1: none */
    bool no_pdl; /* this kernel never overlaps its predecessor */
    /* How much of an SM's L1 cache should serve as shared memory while the kernel runs. A hint that
     * stays with the kernel, so all its launches give the same. 0: the driver chooses */
    uint32_t shared_percent;
} cuda_launch;

/* The JIT's index of the kernel that this launch takes, which is noted if it was not yet; -1: out
 * of memory. */
int32_t vt_cuda_kernel_of(vt_cuda_lane *lane, const cuda_launch *l);

/* `params` is the kernel's parameter struct as the host declares it. Its size must be the one that
 * the kernel was compiled with: a struct that differs between host and kernel is an error here and
 * not garbage in the kernel. */
vt_status vt_cuda_launch(vt_cuda_lane *lane, const cuda_launch *l, const void *params,
                         size_t params_bytes);

/* A library has launched a kernel on the lane: it is counted, and noted under the spec's name. The
 * spec's source is "". */
vt_status vt_cuda_launched(vt_cuda_lane *lane, const jit_spec *spec);

/* TMA map over a tensor of `rank` (2 to 5) dimensions of 2-byte elements, the innermost first, with
 * strides in bytes of the others, a box, and 128-byte swizzle (64-byte where the box's rows have 32
 * elements); reads beyond the edge give zeros. */
vt_status vt_cuda_tensor_map(vt_cuda *c, void *base, int32_t rank, const int64_t *dim,
                             const int64_t *stride_bytes, const uint32_t *box, cu_tensor_map *out,
                             vt_err *err);

/* The same over elements of 8 bytes, and without a swizzle. */
vt_status vt_cuda_tensor_map_words(vt_cuda *c, void *base, int32_t rank, const int64_t *dim,
                                   const int64_t *stride_bytes, const uint32_t *box,
                                   cu_tensor_map *out, vt_err *err);

/* vt_cuda_tensor_map over a row-major matrix [rows, cols] with box [box_rows, box_cols]. */
vt_status vt_cuda_tensor_map_2d(vt_cuda *c, void *base, int64_t rows, int64_t cols,
                                int64_t row_stride_bytes, uint32_t box_rows, uint32_t box_cols,
                                cu_tensor_map *out, vt_err *err);

/* ---- graphs ---- */

typedef struct cuda_graph {
    cu_graph_exec exec;
    int32_t n_nodes;
} cuda_graph;

/* begin; run() calls on the lane; end. The lane must have been collected and compiled before. */
vt_status cuda_graph_begin(vt_cuda_lane *lane, vt_err *err);
vt_status cuda_graph_end(vt_cuda_lane *lane, cuda_graph *out, vt_err *err);
vt_status cuda_graph_launch(vt_cuda_lane *lane, const cuda_graph *g, vt_err *err);
void cuda_graph_release(vt_cuda *c, cuda_graph *g);

#endif
