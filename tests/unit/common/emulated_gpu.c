#include "emulated_gpu.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int emulated_gpu_open(void **state)
{
    char path[1024], file[1100];
    (void)state;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return 1;
    path[n] = 0;
    *strrchr(path, '/') = 0; /* BUILD/tests */
    snprintf(file, sizeof file, "%s/../emulator/libnvrtc.so.13", path);
    setenv("VITRINE_NVRTC", file, 1);
    snprintf(file, sizeof file, "%s/../../emulator-cache", path);
    setenv("VITRINE_CACHE", file, 1);
    snprintf(file, sizeof file, "%s/../emulator/libcuda.so.1", path);
    bool there = dlopen(file, RTLD_NOW | RTLD_LOCAL) != NULL;
    snprintf(file, sizeof file, "%s/../emulator/libcublasLt.so.13", path);
    there = there && dlopen(file, RTLD_NOW | RTLD_LOCAL);
    snprintf(file, sizeof file, "%s/../emulator/libnccl.so.2", path);
    if (there && dlopen(file, RTLD_NOW | RTLD_LOCAL))
        return 0;
    fprintf(stderr, "%s (make emulator)\n", dlerror());
    return 1;
}
