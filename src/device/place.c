/* Placing ranks on NUMA nodes (device/place.h). */
#include "device/place.h"

#include <ctype.h>
#include <stdlib.h>

/* Returns true if a list such as "0-3,8" has the CPU. A list that was cut ends before its "...". */
static bool lists(const char *list, int32_t cpu)
{
    for (const char *p = list; isdigit((unsigned char)*p);) {
        char *end;
        long first = strtol(p, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        if (cpu >= first && cpu <= last)
            return true;
        p = *end == ',' ? end + 1 : end;
    }
    return false;
}

/* The `nth` allowed CPU of a node, from its end; -1: it has fewer. */
static int32_t cpu_of(const vt_node *node, const int32_t *allowed, int32_t n, int32_t nth)
{
    while (n-- > 0)
        if (lists(node->cpus, allowed[n]) && nth-- == 0)
            return allowed[n];
    return -1;
}

bool vt_place_ranks(const vt_topology *t, const int32_t *allowed, int32_t n_allowed,
                    int32_t n_ranks, int32_t n_threads, int32_t *cpu)
{
    const vt_node *node[VT_MAX_NODES];
    int32_t taken[VT_MAX_NODES] = {0}, n = 0;
    for (int32_t i = 0; i < t->n_nodes; i++)
        if (cpu_of(&t->node[i], allowed, n_allowed, 0) >= 0)
            node[n++] = &t->node[i];
    if (n < 2)
        return false;
    for (int32_t r = 0; r < n_ranks; r++) {
        int32_t on = (int32_t)((int64_t)r * n / n_ranks);
        for (int32_t w = 0; w < n_threads; w++) {
            int32_t c = cpu_of(node[on], allowed, n_allowed, taken[on]++);
            if (c < 0)
                return false;
            cpu[r * n_threads + w] = c;
        }
    }
    return true;
}
