/* Asking NVML about all GPUs (device/gpus.h).
 *
 *   1. NVML lists the GPUs: name, place on the PCI bus, memory, processes.
 *   2. The driver tells the place of each CUDA number; that gives the GPUs their ordinals, and GPUs
 *      that this process can use are moved to the front.
 *   3. For each pair, NVLinks are counted; a pair without any has the kind of its PCIe path.
 *
 * A link of NVLink ends at the other GPU or at a switch. All GPUs with links to switches reach each
 * other with as many links as the lesser of both has, unless NVML says that the two cannot talk
 * over NVLink.
 *
 * What the library answers is checked: texts get an end, counts and levels a range. A call that
 * fails, or that the library does not have, leaves its value unknown. */
#include "device/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/term/term.h"
#include "device/cuda/cuda_api.h"
#include "device/nvml_inside.h"
#include "device/topology.h"

enum { MOST_NVLINKS = 36, MOST_CONTEXTS = 64, REMOTE_GPU = 0, REMOTE_SWITCH = 2, P2P_NVLINK = 2 };

/* A GPU while the list is made. */
typedef struct found {
    vt_gpu_entry e;
    nvml_device handle;                     /* NULL: NVML does not know it */
    int32_t to_switch;                      /* links of NVLink that end at a switch */
    int32_t n_peers;                        /* links that end at a GPU */
    char peer[MOST_NVLINKS][VT_PLACE_SIZE]; /* which */
} found;

/* ---- one GPU ---- */

static void copy_text(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
    vt_text_clean_line(out);
}

/* The last part of a process's path; "" if the library does not tell. */
static void name_process(const nvml *n, unsigned pid, char *out, size_t size)
{
    char text[256] = "";
    out[0] = '\0';
    if (!n->process_name || n->process_name(pid, text, sizeof text) != 0)
        return;
    text[sizeof text - 1] = '\0';
    const char *slash = strrchr(text, '/');
    copy_text(out, size, slash ? slash + 1 : text);
}

static int by_memory(const void *pa, const void *pb)
{
    const nvml_context *a = pa, *b = pb;
    int64_t x = (int64_t)a->bytes, y = (int64_t)b->bytes; /* unknown counts as -1 */
    return (x < y) - (x > y);
}

static void read_users(const nvml *n, nvml_device d, vt_gpu_entry *e)
{
    nvml_context c[MOST_CONTEXTS];
    unsigned count = MOST_CONTEXTS;
    memset(c, 0, sizeof c);
    e->n_users = -1;
    int r = n->contexts     ? n->contexts(d, &count, c)
            : n->contexts_2 ? n->contexts_2(d, &count, c)
                            : 1;
    if (r != 0 || count > MOST_CONTEXTS)
        return; /* with more than MOST_CONTEXTS the list is not filled */
    qsort(c, count, sizeof *c, by_memory);
    e->n_users = 0;
    for (unsigned i = 0; i < count; i++) {
        if (c[i].pid == (unsigned)getpid())
            continue;
        if (e->n_users < VT_MAX_GPU_USERS) {
            vt_gpu_user *u = &e->user[e->n_users];
            u->pid = c[i].pid;
            u->bytes = c[i].bytes < 1ull << 50 ? (int64_t)c[i].bytes : -1;
            name_process(n, u->pid, u->name, sizeof u->name);
        }
        e->n_users++;
    }
}

static int32_t small_number(int (*ask)(nvml_device, unsigned *), nvml_device d)
{
    unsigned v = 0;
    return ask && ask(d, &v) == 0 && v > 0 && v < 1024 ? (int32_t)v : -1;
}

static void read_entry(const nvml *n, found *f, const char *root)
{
    char name[96] = "";
    nvml_memory m = {0};
    nvml_pci pci = {.domain = 0};
    vt_gpu_entry *e = &f->e;
    *e = (vt_gpu_entry){.ordinal = -1, .node = -1, .memory_bytes = -1, .free_bytes = -1};
    bool named = n->name && n->name(f->handle, name, sizeof name) == 0;
    name[sizeof name - 1] = '\0';
    copy_text(e->name, sizeof e->name, named ? name : "");
    if (e->name[strspn(e->name, " ?")] == '\0')
        copy_text(e->name, sizeof e->name, "a GPU without a name");
    if (n->pci && n->pci(f->handle, &pci) == 0) {
        pci.place[sizeof pci.place - 1] = '\0';
        if (vt_pci_place(pci.place, e->place))
            e->node = vt_topology_pci_node(root, e->place);
    }
    if (n->memory && n->memory(f->handle, &m) == 0 && m.total < 1ull << 50 && m.free <= m.total) {
        e->memory_bytes = (int64_t)m.total;
        e->free_bytes = (int64_t)m.free;
    }
    e->pcie_gen = small_number(n->pcie_gen, f->handle);
    e->pcie_width = small_number(n->pcie_width, f->handle);
    e->emulated = strstr(e->name, "Emulated") != NULL;
    read_users(n, f->handle, e);
}

static void read_nvlinks(const nvml *n, found *f)
{
    for (unsigned i = 0; n->nvlink_state && i < MOST_NVLINKS; i++) {
        int active = 0, type = REMOTE_SWITCH;
        nvml_pci far = {.domain = 0};
        if (n->nvlink_state(f->handle, i, &active) != 0 || active != 1)
            continue;
        if (n->nvlink_type && n->nvlink_type(f->handle, i, &type) != 0)
            type = REMOTE_SWITCH;
        bool told = n->nvlink_remote && n->nvlink_remote(f->handle, i, &far) == 0;
        far.place[sizeof far.place - 1] = '\0';
        if (type == REMOTE_GPU && told && vt_pci_place(far.place, f->peer[f->n_peers]))
            f->n_peers++;
        else if (type == REMOTE_SWITCH)
            f->to_switch++;
    }
}

/* ---- pairs ---- */

/* NVML_TOPOLOGY_...: 0 one board, 10 one switch, 20 several, 30 host bridge, 40 node, 50 system */
static vt_link_kind path_kind(int level)
{
    switch (level) {
    case 0:
    case 10:
        return VT_LINK_PIX;
    case 20:
        return VT_LINK_PXB;
    case 30:
        return VT_LINK_PHB;
    case 40:
        return VT_LINK_NODE;
    case 50:
        return VT_LINK_SYS;
    default:
        return VT_LINK_UNKNOWN;
    }
}

static vt_link link_of(const nvml *n, const found *a, const found *b)
{
    int32_t direct = 0, status = 0;
    int level = -1;
    if (!a->handle || !b->handle)
        return (vt_link){0};
    for (int32_t i = 0; i < a->n_peers; i++)
        direct += b->e.place[0] && strcmp(a->peer[i], b->e.place) == 0;
    int32_t shared = a->to_switch < b->to_switch ? a->to_switch : b->to_switch;
    if (shared > 0 && n->p2p && n->p2p(a->handle, b->handle, P2P_NVLINK, &status) == 0 &&
        status != 0)
        shared = 0;
    if (direct + shared > 0)
        return (vt_link){VT_LINK_NV, direct + shared};
    if (n->ancestor && n->ancestor(a->handle, b->handle, &level) == 0)
        return (vt_link){path_kind(level), 0};
    return (vt_link){0};
}

/* ---- the list ---- */

/* Gives GPU `ordinal` of the driver's list its number; one that NVML did not list is added. */
static void number_one(const cuda_driver *d, int32_t ordinal, found *f, int32_t *n,
                       const char *root)
{
    char place[32], plain[VT_PLACE_SIZE] = "";
    size_t bytes = 0;
    cu_device device = 0;
    if (nvml_place(ordinal, place, sizeof place, NULL) != VT_OK || !vt_pci_place(place, plain))
        return;
    for (int32_t i = 0; i < *n; i++)
        if (f[i].e.ordinal < 0 && strcmp(f[i].e.place, plain) == 0) {
            f[i].e.ordinal = ordinal;
            return;
        }
    if (*n == VT_MAX_GPUS || d->device_get(&device, ordinal) != 0)
        return;
    vt_gpu_entry *e = &f[(*n)++].e;
    *e = (vt_gpu_entry){.ordinal = ordinal,
                        .node = vt_topology_pci_node(root, plain),
                        .free_bytes = -1,
                        .pcie_gen = -1,
                        .pcie_width = -1,
                        .n_users = -1};
    memcpy(e->place, plain, sizeof plain);
    if (d->device_name(e->name, (int)sizeof e->name, device) != 0)
        copy_text(e->name, sizeof e->name, "a GPU without a name");
    e->emulated = strstr(e->name, "Emulated") != NULL;
    e->memory_bytes = d->device_total(&bytes, device) == 0 ? (int64_t)bytes : -1;
}

static void number_all(found *f, int32_t *n, const char *root)
{
    cuda_driver d;
    int count = 0;
    if (cuda_driver_open(&d, NULL) != VT_OK || d.device_count(&count) != 0)
        return;
    for (int32_t i = 0; i < count && i < VT_MAX_GPUS; i++)
        number_one(&d, i, f, n, root);
}

static int by_ordinal(const void *pa, const void *pb)
{
    const found *a = pa, *b = pb;
    unsigned x = (unsigned)a->e.ordinal, y = (unsigned)b->e.ordinal; /* -1 comes last */
    if (x != y)
        return (x > y) - (x < y);
    return strcmp(a->e.place, b->e.place);
}

static int32_t list(const nvml *n, found *f, vt_gpus *out, const char *root)
{
    unsigned count = 0;
    int32_t found_n = 0;
    if (!n->count || !n->by_index || n->count(&count) != 0) {
        snprintf(out->why, sizeof out->why, "libnvidia-ml.so.1 does not list the GPUs");
        return 0;
    }
    count = count < 4096 ? count : 0;
    for (unsigned i = 0; i < count; i++) {
        if (found_n == VT_MAX_GPUS) {
            out->n_left_out = (int32_t)(count - i);
            break;
        }
        memset(&f[found_n], 0, sizeof *f);
        if (n->by_index(i, &f[found_n].handle) != 0 || !f[found_n].handle)
            continue;
        read_entry(n, &f[found_n], root);
        read_nvlinks(n, &f[found_n]);
        found_n++;
    }
    return found_n;
}

static void keep(const nvml *n, const found *f, int32_t count, vt_gpus *out)
{
    out->n = count;
    for (int32_t i = 0; i < count; i++) {
        out->gpu[i] = f[i].e;
        out->n_usable += f[i].e.ordinal >= 0;
        for (int32_t k = 0; k < count; k++)
            out->link[i][k] = i == k ? (vt_link){VT_LINK_SELF, 0}
                              : n    ? link_of(n, &f[i], &f[k])
                                     : (vt_link){0};
    }
}

void vt_gpus_read(const char *root, vt_gpus *out)
{
    nvml n = {0};
    vt_err err = {0};
    int32_t count = 0;
    memset(out, 0, sizeof *out);
    found *f = calloc(VT_MAX_GPUS, sizeof *f);
    if (!f) {
        snprintf(out->why, sizeof out->why, "out of memory for a list of GPUs");
        return;
    }
    bool opened = nvml_open(&n, &err) == VT_OK;
    int r = opened ? n.init() : 0;
    if (!opened)
        snprintf(out->why, sizeof out->why, "%s", err.message);
    else if (r != 0)
        snprintf(out->why, sizeof out->why, "NVML does not start: error %d", r);
    opened = opened && r == 0;
    if (opened) {
        count = list(&n, f, out, root);
        if (n.driver && n.driver(out->driver, sizeof out->driver) != 0)
            out->driver[0] = '\0';
        out->driver[sizeof out->driver - 1] = '\0';
        vt_text_clean_line(out->driver);
    }
    number_all(f, &count, root);
    qsort(f, (size_t)count, sizeof *f, by_ordinal);
    keep(opened ? &n : NULL, f, count, out);
    if (opened)
        n.shutdown();
    free(f);
}
