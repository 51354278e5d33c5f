/* Reading the GPU's state (device/nvml.h).
 *
 * The library numbers the GPUs itself and ignores CUDA_VISIBLE_DEVICES, so a GPU is identified by
 * its address on the PCI bus, which the driver tells. Each value is asked for separately: a GPU
 * without a power meter still has clocks. */
#include "device/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "device/cuda/cuda_api.h"
#include "device/nvml_inside.h"

const char *vt_nvml_reason(int32_t bit)
{
    static const char *const name[] = {
        "idle",        "application-clocks", "power-cap",   "hardware-slowdown", "sync-boost",
        "thermal-cap", "hardware-thermal",   "power-brake", "display-clocks"};
    return bit >= 0 && bit < (int32_t)(sizeof name / sizeof *name) ? name[bit] : NULL;
}

vt_status nvml_open(nvml *n, vt_err *err)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return vt_fail(err, VT_ERR_DEVICE,
                       "clocks, power and temperature are not available: libnvidia-ml.so.1 (it "
                       "comes with the driver) was not found");
    const char *missing = NULL;
    void *address;
#define FIND(member, symbol, params)      \
    address = dlsym(library, symbol);     \
    missing = address ? missing : symbol; \
    memcpy(&n->member, &address, sizeof address); /* no cast to a function in C */
    NVML_FUNCTIONS(FIND)
#undef FIND
    if (missing)
        return vt_fail(err, VT_ERR_DEVICE,
                       "clocks, power and temperature are not available: libnvidia-ml.so.1 has no "
                       "%s",
                       missing);
#define FIND_OPTIONAL(member, symbol, params) \
    address = dlsym(library, symbol);         \
    memcpy(&n->member, &address, sizeof address);
    NVML_OPTIONAL(FIND_OPTIONAL)
#undef FIND_OPTIONAL
    return VT_OK;
}

static vt_status ask_place(int32_t ordinal, char *out, size_t size, vt_err *err)
{
    cuda_driver d;
    cu_device device = 0;
    int place[3] = {0};
    static const int attribute[3] = {CU_ATTR_PCI_DOMAIN, CU_ATTR_PCI_BUS, CU_ATTR_PCI_DEVICE};
    TRY(cuda_driver_open(&d, err));
    cu_result r = d.device_get(&device, ordinal);
    for (int i = 0; i < 3 && r == 0; i++)
        r = d.device_attribute(&place[i], attribute[i], device);
    if (r != 0)
        return cuda_fail(&d, r, "asking for the GPU's place on the bus", err);
    snprintf(out, size, "%08x:%02x:%02x.0", (unsigned)place[0], (unsigned)place[1],
             (unsigned)place[2]);
    return VT_OK;
}

/* The answer is kept: asking opens the driver, and on an H100 cuInit waits for ever once CUPTI has
 * watched ranges of kernels. Whatever watches a GPU asks before that. */
vt_status nvml_place(int32_t ordinal, char *out, size_t size, vt_err *err)
{
    enum { KEPT = 16, TEXT = 24 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char kept[KEPT][TEXT];
    vt_status status = VT_OK;
    if (ordinal < 0 || ordinal >= KEPT)
        return ask_place(ordinal, out, size, err);
    pthread_mutex_lock(&lock);
    if (!kept[ordinal][0])
        status = ask_place(ordinal, kept[ordinal], TEXT, err);
    snprintf(out, size, "%s", kept[ordinal]);
    pthread_mutex_unlock(&lock);
    return status;
}

void nvml_read_state(const nvml *n, nvml_device d, vt_gpu_state *s)
{
    unsigned v = 0;
    unsigned long long bits = 0;
    s->sm_mhz = n->clock(d, CLOCK_SM, &v) == 0 ? (int32_t)v : -1;
    s->sm_max_mhz = n->max_clock(d, CLOCK_SM, &v) == 0 ? (int32_t)v : -1;
    s->memory_mhz = n->clock(d, CLOCK_MEMORY, &v) == 0 ? (int32_t)v : -1;
    s->memory_max_mhz = n->max_clock(d, CLOCK_MEMORY, &v) == 0 ? (int32_t)v : -1;
    s->temperature_c = n->temperature(d, SENSOR_GPU, &v) == 0 ? (int32_t)v : -1;
    s->power_w = n->power(d, &v) == 0 ? v * 1e-3 : -1;
    s->power_limit_w = n->power_limit(d, &v) == 0 ? v * 1e-3 : -1;
    s->throttle = n->throttle(d, &bits) == 0 ? (int64_t)bits : -1;
}

vt_status vt_nvml_read(int32_t ordinal, vt_gpu_state *out, vt_err *err)
{
    nvml n = {0};
    nvml_device d = NULL;
    char place[32];
    TRY(nvml_open(&n, err));
    TRY(nvml_place(ordinal, place, sizeof place, err));
    int r = n.init();
    if (r == 0) {
        r = n.by_pci(place, &d);
        if (r == 0)
            nvml_read_state(&n, d, out);
        n.shutdown();
    }
    return r == 0
               ? VT_OK
               : vt_fail(err, VT_ERR_DEVICE,
                         "clocks, power and temperature are not available: NVML error %d for GPU "
                         "%s",
                         r, place);
}
