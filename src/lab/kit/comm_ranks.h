/* All-reduces between ranks that are really here: threads of the CPU, or GPUs. What all_reduce.h
 * models is measured wherever two ranks can meet. */
#ifndef VT_LAB_KIT_COMM_RANKS_H
#define VT_LAB_KIT_COMM_RANKS_H

#include "lab/kit/lab.h"
#include "ops/bench/comm_gpus.h"

typedef struct lab_comm {
    int32_t n;       /* ranks; 0: none can meet */
    comm_gpus *gpus; /* NULL: threads of the CPU */
    bool nccl;       /* beside our rows */
    int32_t repetitions;
    char why[512]; /* n is 0: what is missing */
} lab_comm;

/* Lets n ranks meet on the lab's device: a thread each, of as many as the lab has, or the first n
 * GPUs. Where that cannot be, c->n is 0 and c->why says so. */
void lab_comm_open(const lab *l, int32_t n, lab_comm *c);
void lab_comm_close(lab_comm *c);

/* Times reduce_scatter of `bytes` on every rank and all_gather of the parts, one after the other:
 * the two halves of a two-shot all_reduce as ops of their own. *out has their times added. */
bool lab_comm_halves(const lab_comm *c, double bytes, comm_result *out);

/* Times an all_reduce of `bytes` on every rank. `row`: of the card; NULL: what a program takes;
 * "nccl". False: nothing here can run it. */
bool lab_comm_sum(const lab_comm *c, const char *row, double bytes, comm_how how, comm_result *out);

#endif
