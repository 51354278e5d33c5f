/* All NVIDIA GPUs of this machine and how they are linked, from NVIDIA's management library (NVML),
 * which makes no CUDA context: looking costs no GPU memory and does not show up as another user.
 *
 * GPUs that this process may use come first, in the order of their CUDA numbers (N in --device
 * cuda:N); CUDA_VISIBLE_DEVICES hides the others, which follow in NVML's order. */
#ifndef VT_DEVICE_GPUS_H
#define VT_DEVICE_GPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum { VT_MAX_GPUS = 16, VT_MAX_GPU_USERS = 8, VT_MAX_GPU_GROUPS = 8 };

/* How two GPUs reach each other, worst first. */
typedef enum vt_link_kind {
    VT_LINK_UNKNOWN, /* NVML does not tell */
    VT_LINK_SYS,     /* through the interconnect between sockets (NUMA nodes) */
    VT_LINK_NODE,    /* through the interconnect between PCIe host bridges of one NUMA node */
    VT_LINK_PHB,     /* through one PCIe host bridge (the CPU) */
    VT_LINK_PXB,     /* through several PCIe switches, and no host bridge */
    VT_LINK_PIX,     /* through one PCIe switch */
    VT_LINK_NV,      /* NVLink */
    VT_LINK_SELF,
    VT_LINK_KINDS
} vt_link_kind;

typedef struct vt_link {
    vt_link_kind kind;
    int32_t n; /* NVLink: how many links; else 0 */
} vt_link;

/* A process that has a CUDA or graphics context on a GPU, this one excepted. */
typedef struct vt_gpu_user {
    uint32_t pid; /* in the numbers of the host, which a container cannot look up */
    int64_t bytes;
    char name[64]; /* "": not known */
} vt_gpu_user;

typedef struct vt_gpu_entry {
    int32_t ordinal;                    /* N in --device cuda:N; -1: this process cannot use it */
    char name[96], place[16];           /* place: "0000:19:00.0" */
    int32_t node;                       /* NUMA node; -1: not known */
    int64_t memory_bytes, free_bytes;   /* -1: not known */
    int32_t pcie_gen, pcie_width;       /* at most; -1: not known */
    int32_t n_users;                    /* -1: not known */
    vt_gpu_user user[VT_MAX_GPU_USERS]; /* those with most memory */
    bool emulated;
} vt_gpu_entry;

typedef struct vt_gpus {
    int32_t n, n_usable; /* n_usable: those with an ordinal come first */
    int32_t n_left_out;  /* more than VT_MAX_GPUS */
    vt_gpu_entry gpu[VT_MAX_GPUS];
    vt_link link[VT_MAX_GPUS][VT_MAX_GPUS];
    char driver[80]; /* its version: "580.65.06"; "": not known */
    char why[512];   /* why something is not known, such as a missing library; "" */
} vt_gpus;

/* `root` as in vt_topology_read. Never fails: without a driver there are no GPUs, and without NVML
 * there is what the driver tells; `why` then says what is missing. */
void vt_gpus_read(const char *root, vt_gpus *out);

/* ---- links ---- */

/* "NV12", "PIX"; "X" for the GPU itself, "?" for what is not known. */
void vt_link_name(vt_link link, char out[16]);
/* "through one PCIe switch": the legend. */
const char *vt_link_meaning(vt_link_kind kind);

/* A set of GPUs for tensor parallelism. */
typedef struct vt_gpu_group {
    int32_t n, member[VT_MAX_GPUS]; /* indices of vt_gpus.gpu, rising */
    vt_link worst;                  /* the slowest link inside */
    bool one_node;                  /* all hang on the same NUMA node, or nodes are not known */
} vt_gpu_group;

/* The groups of `size` GPUs to prefer, none of which shares a GPU with another: first the one whose
 * slowest link is best, then the best of the GPUs that are left. Groups with a link across sockets,
 * or an unknown one, are left out. Of GPUs that this process can use, or, if it can use none, of
 * all. */
int32_t vt_gpu_groups(const vt_gpus *g, int32_t size, vt_gpu_group out[VT_MAX_GPU_GROUPS]);
/* Tells of GPUs chosen for ranks, by ordinal, that their slowest link is of a worse kind than that
 * of other GPUs of this machine, and of which. Writes nothing where no others are better, or where
 * links or one of the GPUs are not known. */
void vt_gpu_advise(const vt_gpus *g, const int32_t *ordinal, int32_t n, vt_buf *out);
/* Numbers the sets of GPUs between which every link crosses sockets: island[i] of GPU i. Returns
 * how many sets there are; 1: nothing needs to be avoided. */
int32_t vt_gpu_islands(const vt_gpus *g, int32_t island[VT_MAX_GPUS]);
/* Returns how many GPUs the two functions above look at. */
int32_t vt_gpus_counted(const vt_gpus *g);

#endif
