/* Mixture of experts: routing, then the experts' linears.
 *
 * moe_route:  p = softmax(x Wr^T + bias) over experts in fp32; the k largest, in falling order
 *             (ties: the lower index); weights p, or p / sum of the chosen. A token's experts are
 *             always different ones within [0, experts), even where logits are not numbers (its
 *             weights are then NaN).
 *             With `sigmoid` p = sigmoid(x Wr^T + bias) instead, each expert's own. The choice is
 *             then by c = p + choice, where such a bias is given, and among the experts of the
 *             `groups_used` groups alone whose two largest c have the largest sums (experts stand
 *             in the order of their groups; of equal sums the first). Weights are p, or
 *             p / (sum + 1e-20); one that is not a number stays so.
 *             Weights of either kind are multiplied by `scale` (0 counts as 1), and by their
 *             expert's number in `by_expert`, if there is one.
 *             With `mine` above 0 a rank has experts [first, first + mine): these are numbered from
 *             0 in `expert`, and others become -1 with weight 0.
 * moe_linear: y[t] (+)= sum_j weight[t, j] * down_e( act(gate_e x[t]) * up_e x[t] ),
 *             e = expert[t, j].
 *             Experts without a gate (VT_ACT_RELU2): down_e( act(up_e x[t]) ).
 *
 * Where there are biases (with gates alone), gate_e, up_e and down_e are products with their bias
 * added; down_e without one where down_bias is NULL (of ranks that share each expert, one adds it).
 *
 * Choices that are -1, with weight 0, go to no expert: all of a padding token of a GPU's step, and
 * on a rank those of other ranks' experts. A token without others has the sum 0. Only the run knows
 * which experts are read: cost() assumes min(experts, choices) different ones, and on a rank that
 * each expert of all ranks is chosen as often. */
#ifndef VT_OPS_MOE_H
#define VT_OPS_MOE_H

#include "model/model.h"
#include "ops/op.h"

typedef struct moe_route_args {
    const vt_tensor *x;         /* [tokens, hidden] */
    const vt_tensor *router;    /* [experts, hidden] float type */
    const vt_tensor *bias;      /* [experts] float type, or NULL */
    const vt_tensor *choice;    /* [experts] float type, or NULL; of sigmoids alone */
    const vt_tensor *by_expert; /* [experts] float type, or NULL */
    int32_t k;
    bool normalise, sigmoid;
    int32_t groups, groups_used; /* of sigmoids alone; 0: there are none */
    float scale;
    int32_t first, mine; /* the rank's experts; mine 0: all of them */
    vt_tensor *expert;   /* [tokens, k] int32; -1: padding, or another rank's */
    vt_tensor *weight;   /* [tokens, k] fp32 */
} moe_route_args;

typedef struct moe_linear_args {
    const vt_tensor *x;               /* [tokens, hidden] */
    const vt_tensor *expert, *weight; /* of moe_route */
    const vt_weight *gate_up;         /* [n_experts] paired weights; without gates up alone */
    const vt_weight *down;            /* [n_experts] */
    const vt_tensor *bias;            /* [2 n_experts, ffn], of all gates and then of all ups; */
    const vt_tensor *down_bias;       /* [n_experts, hidden], or NULL; float types */
    int32_t n_experts;
    int32_t all_experts; /* of all ranks, which the choices are divided among; 0: n_experts */
    vt_activation activation;
    float limit;  /* of VT_ACT_CLAMPED */
    vt_tensor *y; /* [tokens, hidden]; y += when accumulate */
    bool accumulate;
} moe_linear_args;

/* Returns true if the experts have gates. */
static inline bool moe_gated(const moe_linear_args *a) { return a->activation != VT_ACT_RELU2; }

/* Returns how many of the choices go to the call's experts, if as many go to each expert. */
static inline int64_t moe_own_pairs(const moe_linear_args *a, int64_t pairs)
{
    return a->all_experts > 0 ? vt_ceil_div(pairs * a->n_experts, a->all_experts) : pairs;
}

extern const vt_op moe_route_op;
extern const vt_op moe_linear_op;

#endif
