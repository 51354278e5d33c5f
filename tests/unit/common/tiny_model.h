/* Models of a few thousand random weights, in memory: shapes that the fixtures of tests/golden do
 * not have, for comparing one device with another. */
#ifndef VT_TESTS_TINY_MODEL_H
#define VT_TESTS_TINY_MODEL_H

#include "model/model.h"

/* "llama", "mixed" (heads of two shapes: see tiny_model.c), "mixed_state" (the same with sequence
 * state), "qwen3", "qwen3moe", "qwen3moe-quantised" (its experts: Q4_1, down Q8_0), "qwen3moe-fp8"
 * (experts of 135 rows, FP8 in blocks), "mamba-fp8" and "mamba-fp8-groups" (state spaces of one and
 * two groups, their input FP8 in blocks) or "gemma3"; tests end with a message if it cannot be
 * made.
 * Otherwise BF16, at most 64 tokens of context less than `max_context` = 512, a synthetic
 * tokenizer. */
vt_model *tiny_model(const char *name);

#endif
