/* Cases beyond the cards': weights and shapes of the models that a GPU serves. Parameters mean what
 * the card's make_args makes of them. */
#ifndef VT_TESTS_GPU_CASES_H
#define VT_TESTS_GPU_CASES_H

#include "ops/linear/linear.h"
#include "ops/op.h"

typedef struct gpu_case {
    const char *op;
    bool f32_out; /* linear: fp32 results, as the head has them */
    vt_case c;
    uint64_t seed; /* of the arguments' values; 0: 42 */
    /* NULL: the card's */
    void *(*make)(const vt_case *c, uint64_t seed, vt_arena *arena,
                  vt_tensor *outputs[VT_MAX_OUTPUTS], int32_t *n_outputs);
} gpu_case;

extern const gpu_case gpu_cases[];

/* A case of `op` of a random shape (gpu_random.c), a function of seed and number. Its name is
 * static and begins "random NUMBER:". False: there are none of this op. */
bool gpu_random_case(const char *op, uint64_t seed, int32_t number, gpu_case *out);

#endif
