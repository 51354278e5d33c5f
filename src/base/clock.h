#ifndef VT_BASE_CLOCK_H
#define VT_BASE_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC in nanoseconds. All times inside the program are these. */
int64_t vt_now_ns(void);

#endif
