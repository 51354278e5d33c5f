/* A program on one thread, run call by call, with weights and a KV cache of its own. */
#ifndef VT_TESTS_PROGRAM_RUN_H
#define VT_TESTS_PROGRAM_RUN_H

#include "base/team.h"
#include "exec/program.h"

enum { PROGRAM_PAGE = 8 };

typedef struct program_run {
    vt_team *team;
    vt_weights *w;
    vt_kv_cache kv;
    vt_program *p;
    void *workspace, *plan[VT_MAX_PLANS];
    int32_t items[VT_MAX_PLANS];
} program_run;

/* Makes the program of the layout's model for steps of at most `tokens` tokens, with as many slots
 * of FP32 KV. Frees the layout. Tests end with a message if it cannot be made. */
program_run program_run_new(vt_layout *l, const vt_kv_shape *shape, int32_t tokens, vt_end end);
/* The same for a rank of a group: the layout and the shape are its shard. */
program_run program_run_rank(vt_layout *l, const vt_kv_shape *shape, int32_t tokens, vt_end end,
                             vt_comm_rank *comm);
void program_run_free(program_run *r);
/* Binds a step, whose arrays stay the caller's, and makes its plans. */
void program_run_bind(program_run *r, const vt_batch *batch);
void program_run_call(program_run *r, int32_t call);

#endif
