// out[r, :] = bf16 of weight row first + r, from quantised tiles (linear_quant.h): makes a panel of the
// weight for the GEMMs of many tokens.
//
// out [rows, K] bf16; paired (gridDim.z 2): [2 rows, K], the up rows below the gate rows.
// Grid: x = groups of 4 units of 128 columns, y = tiles of 8 rows, z = gate, up; 4 warps, one per unit.
// Bytes: the tiles are read once, 2 per weight are written. The GEMM reads these again, from L2 if they fit there.
// Template: BITS, OFFSET, FORM, K.
#include "quant_tile.cuh"
#include "linear_params.h"

KERNEL __launch_bounds__(128) quant_panel(const __grid_constant__ quant_panel_params p)
{
    int lane = threadIdx.x % 32, unit = blockIdx.x * 4 + threadIdx.x / 32, row = blockIdx.y * 8 + lane / 4;
    Unit u;
    if (unit < kUnits)
        load_unit(p.w[blockIdx.z] + blockIdx.y * kTileBytes, unit, lane, u);
    pdl_go();
    pdl_wait();
    if (unit >= kUnits || row >= p.rows)
        return;
    u16 *out = p.out + ((i64)blockIdx.z * p.rows + row) * K;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        if (kTail && c >= kTail && unit == kUnits - 1)
            break;
        float v[8];
        values_of(u, c, v);
        store_values(out, unit * 4 + c, lane % 4, v);
    }
}
