/* Building a program that is only printed and costed (exec/describe.h). */
#include "exec/describe.h"

#include "base/err.h"
#include "device/cuda/cublaslt.h"
#include "exec/cuda.h"
#include "exec/layout.h"
#include "exec/weights_cuda.h"

vt_target vt_target_named(const vt_hardware *h, const vt_limits *limits)
{
    if (h->is_cpu)
        return vt_target_cpu(h->isa, limits);
    return (vt_target){.device = VT_DEVICE_CUDA,
                       .limits = *limits,
                       .level = h->kernel_level,
                       .sm_count = h->sm_count,
                       .max_shared_bytes = h->max_shared_bytes,
                       .cublaslt = h->kernel_level >= 80};
}

vt_status vt_target_here(const vt_model *m, int32_t ordinal, const vt_limits *limits,
                         vt_target *out, size_t *library, vt_err *err)
{
    vt_cuda *gpu;
    vt_layout *layout;
    vt_cuda_options options;
    char why[160];
    vt_cuda_options_init(&options);
    TRY(vt_layout_make(m, &layout, err));
    vt_status status = vt_cuda_open(ordinal, &gpu, err);
    if (status == VT_OK) {
        *library = vt_cuda_may_use_library(gpu, &options, layout)
                       ? vt_cublaslt_open(gpu, why, sizeof why)
                       : 0;
        *out = vt_target_cuda(gpu, &options, *library > 0, limits);
        vt_cuda_close(gpu);
    }
    vt_layout_free(layout);
    return status;
}

static vt_status describe(const vt_model *m, const vt_program_config *c, vt_dtype kv_dtype,
                          vt_described *d, vt_err *err)
{
    const vt_target *t = &c->target;
    vt_kv_shape shape;
    vt_kv_shape_of(m, kv_dtype, &shape);
    TRY(vt_kv_cache_init(&d->kv, &shape, 1, t->limits.page_size, 0, err));
    if (t->device == VT_DEVICE_CPU) {
        TRY(vt_weights_load_cpu(m, NULL, t, NULL, &d->weights, err));
        return vt_program_build(m, d->weights, &d->kv, c, &d->program, err);
    }
    TRY(vt_cuda_weights_load(NULL, m, t->limits.max_context, 1, &d->cuda_weights, err));
    return vt_program_build(m, &d->cuda_weights->weights, &d->kv, c, &d->program, err);
}

vt_status vt_describe(const vt_model *m, const vt_target *target, vt_dtype kv_dtype,
                      vt_described *out, vt_err *err)
{
    vt_program_config config = {.target = *target,
                                .activation = target->device == VT_DEVICE_CPU ? VT_F32 : VT_BF16,
                                .end = m->head ? VT_END_LOGITS : VT_END_HIDDEN,
                                .describe = true};
    vt_described d = {0};
    vt_status status = describe(m, &config, kv_dtype, &d, err);
    if (status != VT_OK) {
        vt_described_release(&d);
        return status;
    }
    *out = d;
    return VT_OK;
}

void vt_described_release(vt_described *d)
{
    vt_program_free(d->program);
    vt_weights_free(d->weights);
    vt_cuda_weights_free(NULL, d->cuda_weights);
    vt_kv_cache_release(&d->kv);
    *d = (vt_described){0};
}
