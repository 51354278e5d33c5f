/* Other programs that labs and profiles need: nvcc, nsys, ncu. They are found and asked for their
 * version; no shell is involved, and a program that does not end is ended. */
#ifndef VT_DEVICE_TOOL_H
#define VT_DEVICE_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vitrine.h"

typedef struct vt_tool {
    const char *name;
    bool found;       /* there is such a program */
    bool runs;        /* it told its version */
    char path[512];   /* where it was found */
    char version[32]; /* "2024.5.1.113" */
    char why[512];    /* why not; "" */
} vt_tool;

/* Looks for the program in the folders of PATH and in those where NVIDIA's packages put it
 * ($CUDA_HOME/bin, /usr/local/cuda/bin, /opt/nvidia/nsight-*), and runs `name --version` for at
 * most limit_ms. `name` must stay valid. */
void vt_tool_look(const char *name, int32_t limit_ms, vt_tool *out);
bool vt_tool_find(const char *name, char *path, size_t size);
/* Runs argv[0] (a path) with stdin and stderr on /dev/null, and keeps the beginning of what it
 * writes to stdout. Fails if it cannot be started, ends with another status than 0, or takes longer
 * than limit_ms; then it and the processes that it started are killed. */
vt_status vt_tool_output(const char *const *argv, int32_t limit_ms, char *out, size_t size,
                         vt_err *err);
/* The first number with a dot in a program's answer: "2024.5.1.113". False: there is none. */
bool vt_tool_version(const char *text, char *out, size_t size);

#endif
