/* CPUs for pinned threads, so that engines of several processes on one machine do not all pin
 * theirs to the same ones. A claim is known to the processes of one network namespace and ends with
 * its process. */
#ifndef VT_BASE_CPU_CLAIM_H
#define VT_BASE_CPU_CLAIM_H

#include <sched.h>
#include <stdint.h>

#define VT_CPU_CLAIMS "vitrine-cpu"

/* Claims n CPUs of the set from its end, without those that other processes claimed under this
 * name. What this process claimed before may come again. Returns how many there were, in cpu[]. */
int32_t vt_cpu_claim(const char *name, const cpu_set_t *set, int32_t n, int32_t *cpu);
/* Ends these claims, each as often as it was made. */
void vt_cpu_unclaim(const int32_t *cpu, int32_t n);

#endif
