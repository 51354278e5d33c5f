/* The parts of CUPTI that we use, in our own declarations: the profiler's host side, which knows
 * metrics and needs no GPU, its range profiler, which counts what runs between two calls, its PM
 * sampling, which counts the whole GPU at equal intervals, its PC sampling, which notes at equal
 * intervals where warps are in their programs and what they wait for, and its activity records,
 * which say when every kernel and copy ran.
 *
 * Every call takes one structure. Its first member is the structure's size up to the end of its
 * last member, by which CUPTI tells versions apart; CUPTI_PARAMS sets it. The numbers are those of
 * CUDA 13.0; tests/unit/test_cupti_abi.c checks them where NVIDIA's headers are installed. NVIDIA's
 * headers of 12.1, 12.2, 12.3, 12.4, 12.5, 12.6, 12.8 and 12.9 have the same but for three, which
 * CUPTI_HAS_... tell:
 *
 *   CUDA                        12.1   12.2, 12.3   12.4, 12.5   12.6   from 12.8 on
 *   version                     18     20, 21       22, 23       24     26 ...
 *   cupti_device_supported.api  none   there        there        there  there
 *   cupti_pc_record             56     56           64           64     64 bytes
 *   ranges, PM sampling         none   none         none         there  there
 *   cupti_pm_config.keep        -      -            -            none   there */
#ifndef VT_DEVICE_CUPTI_API_H
#define VT_DEVICE_CUPTI_API_H

#include <stddef.h>
#include <stdint.h>

struct cu_context_st; /* device/cuda/cuda_api.h */
typedef struct cupti_host *cupti_host;
typedef struct cupti_ranges *cupti_ranges;
typedef struct cupti_pm *cupti_pm;

enum {
    CUPTI_OK = 0,
    CUPTI_ERROR_BAD_PARAMETER = 1,
    CUPTI_ERROR_BAD_OPERATION = 7,
    CUPTI_ERROR_NOT_STARTED = 15,
    CUPTI_ERROR_UNSUPPORTED = 27,
    CUPTI_ERROR_PRIVILEGES = 35,
    CUPTI_ERROR_SUBSCRIBERS = 39,
    CUPTI_TYPE_RANGES = 0, /* of cupti_host_new */
    CUPTI_TYPE_PM = 1,
    CUPTI_PM_BY_CYCLES = 0, /* the interval is in cycles of the system clock, */
    CUPTI_PM_BY_TIME = 1,   /* or in nanoseconds, which an A100 cannot */
    CUPTI_PM_KEEP_OLDEST = 0,
    CUPTI_PM_KEEP_LATEST = 1,
    CUPTI_PM_IMAGE_FULL = 1, /* a cupti_pm_decode stopped for want of room */
    CUPTI_RANGE_BY_USER = 2,
    CUPTI_REPLAY_BY_USER = 3,
    CUPTI_PC_PERIOD = 1, /* types of a cupti_pc_attribute */
    CUPTI_PC_MODE = 5,
    CUPTI_PC_DATA = 8,
    CUPTI_PC_CONTINUOUS = 1, /* a mode: kernels run as always */
    CUPTI_PC_NAME_BYTES = 128,
    CUPTI_SUPPORTED = 3,  /* a level of cupti_device_supported */
    CUPTI_API_RANGES = 0, /* what it asks about */
    CUPTI_API_PC_SAMPLING = 1,
    CUPTI_API_PM_SAMPLING = 3,
    CUPTI_HAS_API = 20, /* the first versions whose structures have a member */
    CUPTI_HAS_CORRELATION = 22,
    CUPTI_HAS_KEEP = 26
};

typedef struct cupti_start {
    size_t size;
    void *priv;
} cupti_start;

typedef struct cupti_chip {
    size_t size;
    void *priv;
    size_t device;    /* in */
    const char *name; /* out: "GH100" */
} cupti_chip;

/* Levels: 0 unknown, 1 unsupported, 2 disabled, 3 supported. */
typedef struct cupti_device_supported {
    size_t size;
    void *priv;
    int device; /* in */
    int supported;
    int architecture, sli, vgpu, confidential, cmp, wsl;
    int api; /* in */
} cupti_device_supported;

typedef struct cupti_availability {
    size_t size;
    void *priv;
    struct cu_context_st *context;
    size_t image_bytes; /* in and out */
    uint8_t *image;     /* NULL: image_bytes is asked for */
} cupti_availability;

typedef struct cupti_host_new {
    size_t size;
    void *priv;
    int type;
    const char *chip;
    const uint8_t *availability; /* NULL: every counter that the chip has */
    cupti_host host;             /* out */
} cupti_host_new;

typedef struct cupti_host_free {
    size_t size;
    void *priv;
    cupti_host host;
} cupti_host_free;

typedef struct cupti_host_add {
    size_t size;
    void *priv;
    cupti_host host;
    const char **metric;
    size_t n;
} cupti_host_add;

typedef struct cupti_config_bytes {
    size_t size;
    void *priv;
    cupti_host host;
    size_t bytes; /* out */
} cupti_config_bytes;

typedef struct cupti_config {
    size_t size;
    void *priv;
    cupti_host host;
    size_t bytes;
    uint8_t *image;
} cupti_config;

typedef struct cupti_passes {
    size_t size;
    void *priv;
    size_t bytes;
    uint8_t *image;
    size_t n; /* out */
} cupti_passes;

typedef struct cupti_evaluate {
    size_t size;
    void *priv;
    cupti_host host;
    const uint8_t *data;
    size_t data_bytes;
    size_t range;
    const char **metric;
    size_t n;
    double *value; /* [n] out */
} cupti_evaluate;

typedef struct cupti_ranges_enable {
    size_t size;
    void *priv;
    struct cu_context_st *context;
    cupti_ranges ranges; /* out */
} cupti_ranges_enable;

/* Of disable, start and pop. */
typedef struct cupti_ranges_call {
    size_t size;
    void *priv;
    cupti_ranges ranges;
} cupti_ranges_call;

typedef struct cupti_ranges_bytes {
    size_t size;
    void *priv;
    cupti_ranges ranges;
    const char **metric;
    size_t n, most_ranges;
    uint32_t most_nodes;
    size_t bytes; /* out */
} cupti_ranges_bytes;

typedef struct cupti_ranges_image {
    size_t size;
    void *priv;
    cupti_ranges ranges;
    size_t bytes;
    uint8_t *image;
} cupti_ranges_image;

typedef struct cupti_ranges_config {
    size_t size;
    void *priv;
    cupti_ranges ranges;
    size_t config_bytes;
    const uint8_t *config;
    size_t image_bytes;
    uint8_t *image;
    int range, replay;
    size_t most_ranges;
    uint16_t levels, least_level;
    size_t pass;
    uint16_t target_level;
} cupti_ranges_config;

typedef struct cupti_ranges_stop {
    size_t size;
    void *priv;
    cupti_ranges ranges;
    size_t pass, target_level; /* out */
    uint8_t all_submitted;     /* out */
} cupti_ranges_stop;

typedef struct cupti_ranges_push {
    size_t size;
    void *priv;
    cupti_ranges ranges;
    const char *name;
} cupti_ranges_push;

typedef struct cupti_ranges_decode {
    size_t size;
    void *priv;
    cupti_ranges ranges;
    size_t dropped; /* out */
} cupti_ranges_decode;

typedef struct cupti_data_info {
    size_t size;
    void *priv;
    const uint8_t *data;
    size_t bytes;
    size_t n; /* out: ranges */
} cupti_data_info;

typedef struct cupti_range_info {
    size_t size;
    void *priv;
    const uint8_t *data;
    size_t bytes, range;
    const char *delimiter;
    const char *name; /* out */
} cupti_range_info;

/* ---- PM sampling ---- */

typedef struct cupti_pm_availability {
    size_t size;
    void *priv;
    size_t device;
    size_t image_bytes; /* in and out */
    uint8_t *image;     /* NULL: image_bytes is asked for */
} cupti_pm_availability;

typedef struct cupti_pm_enable {
    size_t size;
    void *priv;
    size_t device;
    cupti_pm pm; /* out */
} cupti_pm_enable;

/* Of disable, start and stop. */
typedef struct cupti_pm_call {
    size_t size;
    void *priv;
    cupti_pm pm;
} cupti_pm_call;

typedef struct cupti_pm_config {
    size_t size;
    void *priv;
    cupti_pm pm;
    size_t config_bytes;
    const uint8_t *config;
    size_t buffer_bytes; /* of the ring that the hardware writes */
    uint64_t interval;
    int trigger, keep;
} cupti_pm_config;

typedef struct cupti_pm_bytes {
    size_t size;
    void *priv;
    cupti_pm pm;
    const char **metric;
    size_t n;
    uint32_t most_samples;
    size_t bytes; /* out */
} cupti_pm_bytes;

typedef struct cupti_pm_image {
    size_t size;
    void *priv;
    cupti_pm pm;
    size_t bytes;
    uint8_t *image;
} cupti_pm_image;

typedef struct cupti_pm_decode {
    size_t size;
    void *priv;
    cupti_pm pm;
    uint8_t *image;
    size_t bytes;
    int stopped;      /* out: why it decoded no more */
    uint8_t overflow; /* out: the hardware's ring was full */
} cupti_pm_decode;

typedef struct cupti_pm_info {
    size_t size;
    void *priv;
    const uint8_t *image;
    size_t bytes;
    size_t total, populated, completed; /* out: samples */
} cupti_pm_info;

typedef struct cupti_pm_sample {
    size_t size;
    void *priv;
    cupti_pm pm;
    const uint8_t *image;
    size_t bytes, index;
    uint64_t begin_ns, end_ns; /* out */
} cupti_pm_sample;

/* ---- PC sampling ---- */

/* Of enable and disable. */
typedef struct cupti_pc_call {
    size_t size;
    void *priv;
    struct cu_context_st *context;
} cupti_pc_call;

typedef struct cupti_pc_count {
    size_t size;
    void *priv;
    struct cu_context_st *context;
    size_t *n; /* out: stall reasons */
} cupti_pc_count;

typedef struct cupti_pc_reasons {
    size_t size;
    void *priv;
    struct cu_context_st *context;
    size_t n;
    uint32_t *index; /* [n] out */
    char **name;     /* [n] out, each of CUPTI_PC_NAME_BYTES */
} cupti_pc_reasons;

typedef struct cupti_pc_attribute {
    int type, status;
    union {
        int mode;
        uint32_t period; /* a sample every 2^period cycles */
        void *data;      /* a cupti_pc_data */
        uint64_t room[3];
    } value;
} cupti_pc_attribute;

typedef struct cupti_pc_config {
    size_t size;
    void *priv;
    struct cu_context_st *context;
    size_t n;
    cupti_pc_attribute *attribute;
} cupti_pc_config;

typedef struct cupti_pc_reason {
    uint32_t index, samples;
} cupti_pc_reason;

/* An instruction that was sampled. */
typedef struct cupti_pc_record {
    size_t size;
    uint64_t cubin_crc, pc; /* `pc`: bytes from the function's begin */
    uint32_t function_index, pad;
    char *function;
    size_t n;
    cupti_pc_reason *reason; /* [n] */
    uint32_t correlation;
} cupti_pc_record;

typedef struct cupti_pc_data {
    size_t size;
    size_t room; /* of `record` */
    uint64_t samples, dropped;
    size_t n, left; /* records here, and those for which there was no room */
    uint64_t range;
    cupti_pc_record *record;
    uint64_t not_user; /* samples outside of this process's kernels */
    uint8_t full;      /* the hardware's buffer was */
} cupti_pc_data;

/* Which line of a source an instruction is of; needs no GPU. */
typedef struct cupti_pc_line {
    size_t size;
    const void *cubin;
    const char *function;
    size_t cubin_bytes;
    uint32_t line; /* out */
    uint64_t pc;
    char *file, *folder; /* out; free() */
} cupti_pc_line;

/* The sum by which records name a cubin; needs no GPU. */
typedef struct cupti_pc_sum {
    size_t size, cubin_bytes;
    const void *cubin;
    uint64_t sum; /* out */
} cupti_pc_sum;

/* ---- activity records ----
 *
 * CUPTI asks for a buffer (cupti_room), fills it with records one behind another, and gives it back
 * (cupti_filled), on whichever thread it likes. Each version of CUPTI may append members to a
 * record; these are the ones that those of CUDA 12.0 to 13.0 have in the same places. */

enum {
    CUPTI_RECORD_COPY = 1, /* kinds */
    CUPTI_RECORD_FILL = 2,
    CUPTI_RECORD_CALL = 4, /* of the driver's interface */
    CUPTI_RECORD_KERNEL = 10,
    CUPTI_RECORD_OUTSIDE = 39,
    CUPTI_OUTSIDE_CUSTOM = 3, /* cupti_record_outside.whose */
    CUPTI_ERROR_NO_MORE = 12, /* records in this buffer */
    CUPTI_DOMAIN_RESOURCE = 3,
    CUPTI_NODE_CREATED = 13, /* ids of callbacks of this domain */
    CUPTI_NODE_ENDS = 14,
    CUPTI_NODE_CLONED = 20
};

typedef struct cupti_subscribed *cupti_subscriber;

typedef struct cupti_record {
    int kind;
} cupti_record;

typedef struct cupti_record_kernel {
    int kind;
    uint8_t cache, shared_banks;
    uint16_t registers;
    int l1[2];
    uint64_t begin_ns, end_ns, completed_ns;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], static_shared, dynamic_shared;
    uint32_t local_bytes, all_local_bytes, correlation;
    int64_t grid_id;
    const char *name; /* mangled; it stays */
    void *reserved;
    uint64_t queued_ns, submitted_ns;
    uint8_t launch, carveout[2], padding;
    uint32_t shared_executed;
    uint64_t node; /* of the graph that launched it; 0: none did */
} cupti_record_kernel;

typedef struct cupti_record_copy {
    int kind;
    uint8_t how, from, to, flags;
    uint64_t bytes, begin_ns, end_ns;
    uint32_t device, context, stream, correlation, runtime_correlation, padding;
    void *reserved;
    uint64_t node;
} cupti_record_copy;

typedef struct cupti_record_fill {
    int kind;
    uint32_t value;
    uint64_t bytes, begin_ns, end_ns;
    uint32_t device, context, stream, correlation;
    uint16_t flags, memory;
    uint32_t padding;
    void *reserved;
    uint64_t node;
} cupti_record_fill;

/* The driver's call `correlation` was made while somebody had pushed `id`. */
typedef struct cupti_record_outside {
    int kind, whose;
    uint64_t id;
    uint32_t correlation, reserved;
} cupti_record_outside;

/* The data of a callback of CUPTI_DOMAIN_RESOURCE about graphs. */
typedef struct cupti_resource {
    struct cu_context_st *context;
    void *handle;
    void *descriptor; /* a cupti_graph_data */
} cupti_resource;

typedef struct cupti_graph_data {
    void *graph, *from_graph, *node, *from_node; /* from_...: of which it is a clone */
    int node_kind;
    void *dependency, *exec;
} cupti_graph_data;

typedef void cupti_called(void *user, int domain, uint32_t id, const void *data);
typedef void cupti_room(uint8_t **buffer, size_t *bytes, size_t *most_records);
typedef void cupti_filled(struct cu_context_st *context, uint32_t stream, uint8_t *buffer,
                          size_t bytes, size_t filled);

/* Every structure, NVIDIA's name of it, and both names of its last member. */
#define CUPTI_STRUCTURES(S)                                                                        \
    S(cupti_start, CUpti_Profiler_Initialize_Params, priv, pPriv)                                  \
    S(cupti_chip, CUpti_Device_GetChipName_Params, name, pChipName)                                \
    S(cupti_device_supported, CUpti_Profiler_DeviceSupported_Params, api, api)                     \
    S(cupti_availability, CUpti_Profiler_GetCounterAvailability_Params, image,                     \
      pCounterAvailabilityImage)                                                                   \
    S(cupti_host_new, CUpti_Profiler_Host_Initialize_Params, host, pHostObject)                    \
    S(cupti_host_free, CUpti_Profiler_Host_Deinitialize_Params, host, pHostObject)                 \
    S(cupti_host_add, CUpti_Profiler_Host_ConfigAddMetrics_Params, n, numMetrics)                  \
    S(cupti_config_bytes, CUpti_Profiler_Host_GetConfigImageSize_Params, bytes, configImageSize)   \
    S(cupti_config, CUpti_Profiler_Host_GetConfigImage_Params, image, pConfigImage)                \
    S(cupti_passes, CUpti_Profiler_Host_GetNumOfPasses_Params, n, numOfPasses)                     \
    S(cupti_evaluate, CUpti_Profiler_Host_EvaluateToGpuValues_Params, value, pMetricValues)        \
    S(cupti_ranges_enable, CUpti_RangeProfiler_Enable_Params, ranges, pRangeProfilerObject)        \
    S(cupti_ranges_call, CUpti_RangeProfiler_Start_Params, ranges, pRangeProfilerObject)           \
    S(cupti_ranges_bytes, CUpti_RangeProfiler_GetCounterDataSize_Params, bytes, counterDataSize)   \
    S(cupti_ranges_image, CUpti_RangeProfiler_CounterDataImage_Initialize_Params, image,           \
      pCounterData)                                                                                \
    S(cupti_ranges_config, CUpti_RangeProfiler_SetConfig_Params, target_level, targetNestingLevel) \
    S(cupti_ranges_stop, CUpti_RangeProfiler_Stop_Params, all_submitted, isAllPassSubmitted)       \
    S(cupti_ranges_push, CUpti_RangeProfiler_PushRange_Params, name, pRangeName)                   \
    S(cupti_ranges_decode, CUpti_RangeProfiler_DecodeData_Params, dropped, numOfRangeDropped)      \
    S(cupti_data_info, CUpti_RangeProfiler_GetCounterDataInfo_Params, n, numTotalRanges)           \
    S(cupti_range_info, CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, name, rangeName)      \
    S(cupti_pm_availability, CUpti_PmSampling_GetCounterAvailability_Params, image,                \
      pCounterAvailabilityImage)                                                                   \
    S(cupti_pm_enable, CUpti_PmSampling_Enable_Params, pm, pPmSamplingObject)                      \
    S(cupti_pm_call, CUpti_PmSampling_Start_Params, pm, pPmSamplingObject)                         \
    S(cupti_pm_config, CUpti_PmSampling_SetConfig_Params, keep, hwBufferAppendMode)                \
    S(cupti_pm_bytes, CUpti_PmSampling_GetCounterDataSize_Params, bytes, counterDataSize)          \
    S(cupti_pm_image, CUpti_PmSampling_CounterDataImage_Initialize_Params, image, pCounterData)    \
    S(cupti_pm_decode, CUpti_PmSampling_DecodeData_Params, overflow, overflow)                     \
    S(cupti_pm_info, CUpti_PmSampling_GetCounterDataInfo_Params, completed, numCompletedSamples)   \
    S(cupti_pm_sample, CUpti_PmSampling_CounterData_GetSampleInfo_Params, end_ns, endTimestamp)

/* Those of PC sampling, which NVIDIA measures by another macro. */
#define CUPTI_PC_STRUCTURES(S)                                                      \
    S(cupti_pc_call, CUpti_PCSamplingEnableParams, context, ctx)                    \
    S(cupti_pc_count, CUpti_PCSamplingGetNumStallReasonsParams, n, numStallReasons) \
    S(cupti_pc_reasons, CUpti_PCSamplingGetStallReasonsParams, name, stallReasons)  \
    S(cupti_pc_config, CUpti_PCSamplingConfigurationInfoParams, attribute,          \
      pPCSamplingConfigurationInfo)                                                 \
    S(cupti_pc_attribute, CUpti_PCSamplingConfigurationInfo, value, attributeData)  \
    S(cupti_pc_reason, CUpti_PCSamplingStallReason, samples, samples)               \
    S(cupti_pc_record, CUpti_PCSamplingPCData, correlation, correlationId)          \
    S(cupti_pc_data, CUpti_PCSamplingData, full, hardwareBufferFull)                \
    S(cupti_pc_line, CUpti_GetSassToSourceCorrelationParams, folder, dirName)       \
    S(cupti_pc_sum, CUpti_GetCubinCrcParams, sum, cubinCrc)

/* The size of a structure that ends with `last`, as those of older versions do. */
#define CUPTI_UP_TO(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))

/* CUPTI's size of a structure: it ends with its last member, without what pads it. */
enum {
#define CUPTI_SIZE(ours, theirs, last, their_last) ours##_BYTES = CUPTI_UP_TO(ours, last),
    CUPTI_STRUCTURES(CUPTI_SIZE) CUPTI_PC_STRUCTURES(CUPTI_SIZE)
#undef CUPTI_SIZE
};

/* The first member of an initialiser: (cupti_start){CUPTI_PARAMS(cupti_start), ...}. */
#define CUPTI_PARAMS(type) .size = type##_BYTES

/* Every function that is always there: F(member, "symbol", parameters). Status 0 is success. */
#define CUPTI_FUNCTIONS(F)                                                     \
    F(get_version, "cuptiGetVersion", (uint32_t * version))                    \
    F(error_text, "cuptiGetResultString", (int status, const char **text))     \
    F(start, "cuptiProfilerInitialize", (cupti_start * p))                     \
    F(chip, "cuptiDeviceGetChipName", (cupti_chip * p))                        \
    F(supported, "cuptiProfilerDeviceSupported", (cupti_device_supported * p)) \
    F(availability, "cuptiProfilerGetCounterAvailability", (cupti_availability * p))

/* Those of the range profiler and of its host side, which came with CUDA 12.6. */
#define CUPTI_RANGE_FUNCTIONS(F)                                                            \
    F(host_new, "cuptiProfilerHostInitialize", (cupti_host_new * p))                        \
    F(host_free, "cuptiProfilerHostDeinitialize", (cupti_host_free * p))                    \
    F(host_add, "cuptiProfilerHostConfigAddMetrics", (cupti_host_add * p))                  \
    F(config_bytes, "cuptiProfilerHostGetConfigImageSize", (cupti_config_bytes * p))        \
    F(config, "cuptiProfilerHostGetConfigImage", (cupti_config * p))                        \
    F(passes, "cuptiProfilerHostGetNumOfPasses", (cupti_passes * p))                        \
    F(evaluate, "cuptiProfilerHostEvaluateToGpuValues", (cupti_evaluate * p))               \
    F(enable, "cuptiRangeProfilerEnable", (cupti_ranges_enable * p))                        \
    F(disable, "cuptiRangeProfilerDisable", (cupti_ranges_call * p))                        \
    F(data_bytes, "cuptiRangeProfilerGetCounterDataSize", (cupti_ranges_bytes * p))         \
    F(data_begin, "cuptiRangeProfilerCounterDataImageInitialize", (cupti_ranges_image * p)) \
    F(configure, "cuptiRangeProfilerSetConfig", (cupti_ranges_config * p))                  \
    F(range_start, "cuptiRangeProfilerStart", (cupti_ranges_call * p))                      \
    F(range_stop, "cuptiRangeProfilerStop", (cupti_ranges_stop * p))                        \
    F(push, "cuptiRangeProfilerPushRange", (cupti_ranges_push * p))                         \
    F(pop, "cuptiRangeProfilerPopRange", (cupti_ranges_call * p))                           \
    F(decode, "cuptiRangeProfilerDecodeData", (cupti_ranges_decode * p))                    \
    F(data_info, "cuptiRangeProfilerGetCounterDataInfo", (cupti_data_info * p))             \
    F(range_info, "cuptiRangeProfilerCounterDataGetRangeInfo", (cupti_range_info * p))

/* Those of PM sampling, which came with CUDA 12.6 too. */
#define CUPTI_PM_FUNCTIONS(F)                                                                \
    F(pm_enable, "cuptiPmSamplingEnable", (cupti_pm_enable * p))                             \
    F(pm_availability, "cuptiPmSamplingGetCounterAvailability", (cupti_pm_availability * p)) \
    F(pm_disable, "cuptiPmSamplingDisable", (cupti_pm_call * p))                             \
    F(pm_configure, "cuptiPmSamplingSetConfig", (cupti_pm_config * p))                       \
    F(pm_start, "cuptiPmSamplingStart", (cupti_pm_call * p))                                 \
    F(pm_stop, "cuptiPmSamplingStop", (cupti_pm_call * p))                                   \
    F(pm_bytes, "cuptiPmSamplingGetCounterDataSize", (cupti_pm_bytes * p))                   \
    F(pm_image, "cuptiPmSamplingCounterDataImageInitialize", (cupti_pm_image * p))           \
    F(pm_decode, "cuptiPmSamplingDecodeData", (cupti_pm_decode * p))                         \
    F(pm_info, "cuptiPmSamplingGetCounterDataInfo", (cupti_pm_info * p))                     \
    F(pm_sample, "cuptiPmSamplingCounterDataGetSampleInfo", (cupti_pm_sample * p))

/* Those of PC sampling. */
#define CUPTI_PC_FUNCTIONS(F)                                                          \
    F(pc_enable, "cuptiPCSamplingEnable", (cupti_pc_call * p))                         \
    F(pc_disable, "cuptiPCSamplingDisable", (cupti_pc_call * p))                       \
    F(pc_count, "cuptiPCSamplingGetNumStallReasons", (cupti_pc_count * p))             \
    F(pc_reasons, "cuptiPCSamplingGetStallReasons", (cupti_pc_reasons * p))            \
    F(pc_configure, "cuptiPCSamplingSetConfigurationAttribute", (cupti_pc_config * p)) \
    F(pc_line, "cuptiGetSassToSourceCorrelation", (cupti_pc_line * p))                 \
    F(pc_sum, "cuptiGetCubinCrc", (cupti_pc_sum * p))

/* Those of activity records, which every CUPTI of CUDA 12 and 13 has. */
#define CUPTI_ACTIVITY_FUNCTIONS(F)                                                                \
    F(subscribe, "cuptiSubscribe", (cupti_subscriber * out, cupti_called * called, void *user))    \
    F(unsubscribe, "cuptiUnsubscribe", (cupti_subscriber subscriber))                              \
    F(enable_call, "cuptiEnableCallback",                                                          \
      (uint32_t on, cupti_subscriber subscriber, int domain, uint32_t id))                         \
    F(node_id, "cuptiGetGraphNodeId", (void *node, uint64_t *out))                                 \
    F(activity_room, "cuptiActivityRegisterCallbacks", (cupti_room * room, cupti_filled * filled)) \
    F(activity_on, "cuptiActivityEnable", (int kind))                                              \
    F(activity_off, "cuptiActivityDisable", (int kind))                                            \
    F(activity_flush, "cuptiActivityFlushAll", (uint32_t flags))                                   \
    F(activity_next, "cuptiActivityGetNextRecord",                                                 \
      (uint8_t * buffer, size_t bytes, cupti_record * *record))                                    \
    F(activity_dropped, "cuptiActivityGetNumDroppedRecords",                                       \
      (struct cu_context_st * context, uint32_t stream, size_t * dropped))                         \
    F(outside_push, "cuptiActivityPushExternalCorrelationId", (int kind, uint64_t id))             \
    F(outside_pop, "cuptiActivityPopExternalCorrelationId", (int kind, uint64_t *last))            \
    F(timestamp, "cuptiGetTimestamp", (uint64_t * out))

typedef struct cupti_functions {
#define CUPTI_MEMBER(member, symbol, params) int(*member) params;
    CUPTI_FUNCTIONS(CUPTI_MEMBER)
    CUPTI_RANGE_FUNCTIONS(CUPTI_MEMBER)
    CUPTI_PM_FUNCTIONS(CUPTI_MEMBER)
    CUPTI_PC_FUNCTIONS(CUPTI_MEMBER)
    CUPTI_ACTIVITY_FUNCTIONS(CUPTI_MEMBER)
#undef CUPTI_MEMBER
} cupti_functions;

#endif
