/* The ranks on GPUs send each other this without a meeting (comm.cuh). The host's code and the
 * kernels include this file.
 *
 *   behind the part_bytes of vt_comm_gpu.part
 *   inboxes: [COMM_INBOXES][ranks][COMM_INBOX_BYTES] */
#ifndef VT_OPS_COMM_INBOX_PARAMS_H
#define VT_OPS_COMM_INBOX_PARAMS_H

enum {
    COMM_INBOXES = 4,
    COMM_INBOX_BYTES = 512 << 10 /* of the packets of one rank: twice as many as of its values */
};

/* Bytes of a rank's inboxes. They must be zero at first. */
#define comm_inbox_bytes(ranks) ((size_t)COMM_INBOXES * COMM_INBOX_BYTES * (size_t)(ranks))

#endif
