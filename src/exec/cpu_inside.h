/* The parts of the CPU executor (exec/cpu.c), for its files and tests.
 *
 *   cpu.c        steps in their order: launch, wait, the deadline of ranks
 *   cpu_rank.c   a rank: its weights, KV and program, and a team that walks it */
#ifndef VT_EXEC_CPU_INSIDE_H
#define VT_EXEC_CPU_INSIDE_H

#include <pthread.h>

#include "base/use.h"
#include "base/word.h"
#include "exec/executor.h"
#include "exec/program.h"
#include "exec/ranks.h"
#include "kv/populate.h"

/* A worker records this. Each is written by that worker alone. */
typedef struct cpu_recorder {
    vt_span_rings spans;
    vt_trace_ring uses;
    _Alignas(VT_CACHE_LINE) vt_use use;
} cpu_recorder;

typedef enum cpu_fault {
    CPU_FAULT_NONE,
    CPU_FAULT_CALL,  /* a call returned an error */
    CPU_FAULT_TOKEN, /* it chose another token than rank 0 */
    CPU_FAULT_HANG   /* its peers have waited for it for too long */
} cpu_fault;

/* A rank, or all there is without ranks. Only its own threads touch its memory, except that peers
 * read the buffers that it registered. */
typedef struct cpu_rank {
    vt_rank is;
    vt_comm_rank comm; /* group NULL: it runs alone */
    vt_team *team;
    const int32_t *seat; /* [n_workers] its part of the executor's seats; NULL: there are none */
    vt_weights *weights;
    vt_kv_cache kv;
    vt_populate populate; /* of kv */
    vt_program *prog;
    int32_t *token_pool;
    atomic_int *ticket; /* [n_calls] */
    void *workspace;
    char *plans; /* the step's plans, one after the other */
    size_t plan_at[VT_MAX_PLANS];
    int32_t items[VT_MAX_PLANS];          /* how many items each of these plans has */
    cpu_recorder *recorder;               /* [n_workers] */
    vt_counter_kind counted[VT_COUNTERS]; /* events that each of them counts */
    vt_step
        step; /* the step that the team runs: the caller's may be gone before a rank that hung */
    int64_t begin_ns;          /* and when it began */
    vt_word *masks;            /* the executor's; and what it comes to when the rows of this step */
    unsigned masks_at;         /* have their masks */
    atomic_int call;           /* the call that worker 0 runs, for messages */
    atomic_int fault;          /* cpu_fault: how the rank failed first */
    atomic_llong comm_wait_ns; /* worker 0 waited for peers in communication calls, in all steps */
    bool skip; /* a rank failed: calls are passed over. Worker 0 decides it before a barrier */
} cpu_rank;

/* Makes the rank's team; its workers sit at seats index * n_threads on. */
vt_status cpu_rank_team(cpu_rank *k, int32_t n_threads, vt_err *err);
/* Packs the rank's weights and makes its cache and program. To be called on the thread that will
 * run the rank's steps, so that its memory is near. `comm` may be NULL. */
vt_status cpu_rank_build(cpu_rank *k, const vt_model *m, const vt_executor_config *c, vt_comm *comm,
                         vt_err *err);
/* Notes that the rank failed and ends all waits for it. */
void cpu_rank_fail(cpu_rank *k, cpu_fault fault);
void cpu_rank_release(cpu_rank *k);
/* Runs a step on the rank's team. The calling thread is worker 0. */
void cpu_rank_run(cpu_rank *k, const vt_step *step, int64_t begin_ns);

/* ---- the executor ---- */

enum { CPU_IN_FLIGHT = 2, CPU_RESULTS = 4 };

typedef struct cpu_result {
    int32_t *token, *top_id;
    float *logprob, *top_logprob;
    float *hidden; /* in place of the others, of a program that ends in their sums */
    vt_step_result view;
} cpu_result;

typedef struct cpu_executor {
    vt_executor base;
    const vt_model *model;
    cpu_rank *rank; /* [n_ranks] */
    int32_t n_ranks;
    vt_comm *comm;    /* NULL: one rank */
    vt_team *leaders; /* worker 0 of each rank; NULL: one rank */
    int32_t *seat;    /* [n_ranks * n_threads] the CPUs of all workers; NULL: as the teams sit */
    int64_t deadline_ticks; /* how long peers wait for a rank; 0: for ever */
    cpu_result result[CPU_RESULTS];
    /* launched >= finished >= waited; guarded by lock when async */
    uint64_t launched, finished, waited;
    const vt_step *queue[CPU_IN_FLIGHT];
    unsigned n_held;                  /* held steps that were launched, */
    vt_word masks;                    /* and how many of them were sampled, or dropped */
    unsigned masks_at[CPU_IN_FLIGHT]; /* [queue] the number of the step, or of the last before it */
    bool async, quit;
    pthread_t runner;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} cpu_executor;

/* ---- cpu_place.c ---- */

/* The CPUs of the workers of ranks, each rank on one NUMA node. `root` as in vt_topology_read.
 * NULL: there is one node, no room for that, or no memory. The caller frees it. */
int32_t *cpu_seats(const char *root, int32_t n_ranks, int32_t n_threads);
/* Keeps the calling thread on a CPU. */
void cpu_sit(int32_t cpu);
/* Finds seats for the ranks of an executor that has its teams and, if there are any, keeps every
 * worker on its own; also the calling thread, which is worker 0 of rank 0 while it builds. */
void cpu_sit_all(cpu_executor *x, int32_t n_threads);

#endif
