/* The time of an all-reduce, modelled (all_reduce.h). */
#include "lab/kit/all_reduce.h"

#include <math.h>

lab_link lab_link_here(const lab *l)
{
    const vt_roofs *r = &l->roofs;
    double meeting_s = vt_roofs_launch_s(r, false);
    lab_link link = {.copy_per_s = r->copy_bytes_per_s,
                     .meeting_s = meeting_s > 0 ? meeting_s : NAN};
    if (l->ordinal < 0) {
        link.per_s = r->copy_bytes_per_s / 2;
        link.shared = true;
        link.what = "half of the measured memory copy roof, which all ranks share: a byte of "
                    "another process is read, and written here";
    } else if (r->to_device_bytes_per_s > 0 && r->from_device_bytes_per_s > 0) {
        link.per_s = 1 / (1 / r->to_device_bytes_per_s + 1 / r->from_device_bytes_per_s);
        link.what = "through pinned host memory: each byte goes up to it and then down, at the two "
                    "measured rates";
    }
    return link;
}

double lab_all_reduce_s(const lab_link *link, lab_sum_form form, int n, double bytes)
{
    double sent = form == LAB_ONE_SHOT ? (n - 1) * bytes : 2.0 * (n - 1) / n * bytes,
           meetings = form == LAB_ONE_SHOT   ? 2
                      : form == LAB_TWO_SHOT ? 3
                                             : 2.0 * (n - 1);
    if (n == 1)
        return 0;
    return meetings * link->meeting_s +
           (link->shared ? n : 1) * (sent / link->per_s + 2 * bytes / link->copy_per_s);
}

/* There the bytes that two-shot saves take as long as its extra meeting. */
double lab_two_shot_from(const lab_link *link, int n)
{
    double saved = (n - 1) * (1 - 2.0 / n) * (link->shared ? n : 1);
    return saved > 0 ? link->meeting_s * link->per_s / saved : INFINITY;
}
