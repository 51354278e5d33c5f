/* The ops that a kernel of the user's own may implement, and the calls that a kernel for the CPU
 * gets (include/vitrine_kernel.h). */
#include <string.h>

#include "base/err.h"
#include "lab/kernel/inside.h"
#include "ops/embed/embed.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "vitrine_kernel.h"

static bool rmsnorm_call(const void *args, void *out)
{
    const rmsnorm_args *a = args;
    vitrine_rmsnorm_call *c = out;
    *c = (vitrine_rmsnorm_call){.x = a->x->data,
                                .weight = a->weight->data,
                                .row = a->row ? *a->row : NULL,
                                .y = a->y->data,
                                .n_rows = a->y->dim[0],
                                .n = a->y->dim[1],
                                .x_stride = a->x->row_stride,
                                .y_stride = a->y->row_stride,
                                .eps = a->eps,
                                .plus_one = a->plus_one};
    return a->x->dtype == VT_F32 && a->weight->dtype == VT_F32 && a->y->dtype == VT_F32;
}

static bool add_rmsnorm_call(const void *args, void *out)
{
    const rmsnorm_args *a = args;
    vitrine_add_rmsnorm_call *c = out;
    *c = (vitrine_add_rmsnorm_call){.x = a->x->data,
                                    .weight = a->weight->data,
                                    .residual = a->residual->data,
                                    .y = a->y->data,
                                    .n_rows = a->y->dim[0],
                                    .n = a->y->dim[1],
                                    .x_stride = a->x->row_stride,
                                    .residual_stride = a->residual->row_stride,
                                    .y_stride = a->y->row_stride,
                                    .eps = a->eps,
                                    .plus_one = a->plus_one};
    return a->x->dtype == VT_F32 && a->weight->dtype == VT_F32 && a->y->dtype == VT_F32 &&
           a->residual->dtype == VT_F32;
}

static bool embed_call(const void *args, void *out)
{
    const embed_args *a = args;
    vitrine_embed_call *c = out;
    vt_dtype type = a->table->dtype;
    *c = (vitrine_embed_call){.table = a->table->data,
                              .token = *a->tokens,
                              .pool = a->token_pool ? *a->token_pool : NULL,
                              .y = a->y->data,
                              .n_rows = a->y->dim[0],
                              .n = a->y->dim[1],
                              .vocab = a->table->dim[0],
                              .table_stride = a->table->row_stride,
                              .y_stride = a->y->row_stride,
                              .scale = a->scale,
                              .table_type = type == VT_F16    ? VITRINE_F16
                                            : type == VT_BF16 ? VITRINE_BF16
                                                              : VITRINE_F32};
    return !a->part && a->y->dtype == VT_F32 &&
           (type == VT_F32 || type == VT_F16 || type == VT_BF16);
}

static const own_kernel_op contracts[] = {
    {.name = "rmsnorm",
     .kernels = {"rmsnorm"},
     .macros = {"hidden", "rows", "plus_one"},
     .shape = "tokens=16384,hidden=4096",
     .shape_cpu = "tokens=512,hidden=4096",
     .call = rmsnorm_call},
    {.name = "add_rmsnorm",
     .kernels = {"rmsnorm"},
     .macros = {"hidden", "plus_one"},
     .shape = "tokens=16384,hidden=4096",
     .shape_cpu = "tokens=512,hidden=4096",
     .call = add_rmsnorm_call},
    {.name = "embed",
     .other_name = "index",
     .kernels = {"embed"},
     .macros = {"hidden", "scaled"},
     .shape = "tokens=16384,hidden=4096",
     .shape_cpu = "tokens=512,hidden=4096,vocab=8192",
     .call = embed_call},
    {.name = "silu_mul",
     .kernels = {"silu_mul"},
     .macros = {"n", "gelu", "apart"},
     .shape = "tokens=16384,n=4096"},
    {.name = "kv_store",
     .other_name = "store",
     .kernels = {"kv_store", "kv_store_any"},
     .macros = {"kv_heads", "head_dim", "page", "fp8", "k_only"},
     .shape = "tokens=16384"},
};

enum { N_CONTRACTS = sizeof contracts / sizeof *contracts };

const own_kernel_op *own_kernel_find(const char *name, vt_err *err)
{
    vt_buf list = {0};
    for (int i = 0; i < N_CONTRACTS; i++) {
        const own_kernel_op *c = &contracts[i];
        if (strcmp(c->name, name) == 0 || (c->other_name && strcmp(c->other_name, name) == 0))
            return c;
    }
    for (int i = 0; i < N_CONTRACTS; i++)
        vt_buf_printf(&list, "%s%s%s%s%s", i ? ", " : "", contracts[i].name,
                      contracts[i].other_name ? " (" : "",
                      contracts[i].other_name ? contracts[i].other_name : "",
                      contracts[i].other_name ? ")" : "");
    vt_fail(err, VT_ERR_USAGE, "--op '%.40s': expected %s", name, list.data ? list.data : "an op");
    vt_buf_release(&list);
    return NULL;
}
