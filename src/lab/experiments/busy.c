/* Finds out if other programs used the machine during a load: the CPU time of all programs, less
 * that of this one and of the server. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/cpu.h"
#include "lab/experiments/experiments.h"

/* CPU seconds of all programs, and what a hypervisor took, since the machine's start; -1: not known
 * or not of the CPUs that this process may use. */
static double all_cpu_s(void)
{
    unsigned long long t[8] = {0}; /* user nice system idle iowait irq softirq steal */
    FILE *f = fopen("/proc/stat", "r");
    int n = f ? fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3],
                       &t[4], &t[5], &t[6], &t[7])
              : 0;
    if (f)
        fclose(f);
    if (n < 7 || sysconf(_SC_NPROCESSORS_ONLN) != vt_cpu_get()->n_cpus)
        return -1;
    return (double)(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) / (double)sysconf(_SC_CLK_TCK);
}

static double seconds_of(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec * 1e-6; }

/* CPU seconds of this process and of the server, with all their threads. */
static double our_cpu_s(int server)
{
    char path[64], text[1024] = "";
    unsigned long long user = 0, system = 0;
    struct rusage self;
    getrusage(RUSAGE_SELF, &self);
    snprintf(path, sizeof path, "/proc/%d/stat", server);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *name_end = strrchr(text, ')'); /* the name before it may hold anything */
    if (name_end)
        sscanf(name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
               &system);
    return seconds_of(self.ru_utime) + seconds_of(self.ru_stime) +
           (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

void lab_busy_begin(lab_busy *b, const lab_server *s)
{
    *b = (lab_busy){.all_s = all_cpu_s(), .ours_s = our_cpu_s(s->pid), .begin_ns = vt_now_ns()};
}

bool lab_busy_end(const lab_busy *b, const lab_server *s)
{
    double all = all_cpu_s(), wall = (double)(vt_now_ns() - b->begin_ns) * 1e-9,
           others = all - b->all_s - (our_cpu_s(s->pid) - b->ours_s);
    /* a tenth of one CPU, and the 10 ms in which the kernel counts, a few times */
    return b->all_s >= 0 && all >= 0 && others > 0.1 * wall + 0.05;
}
