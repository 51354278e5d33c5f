/* Ranks on the NUMA nodes of a CPU (device/place.h). On a machine of one node the teams sit where
 * vt_team_new_at puts them. */
#include "exec/cpu_inside.h"

#include <sched.h>
#include <stdlib.h>

#include "base/mem.h"
#include "device/place.h"

/* The CPUs that this process may use, rising. Returns how many. */
static int32_t allowed_cpus(int32_t out[CPU_SETSIZE])
{
    cpu_set_t set;
    int32_t n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    for (int32_t c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &set))
            out[n++] = c;
    return n;
}

int32_t *cpu_seats(const char *root, int32_t n_ranks, int32_t n_threads)
{
    int32_t allowed[CPU_SETSIZE], n = allowed_cpus(allowed);
    vt_topology *t = vt_calloc(1, sizeof *t);
    int32_t *seat = vt_calloc((size_t)n_ranks * (size_t)n_threads, sizeof *seat);
    if (t)
        vt_topology_read(root, t);
    if (!t || !seat || !vt_place_ranks(t, allowed, n, n_ranks, n_threads, seat)) {
        free(seat);
        seat = NULL;
    }
    free(t);
    return seat;
}

void cpu_sit(int32_t cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one); /* a hint: failure is no error */
}

static void sit_worker(void *arg, int32_t worker)
{
    const cpu_rank *k = arg;
    cpu_sit(k->seat[worker]);
}

static void sit_rank(void *arg, int32_t r)
{
    cpu_executor *x = arg;
    vt_team_run(x->rank[r].team, sit_worker, &x->rank[r]);
}

void cpu_sit_all(cpu_executor *x, int32_t n_threads)
{
    x->seat = x->leaders ? cpu_seats("", x->n_ranks, n_threads) : NULL;
    if (!x->seat)
        return;
    for (int32_t r = 0; r < x->n_ranks; r++)
        x->rank[r].seat = x->seat + (size_t)r * (size_t)n_threads;
    vt_team_run(x->leaders, sit_rank, x);
}
