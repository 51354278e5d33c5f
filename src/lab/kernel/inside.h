/* The files of own_kernel share this. The inner process alone uses this.
 *
 *   own_kernel.c          the parent: starts the inner process, watches it, says how it ended
 *   kernel/inside.c   the inner process: reads the file, lists the cases
 *   kernel/ops.c      which ops have a contract
 *   kernel/cuda.c     a .cu on a GPU
 *   kernel/cpu.c      a .so on the CPU
 *   kernel/guard.c    the args of a call between pages that nobody may touch
 *   kernel/card.c     the card for a person; kernel/json.c: the same for a program */
#ifndef VT_LAB_KERNEL_INSIDE_H
#define VT_LAB_KERNEL_INSIDE_H

#include "lab/kernel/own_kernel.h"
#include "ops/case_text.h"
#include "ops/op.h"

/* The environment variable that makes a process the inner one: the number of the report's memfd. */
#define OWN_KERNEL_FD "VITRINE_LAB_KERNEL_FD"

enum { OWN_KERNEL_MACROS = 6, OWN_KERNEL_NAMES = 3 };

/* An op that a file may implement. */
typedef struct own_kernel_op {
    const char *name, *other_name;         /* "embed", "index" */
    const char *kernels[OWN_KERNEL_NAMES]; /* of ours, in whose place a .cu runs */
    const char *macros[OWN_KERNEL_MACROS]; /* template parameters that say what the call is */
    const char *shape;                     /* the shape that is timed on a GPU */
    const char *shape_cpu;                 /* ... on a CPU */
    /* CPU: makes the call of include/vitrine_kernel.h from the op's args. False: it has no such
     * call. NULL: there is no contract for a CPU. */
    bool (*call)(const void *args, void *out);
} own_kernel_op;

enum { OWN_KERNEL_CALL_BYTES = 128 };

/* NULL: there is no contract for this op; the error lists those that have one. */
const own_kernel_op *own_kernel_find(const char *name, vt_err *err);

/* A run of the inner process. */
typedef struct own_kernel {
    const own_kernel_ask *ask;
    own_kernel_report *report;
    const own_kernel_op *contract;
    const vt_op *op;
    char *text;                 /* of a .cu */
    char name[OWN_KERNEL_TEXT]; /* of the file, for messages */
    vt_case *shape;             /* [n_shapes] that are timed */
    int32_t n_shapes;
} own_kernel;

/* Reads the file of a .cu and looks up op and shapes: all that can fail without a process. */
vt_status own_kernel_open(own_kernel *k, const own_kernel_ask *ask, vt_err *err);
void own_kernel_release(own_kernel *k);
bool own_kernel_is_cuda(const own_kernel_ask *ask);

/* Notes what is done next, and how long it may take. */
void own_kernel_step(own_kernel *k, int32_t limit_s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a case to the report; NULL: there is no room. A case that only ranks have is skipped, unless
 * it is `needed`, because the user named it. */
own_kernel_case *own_kernel_add_case(own_kernel *k, const vt_case *what, bool needed);
own_kernel_row *own_kernel_add_row(own_kernel *k, const char *shape, const char *name);
/* The share of the roof that binds the call: of the memory's if `far` says that its bytes come from
 * there, else of fp32. NAN where the roofs are not known. */
double own_kernel_share(const own_kernel_report *r, int64_t bytes, int64_t flops, bool far,
                        double us, char roof[16]);

vt_status own_kernel_on_cuda(own_kernel *k, int32_t ordinal, vt_err *err);
vt_status own_kernel_on_cpu(own_kernel *k, vt_err *err);

/* ---- kernel/guard.c ---- */

enum { OWN_KERNEL_REGIONS = 16 };

/* Args whose operands lie between pages that cannot be touched; what the op only reads cannot be
 * written either. */
typedef struct own_kernel_guard {
    void *args;
    vt_tensor tensor[OWN_KERNEL_REGIONS];
    int32_t *words[OWN_KERNEL_REGIONS];
    struct own_kernel_region {
        const char *name; /* the operand's */
        const void *host; /* where its values come from */
        char *map;        /* guard page | filling | data | filling | guard page */
        size_t map_bytes, at, bytes;
        bool written;
    } region[OWN_KERNEL_REGIONS];
    int32_t n;
} own_kernel_guard;

/* Makes the args in `arena`. Norm weights of any type become fp32. */
vt_status own_kernel_guard_make(own_kernel_guard *g, const vt_op *op, const void *args,
                                vt_arena *arena, vt_err *err);
/* Makes what is only read read-only: from now on a write there faults. */
vt_status own_kernel_guard_close(own_kernel_guard *g, vt_err *err);
void own_kernel_guard_release(own_kernel_guard *g);
/* The guarded twin of a tensor of the original args; NULL: none. */
vt_tensor *own_kernel_guard_find(own_kernel_guard *g, const vt_tensor *host);
/* Returns true if the filling between data and pages is as it was; else why says where not. */
bool own_kernel_guard_check(const own_kernel_guard *g, char why[OWN_KERNEL_TEXT]);
/* Describes an address that could not be touched: "y, 64 bytes behind its end". Safe in a signal
 * handler. */
void own_kernel_guard_describe(const own_kernel_guard *g, const void *address, char *out,
                               size_t size);

#endif
