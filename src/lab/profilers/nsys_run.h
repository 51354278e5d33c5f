/* A request of the lab's model under NVIDIA Nsight Systems (--nsys): its report, which nsys-ui
 * opens, and what `nsys stats` says of kernels and ranges. */
#ifndef VT_LAB_PROFILERS_NSYS_RUN_H
#define VT_LAB_PROFILERS_NSYS_RUN_H

#include "lab/kit/lab.h"

/* Tells the item nsys; the report is NAME.nsys-rep in the lab's results. Without --nsys or nsys,
 * and where nsys fails, the item is missing with the reason. An nsys that has no importer leaves
 * NAME.qdstrm, and the item says how to open that. Fails only for want of memory. */
vt_status lab_nsys(lab *l, const char *name, vt_err *err);

#endif
