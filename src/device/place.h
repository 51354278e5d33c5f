/* Where the threads of ranks sit on a CPU with several NUMA nodes: each rank on one node, the ranks
 * spread over the nodes.
 *
 *   2 nodes of 8 CPUs, 3 ranks of 4 threads      rank 0: node 0   rank 1: node 0   rank 2: node 1
 *
 * A page of memory lies on the node of the thread that writes it first. Ranks pack their weights
 * and fill their cache themselves, so what they read is near if their threads stay where they are.
 */
#ifndef VT_DEVICE_PLACE_H
#define VT_DEVICE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "device/topology.h"

/* Sets cpu[r * n_threads + w] of worker w of rank r, no CPU twice. allowed: [n_allowed] the CPUs
 * that this process may use, rising; each node's last ones are taken first. False: these CPUs are
 * of one node, or some node has too few for its ranks; then a rank has no place of its own. */
bool vt_place_ranks(const vt_topology *t, const int32_t *allowed, int32_t n_allowed,
                    int32_t n_ranks, int32_t n_threads, int32_t *cpu);

#endif
