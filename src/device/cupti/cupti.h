/* NVIDIA's CUPTI, opened by dlopen: it reads a GPU's hardware counters.
 *
 * Nothing here is needed to run a model. Where the library, the permission or a function is
 * missing, the error says which in one sentence, and whoever asked goes on without counters.
 *
 *   tier   what is told                                here
 *   T1     when every kernel and copy ran              activity.h
 *   T2     counters of the whole GPU over time         pm.h
 *   T3     counters of the kernels between two calls   vitals.h (which), ranges.h (counting)
 *   T4     what warps waited for, line by line         pc.h */
#ifndef VT_DEVICE_CUPTI_CUPTI_H
#define VT_DEVICE_CUPTI_CUPTI_H

#include <stdbool.h>

#include "base/err.h"
#include "device/cuda/cuda.h"
#include "device/cupti/cupti_api.h"

typedef struct vt_cupti {
    cupti_functions f;
    void *library;
    uint32_t version; /* 23: of CUDA 12.5; 130001: of CUDA 13.0 */
    char path[512];
    char no_ranges[160];   /* why ranges cannot be counted with this library; "": they can */
    char no_pm[160];       /* why it cannot sample the GPU over time; "": it can */
    char no_pc[160];       /* why it cannot sample the program counter; "": it can */
    char no_activity[160]; /* why it writes no records of kernels and copies; "": it does */
} vt_cupti;

/* Opens the library that VITRINE_CUPTI names, or else the newest that is installed.
 * VT_ERR_UNSUPPORTED: there is none, or it lacks a function that every CUPTI has. It stays open. */
vt_status vt_cupti_open(vt_cupti *c, vt_err *err);
/* Writes the library's CUDA version: "12.5"; "of API version 99" where it is not known. */
void vt_cupti_release(uint32_t version, char *out, size_t size);

/* An error if the library has no function `symbol`, which newer ones have. */
vt_status vt_cupti_has(const vt_cupti *c, const char *symbol, vt_err *err);

/* Returns VT_OK if CUPTI answered with success; else the error says what it was doing, and of the
 * answers that people meet what can be done about them. */
vt_status vt_cupti_check(const vt_cupti *c, int status, const char *doing, vt_err *err);

/* An error if `api` (CUPTI_API_...) does not work on this GPU: which part of the machine is against
 * it. Says nothing of permissions. */
vt_status vt_cupti_supported(const vt_cupti *c, const vt_cuda *gpu, int api, vt_err *err);

/* The counters that this process may read on a GPU, whose context is current: *out gets *bytes
 * bytes, which the caller frees. VT_ERR_UNSUPPORTED: the driver forbids it. */
vt_status vt_cupti_availability(const vt_cupti *c, const vt_cuda *gpu, uint8_t **out, size_t *bytes,
                                vt_err *err);
/* The chip's name, by which CUPTI knows its counters: "GH100". */
vt_status vt_cupti_chip(const vt_cupti *c, const vt_cuda *gpu, const char **out, vt_err *err);

#endif
