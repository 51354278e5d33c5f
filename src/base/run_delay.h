/* How long a thread was ready to run and had no CPU: /proc/thread-self/schedstat, which needs no
 * privilege. */
#ifndef VT_BASE_RUN_DELAY_H
#define VT_BASE_RUN_DELAY_H

#include <stdint.h>

/* Nanoseconds that the calling thread has waited for a CPU since it began; -1 where the kernel does
 * not count them. One call takes about 5 us. */
int64_t vt_run_delay_ns(void);

#endif
