/* Opening NCCL and calling it for all ranks (nccl.h). */
#include "device/cuda/nccl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

static vt_status find_functions(vt_nccl *c, vt_err *err)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL); /* stays open */
    if (!library)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "NCCL is not here: %s", dlerror());
#define NCCL_FIND(type, member, symbol, params) \
    {                                           \
        void *at = dlsym(library, symbol);      \
        memcpy(&c->f.member, &at, sizeof at);   \
        if (!at && !missing)                    \
            missing = symbol;                   \
    }
    const char *missing = NULL;
    NCCL_FUNCTIONS(NCCL_FIND)
    if (missing)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "libnccl.so.2 has no function %s", missing);
    NCCL_OPTIONAL(NCCL_FIND)
#undef NCCL_FIND
    return VT_OK;
}

static vt_status open_ranks(vt_nccl *c, const int32_t *gpu, int32_t n, vt_err *err)
{
    int version = 0, device[NCCL_RANKS];
    if (n < 2 || n > NCCL_RANKS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "NCCL is measured with 2 to %d ranks, not with %d",
                       NCCL_RANKS, n);
    for (int32_t r = 0; r < n; r++) {
        device[r] = gpu[r];
        for (int32_t k = 0; k < r; k++)
            if (gpu[k] == gpu[r])
                return vt_fail(err, VT_ERR_UNSUPPORTED,
                               "NCCL takes no two ranks on one GPU, and ranks %d and %d are on "
                               "GPU %d",
                               k, r, gpu[r]);
    }
    TRY(find_functions(c, err));
    /* A program that uses NVLink multicast can leave GPUs that others share out of service. */
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    TRY(vt_nccl_check(c, c->f.get_version(&version), "asking for its version", err));
    snprintf(c->version, sizeof c->version, "%d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
    TRY(vt_nccl_check(c, c->f.init_all(c->comm, n, device), "making communicators", err));
    c->n = n;
    return VT_OK;
}

vt_status vt_nccl_open(const int32_t *gpu, int32_t n, vt_nccl **out, vt_err *err)
{
    vt_nccl *c = vt_calloc(1, sizeof *c);
    if (!c)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d ranks of NCCL", n);
    vt_status status = open_ranks(c, gpu, n, err);
    if (status == VT_OK)
        *out = c;
    else
        vt_nccl_close(c);
    return status;
}

void vt_nccl_close(vt_nccl *c)
{
    if (!c)
        return;
    for (int32_t r = 0; r < c->n; r++)
        c->f.destroy(c->comm[r]);
    free(c);
}

vt_status vt_nccl_check(const vt_nccl *c, int status, const char *doing, vt_err *err)
{
    if (status == 0)
        return VT_OK;
    return vt_fail(err, VT_ERR_DEVICE, "NCCL %s failed at %s: %s", c->version, doing,
                   c->f.error_text(status));
}

vt_status vt_nccl_begin(const vt_nccl *c, vt_err *err)
{
    return vt_nccl_check(c, c->f.group_start(), "beginning a group of calls", err);
}

vt_status vt_nccl_end(const vt_nccl *c, vt_err *err)
{
    return vt_nccl_check(c, c->f.group_end(), "ending a group of calls", err);
}

vt_status vt_nccl_register(const vt_nccl *c, void *const *p, size_t bytes, nccl_window *window,
                           vt_err *err)
{
    if (!c->f.window_register)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "NCCL %s cannot register buffers of all ranks, which 2.27 and later can",
                       c->version);
    TRY(vt_nccl_begin(c, err));
    vt_status status = VT_OK;
    for (int32_t r = 0; r < c->n && status == VT_OK; r++)
        status = vt_nccl_check(
            c, c->f.window_register(c->comm[r], p[r], bytes, &window[r], NCCL_WINDOW_SYMMETRIC),
            "registering a buffer", err);
    vt_status ended = vt_nccl_end(c, status == VT_OK ? err : NULL);
    return status == VT_OK ? ended : status;
}
