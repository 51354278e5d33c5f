/* Giving memory back that malloc keeps for later (base/mem.c). */
#ifndef VT_BASE_TRIM_H
#define VT_BASE_TRIM_H

/* Gives the pages of malloc that are free back to the system, of all threads, and empties a
 * sanitizer's quarantine. Takes milliseconds, and as long again to touch the pages anew. */
void vt_malloc_trim(void);

#endif
