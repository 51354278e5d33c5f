/* Efficiencies: what share of its roof an implementation reaches on a class of shapes, measured on
 * one machine and kept beside its roofs.
 *
 *   time of a call = launch + work / efficiency
 *
 * launch: the meeting of a CPU's workers or a GPU's launch in a graph (vt_roofs_launch_s); work:
 * the least time that the roofs allow for the call's bytes and FLOPs. What is kept is the call that
 * was measured, its time and its work. The share is taken when it is used, with the roofs of that
 * moment, so that a roof that was measured too low does not spoil what is expected. A key names the
 * op, the row and the class of the shape: "linear avx512 tokens=1,type=Q4_1,...". On a CPU a row
 * that reads weights or KV has the class of its step too, because what caches still hold of them
 * depends on how much else the step reads: "linear avx512 tokens=1,... set=128M".
 * Calls of ranks, and of replicas that share a machine, are measured by all their teams at once:
 * "... teams=4". */
#ifndef VT_DEVICE_ROOFS_EFFICIENCY_H
#define VT_DEVICE_ROOFS_EFFICIENCY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/json_write.h"
#include "vitrine.h"

enum { VT_MAX_EFFICIENCIES = 4096, VT_EFFICIENCY_KEY = 256 };

typedef struct vt_efficiency {
    char *key; /* the table's own */
    double seconds;
    double bytes, activations; /* moved: weights and KV; activations */
    double fp32, bf16, int8;   /* operations */
    bool steady;               /* measured undisturbed; others are kept for a minute */
    int64_t when;              /* seconds since 1970 */
} vt_efficiency;

typedef struct vt_efficiencies {
    vt_efficiency *item; /* sorted by key */
    int32_t n, capacity;
    /* the last look at the rate of the memory, by the measuring of rows (story/predict.c) */
    int64_t looked_ns; /* 0: none yet */
    bool starved;      /* it was much less than the roof */
} vt_efficiencies;

void vt_efficiencies_release(vt_efficiencies *e);
/* NULL: not known. */
const vt_efficiency *vt_efficiency_find(const vt_efficiencies *e, const char *key);
/* Adds a copy, or replaces the one of this key. False: the table is full, or memory is. */
bool vt_efficiency_add(vt_efficiencies *e, const char *key, const vt_efficiency *item);

/* Adds those in the cache for the machine of these roofs (vt_roofs.key). A file that is missing or
 * broken adds none. */
void vt_efficiencies_read(vt_efficiencies *e, const char *machine);
/* Writes them, unsteady ones for a minute only. Failing to write is no error. */
void vt_efficiencies_write(const vt_efficiencies *e, const char *machine);

/* As JSON: {"key": {"us", "bytes", "activation_bytes", "fp32", "bf16", "int8", "date"}, ...}; one
 * that is not steady says so. */
void vt_efficiencies_put(vt_json *w, const char *key, const vt_efficiencies *e);
/* Adds those of the object that make sense. */
void vt_efficiencies_get(vt_efficiencies *e, const json_t *object);

#endif
