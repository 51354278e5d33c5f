/* The time of an all-reduce between ranks that are not here, computed from this machine's roofs.
 *
 *              bytes over each rank's link    meetings
 *   one-shot   (n-1) S                        2          each rank reads all other buffers
 *   two-shot   2 (n-1)/n S                    3          each sums its n-th part; all gather
 *   ring       2 (n-1)/n S                    2 (n-1)    parts go round, a neighbour at a time
 *
 * Why one-shot has two meetings and not one: a rank may read the others' registered buffers only
 * after all have written them, which is the first meeting. It may write its own buffer for the next
 * layer only after all have read it, which is the second. Two buffers in turn would save the second
 * one; here each rank has one. Two-shot has the same two, and one more between summing and
 * gathering, because a part can be gathered only when it is summed. A step of a ring is a meeting
 * of two neighbours, and its last step ends it.
 *
 * Each rank also reads its own buffer and writes the sum in its own memory. */
#ifndef VT_LAB_KIT_ALL_REDUCE_H
#define VT_LAB_KIT_ALL_REDUCE_H

#include "lab/kit/lab.h"

typedef struct lab_link {
    double per_s;      /* bytes a second in each direction, between the memories of two ranks */
    double copy_per_s; /* bytes read and written in a rank's own memory */
    double meeting_s;  /* all ranks meet; NAN: not measured */
    bool shared;       /* all ranks share these rates: a CPU's processes have one memory */
    const char *what;  /* what per_s is */
} lab_link;

typedef enum lab_sum_form { LAB_ONE_SHOT, LAB_TWO_SHOT, LAB_RING } lab_sum_form;

/* Returns what joins two ranks here: a CPU's memory, or the link to the host's memory, which is the
 * only one that a single GPU can measure. per_s is not above 0 where no roofs are measured. */
lab_link lab_link_here(const lab *l);
/* Of n ranks, each with `bytes` to sum; 0 for one rank. */
double lab_all_reduce_s(const lab_link *link, lab_sum_form form, int n, double bytes);
/* From this size on two-shot beats one-shot. Infinite for two ranks, which send as much either
 * way. */
double lab_two_shot_from(const lab_link *link, int n);

#endif
