/* Building a program that is only printed and costed (exec/describe.h). */
#include "exec/describe.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "device/cuda/cublaslt.h"
#include "exec/cuda.h"
#include "exec/layout.h"
#include "exec/ranks.h"
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

/* `comm`: the group that the program is a rank of; NULL: it runs alone. */
static vt_status describe(const vt_model *m, const vt_target *t, vt_dtype kv_dtype, vt_comm *comm,
                          const vt_rank *is, vt_described *d, vt_err *err)
{
    vt_kv_shape shape;
    vt_layout *layout;
    vt_program_config config = {.target = *t,
                                .activation = t->device == VT_DEVICE_CPU ? VT_F32 : VT_BF16,
                                .end = m->head && !vt_model_bidirectional(m) ? VT_END_LOGITS
                                                                             : VT_END_POOLED,
                                .describe = true,
                                .comm = comm ? &d->comm : NULL};
    d->comm = (vt_comm_rank){.group = comm, .rank = is->index};
    vt_ranks_kv_shape(m, kv_dtype, is, &shape);
    TRY(vt_kv_cache_init(&d->kv, &shape, 1, 0, t->limits.page_size, 0, err));
    TRY(vt_layout_make(m, &layout, err));
    vt_ranks_narrow(layout, is);
    vt_status status = t->device == VT_DEVICE_CPU
                           ? vt_weights_realise_cpu(layout, NULL, t, NULL, &d->weights, err)
                           : vt_cuda_weights_realise(NULL, layout, t->limits.max_context, 1,
                                                     &d->cuda_weights, err);
    vt_layout_free(layout);
    TRY(status);
    const vt_weights *w = d->weights ? d->weights : &d->cuda_weights->weights;
    return vt_program_build(m, w, &d->kv, &config, &d->program, err);
}

vt_status vt_describe(const vt_model *m, const vt_target *target, vt_dtype kv_dtype,
                      vt_described *out, vt_err *err)
{
    vt_described d = {0};
    vt_status status = describe(m, target, kv_dtype, NULL, &(vt_rank){0, 1}, &d, err);
    if (status != VT_OK) {
        vt_described_release(&d);
        return status;
    }
    *out = d;
    return VT_OK;
}

static vt_status describe_all(const vt_model *m, const vt_target *t, vt_dtype kv_dtype,
                              bool whole_experts, vt_described_ranks *d, vt_err *err)
{
    TRY(vt_comm_new(d->n, &d->comm, err));
    if (t->device == VT_DEVICE_CUDA)
        d->comm->gpu = &d->gpu;
    for (int32_t r = 0; r < d->n; r++) {
        const vt_rank is = {r, d->n, whole_experts};
        TRY(describe(m, t, kv_dtype, d->comm, &is, &d->rank[r], err));
        for (int32_t s = 0; s < VT_COMM_SLOTS; s++)
            d->comm->buffer[s][r] = d->rank[r].program->buffer[s];
        if (r > 0 && t->device == VT_DEVICE_CPU)
            d->rank[r - 1].program->next_rank = d->rank[r].program;
    }
    return VT_OK;
}

vt_status vt_describe_ranks(const vt_model *m, const vt_target *target, vt_dtype kv_dtype,
                            int32_t n, bool whole_experts, bool staged, vt_described_ranks **out,
                            vt_err *err)
{
    vt_described_ranks *d = vt_calloc(1, sizeof *d);
    if (d)
        d->rank = vt_calloc((size_t)n, sizeof *d->rank);
    if (!d || !d->rank) {
        vt_described_ranks_free(d);
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %d ranks", n);
    }
    d->n = n;
    d->gpu.staged = staged;
    d->gpu.part_bytes = vt_comm_part_bytes(n, target->limits.max_tokens, m->arch.hidden);
    vt_status status = describe_all(m, target, kv_dtype, whole_experts, d, err);
    if (status != VT_OK) {
        vt_described_ranks_free(d);
        return status;
    }
    *out = d;
    return VT_OK;
}

void vt_described_ranks_free(vt_described_ranks *d)
{
    if (!d)
        return;
    for (int32_t r = 0; r < d->n; r++)
        vt_described_release(&d->rank[r]);
    vt_comm_free(d->comm);
    free(d->rank);
    free(d);
}

void vt_described_release(vt_described *d)
{
    vt_program_free(d->program);
    vt_weights_free(d->weights);
    vt_cuda_weights_free(NULL, d->cuda_weights);
    vt_kv_cache_release(&d->kv);
    *d = (vt_described){0};
}
