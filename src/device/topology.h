/* The parts of the machine, as Linux tells them under /sys: sockets, NUMA nodes with their CPUs and
 * memory, and NVIDIA GPUs on the PCI bus with the node that each hangs on. No driver is needed.
 * Files that are missing or make no sense leave a value unknown; nothing here fails. */
#ifndef VT_DEVICE_TOPOLOGY_H
#define VT_DEVICE_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

enum { VT_MAX_NODES = 64, VT_MAX_BUS_GPUS = 32, VT_PLACE_SIZE = 16 };

typedef struct vt_node {
    int32_t id;
    int32_t n_cpus;     /* -1: not known; 0: a node of memory alone */
    char cpus[160];     /* "0-31,64-95"; cut off at a comma where it is longer */
    char distance[160]; /* to each node in order, "10 21": 10 is the node itself; "": not known */
    int64_t memory_bytes, free_bytes; /* -1: not known */
} vt_node;

typedef struct vt_bus_gpu {
    char place[VT_PLACE_SIZE]; /* "0000:19:00.0" */
    int32_t device;            /* the PCI device number: 0x2335 */
    int32_t node;              /* -1: not known, or the machine has one node */
} vt_bus_gpu;

typedef struct vt_topology {
    int32_t n_sockets; /* 0: not known */
    int32_t n_nodes;   /* 0: /sys does not tell */
    vt_node node[VT_MAX_NODES];
    int32_t n_gpus;
    vt_bus_gpu gpu[VT_MAX_BUS_GPUS]; /* by place */
} vt_topology;

/* `root` is put in front of /sys: "" for this machine, a folder for a test. */
void vt_topology_read(const char *root, vt_topology *out);
/* The node of a PCI device; -1: not known. `place` may have a domain of 4 or of 8 digits. */
int32_t vt_topology_pci_node(const char *root, const char *place);
/* Writes a PCI address with a domain of 4 digits, in lower case, as /sys has it. False: `place` is
 * no PCI address. */
bool vt_pci_place(const char *place, char out[VT_PLACE_SIZE]);

/* ---- parsers, for tests ---- */

/* The number of CPUs in a list such as "0-3,8,10-11"; -1: it is no such list. */
int32_t vt_count_cpus(const char *list);
/* Finds "Node 0 MemTotal:   131072 kB" in a text and gives it in bytes; -1: it is not there. */
int64_t vt_node_memory(const char *meminfo, const char *key);

#endif
