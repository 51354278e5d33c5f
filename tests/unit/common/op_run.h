/* Runs ops like an executor, for tests: arguments come from cards, teams have 1 to OP_MAX_WORKERS
 * workers, workspaces are filled with NaN. Failures end the test. */
#ifndef VT_TESTS_OP_RUN_H
#define VT_TESTS_OP_RUN_H

#include "ops/op.h"

enum { OP_MAX_WORKERS = 4 };

typedef struct op_teams {
    vt_team *team[OP_MAX_WORKERS + 1]; /* [n] has n workers */
} op_teams;

int op_teams_setup(void **state);
int op_teams_teardown(void **state);

typedef struct op_args {
    vt_arena arena;
    void *args;
    vt_tensor *output[VT_MAX_OUTPUTS];
    int32_t n_outputs;
    bool untouched[VT_MAX_OUTPUTS]; /* all zeros after make_args: an output that is not read */
} op_args;

/* Makes arguments, always with the same seed: two calls give equal ones. */
void op_args_make(op_args *a, const vt_op *op, const vt_case *c);
void op_args_release(op_args *a);
/* Fills pure outputs with bytes 0xff: NaN, or -1. */
void op_poison(op_args *a);

/* Returns true if this is a CPU implementation whose instruction set this machine has. */
bool op_may_run(const vt_impl *impl);
/* Packs weights if there are any, and runs. */
void op_run(const vt_op *op, const vt_impl *impl, op_args *a, const op_teams *teams,
            int32_t workers);

/* max |got - want| / (1 + |want|) over all outputs; infinite where one is NaN and the other is not,
 * or where integers differ. */
double op_error(const op_args *got, const op_args *want);
/* Copies of the outputs and of all else that a call writes, as the card says: to make the same
 * call once more. */
enum { OP_MOST_WRITTEN = 64 };
typedef struct op_copy {
    vt_tensor *tensor[OP_MOST_WRITTEN];
    char *rows[OP_MOST_WRITTEN]; /* dense */
    int32_t n;
} op_copy;
op_copy op_copy_take(const vt_op *op, const op_args *a);
void op_copy_put(const op_copy *o);
/* Returns true if the tensors still have these bits. */
bool op_copy_same(const op_copy *o);
void op_copy_release(op_copy *o);

bool op_same_bits(const op_args *a, const op_args *b);

#endif
