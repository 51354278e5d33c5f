/* A group of ranks, as the communication ops see it: registered buffers and flags.
 *
 *   rank 0   part ─┐  flag 17        A buffer is a tensor of a rank that its peers read: each rank
 *   rank 1   part ─┼  flag 16        registers one for each slot, once. A flag is the number of
 *   rank 2   part ─┘  flag 17        communication calls that its rank has come to.
 *
 * The calls of a step are numbered from 1, in the order of the program, which all ranks share. In
 * call k a rank sets its flag to base + k, when its buffer is written, and waits until the flags of
 * its peers are there. Flags only grow, so they need no reset: the next step has a larger base.
 *
 * Two calls that follow each other have different slots, the last of a step and the first of the
 * next too. A rank writes a slot again behind the call after the one that used it, and no peer
 * passes that call before it has read the slot.
 *
 * Ranks add in the order of their numbers, so all of them get the same bits.
 *
 * On GPUs buffers are device addresses, which every rank's GPU can read, and ranks meet inside the
 * kernels (comm.cuh), with flags of their own (vt_comm_gpu). */
#ifndef VT_OPS_COMM_H
#define VT_OPS_COMM_H

#include "base/word.h"
#include "device/roofs/comm_limits.h"
#include "ops/comm_params.h"
#include "ops/op.h"

enum { VT_MAX_RANKS = 64 };

/* The slots of the registered buffers. */
typedef enum vt_comm_slot {
    VT_SLOT_EMBED,  /* the rows of the embedding */
    VT_SLOT_MIXER,  /* partial sums of the layer's attention */
    VT_SLOT_FFN,    /* of its feed-forward */
    VT_SLOT_NORM,   /* sums of squares of its part of what is normalised */
    VT_SLOT_LOGITS, /* the logits of the rank's part of the vocabulary */
    VT_COMM_SLOTS
} vt_comm_slot;

/* The ranks of a group on GPUs share this beside their buffers. */
typedef struct vt_comm_gpu {
    uint32_t *flag[COMM_GPU_RANKS]; /* in each rank's memory (comm_params.h) */
    void *part[COMM_GPU_RANKS];     /* [part_bytes] sums for all; inboxes behind them */
    size_t part_bytes;              /* 0: no call makes such sums */
    /* In host memory, which all GPUs can write: 0, or comm_failure of a rank that did not come, or
     * COMM_FAILED_ON_HOST. Waits end soon after it is set. */
    uint32_t *failed;
    uint64_t limit_ns; /* how long a rank is waited for; 0: for ever */
    bool together;     /* two ranks are on one GPU: their grids must fit there at the same time */
    vt_comm_limits limits; /* of the forms of a sum; all 0: the fixed ones */
    /* The link is the host's memory: flags and parts lie in it, there are no inboxes, and a call
     * first copies what its rank registered to stage[slot][rank], where the peers read it. */
    bool staged;
    void *stage[VT_COMM_SLOTS][COMM_GPU_RANKS];
} vt_comm_gpu;

enum { COMM_FAILED_ON_HOST = 0xff }; /* the host ends all waits: a launch failed */

typedef struct vt_comm {
    int32_t n;
    vt_word *flag; /* [n] */
    const vt_tensor *buffer[VT_COMM_SLOTS][VT_MAX_RANKS];
    /* The first rank that failed; -1: none has. Waits end at once then, and what the calls of this
     * step compute means nothing. */
    atomic_int failed;
    vt_comm_gpu *gpu; /* NULL: the ranks are on a CPU */
} vt_comm;

/* A rank's calls know this of the group. */
typedef struct vt_comm_rank {
    vt_comm *group;
    int32_t rank;
    unsigned base; /* of the current step */
} vt_comm_rank;

/* Makes a group of n ranks, 1 to VT_MAX_RANKS, without buffers. */
vt_status vt_comm_new(int32_t n, vt_comm **out, vt_err *err);
void vt_comm_free(vt_comm *c);
/* Notes that a rank failed, unless another one did before. */
void vt_comm_fail(vt_comm *c, int32_t rank);

/* Call k of a step: says that this rank has come to it and waits for its peers. All workers of the
 * rank call this; worker 0 speaks for the rank. Returns false if a rank failed. */
bool vt_comm_meet(const vt_comm_rank *c, unsigned k, const vt_lane *lane);

/* ---- for rows on a GPU (comm_cuda.c) ---- */

/* The functions of such a row's plan, which brings the step's base to the device. The first member
 * of the op's args is the rank: const vt_comm_rank *. */
int32_t vt_comm_plan_items(const void *args, const vt_target *t, const vt_size *size,
                           const vt_batch *batch);
size_t vt_comm_plan_bytes(const void *args, const vt_target *t, const vt_size *size, int32_t items);
int32_t vt_comm_plan_fill(const void *args, const vt_target *t, const vt_size *size,
                          const vt_batch *batch, int32_t items, void *out, void *side);
/* Bytes of the largest sum of `hidden` columns that a rank makes for all; 0: two ranks make
 * none. */
size_t vt_comm_part_bytes(int32_t ranks, int32_t max_tokens, int32_t hidden);
/* Gives a staged group its memory: a block of vt_comm_stage_bytes in pinned host memory, zeroed
 * here, of which the first bytes are *failed. `slot` has for each slot the bytes of the largest
 * buffer that a rank registers for it. */
size_t vt_comm_stage_bytes(const vt_comm_gpu *g, int32_t ranks, const size_t slot[VT_COMM_SLOTS]);
void vt_comm_stage_place(vt_comm_gpu *g, int32_t ranks, const size_t slot[VT_COMM_SLOTS],
                         void *block);
/* Fills in where a call reads what each rank registered, and where it copies its own; NULL: it does
 * not. */
void *vt_comm_sources(const vt_comm_rank *c, vt_comm_slot slot, const void *x[COMM_GPU_RANKS]);
/* Returns where rank r of a group that is not staged is sent packets. */
void *vt_comm_inbox(const vt_comm_rank *c, int32_t r);
/* Returns the limits of a group on GPUs. */
vt_comm_limits vt_comm_limits_of(const vt_comm *c);
/* Makes what call number `order` of a step tells its kernel. */
comm_params vt_comm_params(const vt_comm_rank *c, unsigned order, const vt_lane *lane);
/* Returns the number of CTAs of a call over so many vectors: the same on all ranks. */
uint32_t vt_comm_ctas(const vt_comm_rank *c, int64_t vectors);

/* Returns the bytes that a call brings to its rank over the links from its peers; 0 for an op that
 * joins no ranks. They are part of what the card's cost reads. `row` runs the call; NULL: the least
 * of any row. Batch as in vt_op.cost. */
int64_t vt_comm_link_bytes(const vt_op *op, const vt_impl *row, const void *args,
                           const vt_batch *batch);

/* A group for a card's case: `rank` of n, whose peers have come to every call. NULL: the arena is
 * out of memory. */
vt_comm_rank *case_comm(vt_arena *arena, int32_t rank, int32_t n);

#endif
