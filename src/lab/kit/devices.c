/* Opens what a lab runs on (devices.h). */
#include "lab/kit/devices.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

enum { FLUSH = 256 << 20, EMULATED_FLUSH = 1 << 20 };

/* An emulated GPU needs a small flush only. The GPU is made current each time, because engines and
 * links of several GPUs leave another's context current. */
vt_status lab_gpu(lab *l, on_cuda_gpu **out, vt_err *err)
{
    lab_devices *d = l->device;
    on_cuda_options o = {.library = true, .always = true, .flush_bytes = EMULATED_FLUSH};
    if (!d->gpu_open) {
        TRY(on_cuda_open(l->ordinal, &o, &d->gpu, err));
        if (!d->gpu.emulated) {
            on_cuda_close(&d->gpu);
            o.flush_bytes = FLUSH;
            TRY(on_cuda_open(l->ordinal, &o, &d->gpu, err));
        }
        d->gpu_open = true;
    }
    TRY(vt_cuda_enter(d->gpu.cuda, err));
    *out = &d->gpu;
    return VT_OK;
}

vt_status lab_team(lab *l, vt_team **out, vt_err *err)
{
    if (!l->device->team)
        TRY(vt_team_new(l->threads, &l->device->team, err));
    *out = l->device->team;
    return VT_OK;
}

vt_status lab_devices_open(lab *l, vt_err *err)
{
    on_cuda_gpu *gpu;
    l->device = vt_calloc(1, sizeof *l->device);
    if (!l->device)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a lab");
    if (l->ordinal < 0)
        return vt_roofs_get(l->threads, 0, &l->roofs, err);
    TRY(lab_gpu(l, &gpu, err));
    l->emulated = gpu->emulated;
    if (l->emulated) {
        l->roofs.is_gpu = true;
        snprintf(l->roofs.name, sizeof l->roofs.name, "%s", gpu->cuda->name);
        return VT_OK;
    }
    return vt_roofs_cuda(l->ordinal, 0, false, &l->roofs, err);
}

void lab_devices_close(lab *l)
{
    if (!l->device)
        return;
    if (l->device->gpu_open)
        on_cuda_close(&l->device->gpu);
    vt_team_free(l->device->team);
    vt_model_free(l->device->model);
    free(l->device);
    l->device = NULL;
}

json_t *lab_roofs_json(const vt_roofs *r)
{
    json_t *out = json_object();
    for (int i = 0; i < VT_ROOFS; i++) {
        double v = vt_roof_get(r, (vt_roof_kind)i);
        if (!(v > 0))
            continue;
        json_t *o = json_object();
        json_object_set_new(o, "value", json_real(v));
        json_object_set_new(o, "unit",
                            json_string(vt_roof_rows[i].unit ? vt_roof_rows[i].unit : "s"));
        json_object_set_new(o, "tag", json_string(vt_roof_tag_name[r->mark[i].tag]));
        json_object_set_new(out, vt_roof_rows[i].key, o);
    }
    return out;
}
