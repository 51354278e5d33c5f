/* Hashing and random numbers that are pure functions of their input: the same on every machine.
 * Hash tables whose keys come from outside must also use a secret seed (vt_hash_seed). */
#ifndef VT_BASE_RANDOM_H
#define VT_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#define VT_FNV_OFFSET UINT64_C(0xcbf29ce484222325)
#define VT_FNV_PRIME UINT64_C(0x100000001b3)

/* FNV-1a over n bytes, continuing from h; begin with VT_FNV_OFFSET.
 * (Fowler, Noll, Vo; draft-eastlake-fnv) */
static inline uint64_t vt_fnv1a(uint64_t h, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * VT_FNV_PRIME;
    return h;
}

/* The output function of splitmix64 (Steele, Lea, Flood, 2014): a bijection that mixes all bits. */
static inline uint64_t vt_mix64(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* splitmix64: advances *state and returns the next 64 random bits. */
static inline uint64_t vt_random_next(uint64_t *state)
{
    return vt_mix64(*state += UINT64_C(0x9e3779b97f4a7c15));
}

/* A secret number from getrandom(2), for hash tables whose keys come from outside. It stays the
 * same for the whole life of the process. */
uint64_t vt_hash_seed(void);

#endif
