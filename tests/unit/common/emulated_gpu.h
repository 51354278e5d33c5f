/* The emulated GPU (tests/emulator) for a test program: a group's setup function. */
#ifndef VT_TESTS_EMULATED_GPU_H
#define VT_TESTS_EMULATED_GPU_H

/* Loads BUILD/emulator's libraries before any others, so that the product's dlopen finds them by
 * their names. Compiled kernels are kept in build/emulator-cache, apart from those of real GPUs,
 * and the programs of all builds share them. */
int emulated_gpu_open(void **state);

#endif
