/* Energy that the CPU's packages have used, from the kernel's powercap interface (RAPL, of Intel
 * and AMD alike). A counter is of a whole package: of every process and of idle cores too. */
#ifndef VT_DEVICE_ENERGY_H
#define VT_DEVICE_ENERGY_H

#include <stdint.h>

enum { VT_ENERGY_PACKAGES = 16 };

typedef struct vt_energy {
    int32_t n; /* packages whose counter can be read; 0: none, and `why` says why */
    int fd[VT_ENERGY_PACKAGES];
    int64_t range_uj[VT_ENERGY_PACKAGES]; /* a counter begins again behind this value */
    int64_t last_uj[VT_ENERGY_PACKAGES];
    int64_t sum_uj; /* of all packages since vt_energy_open */
    char why[160];
} vt_energy;

/* Finds the packages below `root`; NULL: /sys/class/powercap. All of them must be readable, or none
 * is used. Never fails: a machine without counters has none. */
void vt_energy_open(const char *root, vt_energy *e);
void vt_energy_close(vt_energy *e);
/* Millijoules since vt_energy_open; -1: there is no counter, or it cannot be read any more. To be
 * called at least once per turn of a counter (at 200 W after 20 minutes), or a turn is missed. A
 * reading costs 1 to 10 us for each package. */
int64_t vt_energy_read_mj(vt_energy *e);

#endif
