/* The thread of kv/populate.h. It reads no bytes and writes none: madvise makes pages present as a
 * write would, so requests may write them meanwhile. */
#include "kv/populate.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

/* At a time: a thread that waits for the system's lock of this memory waits for no more. */
enum { PIECE = 1 << 18 };

/* Asks for `bytes` from `at` on. Returns false if the rest shall not be asked for. */
static bool populate(const vt_populate *p, char *at, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *begin = at - (uintptr_t)at % page;
    for (char *end = at + bytes; begin < end; begin += PIECE) {
        size_t some = (size_t)(end - begin) < PIECE ? (size_t)(end - begin) : PIECE;
        if (atomic_load(&p->stop) || madvise(begin, vt_round_up(some, page), MADV_POPULATE_WRITE))
            return false;
    }
    return true;
}

static void *populate_main(void *arg)
{
    const vt_populate *p = arg;
    const vt_kv_cache *c = p->cache;
    const double share = (double)p->bytes / (double)c->bytes;
    for (int32_t i = 0; i < vt_kv_layers(&c->shape); i++) {
        size_t bytes = (size_t)(share * (double)vt_tensor_bytes(&c->k[i]));
        if (!populate(p, c->k[i].data, bytes) ||
            (c->v[i].data != c->k[i].data && !populate(p, c->v[i].data, bytes)))
            break;
    }
    return NULL;
}

void vt_populate_begin(vt_populate *p, const vt_kv_cache *cache, size_t bytes)
{
    *p = (vt_populate){.cache = cache, .bytes = bytes < cache->bytes ? bytes : cache->bytes};
    if (cache->bytes > 0)
        p->started = pthread_create(&p->thread, NULL, populate_main, p) == 0;
}

void vt_populate_end(vt_populate *p)
{
    if (!p->started)
        return;
    atomic_store(&p->stop, true);
    pthread_join(p->thread, NULL);
    p->started = false;
}
