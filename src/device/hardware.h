/* Hardware that a program can be described and costed for without having it: GPUs by name, and any
 * machine whose `vitrine env --json` is in a file. */
#ifndef VT_DEVICE_HARDWARE_H
#define VT_DEVICE_HARDWARE_H

#include "device/roofs/efficiency.h"
#include "device/roofs/roofs.h"

typedef struct vt_hardware {
    vt_roofs roofs;     /* roofs.name is the name; roofs.mark says where each figure comes from */
    const char *source; /* where the roofs come from, for people */
    double peer_bytes_per_s; /* GPU: the link to another one, a direction, by the data sheet */
    int64_t memory_bytes;    /* by the vendor's data sheet, or as the machine says */
    bool is_cpu;
    vt_isa isa; /* CPU */
    /* GPU */
    int32_t kernel_level; /* 80 or 90, as vt_cuda.level */
    int32_t sm_count;
    int32_t max_shared_bytes;     /* that a CTA may ask for */
    vt_efficiencies efficiencies; /* measured there; empty: none are known */
} vt_hardware;

/* The GPU of this name, in any case of letters. NULL: there is none; *err (VT_ERR_USAGE) lists the
 * names. */
const vt_hardware *vt_hardware_find(const char *name, vt_err *err);
/* The data sheet of a GPU by the name that its driver gives ("NVIDIA H200"). NULL: not in the
 * table. */
const vt_hardware *vt_hardware_sheet(const char *device_name);

/* Reads what `vitrine env --json` printed on another machine: its GPU if it has one with roofs, and
 * `cpu` is false, else its CPU. `path` is used in messages. vt_hardware_release(out) afterwards. */
vt_status vt_hardware_parse(const char *path, const char *text, size_t len, bool cpu,
                            vt_hardware *out, vt_err *err);
/* The same from a file. */
vt_status vt_hardware_load(const char *path, bool cpu, vt_hardware *out, vt_err *err);
void vt_hardware_release(vt_hardware *h);

/* Opens what an option --hardware names: a row of the table, or a file if the text has a '/' or a
 * '.'. vt_hardware_release(out) afterwards. */
vt_status vt_hardware_open(const char *text, bool cpu, vt_hardware *out, vt_err *err);

#endif
