/* Has the system provide the first pages of a KV cache in CPU memory before requests write them.
 *
 * A page of memory is there when it is first written: the system finds it and clears it, which
 * takes 0.3 to 2 us for 4 KiB, and 8 us in a virtual machine whose host has to find it too. The
 * first prompt of 512 tokens of a model of 0.6B writes 14,000 of them. */
#ifndef VT_KV_POPULATE_H
#define VT_KV_POPULATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "kv/cache.h"

typedef struct vt_populate {
    pthread_t thread;
    bool started;
    atomic_bool stop;
    const vt_kv_cache *cache;
    size_t bytes;
} vt_populate;

/* Starts a thread that asks for the first `bytes` of the cache, each pool's share of them. Both p
 * and the cache stay where they are until vt_populate_end. A system that cannot do it, or has not
 * enough memory, leaves the rest to the first writes. */
void vt_populate_begin(vt_populate *p, const vt_kv_cache *cache, size_t bytes);
/* Stops the thread, if there is one, and waits for it. */
void vt_populate_end(vt_populate *p);

#endif
