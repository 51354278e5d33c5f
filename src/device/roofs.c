/* Roofs: measuring them and keeping them on disk (device/roofs.h).
 *
 * A roof is a maximum, so each figure is the best of several short runs of all threads together:
 * other programs on the machine can only make a run slower. A run of a register kernel takes
 * round_s. The read passes go over a buffer of twice the last-level cache, at least MIN_FAR and at
 * most MAX_FAR bytes.
 *
 * The maximum is there because a virtual machine reports the whole cache of its host (hundreds of
 * MiB), of which it only has a share, and writing a buffer for the first time takes longer than
 * reading it. */
#include "device/roofs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/team.h"
#include "device/roofs_cache.h"

enum { BEST_OF = 4, MIN_FAR = 64 << 20, MAX_FAR = 768 << 20 };

static const double round_s = 0.02; /* one run of a register kernel */

/* ---- portable kernels ---- */

static uint64_t read_portable(const void *p, size_t bytes)
{
    const uint64_t *v = p;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t n = bytes / 32; n > 0; n--, v += 4) {
        a ^= v[0];
        b ^= v[1];
        c ^= v[2];
        d ^= v[3];
    }
    return a ^ b ^ c ^ d;
}

enum { LANES = 32 };

static double fp32_portable(int64_t rounds)
{
    float acc[LANES], x = 0.999f, y = 0.001f;
    for (int i = 0; i < LANES; i++)
        acc[i] = (float)i;
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < LANES; i++)
            acc[i] = acc[i] * x + y;
    __asm__ volatile("" : : "r"(acc) : "memory");
    return (double)rounds * LANES * 2;
}

static double int8_portable(int64_t rounds)
{
    int8_t x[LANES], w[LANES];
    int32_t acc[LANES] = {0};
    memset(x, 3, sizeof x);
    memset(w, 5, sizeof w);
    for (int64_t r = 0; r < rounds; r++) {
        __asm__ volatile("" : : "r"(x), "r"(w) : "memory");
        for (int i = 0; i < LANES; i++)
            acc[i] += x[i] * w[i];
    }
    __asm__ volatile("" : : "r"(acc) : "memory");
    return (double)rounds * LANES * 2;
}

static const roofs_kernels portable = {
    .read = read_portable,
    .fp32 = fp32_portable,
    .int8 = int8_portable,
    .fp32_how = "portable C",
    .int8_how = "portable C",
};

/* The best kernel of each kind that an instruction-set level has. */
static roofs_kernels kernels_of(vt_isa level)
{
    roofs_kernels k = portable;
#if defined(__x86_64__)
    if (level == VT_ISA_AVX2)
        k = roofs_avx2;
    if (level == VT_ISA_AVX512 || level == VT_ISA_AMX)
        k = roofs_avx512;
    if (level == VT_ISA_AMX) {
        k.int8 = roofs_amx.int8;
        k.int8_how = roofs_amx.int8_how;
        k.bf16 = roofs_amx.bf16;
        k.bf16_how = roofs_amx.bf16_how;
    }
#else
    (void)level;
#endif
    return k;
}

/* ---- measuring ---- */

typedef struct job {
    vt_team *team;
    double (*compute)(int64_t rounds); /* NULL: call `read` instead */
    int64_t rounds;
    uint64_t (*read)(const void *p, size_t bytes);
    char *buffer;
    size_t bytes; /* size of the whole working set */
    int32_t passes;
    _Atomic uint64_t checksum; /* uses the reads, so that the compiler keeps them */
} job;

static void job_worker(void *arg, int32_t worker)
{
    job *j = arg;
    if (j->compute) {
        j->compute(j->rounds);
        return;
    }
    size_t share = j->bytes / (size_t)vt_team_size(j->team) / 4096 * 4096;
    uint64_t sum = 0;
    for (int32_t i = 0; i < j->passes; i++)
        sum ^= j->read(j->buffer + share * (size_t)worker, share);
    atomic_fetch_xor(&j->checksum, sum);
}

/* Writes the worker's share of the buffer, so that the memory exists and is near that worker. */
static void touch_worker(void *arg, int32_t worker)
{
    job *j = arg;
    size_t share = j->bytes / (size_t)vt_team_size(j->team) / 4096 * 4096;
    memset(j->buffer + share * (size_t)worker, 1, share);
}

/* Seconds of the fastest of BEST_OF runs. */
static double best_time(job *j)
{
    double best = INFINITY;
    for (int i = 0; i < BEST_OF; i++) {
        int64_t begin = vt_now_ns();
        vt_team_run(j->team, job_worker, j);
        best = fmin(best, (double)(vt_now_ns() - begin) * 1e-9);
    }
    return best;
}

/* Operations per second of a register kernel on all threads; 0 if `kernel` is NULL. */
static double measure_compute(vt_team *team, double (*kernel)(int64_t))
{
    if (!kernel)
        return 0;
    job j = {.team = team, .compute = kernel, .rounds = 2000};
    double seconds = 0;
    for (seconds = best_time(&j); seconds < round_s / 4 && j.rounds < INT64_MAX / 8;
         seconds = best_time(&j))
        j.rounds *= 4;
    j.rounds = (int64_t)((double)j.rounds * round_s / seconds) + 1;
    return kernel(1) * (double)j.rounds * vt_team_size(team) / best_time(&j);
}

/* Bytes per second when all threads read `bytes` of the buffer, with enough passes for a run that
 * can be timed. */
static double measure_read(vt_team *team, const roofs_kernels *k, char *buffer, size_t bytes)
{
    size_t used = bytes / (size_t)vt_team_size(team) / 4096 * 4096 * (size_t)vt_team_size(team);
    job j = {.team = team, .read = k->read, .buffer = buffer, .bytes = bytes};
    j.passes = bytes < (16 << 20)    ? (int32_t)((64 << 20) / (bytes + 1)) + 1
               : bytes < (256 << 20) ? 2
                                     : 1;
    return used ? (double)used * j.passes / best_time(&j) : 0;
}

static size_t far_bytes(const vt_cpu *cpu)
{
    int64_t n = 2 * cpu->l3_bytes;
    if (n > cpu->memory_bytes / 8)
        n = cpu->memory_bytes / 8;
    if (n > MAX_FAR)
        n = MAX_FAR;
    return (size_t)(n > MIN_FAR ? n : MIN_FAR);
}

static void raise(double *roof, double now) { *roof = fmax(*roof, now); }

/* Measures and raises figures of `r` that are now higher: all figures, or only that of the near
 * working set. */
static vt_status measure(vt_roofs *r, bool all, int64_t working_set, vt_err *err)
{
    const vt_cpu *cpu = vt_cpu_get();
    roofs_kernels k = kernels_of(cpu->level);
    vt_team *team = NULL;
    size_t bytes = all ? far_bytes(cpu) : 0;
    if ((size_t)working_set > bytes)
        bytes = (size_t)working_set < MAX_FAR ? (size_t)working_set : MAX_FAR;
    TRY(vt_team_new(r->threads, &team, err));
    char *buffer = vt_pages_alloc(bytes);
    if (!buffer) {
        vt_team_free(team);
        return vt_fail(err, VT_ERR_MEMORY,
                       "out of memory for the %zu bytes that roofs are measured with", bytes);
    }
    job touch = {.team = team, .buffer = buffer, .bytes = bytes};
    vt_team_run(team, touch_worker, &touch);
    if (all) {
        r->far_bytes = (int64_t)bytes;
        raise(&r->memory_bytes_per_s, measure_read(team, &k, buffer, bytes));
        raise(&r->fp32_per_s, measure_compute(team, k.fp32));
        raise(&r->bf16_per_s, measure_compute(team, k.bf16));
        raise(&r->int8_per_s, measure_compute(team, k.int8));
    }
    if (working_set > 0) {
        size_t near = (size_t)working_set < bytes ? (size_t)working_set : bytes;
        raise(&r->near_bytes_per_s, measure_read(team, &k, buffer, near));
    }
    vt_pages_free(buffer, bytes);
    vt_team_free(team);
    return VT_OK;
}

/* ---- the file ---- */

static void cache_key(const vt_roofs *r, char out[256])
{
    snprintf(out, 256, "%s-%s-%d", r->name, r->level, r->threads);
}

static vt_status get(int32_t threads, int64_t working_set, bool again, vt_roofs *out, vt_err *err)
{
    const vt_cpu *cpu = vt_cpu_get();
    roofs_kernels k = kernels_of(cpu->level);
    char key[256];
    vt_roofs r = {.threads = threads,
                  .measured = true,
                  .fp32_how = k.fp32_how,
                  .bf16_how = k.bf16_how,
                  .int8_how = k.int8_how};
    if (working_set < 0)
        working_set = 0;
    if (working_set > 0) /* rounded to 1 MiB, so that similar sizes share one measurement */
        working_set = (int64_t)vt_round_up((size_t)working_set, 1 << 20);
    snprintf(r.name, sizeof r.name, "%s", cpu->model);
    snprintf(r.level, sizeof r.level, "%s", vt_isa_name(cpu->level));
    cache_key(&r, key);
    roofs_cache_read(key, &r, working_set);
    r.near_bytes = working_set;
    bool all = again || r.memory_bytes_per_s <= 0;
    if (all || (working_set > 0 && r.near_bytes_per_s <= 0)) {
        TRY(measure(&r, all, working_set, err));
        roofs_cache_write(key, &r);
    }
    if (working_set > 0) /* a near working set is never slower than a far one */
        raise(&r.near_bytes_per_s, r.memory_bytes_per_s);
    *out = r;
    return VT_OK;
}

vt_status vt_roofs_get(int32_t threads, int64_t working_set, vt_roofs *out, vt_err *err)
{
    return get(threads, working_set, false, out, err);
}

vt_status vt_roofs_again(int32_t threads, int64_t working_set, vt_roofs *out, vt_err *err)
{
    return get(threads, working_set, true, out, err);
}

double vt_roofs_bandwidth(const vt_roofs *r)
{
    return r->near_bytes_per_s > 0 ? r->near_bytes_per_s : r->memory_bytes_per_s;
}
