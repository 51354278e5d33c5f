/* Libraries, kernels, launches and tensor maps: the driver's calls that end in emu_run. */
#include "cuda_state.h"

#include <stdio.h>

/* ---- libraries and launches ---- */

cu_result drv_library_load(cu_library *out, const void *code, void *jit_keys, void **jit_values,
                           unsigned n_jit, void *keys, void **values, unsigned n)
{
    ENTER("cuLibraryLoadData");
    (void)jit_keys, (void)jit_values, (void)keys, (void)values;
    if (n_jit || n)
        return fail(NOT_SUPPORTED, "options");
    char message[512] = "";
    auto image = std::make_shared<ModuleImage>();
    image->module = emu_module_load(code, 0, message, sizeof message);
    if (!image->module)
        return fail(INVALID_IMAGE, "%s", message);
    std::unique_ptr<cu_library_st> library(new cu_library_st{image, false, {}});
    *out = library.get();
    gpu.library[*out] = std::move(library);
    return SUCCESS;
}

/* Works after a failed kernel too: the host's copy of a library belongs to no context. */
cu_result drv_library_unload(cu_library l)
{
    LOCK("cuLibraryUnload");
    Gpu *of = current_gpu;
    for (int i = 0; i < MOST_GPUS; i++) /* libraries can be unloaded in any context */
        of = all_gpus[i].library.count(l) ? &all_gpus[i] : of;
    OnGpu on(of);
    FIND(library, library, l);
    for (auto &k : (*library)->kernel)
        gpu.kernel.erase(k.second.get());
    gpu.library.erase(l);
    return SUCCESS;
}

cu_result drv_library_kernel(cu_kernel *out, cu_library l, const char *name)
{
    ENTER("cuLibraryGetKernel");
    FIND(library, library, l);
    if ((*library)->lost)
        return fail(INVALID_HANDLE, "the context was reset since this library was loaded");
    auto &slot = (*library)->kernel[name];
    if (!slot) {
        emu_module *m = (*library)->image->module;
        int shared = emu_kernel_static_shared(m, name), params = emu_kernel_params_bytes(m, name);
        if (shared < 0 || params < 0) {
            (*library)->kernel.erase(name);
            return fail(NOT_FOUND, "no kernel %s", name);
        }
        slot.reset(new cu_kernel_st{(*library)->image, name, shared,
                                    std::max(0, (48 << 10) - shared), params,
                                    emu_kernel_max_threads(m, name)});
        gpu.kernel[slot.get()] = slot.get();
    }
    *out = slot.get();
    return SUCCESS;
}

cu_result drv_kernel_get(int *value, int attribute, cu_kernel kernel, cu_device d)
{
    ENTER("cuKernelGetAttribute");
    FIND(k, kernel, kernel);
    if (d != gpu.index)
        return fail(INVALID_DEVICE, "device %d; the current context is of %d", d, gpu.index);
    switch (attribute) {
    case CU_FUNC_MAX_THREADS:
        *value = (*k)->max_threads;
        return SUCCESS;
    case CU_FUNC_SHARED_BYTES:
        *value = (*k)->static_shared;
        return SUCCESS;
    case CU_FUNC_LOCAL_BYTES: /* not modelled: 0, which no device reports for registers */
    case CU_FUNC_REGISTERS:
        *value = 0;
        return SUCCESS;
    case CU_FUNC_MAX_DYNAMIC_SHARED:
        *value = (*k)->max_dynamic;
        return SUCCESS;
    default:
        return fail(INVALID_VALUE, "attribute %d is not in the emulator", attribute);
    }
}

cu_result drv_kernel_set(int attribute, int value, cu_kernel kernel, cu_device d)
{
    ENTER("cuKernelSetAttribute");
    FIND(k, kernel, kernel);
    int most = (int)emu_max_shared(driver.set.cc) - (*k)->static_shared;
    if (d == gpu.index && attribute == CU_FUNC_SHARED_PERCENT && value >= -1 && value <= 100)
        return SUCCESS; /* a hint */
    if (d != gpu.index || attribute != CU_FUNC_MAX_DYNAMIC_SHARED || value < 0 || value > most)
        return fail(INVALID_VALUE,
                    "attribute %d = %d of %s on device %d; dynamic shared memory, up to %d bytes, "
                    "and its share of the L1 can be set",
                    attribute, value, (*k)->name.c_str(), d, most);
    (*k)->max_dynamic = value;
    return SUCCESS;
}

cu_result drv_kernel_param(cu_kernel kernel, size_t index, size_t *offset, size_t *bytes)
{
    ENTER("cuKernelGetParamInfo");
    FIND(k, kernel, kernel);
    if (index > 0)
        return fail(INVALID_VALUE, "parameter %zu of %s, which has one", index, (*k)->name.c_str());
    *offset = 0;
    if (bytes) /* may be NULL */
        *bytes = (size_t)(*k)->params_bytes;
    return SUCCESS;
}

static cu_result read_attributes(const cu_launch_config *c, const char *name, uint32_t *cluster,
                                 int *overlaps)
{
    for (uint32_t i = 0; i < c->n_attrs; i++) {
        const cu_launch_attr *a = &c->attrs[i];
        if (a->id != CU_LAUNCH_ATTR_PDL && a->id != CU_LAUNCH_ATTR_CLUSTER)
            return fail(NOT_SUPPORTED, "%s: launch attribute %u is not in the emulator", name,
                        a->id);
        if (driver.set.cc < 90)
            return fail(NOT_SUPPORTED, "%s: %s on compute capability %d", name,
                        a->id == CU_LAUNCH_ATTR_PDL ? "programmatic dependent launch" : "a cluster",
                        driver.set.cc);
        if (a->id != CU_LAUNCH_ATTR_CLUSTER) {
            *overlaps = a->value.flag;
            continue;
        }
        uint32_t x = a->value.cluster.x, y = a->value.cluster.y, z = a->value.cluster.z;
        if (y != 1 || z != 1)
            return fail(NOT_SUPPORTED,
                        "%s: cluster %u x %u x %u; the emulator has clusters along x", name, x, y,
                        z);
        if (x == 0 || x > 8)
            return fail(INVALID_CLUSTER_SIZE, "%s: cluster of %u, expected 1 to 8", name, x);
        if (c->grid_x % x != 0)
            return fail(INVALID_VALUE, "%s: grid of %u is not a multiple of the cluster's %u", name,
                        c->grid_x, x);
        *cluster = x;
    }
    return SUCCESS;
}

static cu_result check_launch(const cu_launch_config *c, const cu_kernel_st *k)
{
    const char *name = k->name.c_str();
    uint64_t threads = (uint64_t)c->block_x * c->block_y * c->block_z;
    if (c->grid_x == 0 || c->grid_y == 0 || c->grid_z == 0 || c->grid_x > 0x7fffffff ||
        c->grid_y > 65535 || c->grid_z > 65535)
        return fail(INVALID_VALUE, "%s: grid %u x %u x %u", name, c->grid_x, c->grid_y, c->grid_z);
    if (threads == 0 || threads > 1024 || c->block_z > 64)
        return fail(INVALID_VALUE, "%s: block %u x %u x %u, expected 1 to 1024 threads", name,
                    c->block_x, c->block_y, c->block_z);
    if (c->shared_bytes > (uint32_t)k->max_dynamic)
        return fail(INVALID_VALUE, "%s: %u bytes of dynamic shared memory, allowed %d", name,
                    c->shared_bytes, k->max_dynamic);
    return SUCCESS;
}

/* fail=N, fault=N and hang=N, at the moment when the kernel would run. */
static cu_result planted_fault(const emu_launch &l)
{
    if (gpu.hung == l.params)
        return HANGS;
    driver.kernels++;
    driver.all_kernels++;
    auto plant = [&](const char *what, uint64_t number, cu_result r) {
        fprintf(stderr, "emulator: kernel %s: number %llu %s, as VITRINE_EMULATOR asks\n", l.name,
                (unsigned long long)number, what);
        return r;
    };
    if (driver.kernels == driver.set.fail)
        return plant("fails", driver.kernels, LAUNCH_FAILED);
    if (driver.all_kernels == driver.set.fault)
        return plant("touches memory that is not there", driver.all_kernels, ILLEGAL_ADDRESS);
    if (driver.all_kernels != driver.set.hang)
        return SUCCESS;
    gpu.hung = l.params;
    return plant("never ends", driver.all_kernels, HANGS);
}

cu_result drv_launch(const cu_launch_config *c, cu_kernel kernel, void **params, void **extra)
{
    ENTER("cuLaunchKernelEx");
    FIND(found, kernel, kernel);
    FIND_STREAM(s, c->stream);
    const cu_kernel_st *k = *found;
    uint32_t cluster = 0;
    if (cu_result r = check_launch(c, k))
        return r;
    int overlaps = 0;
    if (cu_result r = read_attributes(c, k->name.c_str(), &cluster, &overlaps))
        return r;
    if (extra || (k->params_bytes > 0 && (!params || !params[0])))
        return fail(INVALID_VALUE, "%s: expected its parameter in params[0]", k->name.c_str());
    size_t bytes = (size_t)k->params_bytes;
    std::shared_ptr<void> copy(aligned_alloc(64, bytes / 64 * 64 + 64), free);
    memset(copy.get(), 0, bytes / 64 * 64 + 64);
    if (bytes)
        memcpy(copy.get(), params[0], bytes);
    auto image = k->image;
    emu_launch l = {image->module,
                    nullptr,
                    {c->grid_x, c->grid_y, c->grid_z},
                    {c->block_x, c->block_y, c->block_z},
                    cluster,
                    c->shared_bytes,
                    copy.get(),
                    bytes,
                    driver.set.cc,
                    driver.set.order,
                    overlaps,
                    c->stream,
                    (uint32_t)gpu.index};
    Work work = [image, copy, l, name = k->name] {
        emu_launch run = l;
        run.name = name.c_str();
        if (cu_result r = planted_fault(run))
            return r;
        char message[1024] = "";
        if (emu_run(&run, message, sizeof message) == 0)
            return (cu_result)SUCCESS;
        fprintf(stderr, "emulator: kernel %s: %s\n", run.name, message);
        return (cu_result)LAUNCH_FAILED;
    };
    return submit(c->stream, *s, told(EMU_KERNEL, k->name, 0, work));
}

/* ---- tensor maps ---- */

/* Bytes of an element of a CUtensorMapDataType. */
static uint32_t element_bytes(int dtype)
{
    static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    return dtype >= 0 && dtype < (int)sizeof bytes ? bytes[dtype] : 0;
}

static cu_result check_tensor_map(const cu_tensor_map *map, uint32_t element, uint32_t rank,
                                  const void *address, const uint64_t *dim, const uint64_t *stride,
                                  const uint32_t *box, const uint32_t *step)
{
    if ((uintptr_t)map % 64 || (uintptr_t)address % 16)
        return fail(INVALID_VALUE, "map at %p, tensor at %p: expected multiples of 64 and 16",
                    (const void *)map, address);
    if (!device_bytes((uint64_t)(uintptr_t)address))
        return fail(INVALID_VALUE, "the tensor at %p is not in device memory", address);
    for (uint32_t i = 0; i < rank; i++) {
        if (dim[i] == 0 || dim[i] > 1ull << 32)
            return fail(INVALID_VALUE, "dim[%u] is %llu, expected 1 to 2^32", i,
                        (unsigned long long)dim[i]);
        if (i > 0 && (stride[i - 1] % 16 || stride[i - 1] >= 1ull << 40))
            return fail(INVALID_VALUE,
                        "stride[%u] is %llu bytes, expected a multiple of 16 below 2^40", i - 1,
                        (unsigned long long)stride[i - 1]);
        if (box[i] == 0 || box[i] > 256)
            return fail(INVALID_VALUE, "box[%u] is %u, expected 1 to 256", i, box[i]);
        if (step[i] == 0 || step[i] > 8)
            return fail(INVALID_VALUE, "element stride[%u] is %u, expected 1 to 8", i, step[i]);
        if (step[i] != 1)
            return fail(NOT_SUPPORTED, "element stride[%u] is %u; the emulator has 1", i, step[i]);
    }
    if (box[0] * element % 16)
        return fail(INVALID_VALUE, "the box's rows have %u bytes, expected a multiple of 16",
                    box[0] * element);
    return SUCCESS;
}

cu_result drv_tensor_map_tiled(cu_tensor_map *map, int dtype, uint32_t rank, void *address,
                               const uint64_t *dim, const uint64_t *stride, const uint32_t *box,
                               const uint32_t *step, int interleave, int swizzle, int l2_promotion,
                               int oob_fill)
{
    LOCK("cuTensorMapEncodeTiled");
    static const uint32_t span[] = {0, 32, 64, 128};
    uint32_t element = element_bytes(dtype);
    if (driver.set.cc < 90)
        return fail(NOT_SUPPORTED, "compute capability %d has no tensor maps", driver.set.cc);
    if (!map || !element || rank < 1 || rank > 5 || l2_promotion < 0 || l2_promotion > 3 ||
        oob_fill < 0 || oob_fill > 1)
        return fail(INVALID_VALUE, "type %d, rank %u, promotion %d, fill %d", dtype, rank,
                    l2_promotion, oob_fill);
    if (interleave != 0 || swizzle < 0 || swizzle > 3)
        return fail(NOT_SUPPORTED, "interleave %d, swizzle %d; the emulator has 0 and 0 to 3",
                    interleave, swizzle);
    if (cu_result r = check_tensor_map(map, element, rank, address, dim, stride, box, step))
        return r;
    if (swizzle && box[0] * element > span[swizzle])
        return fail(INVALID_VALUE, "the box's rows have %u bytes, more than the swizzle's %u",
                    box[0] * element, span[swizzle]);
    emu_tensor_map m = {EMU_TENSOR_MAP,
                        (uint64_t)(uintptr_t)address,
                        rank,
                        element,
                        span[swizzle],
                        (uint32_t)oob_fill,
                        {},
                        {},
                        {}};
    for (uint32_t i = 0; i < rank; i++) {
        m.dim[i] = dim[i];
        if (i > 0)
            m.stride[i - 1] = stride[i - 1];
        m.box[i] = (uint16_t)box[i];
    }
    static_assert(sizeof m <= sizeof *map, "fits");
    memset(map, 0, sizeof *map);
    memcpy(map, &m, sizeof m);
    return SUCCESS;
}
