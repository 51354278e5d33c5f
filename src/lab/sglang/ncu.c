/* Lab sglang 05, last part: what ncu's counters say of the attention kernel (--ncu). */
#include "lab/profilers/ncu_run.h"
#include "lab/sglang/attention.h"
#include "lab/sglang/inside.h"

void sglang_ncu(lab *l, const char *op, const char *shape, const lab_kernel *k)
{
    char why[LAB_NCU_WHY];
    lab_counters c;
    const lab_kernel_ask ask = {.op = op, .shape = shape, .impl = k ? k->impl : NULL};
    if (!lab_ncu_read(l, &ask, "attention", "ncu_attention.csv", &c, why)) {
        lab_missing(l, "stalls", "%s", why);
        lab_missing(l, "counters", "%s", why);
        return;
    }
    lab_ncu_counters(l, "counters", &c, k);
    lab_ncu_stalls(l, "stalls", &c);
    lab_signs signs = k ? lab_signs_kernel(l, k) : lab_signs_none();
    signs.barrier_share = c.signs.barrier_share;
    signs.memory_waits = c.signs.memory_waits;
    signs.memory_share = c.signs.memory_share;
    signs.issue_share = c.signs.issue_share;
    signs.matrix_share = c.signs.matrix_share;
    lab_tell_causes(l, &signs, "the kernel that ncu saw");
}
