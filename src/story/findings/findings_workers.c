/* Rules about the CPU workers of a story: one that the others wait for, and what the readings
 * and the hardware events of the workers say of it; a team on several nodes; pages from a disk. */
#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "story/findings/findings_inside.h"
#include "story/record/workers.h"

static const double waited_most = 0.75; /* of the time that workers wait, for one worker */
static const double waits = 0.10;       /* of the workers' time */
static const double clearly = 0.05;     /* what one worker differs by from the others */
enum { FEWEST_PAGES = 10 };

/* How the others fared, in the mean. */
typedef struct worker_mean {
    double off_cpu, clock_hz;
    int32_t node; /* of all of them; -1: they are on several, or it is not known */
    int32_t n;
} worker_mean;

static double off_cpu(const worker_use *u)
{
    return u->device_s > 0 ? fmax(0, 1 - u->cpu_s / u->device_s) : NAN;
}

static double clock_hz(const worker_use *u)
{
    return u->cpu_s > 0 && u->counted >> VT_COUNT_CYCLES & 1 ? u->count[VT_COUNT_CYCLES] / u->cpu_s
                                                             : NAN;
}

/* The workers of the story but `without` (an index of a source). */
static worker_mean mean_of(const story_input *in, const story_record *r, int32_t without)
{
    worker_mean m = {.node = -1};
    for (int32_t k = 0; k < in->n_sources; k++) {
        if (in->source[k].is.kind != VT_SOURCE_WORKER || k == without)
            continue;
        worker_use u = story_worker_use(r, &in->source[k]);
        m.off_cpu += off_cpu(&u);
        m.clock_hz += clock_hz(&u);
        m.node = m.n == 0 || m.node == u.node ? u.node : -1;
        m.n++;
    }
    m.off_cpu /= m.n;
    m.clock_hz /= m.n;
    return m;
}

/* Says what sets a worker apart from the others; "" where nothing that was read does. */
static void say_why(const worker_use *u, const worker_mean *others, char *out, size_t size)
{
    if (off_cpu(u) > others->off_cpu + clearly)
        snprintf(out, size,
                 "; it was off its CPU for %.0f %% of the steps' time, the others %.0f %%",
                 100 * off_cpu(u), 100 * others->off_cpu);
    else if (clock_hz(u) < (1 - clearly) * others->clock_hz)
        snprintf(out, size, "; its CPU ran at %.2f GHz, those of the others at %.2f GHz",
                 clock_hz(u) * 1e-9, others->clock_hz * 1e-9);
    else if (u->node >= 0 && others->node >= 0 && u->node != others->node)
        snprintf(out, size, "; it ran on NUMA node %d, the others on node %d", u->node,
                 others->node);
    else
        out[0] = '\0';
}

/* Returns the source that workers waited for most, and in *share its part of that time. */
static int32_t find_straggler(const story_input *in, const story_record *r, double *share,
                              double *wait_s)
{
    int32_t most = -1;
    double all_s = 0, most_s = 0;
    for (int32_t k = 0; k < in->n_sources; k++) {
        double s = 0;
        for (int32_t from = 0; from < in->n_sources; from++)
            if (in->source[from].is.kind == VT_SOURCE_WORKER)
                s += r->wait[from * in->n_sources + k].longer_s;
        all_s += s;
        if (in->source[k].is.kind == VT_SOURCE_WORKER && s > most_s) {
            most_s = s;
            most = k;
        }
    }
    *share = all_s > 0 ? most_s / all_s : NAN;
    *wait_s = all_s;
    return most;
}

static void judge_straggler(findings *f, const story_input *in, const story_record *r)
{
    char why[160];
    double share, wait_s, time_s = 0;
    int32_t k = find_straggler(in, r, &share, &wait_s);
    for (int32_t i = 0; i < in->n_sources; i++)
        if (in->source[i].is.kind == VT_SOURCE_WORKER)
            time_s += r->sum[i].busy_s + r->sum[i].wait_s;
    if (k < 0 || in->source[k].is.n_ranks > 1 || !(share > waited_most) ||
        !(wait_s > waits * time_s))
        return;
    worker_use u = story_worker_use(r, &in->source[k]);
    worker_mean others = mean_of(in, r, k);
    say_why(&u, &others, why, sizeof why);
    finding_begin(
        f, 'W', "threads.straggler", "75 % of the waiting, above 10 % of the workers' time",
        "%s is the one that the others wait for: %.0f %% of the time that workers wait%s",
        in->source[k].is.name[0] ? in->source[k].is.name : "one worker", 100 * share, why);
    vt_json_int(f->w, "worker", k);
    vt_json_real(f->w, "share", share);
    vt_json_real(f->w, "wait_ms", wait_s * 1e3);
    finding_gain(f, NAN);
    finding_end(f);
}

/* Memory lies on one node where nobody says otherwise: of a team on two nodes half reads across. */
static void judge_nodes(findings *f, const story_input *in, const story_record *r)
{
    int32_t least = INT32_MAX, most = -1;
    for (int32_t k = 0; k < in->n_sources; k++) {
        const story_source *s = &in->source[k];
        if (s->is.kind != VT_SOURCE_WORKER || s->is.n_ranks > 1)
            continue;
        int32_t node = story_worker_use(r, s).node;
        least = node >= 0 && node < least ? node : least;
        most = node > most ? node : most;
    }
    if (most < 0 || least == most)
        return;
    finding_begin(f, 'N', "numa.apart", "one team on more than one node",
                  "workers of one team ran on several NUMA nodes (%d and %d among them): memory of "
                  "another node is farther away; numactl --cpunodebind keeps them on one",
                  least, most);
    vt_json_int(f->w, "first_node", least);
    vt_json_int(f->w, "last_node", most);
    finding_end(f);
}

static void judge_faults(findings *f, const story_machine *m)
{
    if (m->major_faults < FEWEST_PAGES)
        return;
    finding_begin(f, 'W', "memory.faults", "10 pages",
                  "%lld pages came from a disk while steps ran: the mapped weights were not in "
                  "memory, and the workers waited for them",
                  (long long)m->major_faults);
    vt_json_int(f->w, "major_faults", m->major_faults);
    vt_json_int(f->w, "minor_faults", m->minor_faults);
    finding_end(f);
}

void findings_judge_workers(findings *f, const story_input *in, const story_record *r,
                            const phase phases[STORY_PHASES], const story_facts *t)
{
    if (story_on_gpu(in))
        return;
    if (phases[STORY_DECODE].n_timed > 0 && !phase_too_few(&phases[STORY_DECODE]))
        judge_straggler(f, in, r);
    judge_nodes(f, in, r);
    judge_faults(f, &t->machine);
}
