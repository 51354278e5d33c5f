/* Roofs of a CPU: measuring them, and keeping them (device/roofs/roofs.h).
 *
 * A roof is a maximum, so each figure is the best of several short runs of all threads together.
 * A run lasts 1 to 5 ms: short enough that even on a busy machine some runs are not interrupted.
 *
 *   worker 0     run delay ─ clock ─ barrier ─ work ─ barrier ─ clock ─ run delay
 *   others       run delay ─ clock ─ barrier ─ work ─ barrier ───────── run delay
 *
 * A run begins when the last worker has arrived at the first barrier.
 *
 * The run delays say whether a worker had to wait for a CPU meanwhile; roofs/roofs_sample.h says
 * when the samples of a figure can be believed. After a run that was disturbed the team sleeps for
 * a moment: the kernel's scheduler then favours it, and the next run has a better chance.
 *
 * The far passes go over a buffer of FAR_CACHES times all last-level caches, at least MIN_FAR and
 * at most MAX_FAR bytes. A cache keeps a part of a buffer that is read in a circle: two cores of an
 * EPYC with one L3 of 32 MiB read 64 MiB at 40 GB/s, 128 at 34, 256 at 32.5 and 512 at 31.4. The
 * maximum is there because a virtual machine reports the whole cache of its host (hundreds of MiB),
 * of which it only has a share, and writing a buffer for the first time takes longer than reading
 * it. */
#include "device/roofs/roofs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/run_delay.h"
#include "base/team.h"
#include "device/roofs/roofs_cache.h"
#include "device/roofs/roofs_sample.h"

enum { FAR_CACHES = 8, MIN_FAR = 128 << 20, MAX_FAR = 768 << 20 }; /* bytes */
enum { RUN_BYTES = 32 << 20, MEETINGS = 200 };

static const double round_s = 0.003;               /* one run of a register kernel */
static const int64_t all_ns = INT64_C(2800000000); /* all figures together, the buffer included */
static const int64_t now_ns = 100000000;           /* vt_roofs_memory_now */

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
    .read = {read_portable},
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
    if (level == VT_ISA_AVX2 && vt_cpu_get()->avx_vnni) {
        k.int8 = roofs_avxvnni.int8;
        k.int8_how = roofs_avxvnni.int8_how;
    }
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

typedef enum work_kind { COMPUTE, READ, COPY, MEET, TOUCH } work_kind;

typedef struct job {
    vt_team *team;
    work_kind kind;
    double (*compute)(int64_t rounds);
    int64_t rounds;
    uint64_t (*const *read)(const void *p, size_t bytes); /* the ways of reading */
    int32_t way;                                          /* the one of this run */
    char *buffer;
    size_t bytes; /* size of the whole working set */
    int32_t passes;
    _Atomic uint64_t checksum; /* uses the reads, so that the compiler keeps them */
    _Atomic int64_t delay_ns;  /* of all workers */
    _Atomic int64_t begin_ns;  /* when the last worker arrived at the first barrier */
    int64_t end_ns;
} job;

/* A worker's share of the working set, in whole pages. */
static size_t share_of(const job *j)
{
    return j->bytes / (size_t)vt_team_size(j->team) / 4096 * 4096;
}

static void do_work(job *j, int32_t worker)
{
    size_t share = share_of(j);
    char *mine = j->buffer ? j->buffer + share * (size_t)worker : NULL; /* NULL: reads nothing */
    uint64_t sum = 0;
    switch (j->kind) {
    case COMPUTE:
        j->compute(j->rounds);
        break;
    case READ:
        for (int32_t i = 0; i < j->passes; i++)
            sum ^= j->read[j->way](mine, share);
        atomic_fetch_xor(&j->checksum, sum);
        break;
    case COPY:
        memcpy(mine, mine + share / 2, share / 2);
        __asm__ volatile("" : : "r"(mine) : "memory");
        break;
    case MEET:
        for (int64_t i = 0; i < j->rounds; i++)
            vt_team_barrier(j->team, worker);
        break;
    case TOUCH: /* so that the memory exists and is near the worker that reads it */
        memset(mine, 1, share);
        break;
    }
}

/* Raises *begin to now. The clock is read before the barrier: behind it a worker may lose its CPU
 * while the others work, and a late reading would hide their work. */
static void arrive(_Atomic int64_t *begin)
{
    int64_t now = vt_now_ns(), seen = atomic_load(begin);
    while (now > seen && !atomic_compare_exchange_weak(begin, &seen, now))
        ;
}

static void job_worker(void *arg, int32_t worker)
{
    job *j = arg;
    int64_t before = vt_run_delay_ns();
    arrive(&j->begin_ns);
    vt_team_barrier(j->team, worker);
    do_work(j, worker);
    vt_team_barrier(j->team, worker);
    if (worker == 0)
        j->end_ns = vt_now_ns();
    int64_t after = vt_run_delay_ns();
    if (before >= 0 && after > before)
        atomic_fetch_add(&j->delay_ns, after - before);
}

/* Runs once; returns the seconds. */
static double run(job *j)
{
    atomic_store(&j->delay_ns, 0);
    atomic_store(&j->begin_ns, 0);
    vt_team_run(j->team, job_worker, j);
    return (double)(j->end_ns - atomic_load(&j->begin_ns)) * 1e-9;
}

/* All figures of one measurement share this. */
typedef struct gauge {
    vt_roofs *r;
    vt_team *team;
    roofs_kernels k;
    char *buffer;
    size_t bytes;
    int64_t deadline_ns;
    int32_t figures_left;
} gauge;

/* Repeats the run until its samples agree, or until this figure's part of the time is over. `work`
 * units a run; for a time (MEETING) the figure is seconds a unit. Where there are several ways of
 * reading, each is tried twice, and then the best one again. */
static void repeat(gauge *g, vt_roof_kind kind, job *j, double work)
{
    int32_t n_ways = 1, best_way = 0;
    while (j->read && n_ways < ROOFS_READS && j->read[n_ways])
        n_ways++;
    const int32_t least = n_ways > 1 ? 2 * n_ways : 3;
    roof_samples s = {0};
    int64_t now = vt_now_ns(),
            until = now + (g->deadline_ns - now) / (g->figures_left > 0 ? g->figures_left : 1);
    g->figures_left--;
    for (int32_t i = 0; i < ROOF_MAX_SAMPLES; i++) {
        int32_t disturbed = s.n_disturbed;
        double best = s.best;
        j->way = i < 2 * n_ways ? i % n_ways : best_way;
        roof_samples_add(&s, work, run(j), atomic_load(&j->delay_ns));
        best_way = s.best > best ? j->way : best_way;
        if (i + 1 >= least && (roof_samples_agree(&s) || vt_now_ns() >= until))
            break;
        if (s.n_disturbed > disturbed)
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    if (s.best > 0)
        vt_roof_better(g->r, kind, vt_roof_rows[kind].unit ? s.best : 1 / s.best,
                       roof_samples_agree(&s) ? VT_ROOF_MEASURED : VT_ROOF_DISTURBED, time(NULL));
}

static void measure_compute(gauge *g, vt_roof_kind kind, double (*kernel)(int64_t))
{
    job j = {.team = g->team, .kind = COMPUTE, .compute = kernel, .rounds = 2000};
    double seconds = run(&j);
    for (; seconds < round_s / 4 && j.rounds < INT64_MAX / 8; seconds = fmin(run(&j), run(&j)))
        j.rounds *= 4;
    j.rounds = (int64_t)((double)j.rounds * round_s / seconds) + 1;
    repeat(g, kind, &j, kernel(1) * (double)j.rounds * vt_team_size(g->team));
}

/* All threads read `bytes` of the buffer, in enough passes for a run that can be timed. */
static void measure_read(gauge *g, vt_roof_kind kind, size_t bytes)
{
    job j = {.team = g->team, .kind = READ, .read = g->k.read, .buffer = g->buffer, .bytes = bytes};
    size_t n = (size_t)vt_team_size(g->team), used = share_of(&j) * n;
    j.passes = (int32_t)(RUN_BYTES * n / (bytes + 1)) + 1;
    *vt_roof_working_set(g->r, kind) = (int64_t)bytes;
    if (used > 0)
        repeat(g, kind, &j, (double)used * j.passes);
}

static void measure_copy(gauge *g, size_t bytes)
{
    job j = {.team = g->team, .kind = COPY, .buffer = g->buffer, .bytes = bytes};
    g->r->copy_bytes = (int64_t)bytes;
    repeat(g, VT_ROOF_COPY, &j, (double)(share_of(&j) * (size_t)vt_team_size(g->team)));
}

static void measure_meeting(gauge *g)
{
    job j = {.team = g->team, .kind = MEET, .rounds = MEETINGS};
    repeat(g, VT_ROOF_MEETING, &j, MEETINGS);
}

int64_t roofs_far_bytes(const vt_cpu *cpu)
{
    int64_t caches = cpu->l3_bytes > cpu->l2_bytes ? cpu->l3_bytes * cpu->n_l3
                                                   : cpu->l2_bytes * cpu->n_cores;
    int64_t n = caches < MAX_FAR ? FAR_CACHES * caches : MAX_FAR;
    if (n > cpu->memory_bytes / 8)
        n = cpu->memory_bytes / 8;
    if (n > MAX_FAR)
        n = MAX_FAR;
    return n > MIN_FAR ? n : MIN_FAR;
}

/* Bytes that the L2s of all threads hold with room to spare. */
static int64_t l2_working_set(const vt_roofs *r) { return r->l2_size / 2; }

/* Bytes that the L3 holds and the L2s do not: four times the L2s, or half of the L3. 0: the L3 is
 * hardly larger than the L2s, and has no roof of its own. */
static int64_t l3_working_set(const vt_roofs *r)
{
    int64_t half = r->l3_size / 2, most = 4 * r->l2_size;
    int64_t n = half < most ? half : most;
    return n > r->l2_size + r->l2_size / 2 ? n : 0;
}

/* Returns true if this machine has what the figure measures, and the caller asked for it. */
static bool wanted(const vt_roofs *r, vt_roof_kind kind, const roofs_kernels *k, int64_t near)
{
    switch (kind) {
    case VT_ROOF_MEMORY:
    case VT_ROOF_COPY:
    case VT_ROOF_FP32:
    case VT_ROOF_INT8:
        return true;
    case VT_ROOF_WEIGHTS:
        return near > 0;
    case VT_ROOF_L2:
        return l2_working_set(r) > 0;
    case VT_ROOF_L3:
        return l3_working_set(r) > 0;
    case VT_ROOF_BF16:
        return k->bf16 != NULL;
    case VT_ROOF_MEETING:
        return r->threads > 1;
    default:
        return false;
    }
}

static void measure_one(gauge *g, vt_roof_kind kind, size_t far, size_t near)
{
    switch (kind) {
    case VT_ROOF_MEMORY:
        measure_read(g, kind, far);
        break;
    case VT_ROOF_WEIGHTS:
        measure_read(g, kind, near);
        g->r->near_bytes = (int64_t)near;
        break;
    case VT_ROOF_COPY:
        measure_copy(g, far);
        break;
    case VT_ROOF_L2:
        measure_read(g, kind, (size_t)l2_working_set(g->r));
        break;
    case VT_ROOF_L3:
        measure_read(g, kind, (size_t)l3_working_set(g->r));
        break;
    case VT_ROOF_FP32:
        measure_compute(g, kind, g->k.fp32);
        break;
    case VT_ROOF_BF16:
        measure_compute(g, kind, g->k.bf16);
        break;
    case VT_ROOF_INT8:
        measure_compute(g, kind, g->k.int8);
        break;
    default:
        measure_meeting(g);
    }
}

/* Measures the figures of which want[] is true. The working set of the weights may be larger than
 * MAX_FAR: then MAX_FAR bytes stand for it. */
static vt_status measure(vt_roofs *r, const bool want[VT_ROOFS], int32_t n, int64_t budget_ns,
                         vt_err *err)
{
    const vt_cpu *cpu = vt_cpu_get();
    gauge g = {.r = r,
               .k = kernels_of(cpu->level),
               .deadline_ns = vt_now_ns() + budget_ns,
               .figures_left = n};
    int64_t asked = r->near_bytes;
    size_t far = want[VT_ROOF_MEMORY] || want[VT_ROOF_COPY] ? (size_t)roofs_far_bytes(cpu) : 0,
           near = (size_t)(asked < MAX_FAR ? asked : MAX_FAR),
           cache = (size_t)(l3_working_set(r) > l2_working_set(r) ? l3_working_set(r)
                                                                  : l2_working_set(r));
    g.bytes = want[VT_ROOF_WEIGHTS] && near > far ? near : far;
    g.bytes = cache > g.bytes ? cache : g.bytes;
    TRY(vt_team_new(r->threads, &g.team, err));
    g.buffer = vt_pages_alloc(g.bytes + 4096);
    if (!g.buffer) {
        vt_team_free(g.team);
        return vt_fail(err, VT_ERR_MEMORY,
                       "out of memory for the %zu bytes that roofs are measured with", g.bytes);
    }
    run(&(job){.team = g.team, .kind = TOUCH, .buffer = g.buffer, .bytes = g.bytes});
    for (int kind = 0; kind < VT_ROOFS; kind++)
        if (want[kind])
            measure_one(&g, (vt_roof_kind)kind, far, near);
    if (want[VT_ROOF_MEMORY] && r->memory_bytes_per_s < r->copy_bytes_per_s)
        measure_one(&g, VT_ROOF_MEMORY, far, near); /* others took bandwidth meanwhile */
    r->near_bytes = asked;
    vt_pages_free(g.buffer, g.bytes + 4096);
    vt_team_free(g.team);
    return VT_OK;
}

/* ---- the file ---- */

/* Fills in what is known of this machine without measuring. */
static void describe(vt_roofs *r, int32_t threads)
{
    const vt_cpu *cpu = vt_cpu_get();
    roofs_kernels k = kernels_of(cpu->level);
    *r = (vt_roofs){.threads = threads,
                    .measured = true,
                    .l2_size = cpu->l2_bytes * (threads < cpu->n_cores ? threads : cpu->n_cores),
                    .l3_size = cpu->l3_bytes,
                    .fp32_how = k.fp32_how,
                    .bf16_how = k.bf16_how,
                    .int8_how = k.int8_how};
    snprintf(r->name, sizeof r->name, "%s", cpu->model);
    snprintf(r->level, sizeof r->level, "%s", vt_isa_name(cpu->level));
    snprintf(r->key, sizeof r->key, "%s-%s-%d", r->name, r->level, threads);
}

static vt_status get(int32_t threads, int64_t working_set, bool again, vt_roofs *out, vt_err *err)
{
    vt_roofs r;
    bool want[VT_ROOFS] = {false};
    int32_t n = 0;
    describe(&r, threads);
    roofs_kernels k = kernels_of(vt_cpu_get()->level);
    if (working_set > 0) /* rounded to 1 MiB, so that similar sizes share one measurement */
        r.near_bytes = (int64_t)vt_round_up((size_t)working_set, 1 << 20);
    roofs_cache_read(r.key, &r, r.near_bytes);
    for (int i = 0; i < VT_ROOFS; i++) {
        want[i] = wanted(&r, (vt_roof_kind)i, &k, r.near_bytes) && roofs_lacks(&r, i, again);
        n += want[i];
    }
    if (n > 0) {
        TRY(measure(&r, want, n, all_ns, err));
        roofs_cache_write(r.key, &r);
    }
    if (r.near_bytes > 0) /* a near working set is never slower than a far one */
        vt_roof_better(&r, VT_ROOF_WEIGHTS, r.memory_bytes_per_s, r.mark[VT_ROOF_MEMORY].tag,
                       r.mark[VT_ROOF_MEMORY].when);
    *out = r;
    return VT_OK;
}

vt_status vt_roofs_memory_now(int32_t threads, double *bytes_per_s, vt_err *err)
{
    vt_roofs r;
    const bool want[VT_ROOFS] = {[VT_ROOF_MEMORY] = true};
    describe(&r, threads);
    TRY(measure(&r, want, 1, now_ns, err));
    *bytes_per_s = r.memory_bytes_per_s;
    vt_roofs kept;
    describe(&kept, threads);
    roofs_cache_read(kept.key, &kept, 0);
    if (r.mark[VT_ROOF_MEMORY].tag == VT_ROOF_MEASURED && kept.memory_bytes_per_s > 0 &&
        r.memory_bytes_per_s > kept.memory_bytes_per_s) {
        kept.memory_bytes_per_s = r.memory_bytes_per_s;
        kept.mark[VT_ROOF_MEMORY] = r.mark[VT_ROOF_MEMORY];
        roofs_cache_write(kept.key, &kept);
    }
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
