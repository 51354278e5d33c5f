/* Lab sglang 05, last part: what ncu's counters say of the attention kernel (--ncu). */
#include "lab/ncu_run.h"
#include "lab/sglang_attention.h"
#include "lab/sglang_inside.h"

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
}
