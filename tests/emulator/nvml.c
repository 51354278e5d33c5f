/* libnvidia-ml.so.1 of the emulated GPU: its clocks, power and temperature, which never
 * change, and the energy that follows from the power.
 *
 * Of links and users it tells what the environment says, so that a test can describe any machine:
 *
 *   EMULATED_LINKS    the matrix as nvidia-smi prints it, without titles: a line a GPU, a word a
 *                     column: X, PIX, PXB, PHB, NODE, SYS, NVn (n links to that GPU) or NSn (n
 *                     links to switches). Not set: one GPU. "wild": answers that make no sense.
 *   EMULATED_USERS    "GPU PID BYTES NAME" of each process, with ';' between two */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID = 2, NOT_FOUND = 6, SM = 1, MEMORY = 2 };

enum { MOST_GPUS = 20, MOST_LINKS = 18 };

typedef struct device {
    int index;
} device;

static device gpu[MOST_GPUS];

API int nvmlInit_v2(void);
API int nvmlShutdown(void);
API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, device **d);
API int nvmlDeviceGetClockInfo(device *d, int type, unsigned *mhz);
API int nvmlDeviceGetMaxClockInfo(device *d, int type, unsigned *mhz);
API int nvmlDeviceGetPowerUsage(device *d, unsigned *mw);
API int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned *mw);
API int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *celsius);
API int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, unsigned long long *bits);
API int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *mj);

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, device **d)
{
    if (strcmp(id, "00000000:01:00.0") != 0) /* the PCI address that cuda.cc reports */
        return NOT_FOUND;
    *d = &gpu[0];
    return SUCCESS;
}

static int answer(const device *d, unsigned value, unsigned *to)
{
    if (d != &gpu[0])
        return INVALID;
    *to = value;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(device *d, int type, unsigned *mhz)
{
    return answer(d, type == SM ? 1500 : type == MEMORY ? 2000 : 0, mhz);
}

int nvmlDeviceGetMaxClockInfo(device *d, int type, unsigned *mhz)
{
    return answer(d, type == SM ? 1600 : type == MEMORY ? 2000 : 0, mhz);
}

int nvmlDeviceGetPowerUsage(device *d, unsigned *mw) { return answer(d, 250400, mw); }
int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned *mw) { return answer(d, 300000, mw); }

int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *celsius)
{
    return sensor == 0 ? answer(d, 41, celsius) : INVALID;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, unsigned long long *bits)
{
    *bits = 1 << 2 | 1 << 5; /* throttled by the power cap and by heat */
    return d == &gpu[0] ? SUCCESS : INVALID;
}

int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *mj)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *mj = (unsigned long long)(now.tv_sec * 250.4e3 + (double)now.tv_nsec * 250.4e-6);
    return d == &gpu[0] ? SUCCESS : INVALID;
}

/* ---- links ---- */

enum { TOO_SMALL = 7 };
static const unsigned long long GIB = 1ull << 30;

typedef struct pci {
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char place[32];
} pci;

typedef struct memory {
    unsigned long long total, free, used;
} memory;

typedef struct context {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
} context;

API int nvmlDeviceGetCount_v2(unsigned *n);
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **d);
API int nvmlDeviceGetName(device *d, char *text, unsigned size);
API int nvmlDeviceGetPciInfo_v3(device *d, pci *out);
API int nvmlDeviceGetMemoryInfo(device *d, memory *out);
API int nvmlDeviceGetMaxPcieLinkGeneration(device *d, unsigned *v);
API int nvmlDeviceGetMaxPcieLinkWidth(device *d, unsigned *v);
API int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *n, context *out);
API int nvmlDeviceGetTopologyCommonAncestor(device *a, device *b, int *level);
API int nvmlDeviceGetNvLinkState(device *d, unsigned link, int *active);
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(device *d, unsigned link, pci *out);
API int nvmlDeviceGetNvLinkRemoteDeviceType(device *d, unsigned link, int *type);
API int nvmlSystemGetDriverVersion(char *text, unsigned size);
API int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size);

static const char *matrix(void)
{
    const char *text = getenv("EMULATED_LINKS");
    return text ? text : "X";
}

static int is_wild(void) { return strcmp(matrix(), "wild") == 0; }

/* Word `column` of line `row`; "" beyond the matrix. */
static void word(int row, int column, char out[16])
{
    const char *p = matrix();
    out[0] = 0;
    for (; row > 0 && p; row--)
        p = (p = strchr(p, '\n')) ? p + 1 : NULL;
    for (; p; column--) {
        p += strspn(p, " ");
        size_t n = strcspn(p, " \n");
        if (n == 0)
            return;
        if (column == 0) {
            snprintf(out, 16, "%.*s", (int)n, p);
            return;
        }
        p += n;
    }
}

static int n_gpus(void)
{
    char text[16];
    int n = 0;
    do
        word(n, 0, text);
    while (text[0] && ++n < MOST_GPUS);
    return n;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = is_wild() ? MOST_GPUS : (unsigned)n_gpus();
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **d)
{
    if (index >= MOST_GPUS)
        return INVALID;
    gpu[index].index = (int)index;
    *d = &gpu[index];
    return is_wild() && index == 3 ? NOT_FOUND : SUCCESS;
}

int nvmlDeviceGetName(device *d, char *text, unsigned size)
{
    if (is_wild()) {
        memset(text, 0x1b, size); /* no end, and escapes */
        return SUCCESS;
    }
    snprintf(text, size, n_gpus() == 1 ? "Emulated GPU" : "Emulated GPU number %d", d->index);
    return SUCCESS;
}

static void place_of(int index, pci *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->place, sizeof out->place, "00000000:%02X:00.0", (unsigned)index + 1);
    if (is_wild())
        memset(out->place, 'f', sizeof out->place);
}

int nvmlDeviceGetPciInfo_v3(device *d, pci *out)
{
    place_of(d->index, out);
    return SUCCESS;
}

/* Returns what stands in EMULATED_USERS about the GPU; out has room for `most`, NULL: for none. */
static unsigned users(int index, context *out, unsigned most, unsigned pid, char *name)
{
    unsigned n = 0;
    for (const char *p = getenv("EMULATED_USERS"); p && *p;
         p = (p = strchr(p, ';')) ? p + 1 : NULL) {
        int on;
        unsigned id;
        unsigned long long bytes;
        char text[64];
        if (sscanf(p, "%d %u %llu %63[^;]", &on, &id, &bytes, text) != 4)
            continue;
        if (name && id == pid)
            snprintf(name, 64, "%s", text);
        if (on != index)
            continue;
        if (out && n < most)
            out[n] = (context){.pid = id, .bytes = bytes};
        n++;
    }
    return n;
}

int nvmlDeviceGetMemoryInfo(device *d, memory *out)
{
    context c[64];
    unsigned n = users(d->index, c, 64, 0, NULL);
    *out = (memory){80 * GIB, 80 * GIB, 0};
    for (unsigned i = 0; i < n && i < 64; i++)
        out->used += c[i].bytes;
    out->free -= out->used;
    if (is_wild())
        *out = (memory){5, ~0ull, 7};
    return SUCCESS;
}

int nvmlDeviceGetMaxPcieLinkGeneration(device *d, unsigned *v)
{
    *v = is_wild() ? ~0u : 4;
    return d ? SUCCESS : INVALID;
}

int nvmlDeviceGetMaxPcieLinkWidth(device *d, unsigned *v)
{
    *v = is_wild() ? 0 : 16;
    return d ? SUCCESS : INVALID;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *n, context *out)
{
    unsigned room = *n;
    *n = is_wild() ? ~0u : users(d->index, out, room, 0, NULL);
    return is_wild() || *n <= room ? SUCCESS : TOO_SMALL;
}

int nvmlDeviceGetTopologyCommonAncestor(device *a, device *b, int *level)
{
    static const struct {
        const char *name;
        int level;
    } kind[] = {{"PIX", 10}, {"PXB", 20}, {"PHB", 30}, {"NODE", 40}, {"SYS", 50}};
    char text[16];
    word(a->index, b->index, text);
    *level = is_wild() ? 12345 : 50;
    for (unsigned i = 0; i < sizeof kind / sizeof *kind; i++)
        if (strcmp(text, kind[i].name) == 0)
            *level = kind[i].level;
    return text[0] || is_wild() ? SUCCESS : NOT_FOUND;
}

/* The GPU at the other end of a link; -1: a switch; -2: the link is not there. */
static int far_end(const device *d, unsigned link)
{
    unsigned at = 0, by_switch = 0;
    char text[16];
    for (int k = 0; k < n_gpus(); k++) {
        word(d->index, k, text);
        unsigned n = strlen(text) > 2 ? (unsigned)strtoul(text + 2, NULL, 10) : 0;
        if (strncmp(text, "NS", 2) == 0)
            by_switch = n;
        if (strncmp(text, "NV", 2) != 0)
            continue;
        if (link >= at && link < at + n)
            return k;
        at += n;
    }
    return link < by_switch ? -1 : -2;
}

int nvmlDeviceGetNvLinkState(device *d, unsigned link, int *active)
{
    if (link >= MOST_LINKS && !is_wild())
        return INVALID;
    *active = is_wild() ? 1 : far_end(d, link) != -2;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(device *d, unsigned link, pci *out)
{
    int far = far_end(d, link);
    if (far == -2 && !is_wild())
        return NOT_FOUND;
    place_of(far < 0 ? 199 : far, out);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(device *d, unsigned link, int *type)
{
    *type = is_wild() ? (int)link - 3 : far_end(d, link) < 0 ? 2 : 0;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    if (is_wild())
        memset(text, 'x', size);
    else
        snprintf(text, size, "999.01");
    return SUCCESS;
}

int nvmlSystemGetProcessName(unsigned pid, char *text, unsigned size)
{
    char name[64] = "";
    users(-1, NULL, 0, pid, name);
    if (!name[0])
        return NOT_FOUND;
    snprintf(text, size, "/usr/bin/%s", name);
    return SUCCESS;
}
