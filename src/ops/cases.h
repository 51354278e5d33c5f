/* Helpers for a card's make_args: random tensors, weights and batches, all in one arena.
 *
 * Random numbers come from splitmix64, so a case is a pure function of its seed on every machine.
 * Every function returns NULL when the arena is out of memory, and takes NULL tensors without harm,
 * so that make_args may build everything and check once. */
#ifndef VT_OPS_CASES_H
#define VT_OPS_CASES_H

#include "ops/op.h"

/* The members of a card, const vt_op gelu_op, that its folder defines under the card's own name:
 * gelu_cost, gelu_fields ... The first group is what a call is, the second how cases become calls;
 * what only some cards have (refuses, variants, is ...) stands after them. */
#define CARD_CALL(op)                                                                            \
    .name = #op, .args_size = sizeof(op##_args), .cost = op##_cost, .reference = op##_reference, \
    .operands = op##_operands, .n_operands = sizeof op##_operands / sizeof *op##_operands,       \
    .impls = op##_impls
#define CARD_CASES(op)                                                           \
    .fields = op##_fields, .n_fields = sizeof op##_fields / sizeof *op##_fields, \
    .cases = op##_cases, .draws = op##_draws, .make_args = op##_make_args, .shape = op##_shape
#define CARD_OF(op) CARD_CALL(op), CARD_CASES(op)

uint64_t case_random(uint64_t *state);
/* Uniform in [0, 1). */
float case_uniform(uint64_t *state);
/* Mean 0, variance 1 (sum of uniforms: bounded, which keeps tolerances tight). */
float case_normal(uint64_t *state);

/* A whole number from low to high. */
int64_t case_between(uint64_t *state, int64_t low, int64_t high);
/* A number from 1 to most that is mostly small: its bound is random too. */
int64_t case_few(uint64_t *state, int64_t most);

/* Dense, zeroed. Quantised types: cols must be a multiple of the block. */
vt_tensor *case_tensor_1d(vt_arena *arena, vt_dtype dtype, int64_t n);
vt_tensor *case_tensor_2d(vt_arena *arena, vt_dtype dtype, int64_t rows, int64_t cols);
vt_tensor *case_tensor_4d(vt_arena *arena, vt_dtype dtype, int64_t d0, int64_t d1, int64_t d2,
                          int64_t d3);
/* Columns [begin, begin + cols) of a rank-2 tensor of a non-quantised type: shares its memory. */
vt_tensor *case_slice(vt_arena *arena, const vt_tensor *wide, int64_t begin, int64_t cols);
/* While true, the thread's cases keep zeros in large tensors: for who asks about sizes alone. */
extern _Thread_local bool case_sizes_alone;
/* Fills with scale * normal + mean, rounded to the tensor's type. Returns t; NULL if t is NULL or
 * the arena cannot hold one row. Dense float and quantised types. */
vt_tensor *case_fill(vt_arena *arena, vt_tensor *t, float mean, float scale, uint64_t *state);

/* A weight of n_parts random parts, each [rows[i], cols], not packed. Values have the variance
 * 1 / cols, so that products with unit activations stay near 1. */
vt_weight *case_weight(vt_arena *arena, vt_dtype dtype, int32_t n_parts, const int64_t *rows,
                       int64_t cols, bool paired, uint64_t *state);

/* How FP8 weights of a case are scaled, as a field of the case. */
enum { CASE_SCALE_NONE, CASE_SCALE_ONE, CASE_SCALE_BLOCKS };
extern const char *const case_scale_words[];

/* Gives w's parts scales near 1, different ones for each part: one number, or one for every 128 x
 * 128 block. False if the arena is out of memory. */
bool case_scales(vt_arena *arena, vt_weight *w, bool blocks, uint64_t *state);

/* Returns how w is scaled: CASE_SCALE_... */
int64_t case_scales_of(const vt_weight *w);

/* An index of `rows` rows, evenly over the tokens, for ops that take such a pointer; NULL for 0. */
const int32_t *const *case_rows(vt_arena *arena, int64_t rows, int64_t tokens);

typedef struct case_seq {
    int32_t q_len, kv_len; /* kv_len counts this step's q_len tokens */
} case_seq;

/* A batch of sequences over randomly placed pages; every sequence wants the logits of its last
 * token. Sequences that lead with q_len 1 count as decodes when `decode` says so. Token ids are
 * random below `vocab`. Page ids are a random permutation of 0 .. case_batch_pages() - 1. */
vt_batch *case_batch(vt_arena *arena, int32_t page_size, int32_t n_seqs, const case_seq *seq,
                     bool decode, int32_t vocab, uint64_t *state);
/* The decodes of a batch beside one sequence of any length, for cases of one such sequence. If all
 * sequences are decodes, one of them is that sequence. */
int64_t case_decodes_of(const vt_batch *b);
/* A batch for ops with sequence state: `decodes` decodes and a prefill of `tokens`. A sequence that
 * begins at position 0 begins from zeros; others read a slot of their own. Every second one writes
 * the slot that it reads, the rest write another. The last `guesses` tokens of the prefill are
 * guesses: the state behind the token before them goes to the slot that the sequence reads, if it
 * reads one, and the states behind them to slots of their own. */
vt_batch *case_stateful_batch(vt_arena *arena, int32_t decodes, int32_t tokens, int32_t guesses,
                              uint64_t *state);
/* The number of slots that a state for such a batch must have, and the guesses in any batch, for
 * the shape of a case of that many tokens. */
int64_t case_state_slots(const vt_batch *b);
int64_t case_guesses_of(const vt_batch *b, int64_t tokens);
/* The number of pages that pools for this batch must have: those that it uses and a few more. */
int32_t case_batch_pages(const vt_batch *b);
/* Numbers the batch's pages anew, from 0 in the order in which its sequences list them. That is the
 * order in which the pool of a new engine hands pages out. For benchmarks; tests want pages
 * anywhere. The batch must be made by case_batch. False if the arena is out of memory. */
bool case_batch_in_order(vt_arena *arena, vt_batch *b);

/* Packs the weights among a call's arguments for `impl`, as loading a model does; an array of
 * weights, of which a row without a form of its own hands each to another op's rows, for the row
 * that the card names (vt_op.row_of). */
bool case_pack(const vt_op *op, const vt_impl *impl, void *args, vt_arena *arena);

/* Limits under which the workspace of any case can be asked for. */
vt_limits case_limits(int32_t n_workers);

#endif
