/* The functions of NVIDIA's management library: for nvml.c,
 * nvml_watch.c and gpus.c. */
#ifndef VT_DEVICE_NVML_INSIDE_H
#define VT_DEVICE_NVML_INSIDE_H

#include <stddef.h>

#include "device/nvml.h"

typedef struct nvml_device_st *nvml_device;

/* nvmlProcessUtilizationSample_t: what a process used of the GPU, in percent. */
typedef struct nvml_process {
    unsigned pid;
    unsigned long long at_us;
    unsigned sm, memory, encoder, decoder;
} nvml_process;

/* nvmlPciInfo_t, nvmlMemory_t, nvmlProcessInfo_t (of versions 2 and 3 of the call). */
typedef struct nvml_pci {
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char place[32]; /* "00000000:19:00.0" */
} nvml_pci;

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml_context {
    unsigned pid;
    unsigned long long bytes; /* all ones: not known */
    unsigned gpu_instance, compute_instance;
} nvml_context;

#define NVML_FUNCTIONS(F)                                                                \
    F(init, "nvmlInit_v2", (void))                                                       \
    F(shutdown, "nvmlShutdown", (void))                                                  \
    F(by_pci, "nvmlDeviceGetHandleByPciBusId_v2", (const char *id, nvml_device *d))      \
    F(clock, "nvmlDeviceGetClockInfo", (nvml_device d, int type, unsigned *mhz))         \
    F(max_clock, "nvmlDeviceGetMaxClockInfo", (nvml_device d, int type, unsigned *mhz))  \
    F(power, "nvmlDeviceGetPowerUsage", (nvml_device d, unsigned *mw))                   \
    F(power_limit, "nvmlDeviceGetEnforcedPowerLimit", (nvml_device d, unsigned *mw))     \
    F(temperature, "nvmlDeviceGetTemperature", (nvml_device d, int sensor, unsigned *c)) \
    F(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons",                             \
      (nvml_device d, unsigned long long *bits))

/* NULL where the library is too old. */
#define NVML_OPTIONAL(F)                                                                           \
    F(energy, "nvmlDeviceGetTotalEnergyConsumption", (nvml_device d, unsigned long long *mj))      \
    F(processes, "nvmlDeviceGetProcessUtilization",                                                \
      (nvml_device d, nvml_process * out, unsigned *n, unsigned long long since_us))               \
    F(driver, "nvmlSystemGetDriverVersion", (char *text, unsigned size))                           \
    F(process_name, "nvmlSystemGetProcessName", (unsigned pid, char *text, unsigned size))         \
    F(count, "nvmlDeviceGetCount_v2", (unsigned *n))                                               \
    F(by_index, "nvmlDeviceGetHandleByIndex_v2", (unsigned index, nvml_device *d))                 \
    F(name, "nvmlDeviceGetName", (nvml_device d, char *text, unsigned size))                       \
    F(pci, "nvmlDeviceGetPciInfo_v3", (nvml_device d, nvml_pci * out))                             \
    F(memory, "nvmlDeviceGetMemoryInfo", (nvml_device d, nvml_memory * out))                       \
    F(pcie_gen, "nvmlDeviceGetMaxPcieLinkGeneration", (nvml_device d, unsigned *v))                \
    F(pcie_width, "nvmlDeviceGetMaxPcieLinkWidth", (nvml_device d, unsigned *v))                   \
    F(contexts, "nvmlDeviceGetComputeRunningProcesses_v3",                                         \
      (nvml_device d, unsigned *n, nvml_context *out))                                             \
    F(contexts_2, "nvmlDeviceGetComputeRunningProcesses_v2",                                       \
      (nvml_device d, unsigned *n, nvml_context *out))                                             \
    F(ancestor, "nvmlDeviceGetTopologyCommonAncestor", (nvml_device a, nvml_device b, int *level)) \
    F(nvlink_state, "nvmlDeviceGetNvLinkState", (nvml_device d, unsigned link, int *active))       \
    F(nvlink_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2",                                        \
      (nvml_device d, unsigned link, nvml_pci *out))                                               \
    F(nvlink_type, "nvmlDeviceGetNvLinkRemoteDeviceType",                                          \
      (nvml_device d, unsigned link, int *type))                                                   \
    F(p2p, "nvmlDeviceGetP2PStatus", (nvml_device a, nvml_device b, int what, int *status))

typedef struct nvml {
#define MEMBER(member, symbol, params) int(*member) params; /* 0: success */
    NVML_FUNCTIONS(MEMBER)
    NVML_OPTIONAL(MEMBER)
#undef MEMBER
} nvml;

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0 };

vt_status nvml_open(nvml *n, vt_err *err);
/* Writes the PCI address of the driver's GPU `ordinal`, such as "00000000:19:00.0". */
vt_status nvml_place(int32_t ordinal, char *out, size_t size, vt_err *err);
void nvml_read_state(const nvml *n, nvml_device d, vt_gpu_state *s);

#endif
