/* Which device a model runs on (device/choose.h). */
#include "device/choose.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/cuda/cuda.h"

enum { UNKNOWN, THE_CPU, THE_GPU };

int32_t vt_device_choose(const char *device, vt_device_auto *remember)
{
    if (strcmp(device, "auto") == 0) {
        if (atomic_load(&remember->answer) == UNKNOWN)
            atomic_store(&remember->answer, vt_cuda_usable(0, NULL) == VT_OK ? THE_GPU : THE_CPU);
        return atomic_load(&remember->answer) == THE_GPU ? 0 : -1;
    }
    if (strncmp(device, "cuda", 4) != 0)
        return -1;
    return device[4] == ':' ? (int32_t)strtol(device + 5, NULL, 10) : 0;
}

vt_status vt_device_gpus(const char *device, int32_t n, int32_t *gpu, vt_err *err)
{
    const char *p = strncmp(device, "cuda:", 5) == 0 ? device + 5 : "";
    int32_t named = 0;
    while (*p) {
        int32_t k = (int32_t)strtol(p, (char **)(uintptr_t)&p, 10);
        if (named < n)
            gpu[named] = k;
        named++;
        p += *p == ',';
    }
    if (named == n)
        return VT_OK;
    if (named > 1)
        return vt_fail(err, VT_ERR_USAGE, "device is %s, which names %d GPUs for %d rank%s (tp)",
                       device, named, n, n == 1 ? "" : "s");
    for (int32_t r = 1; r < n; r++)
        gpu[r] = (named ? gpu[0] : 0) + r;
    gpu[0] = named ? gpu[0] : 0;
    return VT_OK;
}

void vt_device_name(int32_t gpu, char *out, size_t size)
{
    if (gpu < 0)
        snprintf(out, size, "cpu");
    else
        snprintf(out, size, "cuda:%d", gpu);
}

vt_status vt_device_auto_failed(vt_status status, vt_err *err)
{
    static const char way_out[] = " (--device auto chose the GPU; --device cpu runs it on the CPU)";
    bool the_gpus_fault = status == VT_ERR_DEVICE || status == VT_ERR_MEMORY ||
                          status == VT_ERR_UNSUPPORTED;
    if (!err || !the_gpus_fault)
        return status;
    size_t at = strlen(err->message), most = sizeof err->message - sizeof way_out;
    at = at < most ? at : most;
    while (at > 0 && ((unsigned char)err->message[at] & 0xc0) == 0x80)
        at--; /* do not cut a UTF-8 character in two */
    memcpy(err->message + at, way_out, sizeof way_out);
    return status;
}
