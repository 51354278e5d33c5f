/* The emulated GPU (tests/emulator) for a test program: the setup function of a group of tests. */
#ifndef VT_TESTS_EMULATED_GPU_H
#define VT_TESTS_EMULATED_GPU_H

/* Loads the libraries of BUILD/emulator before any others, so that the product's dlopen finds them
 * by their names. Compiled kernels are kept in build/emulator-cache, separate from those of real
 * GPUs; the programs of all builds share them. */
int emulated_gpu_open(void **state);

#endif
