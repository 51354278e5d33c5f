/* The rate of the links between GPUs, measured. Two ranks sum buffers of two sizes by the one-shot
 * row, which reads a peer's whole buffer over the link; what the larger one takes longer is the
 * time of its further bytes, without the launch and the meeting that both have. */
#ifndef VT_LAB_KIT_PEER_LINKS_H
#define VT_LAB_KIT_PEER_LINKS_H

#include "lab/kit/lab.h"

typedef struct lab_peer_link {
    double small_bytes, small_s; /* a sum of few bytes: launch and meeting */
    double large_bytes, large_s;
    double per_s; /* bytes a second, each way at once; NAN: the larger sum took no longer */
} lab_peer_link;

/* Sums between two GPUs. `way`: a value of option tp-link, "p2p" or "host". Fails with the reason
 * why the two cannot meet so; on an emulated GPU too, whose times mean nothing. */
vt_status lab_peer_link_measure(const lab *l, const int32_t gpu[2], const char *way,
                                lab_peer_link *out, vt_err *err);

#endif
