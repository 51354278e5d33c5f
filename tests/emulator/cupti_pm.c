/* PM sampling of the emulated libcupti, which does not copy its configuration: as the real one it
 * decodes by the first that was set after enabling, where that lies. Another one gives no samples
 * after it, and one that was overwritten ends the process. Samples follow each other from the
 * start on, one an interval of the real clock. Each fourth one is of a GPU that did nothing: all
 * its shares are 0, and so are its bytes. The others have the planted values of cupti.c, bytes in
 * proportion to the interval: so many a millisecond. As on a real GPU the first sample has no
 * beginning. Each device is sampled by itself.
 *
 * Words of EMULATED_CUPTI beside those of cupti.c:
 *   refused=METRIC  it is in the list of counters, and the GPU does not take it
 *   ring=N          the hardware's ring holds N samples */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cupti.h"

#define DECLARE(member, symbol, params) API int emu_##member params __asm__(symbol);
CUPTI_PM_FUNCTIONS(DECLARE)
#undef DECLARE

enum { MOST_SAMPLES = 1 << 17, SLEEPS = 4 };
static const uint64_t kMagic = 0x706d73616d706c65;

typedef struct pm_image {
    uint64_t magic;
    size_t most, n;
    uint64_t first, interval_ns, start_ns; /* `first`: the number of its first sample */
} pm_image;

struct cupti_pm {
    struct cupti_host config;
    const struct cupti_host *first; /* the configuration that the decoder reads */
    uint64_t interval_ns, start_ns, next;
    int configured, started, enabled;
};

enum { DEVICES = 8 };
static struct cupti_pm of_device[DEVICES];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int bad(size_t size, size_t right, const struct cupti_pm *pm)
{
    return size != right || pm < of_device || pm >= of_device + DEVICES || !pm->enabled;
}

int emu_pm_availability(cupti_pm_availability *p)
{
    static const char image[] = "every counter to sample";
    if (p->size != cupti_pm_availability_BYTES)
        return CUPTI_ERROR_BAD_PARAMETER;
    if (planted("forbidden"))
        return CUPTI_ERROR_PRIVILEGES;
    if (p->image && p->image_bytes >= sizeof image)
        memcpy(p->image, image, sizeof image);
    p->image_bytes = sizeof image;
    return CUPTI_OK;
}

int emu_pm_enable(cupti_pm_enable *p)
{
    if (p->size != cupti_pm_enable_BYTES || p->device >= DEVICES || of_device[p->device].enabled)
        return CUPTI_ERROR_BAD_PARAMETER;
    if (planted("watched"))
        return CUPTI_ERROR_SUBSCRIBERS;
    p->pm = &of_device[p->device];
    memset(p->pm, 0, sizeof *p->pm);
    p->pm->enabled = 1;
    return CUPTI_OK;
}

int emu_pm_disable(cupti_pm_call *p)
{
    if (bad(p->size, cupti_pm_call_BYTES, p->pm) || p->pm->started)
        return CUPTI_ERROR_BAD_OPERATION;
    p->pm->enabled = 0;
    return CUPTI_OK;
}

int emu_pm_configure(cupti_pm_config *p)
{
    size_t bytes = EMULATED_VERSION < CUPTI_HAS_KEEP ? CUPTI_UP_TO(cupti_pm_config, trigger)
                                                     : (size_t)cupti_pm_config_BYTES;
    if (bad(p->size, bytes, p->pm) || p->pm->started || p->config_bytes != sizeof p->pm->config ||
        p->buffer_bytes < 1 << 20 || p->interval == 0)
        return CUPTI_ERROR_BAD_PARAMETER;
    memcpy(&p->pm->config, p->config, sizeof p->pm->config);
    p->pm->configured = p->pm->config.passes == 1 && p->pm->config.type == CUPTI_TYPE_PM &&
                        !p->pm->config.refused;
    p->pm->interval_ns = p->interval;
    if (!p->pm->first)
        p->pm->first = (const void *)p->config;
    return p->pm->configured ? CUPTI_OK : 999;
}

int emu_pm_start(cupti_pm_call *p)
{
    if (bad(p->size, cupti_pm_call_BYTES, p->pm) || !p->pm->configured || p->pm->started)
        return CUPTI_ERROR_BAD_OPERATION;
    p->pm->started = 1;
    p->pm->start_ns = now_ns();
    p->pm->next = 0;
    return CUPTI_OK;
}

int emu_pm_stop(cupti_pm_call *p)
{
    if (bad(p->size, cupti_pm_call_BYTES, p->pm) || !p->pm->started)
        return CUPTI_ERROR_BAD_OPERATION;
    p->pm->started = 0;
    return CUPTI_OK;
}

int emu_pm_bytes(cupti_pm_bytes *p)
{
    if (bad(p->size, cupti_pm_bytes_BYTES, p->pm) || p->most_samples > MOST_SAMPLES ||
        p->n != p->pm->config.n)
        return CUPTI_ERROR_BAD_PARAMETER;
    p->bytes = sizeof(pm_image) + p->most_samples;
    return CUPTI_OK;
}

int emu_pm_image(cupti_pm_image *p)
{
    if (bad(p->size, cupti_pm_image_BYTES, p->pm) || p->bytes <= sizeof(pm_image))
        return CUPTI_ERROR_BAD_PARAMETER;
    *(pm_image *)(void *)p->image = (pm_image){.magic = kMagic,
                                               .most = p->bytes - sizeof(pm_image)};
    return CUPTI_OK;
}

int emu_is_pm(const uint8_t *data, size_t bytes)
{
    return bytes > sizeof(pm_image) && ((const pm_image *)(const void *)data)->magic == kMagic;
}

int emu_pm_decode(cupti_pm_decode *p)
{
    if (bad(p->size, cupti_pm_decode_BYTES, p->pm) || !emu_is_pm(p->image, p->bytes))
        return CUPTI_ERROR_BAD_PARAMETER;
    pm_image *to = (pm_image *)(void *)p->image;
    if (memcmp(p->pm->first, &p->pm->config, sizeof p->pm->config) != 0)
        abort();
    uint64_t done = (now_ns() - p->pm->start_ns) / p->pm->interval_ns;
    const char *ring = planted("ring=");
    uint64_t holds = ring ? strtoull(ring, NULL, 10) : UINT64_MAX;
    if (done - p->pm->next > holds)
        p->pm->next = done - holds;
    uint64_t n = done - p->pm->next;
    p->overflow = 0; /* the latest are kept */
    p->stopped = n > to->most ? CUPTI_PM_IMAGE_FULL : 2;
    n = n > to->most ? to->most : n;
    to->n = n;
    to->first = p->pm->next;
    to->interval_ns = p->pm->interval_ns;
    to->start_ns = p->pm->start_ns;
    p->pm->next += n;
    return CUPTI_OK;
}

int emu_pm_info(cupti_pm_info *p)
{
    if (p->size != cupti_pm_info_BYTES || !emu_is_pm(p->image, p->bytes))
        return CUPTI_ERROR_BAD_PARAMETER;
    const pm_image *from = (const pm_image *)(const void *)p->image;
    p->total = from->most;
    p->populated = p->completed = from->n;
    return CUPTI_OK;
}

int emu_pm_sample(cupti_pm_sample *p)
{
    const pm_image *from = (const pm_image *)(const void *)p->image;
    if (bad(p->size, cupti_pm_sample_BYTES, p->pm) || !emu_is_pm(p->image, p->bytes) ||
        p->index >= from->n)
        return CUPTI_ERROR_BAD_PARAMETER;
    uint64_t number = from->first + p->index;
    p->begin_ns = number == 0 ? 12345 : from->start_ns + number * from->interval_ns;
    p->end_ns = from->start_ns + (number + 1) * from->interval_ns;
    return CUPTI_OK;
}

int emu_pm_evaluate(cupti_evaluate *p)
{
    const pm_image *from = (const pm_image *)(const void *)p->data;
    if (p->range >= from->n)
        return CUPTI_ERROR_BAD_PARAMETER;
    for (size_t i = 0; i < p->n; i++) {
        int told;
        double v = planted_value(p->metric[i], &told);
        if (v != v)
            return CUPTI_ERROR_BAD_PARAMETER;
        if (!told && strstr(p->metric[i], "bytes"))
            v *= (double)from->interval_ns * 1e-6;
        p->value[i] = (from->first + p->range) % SLEEPS == 0 ? 0 : v;
    }
    return CUPTI_OK;
}
