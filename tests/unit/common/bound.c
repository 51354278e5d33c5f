#include "bound.h"

#include "device/cpu.h"

double fp32_bound(void) { return vt_cpu_get()->level == VT_ISA_AMX ? 5e-4 : 1e-4; }
