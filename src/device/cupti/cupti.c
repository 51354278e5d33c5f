/* Opening CUPTI and asking what it can do on this machine (cupti.h). */
#include "device/cupti/cupti.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/knob.h"
#include "base/mem.h"
#include "device/probe.h"

static void *open_library(char *path, size_t size, vt_err *err)
{
    static const char *const place[] = {"", "/usr/local/cuda/lib64/",
                                        "/usr/local/cuda/extras/CUPTI/lib64/"};
    const char *named = vt_knob_text(&vt_knobs[VT_KNOB_CUPTI]);
    char name[128];
    void *library = named ? dlopen(named, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (named && !library)
        vt_fail(err, VT_ERR_UNSUPPORTED, "VITRINE_CUPTI=%s cannot be opened: %s", named, dlerror());
    for (int major = 13; !named && !library && major >= 12; major--)
        for (int i = 0; !library && i < 3; i++) {
            snprintf(name, sizeof name, "%slibcupti.so.%d", place[i], major);
            library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        }
    if (library)
        vt_probe_path(library, "libcupti.so", path, size);
    else if (!named)
        vt_fail(err, VT_ERR_UNSUPPORTED,
                "libcupti.so.13 and libcupti.so.12 were not found; they come with the CUDA toolkit "
                "and with `pip install nvidia-cuda-cupti`, and VITRINE_CUPTI names one");
    return library;
}

void vt_cupti_release(uint32_t version, char *out, size_t size)
{
    /* before 13.0 versions count up; NVIDIA's header lists which toolkit has which, and 12.1's own
     * library says 18 */
    static const struct {
        uint32_t version;
        const char *cuda;
    } known[] = {{18, "12.1"}, {19, "12.0"}, {20, "12.2"}, {21, "12.3"}, {22, "12.4"},
                 {23, "12.5"}, {24, "12.6"}, {26, "12.8"}, {27, "12.9"}, {28, "12.9"}};
    snprintf(out, size, "of API version %u", version);
    if (version >= 130000)
        snprintf(out, size, "%u.%u", version / 10000, version / 100 % 100);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].version == version)
            snprintf(out, size, "%s", known[i].cuda);
}

vt_status vt_cupti_open(vt_cupti *c, vt_err *err)
{
    const char *missing = NULL;
    vt_err lacks = {0};
    *c = (vt_cupti){0};
    TRY(vt_knob_check(&vt_knobs[VT_KNOB_CUPTI], err));
    c->library = open_library(c->path, sizeof c->path, err);
    if (!c->library)
        return VT_ERR_UNSUPPORTED;
#define FIND(member, symbol, params)          \
    {                                         \
        void *at = dlsym(c->library, symbol); \
        memcpy(&c->f.member, &at, sizeof at); \
        if (!at && !missing)                  \
            missing = symbol;                 \
    }
    CUPTI_FUNCTIONS(FIND)
    if (missing)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s has no function %s", c->path, missing);
    CUPTI_RANGE_FUNCTIONS(FIND)
    const char *no_ranges = missing;
    missing = NULL;
    CUPTI_PM_FUNCTIONS(FIND)
    const char *no_pm = missing;
    missing = NULL;
    CUPTI_PC_FUNCTIONS(FIND)
    const char *no_pc = missing;
    missing = NULL;
    CUPTI_ACTIVITY_FUNCTIONS(FIND)
#undef FIND
    TRY(vt_cupti_check(c, c->f.get_version(&c->version), "asking for its version", err));
    if (no_ranges && vt_cupti_has(c, no_ranges, &lacks) != VT_OK)
        snprintf(c->no_ranges, sizeof c->no_ranges, "%.159s", lacks.message);
    if (no_pm && vt_cupti_has(c, no_pm, &lacks) != VT_OK)
        snprintf(c->no_pm, sizeof c->no_pm, "%.159s", lacks.message);
    if (no_pc && vt_cupti_has(c, no_pc, &lacks) != VT_OK)
        snprintf(c->no_pc, sizeof c->no_pc, "%.159s", lacks.message);
    if (missing)
        snprintf(c->no_activity, sizeof c->no_activity, "%.80s has no function %.60s", c->path,
                 missing);
    return VT_OK;
}

vt_status vt_cupti_has(const vt_cupti *c, const char *symbol, vt_err *err)
{
    char release[32];
    vt_cupti_release(c->version, release, sizeof release);
    return dlsym(c->library, symbol)
               ? VT_OK
               : vt_fail(err, VT_ERR_UNSUPPORTED,
                         "CUPTI %s has no function %s, which CUDA 12.6's and later have", release,
                         symbol);
}

vt_status vt_cupti_check(const vt_cupti *c, int status, const char *doing, vt_err *err)
{
    const char *text = NULL, *more = "";
    if (status == CUPTI_OK)
        return VT_OK;
    if (!c->f.error_text || c->f.error_text(status, &text) != CUPTI_OK || !text)
        text = "no text";
    if (status == CUPTI_ERROR_PRIVILEGES)
        more = "; the driver keeps counters for administrators: run as root, or load it with "
               "NVreg_RestrictProfilingToAdminUsers=0";
    if (status == CUPTI_ERROR_SUBSCRIBERS)
        more = "; another profiler (ncu, nsys) watches this process";
    return vt_fail(err, VT_ERR_UNSUPPORTED, "CUPTI failed at %s: %s (%d)%s", doing, text, status,
                   more);
}

/* Starts the profiler. The driver runs: whoever asks has a GPU open. */
static vt_status start_profiler(const vt_cupti *c, vt_err *err)
{
    cupti_start start = {CUPTI_PARAMS(cupti_start)};
    TRY(vt_cupti_check(c, c->f.start(&start), "starting", err));
    cuda_driver_stays_started();
    return VT_OK;
}

vt_status vt_cupti_supported(const vt_cupti *c, const vt_cuda *gpu, int api, vt_err *err)
{
    static const char *const level[] = {"not known", "not supported", "switched off"};
    cupti_device_supported p = {CUPTI_PARAMS(cupti_device_supported), .device = gpu->device,
                                .api = api};
    if (c->version < CUPTI_HAS_API)
        p.size = CUPTI_UP_TO(cupti_device_supported, confidential);
    TRY(start_profiler(c, err));
    TRY(vt_cupti_check(c, c->f.supported(&p), "asking what this GPU supports", err));
    if (p.supported == CUPTI_SUPPORTED)
        return VT_OK;
    const struct {
        const char *name;
        int level;
    } part[] = {{"its architecture", p.architecture},
                {"SLI", p.sli},
                {"a virtual GPU", p.vgpu},
                {"confidential computing", p.confidential},
                {"a mining processor (CMP)", p.cmp},
                {"Windows' subsystem for Linux", p.wsl}};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].level != CUPTI_SUPPORTED)
            return vt_fail(
                err, VT_ERR_UNSUPPORTED, "CUPTI cannot count on this GPU: %s is %s", part[i].name,
                part[i].level >= 0 && part[i].level < 3 ? level[part[i].level] : "not known");
    return vt_fail(err, VT_ERR_UNSUPPORTED, "CUPTI cannot count on this GPU and does not say why");
}

vt_status vt_cupti_availability(const vt_cupti *c, const vt_cuda *gpu, uint8_t **out, size_t *bytes,
                                vt_err *err)
{
    enum { MOST_BYTES = 1 << 28 };
    static const char doing[] = "asking for this process's counters";
    cupti_availability p = {CUPTI_PARAMS(cupti_availability), .context = gpu->context};
    TRY(start_profiler(c, err));
    TRY(vt_cupti_check(c, c->f.availability(&p), doing, err));
    if (p.image_bytes == 0 || p.image_bytes > MOST_BYTES)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "CUPTI's list of counters has %zu bytes",
                       p.image_bytes);
    uint8_t *image = vt_calloc(1, p.image_bytes);
    if (!image)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for CUPTI's list of counters");
    p.image = image;
    vt_status status = vt_cupti_check(c, c->f.availability(&p), doing, err);
    if (status != VT_OK) {
        free(image);
        return status;
    }
    *out = image;
    *bytes = p.image_bytes;
    return VT_OK;
}

vt_status vt_cupti_chip(const vt_cupti *c, const vt_cuda *gpu, const char **out, vt_err *err)
{
    cupti_chip p = {CUPTI_PARAMS(cupti_chip), .device = (size_t)gpu->ordinal};
    TRY(vt_cupti_check(c, c->f.chip(&p), "asking for the chip's name", err));
    if (!p.name || !p.name[0])
        return vt_fail(err, VT_ERR_UNSUPPORTED, "CUPTI does not tell the chip's name");
    *out = p.name;
    return VT_OK;
}
