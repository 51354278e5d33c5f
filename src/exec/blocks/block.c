/* The table of blocks (exec/blocks/block.h). */
#include "exec/blocks/block.h"

#include "base/err.h"

const vt_block *const vt_blocks[VT_BLOCKS] = {
    [VT_BLOCK_ATTENTION] = &vt_block_attention,
    [VT_BLOCK_FFN] = &vt_block_ffn,
    [VT_BLOCK_EXPERTS] = &vt_block_experts,
    [VT_BLOCK_CONV] = &vt_block_conv,
    [VT_BLOCK_DELTA] = &vt_block_delta,
    [VT_BLOCK_KDA] = &vt_block_kda,
    [VT_BLOCK_MAMBA] = &vt_block_mamba,
    [VT_BLOCK_MLP] = &vt_block_mlp,
    [VT_BLOCK_MLA] = &vt_block_mla,
};

vt_status vt_block_check_scale(const vt_layout *l, int32_t layer, vt_role bias, vt_err *err)
{
    const vt_model *m = l->model;
    bool plain = m->arch.residual_scale == 1 || m->arch.residual_scale == 0; /* 0: not set */
    if (plain || !m->layer[layer].weight[bias])
        return VT_OK;
    return vt_fail(err, VT_ERR_UNSUPPORTED,
                   "%s: layer %d adds %g of its result to the residual stream; with %s that is not "
                   "supported",
                   m->name, layer, (double)m->arch.residual_scale, vt_roles[bias].name);
}
