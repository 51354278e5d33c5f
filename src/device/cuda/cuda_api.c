/* Opening NVIDIA's libraries: each is looked for in a short list of places, and if it is in none of
 * them the message says where to get it.
 *
 * libcuda belongs to the driver and lies where the loader looks. NVRTC comes with the toolkit or as
 * a Python wheel (nvidia-cuda-nvrtc), so toolkit folders are tried too; VITRINE_NVRTC names a file
 * directly. */
#include "device/cuda/cuda_api.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/knob.h"

static void *open_first(const char *const *names)
{
    for (; *names; names++) {
        void *library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    return NULL;
}

/* Writes the address of a function to *slot. *missing keeps the first name that was not found, for
 * the message. */
static void find_symbol(void *library, const char *symbol, void *slot, const char **missing)
{
    void *address = dlsym(library, symbol);
    if (!address && !*missing)
        *missing = symbol;
    memcpy(slot, &address, sizeof address); /* ISO C has no cast from object to function pointer */
}

static atomic_bool stays_started;

void cuda_driver_stays_started(void) { atomic_store(&stays_started, true); }

static void *open_driver(void)
{
    static const char *const names[] = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1",
                                        "/usr/lib/wsl/lib/libcuda.so.1", NULL};
    return open_first(names);
}

bool cuda_driver_found(void) { return open_driver() != NULL; }

vt_status cuda_driver_open(cuda_driver *d, vt_err *err)
{
    memset(d, 0, sizeof *d);
    d->library = open_driver();
    if (!d->library)
        return vt_fail(err, VT_ERR_DEVICE,
                       "no NVIDIA driver here: libcuda.so.1 was not found; install the "
                       "GPU's driver (version 545 or later), or use --device cpu");
    const char *missing = NULL;
#define CUDA_FIND(member, symbol, params) find_symbol(d->library, symbol, &d->member, &missing);
    CUDA_DRIVER_FUNCTIONS(CUDA_FIND)
#undef CUDA_FIND
    const char *absent = NULL; /* a missing function is allowed here */
#define CUDA_FIND(member, symbol, params) find_symbol(d->library, symbol, &d->member, &absent);
    CUDA_DRIVER_OPTIONAL(CUDA_FIND)
#undef CUDA_FIND
    if (missing)
        return vt_fail(err, VT_ERR_DEVICE,
                       "the NVIDIA driver's libcuda.so.1 has no %s; a driver of version 545 "
                       "or later is needed",
                       missing);
    cu_result r = atomic_load(&stays_started) ? 0 : d->init(0);
    if (r != 0)
        return cuda_fail(d, r, "starting the NVIDIA driver (cuInit)", err);
    return VT_OK;
}

vt_status cuda_nvrtc_open(cuda_nvrtc *n, vt_err *err)
{
    static const char *const names[] = {"libnvrtc.so.13",
                                        "libnvrtc.so.12",
                                        "/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "/usr/local/cuda/lib64/libnvrtc.so.12",
                                        "/usr/local/cuda/lib64/libnvrtc.so",
                                        "/opt/cuda/lib64/libnvrtc.so",
                                        "libnvrtc.so",
                                        NULL};
    const char *chosen = vt_knob_text(&vt_knobs[VT_KNOB_NVRTC]);
    memset(n, 0, sizeof *n);
    n->library = chosen ? dlopen(chosen, RTLD_NOW | RTLD_LOCAL) : open_first(names);
    if (!n->library && chosen)
        return vt_fail(err, VT_ERR_DEVICE, "VITRINE_NVRTC=%s cannot be opened: %s", chosen,
                       dlerror());
    if (!n->library)
        return vt_fail(
            err, VT_ERR_DEVICE,
            "libnvrtc was not found, so kernels cannot be compiled; it comes with "
            "the CUDA toolkit (12.3 or later) or with `pip install nvidia-cuda-nvrtc` (then "
            "VITRINE_NVRTC=.../libnvrtc.so.13), or import a bundle: vitrine env --jit --import "
            "DIR");
    const char *missing = NULL;
#define CUDA_FIND(member, symbol, params) find_symbol(n->library, symbol, &n->member, &missing);
    CUDA_NVRTC_FUNCTIONS(CUDA_FIND)
#undef CUDA_FIND
    if (missing)
        return vt_fail(err, VT_ERR_DEVICE, "libnvrtc has no %s; version 12.3 or later is needed",
                       missing);
    if (n->version(&n->major, &n->minor) != 0)
        return vt_fail(err, VT_ERR_DEVICE, "nvrtcVersion failed");
    if (n->major < 12 || (n->major == 12 && n->minor < 3))
        return vt_fail(err, VT_ERR_DEVICE, "libnvrtc is version %d.%d; 12.3 or later is needed",
                       n->major, n->minor);
    return VT_OK;
}

vt_status cuda_fail(const cuda_driver *d, cu_result r, const char *what, vt_err *err)
{
    const char *name = NULL, *text = NULL;
    if (d->error_name(r, &name) != 0 || !name)
        name = "unknown error";
    if (d->error_string(r, &text) != 0 || !text)
        text = "no description";
    return vt_fail(err, VT_ERR_DEVICE, "%s: %s (%d): %s", what, name, r, text);
}
