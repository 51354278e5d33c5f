/* The table of stall reasons (stalls.h). */
#include "device/cupti/stalls.h"

#define ROW(name, label, meaning, remedy) [VT_STALL_##name] = {#name, label, meaning, remedy},
const vt_stall_row vt_stalls[VT_STALLS] = {VT_STALL_ROWS(ROW)};
#undef ROW

bool vt_stall_waits(vt_stall stall)
{
    return stall != VT_STALL_selected && stall != VT_STALL_not_selected;
}
