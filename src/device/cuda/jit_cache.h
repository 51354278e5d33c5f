/* The cubin cache's files and its 128-bit hash; private to the JIT. */
#ifndef VT_DEVICE_CUDA_JIT_CACHE_H
#define VT_DEVICE_CUDA_JIT_CACHE_H

#include "device/cuda/jit.h"

/* FNV-1a, 128 bits. The key decides only which file is looked for, in a cache that only its user
 * can write, so a cryptographic hash would add nothing. */
typedef struct jit_hash {
    unsigned __int128 state;
} jit_hash;

jit_hash jit_hash_begin(void);
void jit_hash_add(jit_hash *h, const void *bytes, size_t n);
void jit_hash_hex(const jit_hash *h, char out[33]);
uint64_t jit_hash_text(uint64_t h, const char *text); /* FNV-1a, 64 bits, the NUL included */

/* The cubin of `key`, or NULL. major 0: of any NVRTC version. The caller frees the result, which
 * holds out->bytes. */
void *jit_cache_read(const char *key, int major, int minor, jit_cubin *out);
/* Best effort: a cache that cannot be written costs time, not correctness. */
void jit_cache_write(const char *key, int major, int minor, const char *arch, const char *name,
                     const jit_cubin *c);

#endif
