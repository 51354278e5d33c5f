/* The parts of NVIDIA's libraries that we use, in our own declarations.
 *
 * libcuda, libnvrtc and libnvidia-ml are opened at run time. So the program builds and runs without
 * a toolkit or a driver, and when it needs a library that is missing it says which. Numbers and
 * layouts are those of CUDA 12.3 and later; tests/unit/test_cuda_abi.c checks them against <cuda.h>
 * where that is installed. */
#ifndef VT_DEVICE_CUDA_CUDA_API_H
#define VT_DEVICE_CUDA_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#include "vitrine.h"

typedef int cu_result; /* 0: success */
typedef int cu_device;
typedef uint64_t cu_ptr; /* an address on the device */
typedef struct cu_context_st *cu_context;
typedef struct cu_stream_st *cu_stream;
typedef struct cu_event_st *cu_event;
typedef struct cu_graph_st *cu_graph;
typedef struct cu_graph_exec_st *cu_graph_exec;
typedef struct cu_graph_node_st *cu_graph_node;
typedef struct cu_library_st *cu_library;
typedef struct cu_kernel_st *cu_kernel;
typedef unsigned long long cu_mem_handle;

enum {
    CU_ERROR_NOT_READY = 600,
    CU_ERROR_PEER_ALREADY = 704, /* its memory can be accessed already */
    CU_ATTR_CLOCK_KHZ = 13,
    CU_ATTR_SM_COUNT = 16,
    CU_ATTR_PCI_BUS = 33,
    CU_ATTR_PCI_DEVICE = 34,
    CU_ATTR_MEMORY_CLOCK_KHZ = 36,
    CU_ATTR_BUS_WIDTH = 37,
    CU_ATTR_L2_BYTES = 38,
    CU_ATTR_PCI_DOMAIN = 50,
    CU_ATTR_CC_MAJOR = 75,
    CU_ATTR_CC_MINOR = 76,
    CU_ATTR_MAX_SHARED_OPTIN = 97,
    CU_FUNC_MAX_THREADS = 0,
    CU_FUNC_SHARED_BYTES = 1,
    CU_FUNC_LOCAL_BYTES = 3,
    CU_FUNC_REGISTERS = 4,
    CU_FUNC_MAX_DYNAMIC_SHARED = 8,
    CU_FUNC_SHARED_PERCENT = 9,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_DEFAULT = 0,
    CU_EVENT_NO_TIMING = 2,
    CU_CAPTURE_THREAD_LOCAL = 1,
    CU_HOST_PORTABLE = 1,
    CU_LAUNCH_ATTR_CLUSTER = 4,
    CU_LAUNCH_ATTR_PDL = 6,
    CU_MEM_TYPE_PINNED = 1,
    CU_MEM_LOCATION_DEVICE = 1,
    CU_MEM_ACCESS_READ_WRITE = 3
};

typedef struct cu_launch_attr {
    uint32_t id;
    uint32_t pad;
    union {
        char bytes[64];
        struct {
            uint32_t x, y, z;
        } cluster;
        int32_t flag;
    } value;
} cu_launch_attr;

typedef struct cu_launch_config {
    uint32_t grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    cu_stream stream;
    cu_launch_attr *attrs;
    uint32_t n_attrs;
} cu_launch_config;

typedef struct cu_mem_location {
    int32_t type, id;
} cu_mem_location;

typedef struct cu_mem_prop {
    int32_t type, handle_types;
    cu_mem_location location;
    void *win32;
    uint8_t flags[8];
} cu_mem_prop;

typedef struct cu_mem_access {
    cu_mem_location location;
    int32_t flags;
} cu_mem_access;

/* A TMA descriptor; passed to kernels by value in a __grid_constant__ parameter. */
typedef struct cu_tensor_map {
    _Alignas(64) uint64_t opaque[16];
} cu_tensor_map;

/* Every driver function used: F(member, "symbol", parameters). */
#define CUDA_DRIVER_FUNCTIONS(F)                                                                  \
    F(init, "cuInit", (unsigned flags))                                                           \
    F(driver_version, "cuDriverGetVersion", (int *version))                                       \
    F(error_name, "cuGetErrorName", (cu_result r, const char **name))                             \
    F(error_string, "cuGetErrorString", (cu_result r, const char **text))                         \
    F(device_count, "cuDeviceGetCount", (int *n))                                                 \
    F(device_get, "cuDeviceGet", (cu_device * d, int ordinal))                                    \
    F(device_name, "cuDeviceGetName", (char *name, int size, cu_device d))                        \
    F(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, cu_device d))         \
    F(device_total, "cuDeviceTotalMem_v2", (size_t * bytes, cu_device d))                         \
    F(context_retain, "cuDevicePrimaryCtxRetain", (cu_context * c, cu_device d))                  \
    F(context_release, "cuDevicePrimaryCtxRelease_v2", (cu_device d))                             \
    F(context_reset, "cuDevicePrimaryCtxReset_v2", (cu_device d))                                 \
    F(context_set, "cuCtxSetCurrent", (cu_context c))                                             \
    F(peer_can, "cuDeviceCanAccessPeer", (int *can, cu_device d, cu_device peer))                 \
    F(peer_enable, "cuCtxEnablePeerAccess", (cu_context peer, unsigned flags))                    \
    F(mem_info, "cuMemGetInfo_v2", (size_t * free_bytes, size_t * total))                         \
    F(mem_alloc, "cuMemAlloc_v2", (cu_ptr * p, size_t bytes))                                     \
    F(mem_free, "cuMemFree_v2", (cu_ptr p))                                                       \
    F(host_alloc, "cuMemHostAlloc", (void **p, size_t bytes, unsigned flags))                     \
    F(host_free, "cuMemFreeHost", (void *p))                                                      \
    F(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                     \
      (cu_ptr to, const void *from, size_t bytes, cu_stream s))                                   \
    F(copy_to_host, "cuMemcpyDtoHAsync_v2", (void *to, cu_ptr from, size_t bytes, cu_stream s))   \
    F(copy_device, "cuMemcpyDtoDAsync_v2", (cu_ptr to, cu_ptr from, size_t bytes, cu_stream s))   \
    F(fill8, "cuMemsetD8Async", (cu_ptr p, unsigned char value, size_t bytes, cu_stream s))       \
    F(stream_create, "cuStreamCreateWithPriority", (cu_stream * s, unsigned flags, int priority)) \
    F(stream_destroy, "cuStreamDestroy_v2", (cu_stream s))                                        \
    F(stream_sync, "cuStreamSynchronize", (cu_stream s))                                          \
    F(stream_wait_event, "cuStreamWaitEvent", (cu_stream s, cu_event e, unsigned flags))          \
    F(event_create, "cuEventCreate", (cu_event * e, unsigned flags))                              \
    F(event_destroy, "cuEventDestroy_v2", (cu_event e))                                           \
    F(event_record, "cuEventRecord", (cu_event e, cu_stream s))                                   \
    F(event_sync, "cuEventSynchronize", (cu_event e))                                             \
    F(event_query, "cuEventQuery", (cu_event e))                                                  \
    F(event_elapsed, "cuEventElapsedTime", (float *ms, cu_event from, cu_event to))               \
    F(capture_begin, "cuStreamBeginCapture_v2", (cu_stream s, int mode))                          \
    F(capture_end, "cuStreamEndCapture", (cu_stream s, cu_graph * g))                             \
    F(graph_instantiate, "cuGraphInstantiateWithFlags",                                           \
      (cu_graph_exec * x, cu_graph g, unsigned long long flags))                                  \
    F(graph_nodes, "cuGraphGetNodes", (cu_graph g, cu_graph_node * nodes, size_t * n))            \
    F(graph_upload, "cuGraphUpload", (cu_graph_exec x, cu_stream s))                              \
    F(graph_launch, "cuGraphLaunch", (cu_graph_exec x, cu_stream s))                              \
    F(graph_exec_destroy, "cuGraphExecDestroy", (cu_graph_exec x))                                \
    F(graph_destroy, "cuGraphDestroy", (cu_graph g))                                              \
    F(library_load, "cuLibraryLoadData",                                                          \
      (cu_library * l, const void *code, void *jit_keys, void **jit_values, unsigned n_jit,       \
       void *keys, void **values, unsigned n))                                                    \
    F(library_unload, "cuLibraryUnload", (cu_library l))                                          \
    F(library_kernel, "cuLibraryGetKernel", (cu_kernel * k, cu_library l, const char *name))      \
    F(kernel_get, "cuKernelGetAttribute", (int *value, int attribute, cu_kernel k, cu_device d))  \
    F(kernel_set, "cuKernelSetAttribute", (int attribute, int value, cu_kernel k, cu_device d))   \
    F(launch, "cuLaunchKernelEx",                                                                 \
      (const cu_launch_config *c, cu_kernel k, void **params, void **extra))                      \
    F(mem_granularity, "cuMemGetAllocationGranularity",                                           \
      (size_t * bytes, const cu_mem_prop *p, int option))                                         \
    F(mem_reserve, "cuMemAddressReserve",                                                         \
      (cu_ptr * p, size_t bytes, size_t align, cu_ptr at, unsigned long long flags))              \
    F(mem_unreserve, "cuMemAddressFree", (cu_ptr p, size_t bytes))                                \
    F(mem_create, "cuMemCreate",                                                                  \
      (cu_mem_handle * h, size_t bytes, const cu_mem_prop *p, unsigned long long flags))          \
    F(mem_release, "cuMemRelease", (cu_mem_handle h))                                             \
    F(mem_map, "cuMemMap",                                                                        \
      (cu_ptr p, size_t bytes, size_t offset, cu_mem_handle h, unsigned long long flags))         \
    F(mem_unmap, "cuMemUnmap", (cu_ptr p, size_t bytes))                                          \
    F(mem_access, "cuMemSetAccess", (cu_ptr p, size_t bytes, const cu_mem_access *a, size_t n))   \
    F(tensor_map_tiled, "cuTensorMapEncodeTiled",                                                 \
      (cu_tensor_map * map, int dtype, uint32_t rank, void *address, const uint64_t *dim,         \
       const uint64_t *stride_bytes, const uint32_t *box, const uint32_t *element_stride,         \
       int interleave, int swizzle, int l2_promotion, int oob_fill))

/* Driver functions that came after CUDA 12.3: a member is NULL if the driver lacks the function. */
#define CUDA_DRIVER_OPTIONAL(F)                        \
    F(kernel_param, "cuKernelGetParamInfo", /* 12.4 */ \
      (cu_kernel k, size_t index, size_t * offset, size_t * bytes))

typedef struct cuda_driver {
    void *library;
#define CUDA_MEMBER(member, symbol, params) cu_result(*member) params;
    CUDA_DRIVER_FUNCTIONS(CUDA_MEMBER)
    CUDA_DRIVER_OPTIONAL(CUDA_MEMBER)
#undef CUDA_MEMBER
} cuda_driver;

typedef struct nvrtc_program_st *nvrtc_program;

#define CUDA_NVRTC_FUNCTIONS(F)                                                             \
    F(version, "nvrtcVersion", (int *major, int *minor))                                    \
    F(n_archs, "nvrtcGetNumSupportedArchs", (int *n))                                       \
    F(archs, "nvrtcGetSupportedArchs", (int *arch))                                         \
    F(create, "nvrtcCreateProgram",                                                         \
      (nvrtc_program * p, const char *text, const char *name, int n_headers,                \
       const char *const *headers, const char *const *header_names))                        \
    F(destroy, "nvrtcDestroyProgram", (nvrtc_program * p))                                  \
    F(compile, "nvrtcCompileProgram", (nvrtc_program p, int n, const char *const *options)) \
    F(log_size, "nvrtcGetProgramLogSize", (nvrtc_program p, size_t * bytes))                \
    F(log, "nvrtcGetProgramLog", (nvrtc_program p, char *text))                             \
    F(cubin_size, "nvrtcGetCUBINSize", (nvrtc_program p, size_t * bytes))                   \
    F(cubin, "nvrtcGetCUBIN", (nvrtc_program p, char *bytes))

typedef struct cuda_nvrtc {
    void *library;
    int major, minor;
#define CUDA_MEMBER(member, symbol, params) int(*member) params;
    CUDA_NVRTC_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
} cuda_nvrtc;

/* Open a library and fill its table of functions. On failure the error is VT_ERR_DEVICE; its
 * message names the missing library and says where to get it. The libraries stay open until the
 * process ends, because unloading a driver while its threads run is not safe. */
vt_status cuda_driver_open(cuda_driver *d, vt_err *err);
vt_status cuda_nvrtc_open(cuda_nvrtc *n, vt_err *err);
/* Returns true if the driver's library is here; starts nothing. */
bool cuda_driver_found(void);
/* The driver is started, and cuda_driver_open does not call cuInit again. Once CUPTI has counted in
 * a process, a second cuInit waits for ever (seen on an H100, driver 580.159.04, CUPTI 13.0). */
void cuda_driver_stays_started(void);
/* Fails with VT_ERR_DEVICE and a message of `what` and the driver's name and text for error r. */
vt_status cuda_fail(const cuda_driver *d, cu_result r, const char *what, vt_err *err);

#endif
