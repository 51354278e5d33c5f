/* The device: opening it, loading kernels, launching, capturing.
 *
 * Everything goes through the driver API's table (cuda_api.h). Kernels are loaded with the library
 * calls, so one cubin serves every context; a kernel's table entry is its index in the JIT's list.
 * A launch costs one hash of its spec (about 0.1 us) and the driver's own 2-3 us; decode runs as
 * graphs and pays neither. */
#include "device/cuda/cuda.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/knob.h"
#include "base/mem.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/stamps.h"

vt_status vt_cuda_check(const vt_cuda *c, cu_result r, const char *what, vt_err *err)
{
    return r == 0 ? VT_OK : cuda_fail(&c->driver, r, what, err);
}

vt_status vt_cuda_enter(vt_cuda *c, vt_err *err)
{
    if (c->hung)
        return vt_fail(err, VT_ERR_DEVICE,
                       "the GPU did not end a step in time; nothing more can run on it until the "
                       "program is started again");
    if (vt_cuda_was_reset(c))
        return vt_fail(err, VT_ERR_DEVICE, "the GPU's context was reset after a failure");
    return vt_cuda_check(c, c->driver.context_set(c->context), "making the GPU's context current",
                         err);
}

vt_status vt_cuda_sees_peer(const vt_cuda *c, const vt_cuda *peer, bool *out, vt_err *err)
{
    int can = c->device == peer->device;
    if (!can)
        TRY(vt_cuda_check(c, c->driver.peer_can(&can, c->device, peer->device),
                          "asking for peer access between GPUs", err));
    *out = can != 0;
    return VT_OK;
}

vt_status vt_cuda_open_peer(vt_cuda *c, const vt_cuda *peer, vt_err *err)
{
    bool can = false;
    if (c->device == peer->device)
        return VT_OK;
    TRY(vt_cuda_sees_peer(c, peer, &can, err));
    if (!can)
        return vt_fail(
            err, VT_ERR_UNSUPPORTED,
            "cuda:%d cannot access the memory of cuda:%d (no peer access), which tp-link "
            "p2p needs; expected auto or host",
            c->ordinal, peer->ordinal);
    cu_result r = c->driver.peer_enable(peer->context, 0);
    return r == CU_ERROR_PEER_ALREADY
               ? VT_OK
               : vt_cuda_check(c, r, "opening peer access between GPUs", err);
}

static int32_t capability(const vt_cuda *c) { return 10 * c->cc_major + c->cc_minor; }

static vt_status choose_level(vt_cuda *c, vt_err *err)
{
    int32_t cc = capability(c);
    const char *want = vt_knob_text(&vt_knobs[VT_KNOB_CUDA_LEVEL]);
    TRY(vt_knob_check(&vt_knobs[VT_KNOB_CUDA_LEVEL], err));
    c->level = cc == 90 ? 90 : 80;
    if (want) {
        if (want[0] == '9' && c->level < 90)
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           "VITRINE_CUDA_LEVEL=90 needs compute capability 9.0; %s has %d.%d",
                           c->name, c->cc_major, c->cc_minor);
        c->level = want[0] == '9' ? 90 : 80;
    }
    snprintf(c->arch, sizeof c->arch, cc == 90 ? "sm_%da" : "sm_%d", cc);
    return VT_OK;
}

static vt_status describe(vt_cuda *c, vt_err *err)
{
    const struct {
        int attribute;
        int32_t *to;
    } want[] = {{CU_ATTR_SM_COUNT, &c->sm_count},
                {CU_ATTR_CC_MAJOR, &c->cc_major},
                {CU_ATTR_CC_MINOR, &c->cc_minor},
                {CU_ATTR_L2_BYTES, &c->l2_bytes},
                {CU_ATTR_MAX_SHARED_OPTIN, &c->max_shared_bytes}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        TRY(vt_cuda_check(c, c->driver.device_attribute(want[i].to, want[i].attribute, c->device),
                          "asking for a GPU attribute", err));
    TRY(vt_cuda_check(c, c->driver.device_name(c->name, sizeof c->name, c->device),
                      "asking for the GPU's name", err));
    TRY(vt_cuda_check(c, c->driver.device_total(&c->total_bytes, c->device),
                      "asking for the GPU's memory", err));
    return vt_cuda_check(c, c->driver.driver_version(&c->driver_version),
                         "asking for the driver's version", err);
}

/* The driver and the GPU, if both are new enough; no context yet. */
static vt_status find_gpu(vt_cuda *c, int32_t ordinal, vt_err *err)
{
    enum { OLDEST_DRIVER = 12030, OLDEST_GPU = 80 };
    int count = 0;
    TRY(cuda_driver_open(&c->driver, err));
    TRY(vt_cuda_check(c, c->driver.device_count(&count), "counting GPUs", err));
    if (ordinal < 0 || ordinal >= count)
        return vt_fail(err, VT_ERR_DEVICE,
                       "device cuda:%d: the driver shows %d GPU%s, cuda:0 the first", ordinal,
                       count, count == 1 ? "" : "s");
    c->ordinal = ordinal;
    TRY(vt_cuda_check(c, c->driver.device_get(&c->device, ordinal), "opening the GPU", err));
    TRY(describe(c, err));
    if (c->driver_version < OLDEST_DRIVER)
        return vt_fail(err, VT_ERR_DEVICE,
                       "the NVIDIA driver is one of CUDA %d.%d; CUDA 12.3 (version 545) or later "
                       "is needed",
                       c->driver_version / 1000, c->driver_version % 1000 / 10);
    if (capability(c) < OLDEST_GPU)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s has compute capability %d.%d; 8.0 or later is needed", c->name,
                       c->cc_major, c->cc_minor);
    return VT_OK;
}

/* Checks that NVRTC can compile for this GPU, and that the driver can load the result: a driver
 * need not load code made by a later major version of CUDA. */
static vt_status find_compiler(const vt_cuda *c, vt_err *err)
{
    enum { MOST = 64 };
    cuda_nvrtc n;
    int count = 0, arch[MOST];
    TRY(cuda_nvrtc_open(&n, err));
    if (n.major > c->driver_version / 1000)
        return vt_fail(err, VT_ERR_DEVICE,
                       "libnvrtc is version %d.%d and the driver one of CUDA %d.%d, which may not "
                       "load what it compiles; VITRINE_NVRTC=.../libnvrtc.so.%d or a newer driver "
                       "is needed",
                       n.major, n.minor, c->driver_version / 1000, c->driver_version % 1000 / 10,
                       c->driver_version / 1000);
    if (n.n_archs(&count) != 0 || count < 1 || count > MOST || n.archs(arch) != 0)
        return vt_fail(err, VT_ERR_DEVICE, "libnvrtc does not say for which GPUs it compiles");
    for (int i = 0; i < count; i++)
        if (arch[i] == capability(c))
            return VT_OK;
    return vt_fail(err, VT_ERR_DEVICE,
                   "libnvrtc %d.%d does not compile for compute capability %d.%d, which %s has",
                   n.major, n.minor, c->cc_major, c->cc_minor, c->name);
}

vt_status vt_cuda_usable(int32_t ordinal, vt_err *err)
{
    vt_cuda c = {0};
    TRY(find_gpu(&c, ordinal, err));
    return find_compiler(&c, err);
}

/* ---- the context ---- */

/* How often each GPU's primary context was reset in this process. No machine has more GPUs than
 * this; if one had, a reset of one GPU would also count for another, which only costs time. */
enum { MOST_GPUS = 64 };
static _Atomic uint64_t resets[MOST_GPUS];
static pthread_mutex_t reset_lock = PTHREAD_MUTEX_INITIALIZER; /* from reset to retain */
static atomic_bool any_hung;

static _Atomic uint64_t *resets_of(const vt_cuda *c) { return &resets[c->ordinal % MOST_GPUS]; }

static vt_status retain_locked(vt_cuda *c, vt_err *err)
{
    TRY(vt_cuda_check(c, c->driver.context_retain(&c->context, c->device),
                      "opening the GPU's context", err));
    c->n_resets = atomic_load(resets_of(c));
    return VT_OK;
}

static vt_status retain(vt_cuda *c, vt_err *err)
{
    pthread_mutex_lock(&reset_lock);
    vt_status status = retain_locked(c, err);
    pthread_mutex_unlock(&reset_lock);
    return status;
}

bool vt_cuda_was_reset(const vt_cuda *c) { return c->n_resets != atomic_load(resets_of(c)); }

bool vt_cuda_is_lost(vt_cuda *c, cu_stream stream)
{
    return vt_cuda_enter(c, NULL) != VT_OK || c->driver.stream_sync(stream) != 0;
}

static void unload_kernels(vt_cuda *c)
{
    for (int32_t i = 0; i < c->n_kernels; i++)
        if (c->kernel[i].library)
            c->driver.library_unload(c->kernel[i].library);
    if (c->kernel)
        memset(c->kernel, 0, (size_t)c->n_kernels * sizeof *c->kernel);
}

/* A reference that was retained before a reset must still be released after it. */
static vt_status reset_and_retain(vt_cuda *c, vt_err *err)
{
    if (!vt_cuda_was_reset(c)) {
        TRY(vt_cuda_check(c, c->driver.context_reset(c->device), "resetting the GPU's context",
                          err));
        atomic_fetch_add(resets_of(c), 1);
    }
    TRY(retain_locked(c, err));
    c->driver.context_release(c->device);
    return VT_OK;
}

vt_status vt_cuda_renew(vt_cuda *c, vt_err *err)
{
    vt_cublaslt_close(c);
    pthread_mutex_lock(&reset_lock);
    vt_status status = reset_and_retain(c, err);
    pthread_mutex_unlock(&reset_lock);
    TRY(status);
    TRY(vt_cuda_enter(c, err));
    unload_kernels(c);
    return VT_OK;
}

void vt_cuda_set_hung(vt_cuda *c)
{
    atomic_store(&c->hung, true);
    atomic_store(&any_hung, true);
}

bool vt_cuda_any_hung(void) { return atomic_load(&any_hung); }

vt_status vt_cuda_open(int32_t ordinal, vt_cuda **out, vt_err *err)
{
    vt_cuda *c = vt_calloc(1, sizeof *c);
    if (!c)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a device");
    vt_status status;
    TRY_GOTO(status, find_gpu(c, ordinal, err), failed);
    TRY_GOTO(status, choose_level(c, err), failed);
    cublaslt_use use;
    TRY_GOTO(status, vt_cublaslt_use(&use, err), failed);
    c->cublaslt_use = (int32_t)use;
    TRY_GOTO(status, retain(c, err), failed);
    TRY_GOTO(status, vt_cuda_enter(c, err), failed);
    TRY_GOTO(status, vt_jit_new(c->arch, &c->jit, err), failed);
    *out = c;
    return VT_OK;
failed:
    vt_cuda_close(c);
    return status;
}

vt_status vt_cuda_offline(const char *arch, int32_t level, int32_t sm_count, vt_cuda **out,
                          vt_err *err)
{
    vt_cuda *c = vt_calloc(1, sizeof *c);
    if (!c)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a device");
    *c = (vt_cuda){.level = level,
                   .sm_count = sm_count,
                   .cc_major = level / 10,
                   .cc_minor = level % 10,
                   .max_shared_bytes = level >= 90 ? 227 << 10 : 163 << 10};
    snprintf(c->arch, sizeof c->arch, "%s", arch);
    snprintf(c->name, sizeof c->name, "no device (%s)", arch);
    vt_status status = vt_jit_new(arch, &c->jit, err);
    if (status != VT_OK)
        vt_cuda_close(c);
    else
        *out = c;
    return status;
}

void vt_cuda_close(vt_cuda *c)
{
    if (!c)
        return;
    if (!c->hung) {
        unload_kernels(c);
        vt_cublaslt_close(c);
        if (c->context)
            c->driver.context_release(c->device);
    }
    vt_jit_free(c->jit);
    free(c->kernel);
    free(c); /* the library itself stays open: cuda_api.h */
}

/* ---- kernels ---- */

static vt_status ask_params_bytes(const vt_cuda *c, cuda_kernel *k, const char *what, vt_err *err)
{
    size_t offset = 0, bytes = 0;
    k->params_bytes = -1;
    if (!c->driver.kernel_param)
        return VT_OK;
    TRY(vt_cuda_check(c, c->driver.kernel_param(k->kernel, 0, &offset, &bytes), what, err));
    k->params_bytes = (int64_t)bytes;
    return VT_OK;
}

static vt_status load_into(vt_cuda *c, int32_t index, cuda_kernel *k, vt_err *err)
{
    const jit_cubin *cubin = vt_jit_get(c->jit, index);
    char what[JIT_NAME_MAX + 32];
    snprintf(what, sizeof what, "loading %s", vt_jit_name(c->jit, index));
    TRY(vt_cuda_check(
        c, c->driver.library_load(&k->library, cubin->bytes, NULL, NULL, 0, NULL, NULL, 0), what,
        err));
    TRY(vt_cuda_check(
        c, c->driver.library_kernel(&k->kernel, k->library, vt_jit_kernel(c->jit, index)), what,
        err));
    int used = 0;
    TRY(vt_cuda_check(c, c->driver.kernel_get(&used, CU_FUNC_SHARED_BYTES, k->kernel, c->device),
                      what, err));
    k->max_shared = c->max_shared_bytes - used;
    TRY(ask_params_bytes(c, k, what, err));
    return vt_cuda_check(
        c, c->driver.kernel_set(CU_FUNC_MAX_DYNAMIC_SHARED, k->max_shared, k->kernel, c->device),
        what, err);
}

/* Loads a kernel completely or leaves it unloaded, so that a later launch may try again. */
static vt_status load_kernel(vt_cuda *c, int32_t index, vt_err *err)
{
    cuda_kernel k = {0};
    vt_status status = load_into(c, index, &k, err);
    if (status == VT_OK)
        c->kernel[index] = k;
    else if (k.library)
        c->driver.library_unload(k.library);
    return status;
}

vt_status vt_cuda_compile(vt_cuda *c, jit_progress progress, void *user, vt_err *err)
{
    int32_t n = vt_jit_count(c->jit);
    TRY(vt_jit_compile(c->jit, 0, progress, user, err));
    if (n > c->n_kernels) {
        cuda_kernel *kernel = realloc(c->kernel, (size_t)n * sizeof *kernel);
        if (!kernel)
            return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d kernels", n);
        memset(kernel + c->n_kernels, 0, (size_t)(n - c->n_kernels) * sizeof *kernel);
        c->kernel = kernel;
        c->n_kernels = n;
    }
    for (int32_t i = 0; i < n; i++)
        if (!c->kernel[i].kernel && vt_jit_get(c->jit, i)->bytes)
            TRY(load_kernel(c, i, err));
    return VT_OK;
}

/* The first failure stays in the lane; the engine reads it when run() returns. */
static vt_status lane_fail(vt_cuda_lane *lane, const vt_err *err)
{
    if (lane->err.status == VT_OK)
        lane->err = *err;
    return err->status;
}

static bool overlaps(const vt_cuda_lane *lane, const cuda_launch *l)
{
    return lane->pdl && !l->no_pdl && lane->cuda->cc_major >= 9;
}

/* PDL and LEVEL are template parameters of every kernel, and STAMPED of those with stamps. */
static int32_t kernel_of(vt_cuda_lane *lane, const cuda_launch *l, bool stamped)
{
    jit_spec spec = l->spec;
    int32_t n = 0;
    while (n < JIT_MAX_PARAMS - 3 && spec.param[n].name)
        n++;
    spec.param[n] = (jit_param){"level", lane->cuda->level};
    spec.param[n + 1] = (jit_param){"pdl", overlaps(lane, l)};
    if (stamped)
        spec.param[n + 2] = (jit_param){JIT_STAMPED, cuda_stamps_form(lane->stamps)};
    return vt_jit_want(lane->cuda->jit, &spec);
}

int32_t vt_cuda_kernel_of(vt_cuda_lane *lane, const cuda_launch *l)
{
    return kernel_of(lane, l, false);
}

static void note_launch(vt_cuda_lane *lane, int32_t index)
{
    if (lane->note && lane->n_launches < lane->max_note)
        lane->note[lane->n_launches] = index;
    lane->n_launches++;
}

/* Keeps what stories tell of a kernel's launches. */
static void keep_launch(cuda_kernel *k, const cuda_launch *l)
{
    memcpy(k->grid, l->grid, sizeof k->grid);
    k->threads = l->threads;
    k->dynamic_shared = l->shared_bytes;
    k->cluster = l->cluster;
}

/* Checks that the launch fits the kernel as it was compiled and loaded. */
static vt_status check_launch(const vt_cuda *c, int32_t index, const cuda_launch *l,
                              size_t params_bytes, vt_err *err)
{
    const cuda_kernel *k = &c->kernel[index];
    if (k->params_bytes >= 0 && (size_t)k->params_bytes != params_bytes)
        return vt_fail(err, VT_ERR_DEVICE,
                       "%s was compiled with a parameter struct of %lld bytes; its host code "
                       "passes one of %zu",
                       vt_jit_name(c->jit, index), (long long)k->params_bytes, params_bytes);
    if ((int64_t)l->shared_bytes > k->max_shared)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s needs %u bytes of shared memory; the GPU gives a block %d",
                       vt_jit_name(c->jit, index), l->shared_bytes, k->max_shared);
    return VT_OK;
}

/* A driver that refuses the hint runs the kernel all the same. */
static void hint_shared(vt_cuda *c, int32_t index, const cuda_launch *l)
{
    cuda_kernel *k = &c->kernel[index];
    int percent = l->shared_percent ? (int)l->shared_percent : -1; /* -1: the driver chooses */
    if (l->shared_percent == k->shared_percent)
        return;
    (void)c->driver.kernel_set(CU_FUNC_SHARED_PERCENT, percent, k->kernel, c->device);
    k->shared_percent = l->shared_percent;
}

/* Launches kernel `index`, which is loaded. */
static vt_status launch_kernel(vt_cuda_lane *lane, int32_t index, const cuda_launch *l,
                               const void *params, size_t params_bytes, vt_err *err)
{
    vt_cuda *c = lane->cuda;
    TRY(check_launch(c, index, l, params_bytes, err));
    hint_shared(c, index, l);
    cu_launch_attr attr[2];
    memset(attr, 0, sizeof attr);
    uint32_t n = 0;
    if (overlaps(lane, l) && !lane->apart) {
        attr[n].id = CU_LAUNCH_ATTR_PDL;
        attr[n++].value.flag = 1;
    }
    if (l->cluster > 1) {
        attr[n].id = CU_LAUNCH_ATTR_CLUSTER;
        attr[n].value.cluster.x = l->cluster;
        attr[n].value.cluster.y = attr[n].value.cluster.z = 1;
        n++;
    }
    cu_launch_config config = {.grid_x = l->grid[0],
                               .grid_y = l->grid[1],
                               .grid_z = l->grid[2],
                               .block_x = l->threads,
                               .block_y = 1,
                               .block_z = 1,
                               .shared_bytes = l->shared_bytes,
                               .stream = lane->stream,
                               .attrs = attr,
                               .n_attrs = n};
    void *args[1] = {(void *)(uintptr_t)params};
    return vt_cuda_check(c, c->driver.launch(&config, c->kernel[index].kernel, args, NULL),
                         vt_jit_name(c->jit, index), err);
}

/* Launches the stamped twin of kernel `index`. */
static vt_status launch_stamped(vt_cuda_lane *lane, int32_t index, int32_t twin,
                                const cuda_launch *l, const void *params, size_t params_bytes,
                                vt_err *err)
{
    cuda_stamped_params stamped;
    TRY(check_launch(lane->cuda, index, l, params_bytes, err));
    TRY(cuda_stamps_take(lane->stamps, index, (int64_t)l->grid[0] * l->grid[1] * l->grid[2], params,
                         params_bytes, &stamped, err));
    return launch_kernel(lane, twin, l, stamped.bytes, stamped.n, err);
}

/* Compiles what was noted, unless both kernels are loaded. */
static vt_status need_kernels(vt_cuda *c, int32_t index, int32_t twin, vt_err *err)
{
    int32_t last = index > twin ? index : twin;
    if (last < c->n_kernels && c->kernel[index].kernel && c->kernel[twin].kernel)
        return VT_OK;
    c->late_compiles++;
    return vt_cuda_compile(c, NULL, NULL, err);
}

vt_status vt_cuda_launch(vt_cuda_lane *lane, const cuda_launch *asked, const void *params,
                         size_t params_bytes)
{
    vt_err err = {0};
    cuda_launch launch = *asked;
    const cuda_launch *l = &launch;
    bool empty = l->grid[0] == 0 || l->grid[1] == 0; /* a call of no tokens: nothing to do */
    if (empty && !lane->collect)
        return VT_OK;
    if (lane->replace &&
        lane->replace(lane->replace_user, lane, &launch, params, params_bytes, &err) != VT_OK)
        return lane_fail(lane, &err);
    if (lane->n_record < lane->max_record)
        lane->record[lane->n_record++] = *l;
    int32_t index = kernel_of(lane, l, false),
            twin = lane->stamps ? kernel_of(lane, l, true) : index;
    if (index < 0 || twin < 0) {
        vt_fail(&err, VT_ERR_MEMORY, "out of memory noting kernel %s", l->spec.kernel);
        return lane_fail(lane, &err);
    }
    if (lane->collect)
        return VT_OK;
    vt_status status = need_kernels(lane->cuda, index, twin, &err);
    if (status == VT_OK && lane->stamps)
        status = launch_stamped(lane, index, twin, l, params, params_bytes, &err);
    else if (status == VT_OK)
        status = launch_kernel(lane, index, l, params, params_bytes, &err);
    if (status != VT_OK)
        return lane_fail(lane, &err);
    keep_launch(&lane->cuda->kernel[index], l);
    note_launch(lane, index);
    return VT_OK;
}

vt_status vt_cuda_launched(vt_cuda_lane *lane, const jit_spec *spec)
{
    vt_err err;
    int32_t index = vt_jit_want(lane->cuda->jit, spec);
    if (index < 0) {
        vt_fail(&err, VT_ERR_MEMORY, "out of memory noting kernel %s", spec->kernel);
        return lane_fail(lane, &err);
    }
    if (lane->stamps)
        cuda_stamps_library(lane->stamps, index);
    note_launch(lane, index);
    return VT_OK;
}

enum { MAP_UINT64 = 4, MAP_BFLOAT16 = 9, NO_SWIZZLE = 0, SWIZZLE_64B = 2, SWIZZLE_128B = 3 };

static vt_status tensor_map(vt_cuda *c, int type, int swizzle, void *base, int32_t rank,
                            const int64_t *dim, const int64_t *stride_bytes, const uint32_t *box,
                            cu_tensor_map *out, vt_err *err)
{
    enum { NO_INTERLEAVE = 0, L2_PROMOTION_256B = 3, FILL_ZERO = 0 };
    assert(rank >= 2 && rank <= 5);
    static const uint32_t step[5] = {1, 1, 1, 1, 1};
    uint64_t dims[5], strides[4];
    for (int32_t i = 0; i < rank; i++)
        dims[i] = (uint64_t)dim[i];
    for (int32_t i = 0; i < rank - 1; i++)
        strides[i] = (uint64_t)stride_bytes[i];
    return vt_cuda_check(c,
                         c->driver.tensor_map_tiled(out, type, (uint32_t)rank, base, dims, strides,
                                                    box, step, NO_INTERLEAVE, swizzle,
                                                    L2_PROMOTION_256B, FILL_ZERO),
                         "encoding a tensor map", err);
}

vt_status vt_cuda_tensor_map(vt_cuda *c, void *base, int32_t rank, const int64_t *dim,
                             const int64_t *stride_bytes, const uint32_t *box, cu_tensor_map *out,
                             vt_err *err)
{
    int swizzle = box[0] == 32 ? SWIZZLE_64B : SWIZZLE_128B;
    return tensor_map(c, MAP_BFLOAT16, swizzle, base, rank, dim, stride_bytes, box, out, err);
}

vt_status vt_cuda_tensor_map_words(vt_cuda *c, void *base, int32_t rank, const int64_t *dim,
                                   const int64_t *stride_bytes, const uint32_t *box,
                                   cu_tensor_map *out, vt_err *err)
{
    return tensor_map(c, MAP_UINT64, NO_SWIZZLE, base, rank, dim, stride_bytes, box, out, err);
}

vt_status vt_cuda_tensor_map_2d(vt_cuda *c, void *base, int64_t rows, int64_t cols,
                                int64_t row_stride_bytes, uint32_t box_rows, uint32_t box_cols,
                                cu_tensor_map *out, vt_err *err)
{
    return vt_cuda_tensor_map(c, base, 2, (const int64_t[]){cols, rows}, &row_stride_bytes,
                              (const uint32_t[]){box_cols, box_rows}, out, err);
}

/* ---- graphs ---- */

vt_status cuda_graph_begin(vt_cuda_lane *lane, vt_err *err)
{
    lane->n_launches = 0;
    return vt_cuda_check(lane->cuda,
                         lane->cuda->driver.capture_begin(lane->stream, CU_CAPTURE_THREAD_LOCAL),
                         "beginning a graph", err);
}

vt_status cuda_graph_end(vt_cuda_lane *lane, cuda_graph *out, vt_err *err)
{
    vt_cuda *c = lane->cuda;
    cu_graph graph = NULL;
    TRY(vt_cuda_check(c, c->driver.capture_end(lane->stream, &graph), "ending a graph", err));
    size_t n = 0;
    vt_status status = vt_cuda_check(c, c->driver.graph_nodes(graph, NULL, &n),
                                     "counting a graph's nodes", err);
    cu_graph_exec exec = NULL;
    if (status == VT_OK)
        status = vt_cuda_check(c, c->driver.graph_instantiate(&exec, graph, 0),
                               "instantiating a graph", err);
    if (status == VT_OK)
        status = vt_cuda_check(c, c->driver.graph_upload(exec, lane->stream), "uploading a graph",
                               err);
    c->driver.graph_destroy(graph);
    if (status == VT_OK)
        *out = (cuda_graph){.exec = exec, .n_nodes = (int32_t)n};
    else if (exec)
        c->driver.graph_exec_destroy(exec);
    return status;
}

vt_status cuda_graph_launch(vt_cuda_lane *lane, const cuda_graph *g, vt_err *err)
{
    lane->n_launches += g->n_nodes;
    return vt_cuda_check(lane->cuda, lane->cuda->driver.graph_launch(g->exec, lane->stream),
                         "launching a graph", err);
}

void cuda_graph_release(vt_cuda *c, cuda_graph *g)
{
    if (g->exec)
        c->driver.graph_exec_destroy(g->exec);
    *g = (cuda_graph){0};
}
