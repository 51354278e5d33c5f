/* From 64-bit hashes to small numbers: which of several things with one hash is meant is the
 * caller's to compare. */
#ifndef VT_GRAMMAR_IDMAP_H
#define VT_GRAMMAR_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"

typedef struct idmap {
    uint64_t *hash;
    int32_t *id; /* 0: free */
    int32_t n, slots;
} idmap;

static inline void idmap_release(idmap *m)
{
    free(m->hash);
    free(m->id);
    *m = (idmap){0};
}

static inline size_t idmap_bytes(const idmap *m) { return (size_t)m->slots * 12; }

/* The next id of that hash from *at on; 0: none. Begin with *at = -1. */
static inline int32_t idmap_next(const idmap *m, uint64_t hash, int64_t *at)
{
    if (m->slots == 0)
        return 0;
    uint32_t i = *at < 0 ? (uint32_t)hash : (uint32_t)*at + 1;
    for (i &= (uint32_t)(m->slots - 1); m->id[i]; i = (i + 1) & (uint32_t)(m->slots - 1))
        if (m->hash[i] == hash) {
            *at = i;
            return m->id[i];
        }
    return 0;
}

static inline bool idmap_grow(idmap *m)
{
    int32_t n = m->slots ? 2 * m->slots : 256;
    uint64_t *hash = vt_calloc((size_t)n, sizeof *hash);
    int32_t *id = vt_calloc((size_t)n, sizeof *id);
    if (!hash || !id) {
        free(hash);
        free(id);
        return false;
    }
    for (int32_t k = 0; k < m->slots; k++) {
        uint32_t i = (uint32_t)m->hash[k] & (uint32_t)(n - 1);
        if (!m->id[k])
            continue;
        while (id[i])
            i = (i + 1) & (uint32_t)(n - 1);
        hash[i] = m->hash[k];
        id[i] = m->id[k];
    }
    free(m->hash);
    free(m->id);
    m->hash = hash;
    m->id = id;
    m->slots = n;
    return true;
}

static inline bool idmap_put(idmap *m, uint64_t hash, int32_t id)
{
    if (2 * (m->n + 1) > m->slots && !idmap_grow(m))
        return false;
    uint32_t i = (uint32_t)hash & (uint32_t)(m->slots - 1);
    while (m->id[i])
        i = (i + 1) & (uint32_t)(m->slots - 1);
    m->hash[i] = hash;
    m->id[i] = id;
    m->n++;
    return true;
}

#endif
