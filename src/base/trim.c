#include "base/trim.h"

#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* Of the allocator that a sanitizer puts in malloc's place; without one the address is NULL. */
__attribute__((weak)) void __sanitizer_purge_allocator(void);

void vt_malloc_trim(void)
{
    if (__sanitizer_purge_allocator) {
        __sanitizer_purge_allocator();
        return;
    }
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
