/* The part of lab sglang 00 that looks at the machine. */
#ifndef VT_LAB_SGLANG_CHECK_ENV_H
#define VT_LAB_SGLANG_CHECK_ENV_H

#include "lab/kit/lab.h"

/* Tells the items topology, gpus, links, groups, crossings, peer_links and tiers, and whether the
 * environment is ready. */
vt_status sglang_topology(lab *l, vt_err *err);

#endif
