/* The process's secret seed for hash tables (base/random.h). */
#include "base/random.h"

#include <pthread.h>
#include <sys/random.h>
#include <time.h>

static uint64_t seed;
static pthread_once_t seeded = PTHREAD_ONCE_INIT;

static void make_seed(void)
{
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == sizeof seed)
        return;
    struct timespec now; /* getrandom failed (early boot): a clock is a weaker secret */
    clock_gettime(CLOCK_REALTIME, &now);
    seed = vt_mix64((uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uint64_t)(uintptr_t)&now);
}

uint64_t vt_hash_seed(void)
{
    pthread_once(&seeded, make_seed);
    return seed;
}
