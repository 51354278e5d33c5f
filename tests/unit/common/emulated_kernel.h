/* Kernels on the emulated GPU without a driver: compiled by its NVRTC, run by its runtime. */
#ifndef VT_TESTS_EMULATED_KERNEL_H
#define VT_TESTS_EMULATED_KERNEL_H

#include "../../emulator/emulator.h"
#include "device/cuda/cuda_api.h"

typedef struct emulated_runtime {
    cuda_nvrtc nvrtc;
    emu_module *(*load)(const void *, size_t, char *, size_t);
    void (*unload)(emu_module *);
    int (*run)(const emu_launch *, char *, size_t);
    int (*shared)(emu_module *, const char *);
    char message[4096];
} emulated_runtime;

extern emulated_runtime emu;

/* The setup function of a group of tests. */
int emulated_kernels_open(void **state);

/* Compiles `kernel` after ptx.cuh (and ptx_sm90.cuh). NULL on failure, with the log in
 * emu.message. The caller frees a cubin, and unloads a module. */
char *emulated_cubin(const char *kernel, const char *arch, size_t *size);
emu_module *emulated_compile(const char *kernel, const char *arch);

#endif
