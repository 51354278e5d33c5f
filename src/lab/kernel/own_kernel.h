/* A kernel of the user's own: `vitrine lab kernel FILE.cu|FILE.so --op OP`.
 *
 *   FILE.cu   a kernel for the GPU; src/lab/kernel/lab_kernel.cuh is its contract
 *   FILE.so   a kernel for the CPU; include/vitrine_kernel.h is its contract
 *
 * It is checked on all cases of the op's card against the reference, then timed beside the rows of
 * the card. All of that happens in a process of its own, because such a kernel may hang, fault or
 * write anywhere:
 *
 *   own_kernel_run ── starts ──> this program again, `lab kernel` with VITRINE_LAB_KERNEL_FD set
 *        │                              own_kernel_inside: compile, check, time
 *        │<── the report (a memfd) ─────────┘ notes every step
 *        │ watches the clock, and how the process ends
 *        v
 *   the report: complete, or with one sentence that says how the kernel failed
 *
 * The process can have written anything into the report, so the parent takes nothing from it before
 * own_kernel_tidy has put every number and text within its limits. */
#ifndef VT_LAB_KERNEL_OWN_KERNEL_H
#define VT_LAB_KERNEL_OWN_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json_write.h"
#include "base/term/term.h"
#include "vitrine.h"

typedef struct own_kernel_ask {
    const char *file, *op; /* an op's name, or "index" (embed) or "store" (kv_store) */
    const char *shape;  /* text of ops/case_text.h: checked and timed too; NULL: the preset shape */
    const char *device; /* "auto" (by the kind of file), "cpu", "cuda" or "cuda:N" */
    int32_t threads;    /* of the team on a CPU; 0: one a core */
    int32_t limit_s;    /* a case or a measurement that takes longer is a hang */
} own_kernel_ask;

enum {
    OWN_KERNEL_TEXT = 256,
    OWN_KERNEL_CASES = 96, /* of a card and a --shape */
    OWN_KERNEL_SHAPES = 8, /* of a --shape */
    OWN_KERNEL_ROWS = 32,
    OWN_KERNEL_FILE_BYTES = 1 << 20, /* of a .cu */
    OWN_KERNEL_LIMIT_S = 30
};

typedef enum own_kernel_verdict {
    OWN_KERNEL_OPEN,
    OWN_KERNEL_RIGHT,
    OWN_KERNEL_WRONG,
    OWN_KERNEL_SKIPPED, /* the contract has no such call, or the emulated GPU takes too long */
    OWN_KERNEL_VERDICTS
} own_kernel_verdict;

extern const char *const own_kernel_verdict_name[OWN_KERNEL_VERDICTS]; /* "open", "right" ... */

typedef struct own_kernel_case {
    char name[OWN_KERNEL_TEXT], why[OWN_KERNEL_TEXT]; /* why: wrong or skipped */
    int32_t verdict;
    double error, allowed; /* max |got - want| / (1 + |want|) */
} own_kernel_case;

/* How a GPU's kernel was launched, and what the compiler made of it. */
typedef struct own_kernel_launch {
    char kernel[OWN_KERNEL_TEXT]; /* with its macros */
    uint32_t grid[3], threads, dynamic_shared;
    int32_t registers, spill_bytes, static_shared;
    int32_t ctas, warps, max_warps; /* of an SM at once; ctas 0: not known */
    char limit[32];                 /* what limits the warps of an SM */
    double waves;
} own_kernel_launch;

/* A row on a shape: the user's kernel, or one of the card's. */
typedef struct own_kernel_row {
    char shape[OWN_KERNEL_TEXT], name[64];
    uint8_t own, gpu; /* 0 or 1 */
    double us[2];     /* median; GPU: cold, graph; CPU: warm, cold */
    int64_t bytes, flops;
    double spread;    /* median over best time, of the worse method; 1: no noise */
    double share[2];  /* of the roof that binds it; NAN: not known, or it works in a cache */
    char roof[2][16]; /* the binding one, by its name */
    own_kernel_launch launch; /* GPU */
} own_kernel_row;

typedef struct own_kernel_report {
    /* progress, written by the inner process */
    _Atomic uint64_t beat;      /* changes with each step */
    _Atomic int32_t limit_s;    /* of the present step */
    char step[OWN_KERNEL_TEXT]; /* "case tokens=3 hidden=1" */
    uint8_t finished;           /* 0 or 1: the inner process came to its end */
    char failure[512];          /* one sentence; else empty */
    /* what it found */
    char file[OWN_KERNEL_TEXT], op[32], what[OWN_KERNEL_TEXT], machine[96];
    char tolerance_reason[OWN_KERNEL_TEXT];
    uint8_t gpu, emulated, races;          /* 0 or 1. races: the race detector looked on */
    double memory_bytes_per_s, fp32_per_s; /* roofs; 0: not known */
    double launch_s;                       /* a GPU's: of an empty kernel; 0: not known */
    own_kernel_case cases[OWN_KERNEL_CASES];
    int32_t n_cases;
    own_kernel_row rows[OWN_KERNEL_ROWS];
    int32_t n_rows;
} own_kernel_report;

/* Checks and times a kernel in a process of its own. VT_OK: the report is complete and every case
 * is right. Else the error is one sentence, and the report has what was found before (zeros, if
 * there was nothing). */
vt_status own_kernel_run(const own_kernel_ask *ask, own_kernel_report *out, vt_err *err);

/* Returns true if this process is such an inner process. It must never call own_kernel_run. */
bool own_kernel_is_inner(void);
/* Does the inner process's work: fills the report that it has inherited. */
vt_status own_kernel_inside(const own_kernel_ask *ask, vt_err *err);

/* The user's kernel shows this on its last shape: a row of causes.h; NULL: nothing is wrong with
 * it, or it was not measured. The launch alone is judged on an emulated GPU. */
const struct report_cause *own_kernel_cause(const own_kernel_report *r);

/* Returns true if a case came to its end, so that there is something to show. */
bool own_kernel_any_ran(const own_kernel_report *r);
/* The card: what was checked, how fast it is beside the card's rows, its place on the roofline, and
 * what to look at next. At most 100 columns. */
void own_kernel_card(const own_kernel_report *r, const vt_term *term, vt_buf *out);
/* The same as members of an open JSON object. */
void own_kernel_json(const own_kernel_report *r, vt_json *w);
/* Puts every number and text of a report that was written by another process within its limits. */
void own_kernel_tidy(own_kernel_report *r);

#endif
