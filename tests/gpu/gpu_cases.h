/* Cases beyond the cards': weights and shapes of the models that a GPU serves, as text
 * (ops/case_text.h), and cases of random shapes. */
#ifndef VT_TESTS_GPU_CASES_H
#define VT_TESTS_GPU_CASES_H

#include "ops/case_text.h"

/* Like vt_op.make_args. */
typedef void *(*gpu_make)(const vt_case *c, uint64_t seed, vt_arena *arena,
                          vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs);

typedef struct gpu_case {
    const char *op, *shape;
    bool large;       /* left out of --small */
    const char *name; /* NULL: the fields of the shape */
    gpu_make make;    /* NULL: the card's */
} gpu_case;

extern const gpu_case gpu_cases[]; /* ends with an op of NULL */

/* One call to run: a case with the seed of its values. */
typedef struct gpu_call {
    vt_case c;
    char name[192];
    uint64_t seed;
    gpu_make make;
    bool large;
} gpu_call;

enum { GPU_MOST_CALLS = 16 };

/* The calls of a case, one for each combination of its shape's values, into out[0 .. *n). */
vt_status gpu_calls_of(const vt_op *op, const gpu_case *g, gpu_call *out, int32_t *n, vt_err *err);
/* Makes a random case of `op` (ops/case_draw.h), which depends on seed and number. Its name begins
 * with "random NUMBER:". False: this op has none that a GPU could run. */
bool gpu_random_call(const vt_op *op, uint64_t seed, int32_t number, gpu_call *out);

#endif
