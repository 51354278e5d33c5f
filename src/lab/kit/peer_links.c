/* The rate of the links between GPUs (peer_links.h). */
#include "lab/kit/peer_links.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "ops/all_reduce/all_reduce.h"
#include "ops/bench/comm_gpus.h"

enum { EACH = 2 }; /* bytes of a BF16 value */

/* A link moves `bytes` once over it each way in p2p; through the host every rank writes its buffer
 * there and reads both. */
static double crossings(const char *way) { return strcmp(way, "host") == 0 ? 2 : 1; }

static vt_status sum(comm_gpus *g, double bytes, int32_t repetitions, double *s, vt_err *err)
{
    comm_result r;
    const comm_ask ask = {.op = &all_reduce_op,
                          .row = "one-shot",
                          .rows = 1,
                          .n = (int64_t)bytes / EACH,
                          .how = COMM_REGISTERED,
                          .repetitions = repetitions};
    TRY(comm_gpus_run(g, &ask, &r, err));
    *s = (double)r.median_ns * 1e-9;
    return VT_OK;
}

vt_status lab_peer_link_measure(const lab *l, const int32_t gpu[2], const char *way,
                                lab_peer_link *out, vt_err *err)
{
    comm_gpus *g;
    lab_peer_link link = {.small_bytes = 16384, .large_bytes = 1 << 23};
    double middle = 1 << 21, middle_s = NAN;
    int32_t repetitions = l->quick ? 5 : 20;
    if (l->emulated)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "times mean nothing on an emulated GPU");
    TRY(comm_gpus_open(gpu, 2, way, &g, err));
    vt_status status = sum(g, link.small_bytes, repetitions, &link.small_s, err);
    if (status == VT_OK)
        status = sum(g, middle, repetitions, &middle_s, err);
    if (status == VT_OK)
        status = sum(g, link.large_bytes, repetitions, &link.large_s, err);
    comm_gpus_close(g);
    TRY(status);
    double more_s = link.large_s - middle_s;
    link.per_s = more_s > 0 ? crossings(way) * (link.large_bytes - middle) / more_s : NAN;
    *out = link;
    return VT_OK;
}
