/* The emulated GPU (tests/emulator) for a test program: the setup function of a group of tests. */
#ifndef VT_TESTS_EMULATED_GPU_H
#define VT_TESTS_EMULATED_GPU_H

#include <stdbool.h>
#include <stddef.h>

/* The path of a file in BUILD/emulator. */
bool emulated_gpu_file(const char *name, char *out, size_t size);

/* Loads the libraries of BUILD/emulator before any others, so that the product's dlopen finds them
 * by their names. Compiled kernels are kept in build/emulator-cache, separate from those of real
 * GPUs; the programs of all builds share them. */
int emulated_gpu_open(void **state);

#endif
