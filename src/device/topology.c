/* Reading /sys (device/topology.h).
 *
 *   ROOT/sys/devices/system/cpu/cpu7/topology/physical_package_id     the socket of a CPU
 *   ROOT/sys/devices/system/node/node1/{cpulist,meminfo,distance}     a NUMA node
 *   ROOT/sys/bus/pci/devices/0000:19:00.0/{vendor,class,device,numa_node}
 *
 * Nodes and CPUs need not be numbered without gaps, so folders are listed and not counted up. */
#include "device/topology.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATH_SIZE = 512,
    TEXT_SIZE = 4096,
    MOST_CPUS = 1 << 16,
    MOST_SOCKETS = 256,
    NVIDIA = 0x10de,
    DISPLAY_CLASS = 0x03
};

/* ---- parsers ---- */

int32_t vt_count_cpus(const char *list)
{
    int64_t n = 0;
    const char *p = list;
    if (*p == '\n' || *p == '\0')
        return 0;
    for (;;) {
        char *end;
        if (!isdigit((unsigned char)*p))
            return -1;
        long first = strtol(p, &end, 10), last = first;
        if (*end == '-') {
            p = end + 1;
            if (!isdigit((unsigned char)*p))
                return -1;
            last = strtol(p, &end, 10);
        }
        if (last < first || last >= MOST_CPUS)
            return -1;
        n += last - first + 1;
        if (n > MOST_CPUS)
            return -1;
        if (*end == '\n' || *end == '\0')
            return (int32_t)n;
        if (*end != ',')
            return -1;
        p = end + 1;
    }
}

int64_t vt_node_memory(const char *meminfo, const char *key)
{
    const size_t n = strlen(key);
    for (const char *p = meminfo; (p = strstr(p, key)); p += n) {
        if ((p > meminfo && p[-1] != ' ' && p[-1] != '\n') || p[n] != ':')
            continue;
        char *end;
        const char *digits = p + n + 1 + strspn(p + n + 1, " ");
        if (!isdigit((unsigned char)*digits))
            return -1;
        long long kib = strtoll(digits, &end, 10);
        return strncmp(end, " kB", 3) == 0 && kib < (1LL << 50) ? (int64_t)kib << 10 : -1;
    }
    return -1;
}

bool vt_pci_place(const char *place, char out[VT_PLACE_SIZE])
{
    unsigned domain, bus, device, function;
    int used = 0;
    if (place[strspn(place, "0123456789abcdefABCDEF:.")] != '\0')
        return false;
    if (sscanf(place, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used) != 4 ||
        place[used] != '\0' || domain > 0xffff)
        return false;
    snprintf(out, VT_PLACE_SIZE, "%04x:%02x:%02x.%x", domain & 0xffff, bus & 0xff, device & 0xff,
             function & 0xf);
    return true;
}

/* ---- files ---- */

/* Reads the beginning of a file; false if it cannot be read. Bytes of 0 end the text. */
static bool read_text(char *out, size_t size, const char *root, const char *folder,
                      const char *name)
{
    char path[PATH_SIZE];
    if (snprintf(path, sizeof path, "%s/sys/%s/%s", root, folder, name) >= (int)sizeof path)
        return false;
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(out, 1, size - 1, f) : 0;
    out[n] = '\0';
    if (f)
        fclose(f);
    return n > 0;
}

/* A number in a file, in the base that its prefix tells; `missing` where there is none. */
static int64_t read_number(const char *root, const char *folder, const char *name, int64_t missing)
{
    char text[64], *end;
    if (!read_text(text, sizeof text, root, folder, name))
        return missing;
    long long v = strtoll(text, &end, 0);
    return end != text && (*end == '\n' || *end == '\0') ? v : missing;
}

/* "node12" with prefix "node": 12; -1: another name. */
static int32_t number_of(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0)
        return -1;
    size_t digits = strspn(name + n, "0123456789");
    return digits > 0 && digits < 7 && name[n + digits] == '\0'
               ? (int32_t)strtol(name + n, NULL, 10)
               : -1;
}

static DIR *open_folder(const char *root, const char *folder)
{
    char path[PATH_SIZE];
    if (snprintf(path, sizeof path, "%s/sys/%s", root, folder) >= (int)sizeof path)
        return NULL;
    return opendir(path);
}

/* ---- sockets ---- */

static int32_t count_sockets(const char *root)
{
    static const char cpus[] = "devices/system/cpu";
    bool seen[MOST_SOCKETS] = {false};
    int32_t n = 0;
    DIR *d = open_folder(root, cpus);
    for (struct dirent *e; d && (e = readdir(d));) {
        char folder[PATH_SIZE];
        int32_t cpu = number_of(e->d_name, "cpu");
        if (cpu < 0)
            continue;
        snprintf(folder, sizeof folder, "%s/cpu%d/topology", cpus, cpu);
        int64_t id = read_number(root, folder, "physical_package_id", -1);
        if (id >= 0 && id < MOST_SOCKETS && !seen[id]) {
            seen[id] = true;
            n++;
        }
    }
    if (d)
        closedir(d);
    return n;
}

/* ---- nodes ---- */

/* Copies a list of CPUs that fits, or its beginning up to a comma and "...". */
static void copy_list(char *out, size_t size, const char *list)
{
    size_t n = strcspn(list, "\n");
    if (n >= size) {
        for (n = size - 4; n > 0 && list[n] != ','; n--)
            ;
        snprintf(out, size, "%.*s...", (int)n, list);
        return;
    }
    snprintf(out, size, "%.*s", (int)n, list);
}

static void read_node(const char *root, vt_node *n)
{
    char folder[64], text[TEXT_SIZE];
    snprintf(folder, sizeof folder, "devices/system/node/node%d", n->id);
    n->n_cpus = -1;
    n->memory_bytes = n->free_bytes = -1;
    if (read_text(text, sizeof text, root, folder, "cpulist"))
        n->n_cpus = vt_count_cpus(text);
    if (n->n_cpus > 0)
        copy_list(n->cpus, sizeof n->cpus, text);
    if (read_text(text, sizeof text, root, folder, "meminfo")) {
        n->memory_bytes = vt_node_memory(text, "MemTotal");
        n->free_bytes = vt_node_memory(text, "MemFree");
    }
    if (read_text(text, sizeof text, root, folder, "distance")) {
        size_t len = strcspn(text, "\n");
        if (len < sizeof n->distance && strspn(text, "0123456789 ") == len)
            snprintf(n->distance, sizeof n->distance, "%.*s", (int)len, text);
    }
}

static int by_id(const void *pa, const void *pb)
{
    const vt_node *a = pa, *b = pb;
    return (a->id > b->id) - (a->id < b->id);
}

static void read_nodes(const char *root, vt_topology *t)
{
    DIR *d = open_folder(root, "devices/system/node");
    for (struct dirent *e; d && t->n_nodes < VT_MAX_NODES && (e = readdir(d));) {
        int32_t id = number_of(e->d_name, "node");
        if (id < 0)
            continue;
        t->node[t->n_nodes].id = id;
        read_node(root, &t->node[t->n_nodes++]);
    }
    if (d)
        closedir(d);
    qsort(t->node, (size_t)t->n_nodes, sizeof *t->node, by_id);
}

/* ---- the PCI bus ---- */

int32_t vt_topology_pci_node(const char *root, const char *place)
{
    char folder[64], plain[VT_PLACE_SIZE];
    if (!vt_pci_place(place, plain))
        return -1;
    snprintf(folder, sizeof folder, "bus/pci/devices/%s", plain);
    int64_t node = read_number(root, folder, "numa_node", -1);
    return node >= 0 && node < 1 << 20 ? (int32_t)node : -1;
}

static int by_place(const void *pa, const void *pb)
{
    const vt_bus_gpu *a = pa, *b = pb;
    return strcmp(a->place, b->place);
}

static void read_bus(const char *root, vt_topology *t)
{
    static const char bus[] = "bus/pci/devices";
    DIR *d = open_folder(root, bus);
    for (struct dirent *e; d && t->n_gpus < VT_MAX_BUS_GPUS && (e = readdir(d));) {
        char folder[64];
        vt_bus_gpu *g = &t->gpu[t->n_gpus];
        if (!vt_pci_place(e->d_name, g->place))
            continue;
        snprintf(folder, sizeof folder, "%s/%s", bus, g->place);
        if (read_number(root, folder, "vendor", 0) != NVIDIA ||
            read_number(root, folder, "class", 0) >> 16 != DISPLAY_CLASS)
            continue;
        g->device = (int32_t)(read_number(root, folder, "device", 0) & 0xffff);
        g->node = vt_topology_pci_node(root, g->place);
        t->n_gpus++;
    }
    if (d)
        closedir(d);
    qsort(t->gpu, (size_t)t->n_gpus, sizeof *t->gpu, by_place);
}

void vt_topology_read(const char *root, vt_topology *out)
{
    memset(out, 0, sizeof *out);
    out->n_sockets = count_sockets(root);
    read_nodes(root, out);
    read_bus(root, out);
}
