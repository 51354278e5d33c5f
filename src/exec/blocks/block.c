/* The table of blocks (exec/blocks/block.h). */
#include "exec/blocks/block.h"

const vt_block *const vt_blocks[VT_BLOCKS] = {
    [VT_BLOCK_ATTENTION] = &vt_block_attention,
    [VT_BLOCK_FFN] = &vt_block_ffn,
    [VT_BLOCK_EXPERTS] = &vt_block_experts,
};
