/* An executor, or the engine, offers this to code that reports what happened: stories and benches.
 * (vitrine env opens no model and has no executor; it asks the devices, with the functions of
 * src/device that fill a vt_source too: vt_roofs_cuda, vt_nvml_read.)
 *
 *   vt_source   a place where events are written: a CPU worker, a GPU's stream, the engine's
 *               thread. It names its rings and describes the device behind them.
 *   vt_report   a number that an executor keeps about itself: "startup.open_ms" = 120 ms.
 *
 * Both are asked for through vt_executor (exec/executor.h), so that no reader needs to know which
 * executor it talks to. An executor of several GPUs offers a source for each rank. */
#ifndef VT_EXEC_SOURCE_H
#define VT_EXEC_SOURCE_H

#include "base/trace.h"
#include "device/nvml.h"
#include "device/roofs/roofs.h"
#include "ops/op.h"

typedef enum vt_source_kind {
    VT_SOURCE_ENGINE, /* requests and steps */
    VT_SOURCE_WORKER, /* a thread of a CPU team: spans, with waits at barriers; uses */
    VT_SOURCE_STREAM  /* a GPU's stream: launches, and spans of the steps that were timed */
} vt_source_kind;

/* A compiled kernel, with its template parameters in its name. */
typedef struct vt_kernel_facts {
    const char *name; /* "rmsnorm<hidden=1024,threads=128,level=90,pdl=1>"; valid as the source */
    int32_t registers, spill_bytes, shared_bytes; /* shared_bytes: static */
    /* Its newest launch: CTAs by dimension, threads of a CTA, dynamic shared memory, CTAs of a
     * cluster (0 or 1: none). threads 0: not known. */
    uint32_t grid[3], threads, dynamic_shared, cluster;
} vt_kernel_facts;

/* A device, for people. What a device does not have is 0. */
typedef struct vt_device_facts {
    const char *level; /* "amx", "sm_90a" */
    /* a GPU's */
    int32_t ordinal, kernel_level, sm_count, driver_version;
    int32_t capability; /* 90: compute capability 9.0 */
    int64_t memory_bytes, l2_bytes;
} vt_device_facts;

/* CUPTI's records of kernels and copies. */
typedef struct vt_activity_facts {
    int32_t steps;         /* recorded so far */
    int64_t lost;          /* records that had no room */
    int64_t on_ns, off_ns; /* of the host, for all these steps: beginning, and reading */
    int32_t n_names;
    const char *const *name; /* [n_names] of kernels, mangled: vt_activity_event.name */
} vt_activity_facts;

/* A line of a kernel instance, with the samples of the program counter in it. */
typedef struct vt_line_row {
    int32_t kernel; /* which vt_source.kernel can name */
    int32_t line;   /* 0: of no line that is known */
    char file[48];  /* "rmsnorm.cu" */
    uint64_t samples, stalled[VT_STALLS];
} vt_line_row;

typedef struct vt_lines_facts {
    int32_t steps; /* that were sampled */
    /* Samples: in this program's kernels, of these at a line, and in others; lost by the
     * hardware. */
    uint64_t own, placed, other, lost;
    bool whole; /* every instruction was told */
    int32_t n;
    const vt_line_row *row; /* [n] */
} vt_lines_facts;

/* A CTA of a stamped launch. */
typedef struct vt_cta {
    int64_t begin_ns, end_ns; /* on the host's clock; end_ns 0: it is not known */
    int32_t sm;
} vt_cta;

/* A launch of a step whose CTAs were stamped. */
typedef struct vt_cta_launch {
    int32_t call, kernel; /* which vt_source.kernel can name */
    bool library;         /* its kernels have no stamps */
    int32_t n;            /* 0: a library's, or the table of CTAs had no room left */
    const vt_cta *cta;    /* [n] in the order of blockIdx */
} vt_cta_launch;

typedef struct vt_cta_step {
    uint64_t step;
    bool prompt;
    int32_t n_launches;
    const vt_cta_launch *launch; /* [n_launches] in their order */
    int32_t left_out;            /* launches for which the table had no room */
} vt_cta_step;

/* The CTAs of a step with prompt tokens and of a step of decodes alone. */
typedef struct vt_cta_facts {
    int32_t n;
    vt_cta_step step[2];
} vt_cta_facts;

/* Pointers stay valid as long as the executor. Rings may be written while they are read
 * (vt_trace_copy); the others may be called between steps. */
typedef struct vt_source {
    char name[24]; /* "engine", "worker 1", "rank 0" */
    vt_source_kind kind;
    int32_t rank, n_ranks; /* of a CPU's worker: its rank, of so many; of others 0 */
    /* NULL: it writes none of that */
    const vt_trace_ring *requests, *tokens, *writes, *steps, *prompt_steps, *seqs;
    const vt_trace_ring *uses, *samples, *launches;
    const vt_trace_ring *vitals; /* counts of a GPU's calls; NULL: nobody asked for them */
    const vt_span_rings *spans;
    const struct vt_vital_sets *vital_sets; /* what is counted; NULL: nothing is, */
    const char *no_vitals;                  /* and why; NULL: nobody asked */
    const vt_trace_ring *pm;        /* a GPU's counters over time; NULL: nobody asked for them */
    const struct vt_pm_set *pm_set; /* what is sampled */
    const char *no_pm;              /* why nothing is, or no longer; NULL: it is */
    const vt_trace_ring *activity;  /* records of kernels; NULL: nobody asked for them */
    const vt_activity_facts *activity_facts;
    const char *no_activity;     /* why there are none, or no more; NULL: there are */
    const vt_lines_facts *lines; /* samples of the program counter; NULL: nobody asked */
    const char *no_lines;        /* why there are none; NULL: there are */
    const vt_cta_facts *ctas;    /* NULL: nobody asked */
    const char *no_ctas;         /* why there are none; NULL: there are */
    const char *no_energy;       /* why no sample has energy_mj; NULL: they may have it */
    vt_device_facts device;
    /* Measured; NAN: not known, or does not apply. */
    double clock_error_ns; /* times of this source may lie so late on the host's clock */
    double event_ns;       /* what an event between two kernels takes of the device's time */
    double read_ns;        /* what reading one event takes of the host's time */
    const char *no_stamps; /* why timed steps are not stamped; NULL: they are, or it is not known */
    int32_t n_kernels;     /* that vt_span_kernel can name */
    const void *owner;     /* passed to the functions, each of which may be NULL */
    void (*kernel)(const void *owner, int32_t k, vt_kernel_facts *out);
    /* The device's roofs; `again`: measured now (device/roofs/roofs.h). */
    vt_status (*roofs)(const void *owner, bool again, vt_roofs *out, vt_err *err);
    int64_t (*free_bytes)(const void *owner); /* of the device's memory, now; -1: not known */
    vt_status (*state)(const void *owner, vt_gpu_state *out, vt_err *err); /* clocks, power, now */
} vt_source;

/* Values of which there is one a step: number k of `n` ever noted is at value[k % capacity]. */
typedef struct vt_series {
    const float *value;
    int32_t capacity;
    uint64_t n;
} vt_series;

/* Keys, and what they mean:
 *   packed_bytes   weights in the layout of their kernels, beside the file's
 *   kv_bytes       the pages of the KV cache
 *   startup.*      what making the executor took: open_ms, then weights_ms and beside it compile_ms
 *                  and capture_ms; kernels, graphs, weight_bytes
 *   late_compiles  kernels that were compiled after the start
 *   shared_items   pieces of decode attention so far that served several sequences at once
 *   steps, faults  of the simulator's fake device: steps that ended, launches and waits that failed
 *   step_gap       the device's idle time between the end of a step and the begin of the next */
typedef struct vt_report {
    const char *key;
    double value;
    const char *unit;        /* "ms", "us", "B"; "": a count */
    const vt_series *series; /* all values, of which `value` is the newest; NULL: there is one */
} vt_report;

#endif
