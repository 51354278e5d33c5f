/* What `vitrine env --json` printed on another machine (device/hardware.h): whatever the bytes,
 * hardware with sane figures or one sentence. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "device/hardware.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const vt_hardware *h)
{
    for (int i = 0; i < VT_ROOFS; i++) {
        double v = vt_roof_get(&h->roofs, (vt_roof_kind)i);
        if (!isfinite(v) || v < 0)
            abort();
    }
    if (h->roofs.memory_bytes_per_s <= 0 || h->memory_bytes < 1 || h->efficiencies.n < 0 ||
        h->efficiencies.n > VT_MAX_EFFICIENCIES)
        abort();
    if (!h->is_cpu && (h->sm_count < 1 || (h->kernel_level != 80 && h->kernel_level != 90)))
        abort();
    if (h->is_cpu && (h->roofs.threads < 1 || h->roofs.l2_size < 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int cpu = 0; cpu < 2; cpu++) {
        vt_hardware h;
        vt_err err = {0};
        if (vt_hardware_parse("file", (const char *)data, size, cpu, &h, &err) == VT_OK) {
            check(&h);
            vt_hardware_release(&h);
        } else if (!err.message[0])
            abort();
    }
    return 0;
}
