/* NVTX ranges: named spans of the host's time that NVIDIA's profilers draw beside the kernels
 * (nsys) and choose kernels by (ncu --nvtx-include). A profiler names its library by the variable
 * NVTX_INJECTION64_PATH; without one every function here returns at once. All of them may be called
 * from any thread. */
#ifndef VT_DEVICE_NVTX_H
#define VT_DEVICE_NVTX_H

#include <stdbool.h>
#include <stdint.h>

/* Looks for a profiler; the first call does the work. Returns true if one listens. */
bool vt_nvtx_on(void);

/* Ranges of a thread: each is inside the one before it. `text` is read during the call. */
void vt_nvtx_push(const char *text);
void vt_nvtx_pop(void);
/* The same with a number behind the text: "step 12". */
void vt_nvtx_push_number(const char *text, uint64_t number);

/* A range that may overlap others, and end on another thread. Returns what ends it; 0: nobody
 * listens. */
uint64_t vt_nvtx_begin(const char *text, uint64_t number);
void vt_nvtx_end(uint64_t range);

#endif
