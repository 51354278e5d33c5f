/* Making a configuration of metrics (config.h). */
#include "device/cupti/config.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

void vt_cupti_config_release(const vt_cupti *c, vt_cupti_config *k)
{
    if (k->host)
        c->f.host_free(&(cupti_host_free){CUPTI_PARAMS(cupti_host_free), .host = k->host});
    free(k->image);
    *k = (vt_cupti_config){0};
}

vt_status vt_cupti_configure(const vt_cupti *c, int type, const char *chip,
                             const uint8_t *availability, const char **metric, int32_t n,
                             vt_cupti_config *out, size_t *passes, vt_err *err)
{
    enum { MOST_BYTES = 1 << 24 };
    cupti_host_new made = {CUPTI_PARAMS(cupti_host_new), .type = type, .chip = chip,
                           .availability = availability};
    vt_cupti_config_release(c, out);
    TRY(vt_cupti_check(c, c->f.host_new(&made), "describing the chip", err));
    out->host = made.host;
    cupti_host_add add = {CUPTI_PARAMS(cupti_host_add), .host = out->host, .metric = metric,
                          .n = (size_t)n};
    TRY(vt_cupti_check(c, c->f.host_add(&add), "adding metrics", err));
    cupti_config_bytes room = {CUPTI_PARAMS(cupti_config_bytes), .host = out->host};
    TRY(vt_cupti_check(c, c->f.config_bytes(&room), "sizing a configuration", err));
    if (room.bytes == 0 || room.bytes > MOST_BYTES)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "CUPTI's configuration has %zu bytes", room.bytes);
    out->image = vt_calloc(1, room.bytes);
    out->bytes = room.bytes;
    if (!out->image)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for CUPTI's configuration");
    cupti_config config = {CUPTI_PARAMS(cupti_config), .host = out->host, .bytes = room.bytes,
                           .image = out->image};
    TRY(vt_cupti_check(c, c->f.config(&config), "making a configuration", err));
    cupti_passes count = {CUPTI_PARAMS(cupti_passes), .bytes = room.bytes, .image = out->image};
    TRY(vt_cupti_check(c, c->f.passes(&count), "counting passes", err));
    *passes = count.n;
    return VT_OK;
}
