/* Costs against figures worked out by hand, properties that hold for the cost of every card, and
 * the arithmetic of lanes, costs and plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "common/op_run.h"
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm.h"
#include "ops/reduce_scatter/reduce_scatter.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm.h"
#include "ops/attention/attention.h"
#include "ops/calls/on_cpu.h"
#include "ops/case_text.h"
#include "ops/cases.h"
#include "ops/gated_delta/gated_delta.h"
#include "ops/gated_norm/gated_norm.h"
#include "ops/kv_store/kv_store.h"
#include "ops/linear/linear.h"
#include "ops/moe/moe.h"
#include "ops/gelu/gelu.h"
#include "ops/head_linear/head_linear.h"
#include "ops/layernorm/layernorm.h"
#include "ops/logit_cap/logit_cap.h"
#include "ops/add_position/add_position.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope/rope.h"
#include "ops/sample/sample.h"
#include "ops/shared_kv.h"
#include "ops/segment_sum/segment_sum.h"
#include "ops/selective_state/selective_state.h"
#include "ops/short_conv/short_conv.h"
#include "ops/part_norm/part_norm.h"
#include "ops/relu2/relu2.h"
#include "ops/sigmoid_gate/sigmoid_gate.h"
#include "ops/silu_mul/silu_mul.h"

/* 5 tokens of 24: the tables' rows are of bf16; the norm reads 3 chosen rows. */
static void test_encoder_ops_cost(void **state)
{
    (void)state;
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 5, 24), y = vt_tensor_2d(NULL, VT_F32, 3, 24);
    vt_tensor w = {.dtype = VT_F32, .rank = 1, .dim = {24}, .row_stride = 24}, b = w;
    const int32_t row[3] = {0, 2, 4}, *rows = row;
    vt_cost c = layernorm_op.cost(
        &(layernorm_args){.x = &x, .row = &rows, .weight = &w, .bias = &b, .y = &y}, NULL);
    assert_int_equal(c.read.activations, 3 * 24 * 4 + 3 * 4);
    assert_int_equal(c.read.weights, 2 * 24 * 4);
    assert_int_equal(c.write.activations, 3 * 24 * 4);
    assert_int_equal(c.flops.fp32, 7 * 3 * 24);
    vt_tensor table = vt_tensor_2d(NULL, VT_BF16, 64, 24),
              types = vt_tensor_2d(NULL, VT_BF16, 2, 24);
    c = add_position_op.cost(&(add_position_args){.table = &table, .types = &types, .x = &x}, NULL);
    assert_int_equal(c.read.weights, (5 + 2) * 24 * 2);
    assert_int_equal(c.read.activations, 5 * 24 * 4 + 5 * 8);
    assert_int_equal(c.write.activations, 5 * 24 * 4);
    assert_int_equal(c.flops.fp32, 2 * 5 * 24);
    const vt_batch two = {.n_seqs = 2, .n_tokens = 5, .n_rows = 5, .q_start = (int32_t[]){0, 3, 5}};
    c = add_position_op.cost(&(add_position_args){.table = &table, .types = &types, .x = &x}, &two);
    assert_int_equal(c.read.weights, (3 + 1) * 24 * 2);
    c = segment_sum_op.cost(&(segment_sum_args){.x = &x}, &two);
    assert_int_equal(c.read.activations, 5 * 24 * 4 + 5 * 4);
    assert_int_equal(c.write.activations, 2 * 2 * 24 * 4);
    assert_int_equal(c.flops.fp32, 5 * 24);
    c = gelu_op.cost(&(gelu_args){.x = &x, .y = &x}, NULL);
    assert_int_equal(vt_cost_bytes(&c), 5 * 24 * 8);
    vt_tensor half = vt_tensor_2d(NULL, VT_F32, 5, 12);
    c = gelu_op.cost(&(gelu_args){.x = &x, .y = &half, .gated = true}, NULL);
    assert_int_equal(vt_cost_bytes(&c), 5 * 12 * 12);
    c = relu2_op.cost(&(relu2_args){.x = &x, .y = &x}, NULL);
    assert_int_equal(vt_cost_bytes(&c), 5 * 24 * 8);
    assert_int_equal(c.flops.fp32, 5 * 24 * 2);
}

/* 5 tokens of 3 parts of 8, and of 24 logits. */
static void test_norms_of_parts_and_capped_logits_cost(void **state)
{
    (void)state;
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 5, 24),
              w = {.dtype = VT_BF16, .rank = 1, .dim = {8}, .row_stride = 8},
              gain = {.dtype = VT_BF16, .rank = 1, .dim = {1}, .row_stride = 1};
    part_norm_args a = {.x = &x, .y = &x, .dim = 8};
    vt_cost c = part_norm_op.cost(&a, NULL);
    assert_int_equal(vt_cost_bytes(&c), 2 * 5 * 24 * 4);
    assert_int_equal(c.flops.fp32, 3 * 5 * 24);
    a.weight = &w;
    a.add = &x;
    a.gain = &gain;
    c = part_norm_op.cost(&a, NULL);
    assert_int_equal(c.read.activations, 2 * 5 * 24 * 4);
    assert_int_equal(c.read.weights, 8 * 2 + 2);
    assert_int_equal(c.flops.fp32, 6 * 5 * 24);
    c = logit_cap_op.cost(&(logit_cap_args){.y = &x, .cap = 30}, NULL);
    assert_int_equal(vt_cost_bytes(&c), 2 * 5 * 24 * 4);
    vt_tensor up = vt_tensor_2d(NULL, VT_F32, 5, 24);
    c = silu_mul_op.cost(&(silu_mul_args){.x = &x, .up = &up, .y = &x}, NULL);
    assert_int_equal(vt_cost_bytes(&c), 3 * 5 * 24 * 4);
}

/* Two whole texts of 3 and 5 tokens: each token sees all of its text. */
static void test_attention_to_both_sides_costs_whole_squares(void **state)
{
    (void)state;
    const int32_t position[] = {0, 1, 2, 0, 1, 2, 3, 4}, q_start[] = {0, 3, 8}, kv_len[] = {3, 5};
    vt_batch b = {.n_tokens = 8,
                  .n_seqs = 2,
                  .page_size = 4,
                  .position = position,
                  .q_start = q_start,
                  .kv_len = kv_len};
    vt_tensor q = vt_tensor_2d(NULL, VT_F32, 8, 2 * 16), o = q;
    vt_tensor pool = {.dtype = VT_F32, .rank = 4, .dim = {3, 2, 4, 16}, .row_stride = 16};
    attention_args a = {.batch = &b,
                        .q = &q,
                        .k_pool = &pool,
                        .v_pool = &pool,
                        .o = &o,
                        .heads = 2,
                        .kv_heads = 2,
                        .head_dim = 16,
                        .after = INT32_MAX};
    vt_cost c = attention_prefill_op.cost(&a, NULL);
    assert_int_equal(c.flops.fp32, 4 * (3 * 3 + 5 * 5) * 2 * 16);
    assert_int_equal(c.read.kv, 2 * 8 * 2 * 16 * 4);
    a.window = 2;
    a.after = 1;
    c = attention_prefill_op.cost(&a, NULL); /* 2 at either end, 3 inside */
    assert_int_equal(c.flops.fp32, 4 * (2 + 3 + 2 + 2 + 3 * 3 + 2) * 2 * 16);
}

/* A decode of 100 positions whose rows of 40 numbers hold V in their last 32, and the products of 3
 * heads with it: 5 tokens, 16 inputs and 8 that are copied, 32 outputs. */
static void test_latent_attention_costs(void **state)
{
    (void)state;
    const int32_t position[] = {99}, q_start[] = {0, 1};
    vt_batch b = {.n_tokens = 1,
                  .n_seqs = 1,
                  .n_decode = 1,
                  .page_size = 16,
                  .position = position,
                  .q_start = q_start};
    vt_tensor q = vt_tensor_2d(NULL, VT_F32, 1, 3 * 40), o = vt_tensor_2d(NULL, VT_F32, 1, 3 * 32);
    vt_tensor pool = {.dtype = VT_F16, .rank = 4, .dim = {9, 1, 16, 40}, .row_stride = 40};
    attention_args a = {.batch = &b,
                        .q = &q,
                        .k_pool = &pool,
                        .v_pool = &pool,
                        .o = &o,
                        .heads = 3,
                        .kv_heads = 1,
                        .head_dim = 40,
                        .v_dim = 32};
    vt_cost c = attention_decode_op.cost(&a, NULL);
    assert_int_equal(c.read.kv, 100 * 40 * 2); /* once: V is there already */
    assert_int_equal(c.write.activations, 3 * 32 * 4);
    assert_int_equal(c.flops.fp32, 2 * 100 * 3 * (40 + 32));
    vt_tensor latent = vt_tensor_2d(NULL, VT_F32, 1, 40);
    c = kv_store_op.cost(&(kv_store_args){.batch = &b, .k = &latent, .k_pool = &pool}, NULL);
    assert_int_equal(c.read.activations, 40 * 4 + 4);
    assert_int_equal(c.write.kv, 40 * 2);
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 5, 3 * (16 + 8)),
              y = vt_tensor_2d(NULL, VT_F32, 5, 3 * (8 + 32)),
              m = vt_tensor_2d(NULL, VT_BF16, 32, 16);
    vt_weight w = {.part = {&m}, .n_parts = 1, .rows = 32, .cols = 16, .dtype = VT_BF16};
    c = head_linear_op.cost(&(head_linear_args){.x = &x, .w = &w, .y = &y, .heads = 3, .rest = 8},
                            NULL);
    assert_int_equal(c.read.weights, 3 * 32 * 16 * 2);
    assert_int_equal(c.read.activations, 5 * 3 * 24 * 4);
    assert_int_equal(c.write.activations, 5 * 3 * 40 * 4);
    assert_int_equal(c.flops.bf16, 2 * 5 * 3 * 32 * 16);
    assert_int_equal(c.flops.fp32, 0);
}

static void test_rmsnorm_cost_of_two_rows(void **state)
{
    (void)state;
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 2, 576), y = x;
    vt_tensor w = {.dtype = VT_F32, .rank = 1, .dim = {576}, .row_stride = 576};
    vt_cost c = rmsnorm_op.cost(&(rmsnorm_args){.x = &x, .weight = &w, .y = &y}, NULL);
    assert_int_equal(c.read.activations, 2 * 576 * 4);
    assert_int_equal(c.read.weights, 576 * 4);
    assert_int_equal(c.write.activations, 2 * 576 * 4);
    assert_int_equal(c.flops.fp32, 4 * 2 * 576);
    vt_tensor r = x;
    c = add_rmsnorm_op.cost(&(rmsnorm_args){.x = &x, .weight = &w, .y = &y, .residual = &r}, NULL);
    assert_int_equal(c.read.activations, 2 * 2 * 576 * 4);
    assert_int_equal(c.write.activations, 2 * 2 * 576 * 4);
    assert_int_equal(c.flops.fp32, 5 * 2 * 576);
}

/* The sum over four ranks reads all of their parts, and the residual once. */
static void test_all_reduce_cost_of_four_ranks(void **state)
{
    (void)state;
    vt_comm *group;
    assert_int_equal(vt_comm_new(4, &group, NULL), VT_OK);
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 2, 576), y = x, r = x;
    const vt_comm_rank rank = {.group = group};
    vt_cost c = all_reduce_op.cost(&(all_reduce_args){.comm = &rank, .x = &x, .y = &y}, NULL);
    assert_int_equal(c.read.activations, 4 * 2 * 576 * 4);
    assert_int_equal(c.flops.fp32, 3 * 2 * 576);
    c = all_reduce_op.cost(&(all_reduce_args){.comm = &rank, .x = &x, .y = &y, .residual = &r},
                           NULL);
    assert_int_equal(c.read.activations, 5 * 2 * 576 * 4);
    assert_int_equal(c.write.activations, 2 * 576 * 4);
    assert_int_equal(c.flops.fp32, 4 * 2 * 576);
    /* With the norm behind it: its weights and its result, and no second read of the sum. */
    vt_tensor w = {.dtype = VT_F32, .rank = 1, .dim = {576}, .row_stride = 576};
    const all_reduce_rmsnorm_args norm = {
        .sum = {.comm = &rank, .x = &x, .y = &y, .residual = &r}, .weight = &w, .y = &x};
    c = all_reduce_rmsnorm_op.cost(&norm, NULL);
    assert_int_equal(c.read.activations, 5 * 2 * 576 * 4);
    assert_int_equal(c.read.weights, 576 * 4);
    assert_int_equal(c.write.activations, 2 * 2 * 576 * 4);
    assert_int_equal(c.flops.fp32, (4 + 4) * 2 * 576);
    vt_comm_free(group);
}

/* A norm of q and k over three ranks: the sums of a rank's columns, and then two numbers a token of
 * each rank. */
static void test_norm_over_three_ranks_cost(void **state)
{
    (void)state;
    vt_comm *group;
    assert_int_equal(vt_comm_new(3, &group, NULL), VT_OK);
    vt_tensor q = vt_tensor_2d(NULL, VT_F32, 5, 512), k = vt_tensor_2d(NULL, VT_F32, 5, 128),
              sums = vt_tensor_2d(NULL, VT_F32, 5, 2);
    vt_tensor w = {.dtype = VT_F32, .rank = 1, .dim = {512}, .row_stride = 512}, kw = w;
    kw.dim[0] = kw.row_stride = 128;
    vt_cost c = square_sums_op.cost(&(square_sums_args){{&q, &k}, &sums}, NULL);
    assert_int_equal(c.read.activations, 5 * (512 + 128) * 4);
    assert_int_equal(c.write.activations, 5 * 2 * 4);
    assert_int_equal(c.flops.fp32, 2 * 5 * (512 + 128));
    c = square_sums_op.cost(&(square_sums_args){{&q}, &sums}, NULL); /* k is a copy of a peer's */
    assert_int_equal(c.read.activations, 5 * 512 * 4);
    assert_int_equal(c.write.activations, 5 * 2 * 4);
    const vt_comm_rank rank = {.group = group};
    const sharded_rmsnorm_args norm = {
        .comm = &rank, .sums = &sums, .part = {{&q, &w, &q, 1536}, {&k, &kw, &k, 384}}};
    c = sharded_rmsnorm_op.cost(&norm, NULL);
    assert_int_equal(c.read.activations, 5 * (512 + 128) * 4 + 3 * 5 * 2 * 4);
    assert_int_equal(c.read.weights, (512 + 128) * 4);
    assert_int_equal(c.write.activations, 5 * (512 + 128) * 4);
    assert_int_equal(c.flops.fp32, 2 * 5 * (512 + 128) + 2 * 5 * 2);
    assert_int_equal(sharded_rmsnorm_link_bytes(&norm, NULL, NULL), 2 * 5 * 8);
    vt_comm_free(group);
}

/* Parts of a sum over three ranks, of 40 columns in units of 8: the first rank has 8, the others
 * 16. */
static void test_parts_of_a_sum_cost(void **state)
{
    (void)state;
    vt_comm *group;
    assert_int_equal(vt_comm_new(3, &group, NULL), VT_OK);
    assert_int_equal(reduce_scatter_begin(40, 3, 0), 0);
    assert_int_equal(reduce_scatter_begin(40, 3, 1), 8);
    assert_int_equal(reduce_scatter_begin(40, 3, 2), 24);
    assert_int_equal(reduce_scatter_begin(40, 3, 3), 40);
    assert_int_equal(reduce_scatter_begin(8, 3, 1), 2); /* too few units: columns one by one */
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 5, 40), y = vt_tensor_2d(NULL, VT_F32, 5, 16);
    const vt_comm_rank rank = {.group = group, .rank = 1};
    const reduce_scatter_args a = {.comm = &rank, .x = &x, .y = &y};
    vt_cost c = reduce_scatter_op.cost(&a, NULL);
    assert_int_equal(c.read.activations, 3 * 5 * 16 * 4);
    assert_int_equal(c.write.activations, 5 * 16 * 4);
    assert_int_equal(c.flops.fp32, 2 * 5 * 16);
    assert_int_equal(vt_comm_link_bytes(&reduce_scatter_op, NULL, &a, NULL), 2 * 5 * 16 * 4);
    vt_comm_gpu host = {.staged = true}; /* what its peers read goes there first */
    group->gpu = &host;
    assert_int_equal(vt_comm_link_bytes(&reduce_scatter_op, NULL, &a, NULL),
                     2 * 5 * 16 * 4 + 5 * 24 * 4);
    vt_comm_free(group);
}

/* Two sequences with 4 tokens, of Qwen3.5-4B: 16 K heads and 32 V heads of 128 x 128, a convolution
 * of 4 taps over q, k and v. */
static void test_delta_layer_cost_of_two_sequences(void **state)
{
    (void)state;
    vt_batch b = {.n_tokens = 4, .n_seqs = 2};
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 4, 8192), u = x,
              y = vt_tensor_2d(NULL, VT_F32, 4, 4096);
    vt_tensor w = vt_tensor_2d(NULL, VT_F32, 8192, 4), gates = vt_tensor_2d(NULL, VT_F32, 4, 32);
    vt_tensor slots = vt_tensor_2d(NULL, VT_F32, 9, 3 * 8192 + 32 * 128 * 128);
    vt_tensor heads = {.dtype = VT_F32, .rank = 1, .dim = {32}, .row_stride = 32}, norm = heads;
    norm.dim[0] = 128;
    vt_cost c = short_conv_op.cost(
        &(short_conv_args){.batch = &b, .x = &x, .w = &w, .state = &slots, .y = &u, .silu = true},
        NULL);
    assert_int_equal(c.read.activations, 4 * 8192 * 4);
    assert_int_equal(c.read.weights, 8192 * 4 * 4);
    assert_int_equal(c.read.kv, 2 * 3 * 8192 * 4);
    assert_int_equal(c.write.kv, 2 * 3 * 8192 * 4);
    assert_int_equal(c.flops.fp32, 4 * 8192 * (4 + 3 + 4)); /* taps, their sum, silu */
    gated_delta_args a = {.batch = &b,
                          .x = &u,
                          .a = &gates,
                          .b = &gates,
                          .decay = &heads,
                          .dt_bias = &heads,
                          .state = &slots,
                          .y = &y,
                          .k_heads = 16,
                          .v_heads = 32,
                          .k_dim = 128,
                          .v_dim = 128};
    c = gated_delta_op.cost(&a, NULL);
    assert_int_equal(c.read.kv, 2 * 32 * 128 * 128 * 4);
    assert_int_equal(c.write.kv, 2 * 32 * 128 * 128 * 4);
    assert_int_equal(c.read.activations, 4 * (8192 + 2 * 32) * 4);
    assert_int_equal(c.read.weights, 2 * 32 * 4);
    assert_int_equal(c.write.activations, 4 * 4096 * 4);
    assert_int_equal(c.flops.fp32, 4 * (7 * 32 * 128 * 128 + 3 * 4096 + 6 * 2048));
    b.state_behind = (const int32_t[]){3, -1, 4, -1}; /* each sequence brings a guess */
    c = gated_delta_op.cost(&a, NULL);
    assert_int_equal(c.read.kv, 2 * 32 * 128 * 128 * 4);
    assert_int_equal(c.write.kv, 4 * 32 * 128 * 128 * 4);
    c = short_conv_op.cost(
        &(short_conv_args){.batch = &b, .x = &x, .w = &w, .state = &slots, .y = &u, .silu = true},
        NULL);
    assert_int_equal(c.write.kv, 4 * 3 * 8192 * 4);
    c = gated_norm_op.cost(&(gated_norm_args){.x = &y, .z = &y, .weight = &norm, .y = &y}, NULL);
    assert_int_equal(c.read.activations, 2 * 4 * 4096 * 4);
    assert_int_equal(c.read.weights, 128 * 4);
    assert_int_equal(c.flops.fp32, 9 * 4 * 4096);
}

/* Two sequences with 4 tokens, of Granite 4 H-Tiny: 48 heads of 64, a state of 128, one group; a
 * convolution of 4 taps with a bias; a norm of one group. */
static void test_state_space_layer_cost_of_two_sequences(void **state)
{
    (void)state;
    vt_batch b = {.n_tokens = 4, .n_seqs = 2};
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 4, 3328), y = vt_tensor_2d(NULL, VT_F32, 4, 3072);
    vt_tensor w = vt_tensor_2d(NULL, VT_F32, 3328, 4), dt = vt_tensor_2d(NULL, VT_F32, 4, 48);
    vt_tensor slots = vt_tensor_2d(NULL, VT_F32, 9, 3 * 3328 + 48 * 128 * 64);
    vt_tensor heads = {.dtype = VT_F32, .rank = 1, .dim = {48}, .row_stride = 48}, bias = heads,
              norm = heads;
    bias.dim[0] = 3328;
    norm.dim[0] = 3072;
    short_conv_args conv = {.batch = &b, .x = &x, .w = &w, .state = &slots, .y = &x, .silu = true};
    conv.bias = &bias;
    vt_cost c = short_conv_op.cost(&conv, NULL);
    assert_int_equal(c.read.weights, 3328 * 5 * 4);
    assert_int_equal(c.flops.fp32, 4 * 3328 * (4 + 4 + 4)); /* taps, their sum and bias, silu */
    selective_state_args a = {.batch = &b,
                              .x = &x,
                              .dt = &dt,
                              .decay = &heads,
                              .dt_bias = &heads,
                              .skip = &heads,
                              .state = &slots,
                              .y = &y,
                              .heads = 48,
                              .groups = 1,
                              .head_dim = 64,
                              .state_dim = 128};
    c = selective_state_op.cost(&a, NULL);
    assert_int_equal(c.read.kv, 2 * 48 * 128 * 64 * 4);
    assert_int_equal(c.write.kv, 2 * 48 * 128 * 64 * 4);
    assert_int_equal(c.read.activations, 4 * (3328 + 48) * 4);
    assert_int_equal(c.read.weights, 3 * 48 * 4);
    assert_int_equal(c.write.activations, 4 * 3072 * 4);
    assert_int_equal(c.flops.fp32, 4 * (5 * 48 * 128 * 64 + 3 * 3072));
    b.state_behind = (const int32_t[]){3, -1, 4, -1}; /* each sequence brings a guess */
    c = selective_state_op.cost(&a, NULL);
    assert_int_equal(c.write.kv, 4 * 48 * 128 * 64 * 4);
    gated_norm_args n = {.x = &y, .z = &y, .weight = &norm, .y = &y, .groups = 1};
    c = gated_norm_op.cost(&n, NULL);
    assert_int_equal(c.read.weights, 3072 * 4);
}

/* Two tokens: heads of q and gate, 3 of 8; an expert of 20 whose share comes from 100 numbers. */
static void test_gate_costs_of_two_tokens(void **state)
{
    (void)state;
    vt_tensor wide = vt_tensor_2d(NULL, VT_F32, 2, 48), o = vt_tensor_2d(NULL, VT_F32, 2, 24);
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 2, 100), y = vt_tensor_2d(NULL, VT_F32, 2, 20);
    vt_tensor w = {.dtype = VT_F32, .rank = 1, .dim = {100}, .row_stride = 100};
    head_gate_args heads = {.x = &wide, .y = &o, .dim = 8};
    vt_cost c = head_split_op.cost(&heads, NULL);
    assert_int_equal(c.read.activations, 2 * 24 * 4); /* the gates are not read */
    assert_int_equal(c.write.activations, 2 * 24 * 4);
    c = head_gate_op.cost(&heads, NULL);
    assert_int_equal(c.read.activations, 2 * 2 * 24 * 4);
    assert_int_equal(c.flops.fp32, 2 * 24 * 5);
    c = row_gate_op.cost(&(row_gate_args){.x = &x, .w = &w, .y = &y}, NULL);
    assert_int_equal(c.read.activations, 2 * (100 + 20) * 4);
    assert_int_equal(c.read.weights, 100 * 4);
    assert_int_equal(c.write.activations, 2 * 20 * 4);
    assert_int_equal(c.flops.fp32, 2 * (2 * 100 + 4 + 20));
}

/* Sequences: a decode at position 99, and a prefill of 3 tokens at positions 10, 11, 12; pages of
 * 16. SmolLM2's heads: 9 and 3 of 64, f16. */
static void test_attention_cost_of_a_mixed_batch(void **state)
{
    (void)state;
    int32_t position[] = {99, 10, 11, 12}, q_start[] = {0, 1, 4};
    vt_batch b = {.n_tokens = 4,
                  .n_seqs = 2,
                  .n_decode = 1,
                  .page_size = 16,
                  .position = position,
                  .q_start = q_start};
    vt_tensor q = vt_tensor_2d(NULL, VT_F32, 4, 576), o = q;
    vt_tensor pool = {.dtype = VT_F16, .rank = 4, .dim = {9, 3, 16, 64}, .row_stride = 64};
    attention_args a = {.batch = &b,
                        .q = &q,
                        .k_pool = &pool,
                        .v_pool = &pool,
                        .o = &o,
                        .heads = 9,
                        .kv_heads = 3,
                        .head_dim = 64};
    vt_cost c = attention_decode_op.cost(&a, NULL);
    assert_int_equal(c.read.kv, 100 * 3 * 64 * 2 * 2);         /* 100 positions, K and V */
    assert_int_equal(c.read.activations, 576 * 4 + 4 + 7 * 4); /* q, a position, 7 pages */
    assert_int_equal(c.write.activations, 576 * 4);
    assert_int_equal(c.flops.fp32, 4 * 100 * 576);
    c = attention_prefill_op.cost(&a, NULL);
    assert_int_equal(c.read.kv, 13 * 3 * 64 * 2 * 2);
    assert_int_equal(c.flops.fp32, 4 * (11 + 12 + 13) * 576);
    a.window = 5; /* rows see 5 positions each; the three together 6 .. 12 */
    c = attention_prefill_op.cost(&a, NULL);
    assert_int_equal(c.read.kv, 7 * 3 * 64 * 2 * 2);
    assert_int_equal(c.flops.fp32, 4 * (5 + 5 + 5) * 576);
    c = attention_decode_op.cost(&a, NULL);
    assert_int_equal(c.read.kv, 5 * 3 * 64 * 2 * 2);
}

/* Decodes of 100, 70 and 40 tokens. The first two begin with the same 4 pages of 16 tokens, the
 * third with the first of these pages. One group is made, the one that saves the most. */
static void test_attention_cost_of_shared_pages(void **state)
{
    (void)state;
    int32_t position[] = {99, 69, 39}, q_start[] = {0, 1, 2, 3}, kv_len[] = {100, 70, 40},
            page_start[] = {0, 7, 12, 15},
            page_ids[] = {5, 6, 7, 8, 1, 2, 3, 5, 6, 7, 8, 4, 5, 9, 10};
    vt_batch b = {.n_tokens = 3,
                  .n_seqs = 3,
                  .n_decode = 3,
                  .n_pages = 15,
                  .page_size = 16,
                  .position = position,
                  .q_start = q_start,
                  .kv_len = kv_len,
                  .page_start = page_start,
                  .page_ids = page_ids};
    vt_tensor q = vt_tensor_2d(NULL, VT_F32, 3, 576), o = q;
    vt_tensor pool = {.dtype = VT_F16, .rank = 4, .dim = {11, 3, 16, 64}, .row_stride = 64};
    attention_args a = {.batch = &b,
                        .q = &q,
                        .k_pool = &pool,
                        .v_pool = &pool,
                        .o = &o,
                        .heads = 9,
                        .kv_heads = 3,
                        .head_dim = 64};
    const int32_t row = 3 * 64 * 2 * 2;
    assert_int_equal(attention_decode_op.cost(&a, NULL).read.kv, (210 - 64) * row);
    assert_int_equal(attention_decode_op.cost(&a, NULL).flops.fp32, 4 * 210 * 576);
    /* two workers compute the first two together; among 16 all are apart, and read them again */
    vt_target t = {.limits.n_workers = 2};
    assert_int_equal(attention_decode_op.impls[0]->extra(&a, &t, NULL).read.kv, 0);
    t.limits.n_workers = 16;
    assert_int_equal(attention_decode_op.impls[0]->extra(&a, &t, NULL).read.kv, 64 * row);
    a.window = 50; /* they see 50 .. 99, 20 .. 69 and all 40: of the shared 64, 14 and 44 */
    assert_int_equal(attention_decode_op.cost(&a, NULL).read.kv, (50 + 50 + 40 - 14) * row);
    int32_t shared_kv[3];
    shared_kv_find(&b, shared_kv);
    assert_int_equal(shared_kv[0], 64);
    assert_int_equal(shared_kv[1], 0);
    assert_int_equal(shared_kv[2], 0);
    b.page_ids = NULL; /* a step of a story, which has no pages */
    b.shared_kv = shared_kv;
    assert_int_equal(attention_decode_op.cost(&a, NULL).read.kv, (50 + 50 + 40 - 14) * row);
}

static void test_kv_store_rope_and_silu_costs(void **state)
{
    (void)state;
    vt_batch b = {.n_tokens = 7};
    vt_tensor kv = vt_tensor_2d(NULL, VT_F32, 7, 192), q = vt_tensor_2d(NULL, VT_F32, 7, 576);
    vt_tensor pool = {.dtype = VT_F16, .rank = 4, .dim = {9, 3, 16, 64}, .row_stride = 64};
    vt_cost c = kv_store_op.cost(
        &(kv_store_args){.batch = &b, .k = &kv, .v = &kv, .k_pool = &pool, .v_pool = &pool}, NULL);
    assert_int_equal(c.read.activations, 7 * 2 * 192 * 4 + 7 * 4);
    assert_int_equal(c.write.kv, 7 * 2 * 192 * 2);
    c = rope_op.cost(&(rope_args){.batch = &b, .q = &q, .k = &kv, .head_dim = 64, .dims = 64},
                     NULL);
    assert_int_equal(c.read.activations, 7 * (576 + 192) * 4 + 7 * (64 + 1) * 4);
    assert_int_equal(c.write.activations, 7 * (576 + 192) * 4);
    assert_int_equal(c.flops.fp32,
                     7 * 12 * 32 * 6); /* 12 heads of 32 pairs: 4 multiplies, 2 adds */
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 7, 3072), y = vt_tensor_2d(NULL, VT_F32, 7, 1536);
    c = silu_mul_op.cost(&(silu_mul_args){.x = &x, .y = &y}, NULL);
    assert_int_equal(vt_cost_bytes(&c), 7 * 1536 * 12);
}

/* The types decide which unit multiplies: on a GPU activations are bf16, and tensor cores multiply
 * them; on a CPU AMX multiplies bf16 weights. */
static void test_linear_products_count_for_the_unit_that_does_them(void **state)
{
    (void)state;
    vt_tensor w = vt_tensor_2d(NULL, VT_Q8_0, 96, 64);
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 5, 64), y = vt_tensor_2d(NULL, VT_F32, 5, 96);
    vt_weight weight = {.part = {&w}, .n_parts = 1, .rows = 96, .cols = 64, .dtype = VT_Q8_0};
    linear_args a = {.x = &x, .w = &weight, .y = &y};
    vt_cost c = linear_op.cost(&a, NULL);
    assert_int_equal(c.flops.int8, 2 * 5 * 96 * 64);
    assert_int_equal(c.flops.fp32 + c.flops.bf16, 0);
    x.dtype = VT_BF16;
    c = linear_op.cost(&a, NULL);
    assert_int_equal(c.flops.bf16, 2 * 5 * 96 * 64);
    assert_int_equal(c.flops.fp32 + c.flops.int8, 0);
    x.dtype = VT_F32;
    weight.dtype = w.dtype = VT_BF16;
    c = linear_op.cost(&a, NULL);
    assert_int_equal(c.flops.bf16, 2 * 5 * 96 * 64);
    assert_int_equal(c.flops.fp32 + c.flops.int8, 0);
}

/* 3 tokens, 2 of 8 experts each: 6 pairs may be 6 experts; with 40 tokens all 8. */
static void test_moe_cost_counts_distinct_experts(void **state)
{
    (void)state;
    vt_tensor up = vt_tensor_2d(NULL, VT_F32, 20, 36), down = vt_tensor_2d(NULL, VT_F32, 36, 20);
    vt_weight gate_up = {
        .part = {&up, &up}, .n_parts = 2, .paired = true, .rows = 40, .cols = 36, .dtype = VT_F32};
    vt_weight down_w = {.part = {&down}, .n_parts = 1, .rows = 36, .cols = 20, .dtype = VT_F32};
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 3, 36), y = x,
              expert = vt_tensor_2d(NULL, VT_I32, 3, 2), weight = expert;
    moe_linear_args a = {.x = &x,
                         .y = &y,
                         .expert = &expert,
                         .weight = &weight,
                         .gate_up = &gate_up,
                         .down = &down_w,
                         .n_experts = 8};
    vt_cost c = moe_linear_op.cost(&a, NULL);
    int64_t one = 3 * 20 * 36 * 4;
    assert_int_equal(c.read.weights, 6 * one);
    assert_int_equal(c.flops.fp32, 6 * (6 * 20 * 36 + 4 * 20 + 2 * 36));
    x.dim[0] = y.dim[0] = expert.dim[0] = 40;
    c = moe_linear_op.cost(&a, NULL);
    assert_int_equal(c.read.weights, 8 * one);
}

static void test_cost_sums(void **state)
{
    (void)state;
    vt_cost a = {.read = {1, 2, 3},
                 .write = {4, 5, 6},
                 .flops = {.fp32 = 7, .bf16 = 8, .fp8 = 9, .int8 = 10}},
            sum = a;
    vt_cost_add(&sum, &a);
    assert_int_equal(vt_cost_bytes(&a), 21);
    assert_int_equal(vt_cost_bytes(&sum), 42);
    assert_int_equal(vt_cost_flops(&sum), 68);
}

/* Shares are disjoint, in order, cover everything, and begin at multiples of the grain. */
static void test_lane_shares_partition_the_work(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 70; n += 3)
        for (int64_t grain = 1; grain < 20; grain += 6)
            for (int32_t workers = 1; workers < 6; workers++) {
                int64_t at = 0;
                for (int32_t w = 0; w < workers; w++) {
                    int64_t begin, end;
                    vt_lane lane = {.worker = w, .n_workers = workers};
                    vt_lane_share(&lane, n, grain, &begin, &end);
                    assert_true(begin == at && end >= begin && (begin % grain == 0 || begin == n));
                    at = end;
                }
                assert_int_equal(at, n);
            }
}

static const vt_impl *select_at(vt_isa isa, const void *args)
{
    vt_target target = vt_target_cpu(isa, NULL);
    return vt_op_select(&silu_mul_op, args, &target, NULL);
}

static void test_select_takes_the_best_that_the_level_has(void **state)
{
    (void)state;
    vt_tensor x = vt_tensor_2d(NULL, VT_F32, 2, 8);
    silu_mul_args a = {.x = &x, .y = &x};
    assert_string_equal(select_at(VT_ISA_PORTABLE, &a)->name, "portable");
    assert_string_equal(select_at(VT_ISA_NEON, &a)->name, "portable");
#if defined(__x86_64__)
    assert_string_equal(select_at(VT_ISA_AVX2, &a)->name, "avx2");
    assert_string_equal(select_at(VT_ISA_AMX, &a)->name, "avx512");
#endif
    x.dtype = VT_I8;
    assert_null(select_at(VT_ISA_AMX, &a));
}

/* ---- every card ---- */

static bool no_negative(const vt_cost *c)
{
    return c->read.weights >= 0 && c->read.kv >= 0 && c->read.activations >= 0 &&
           c->write.weights >= 0 && c->write.kv >= 0 && c->write.activations >= 0 &&
           c->flops.fp32 >= 0 && c->flops.bf16 >= 0 && c->flops.fp8 >= 0 && c->flops.int8 >= 0;
}

/* The sizes in a case's args are those of its batch, so both ways to ask give the same cost. A
 * result has to be written somewhere, unless the case has no work at all. */
static void check_cost(const vt_op *op, const vt_case *c)
{
    op_args a;
    op_args_make(&a, op, c);
    vt_cost own = op->cost(a.args, NULL);
    int64_t written = own.write.weights + own.write.kv + own.write.activations;
    if (!no_negative(&own))
        fail_msg("%s, %s: a negative cost", op->name, c->name);
    if (written == 0 && vt_cost_bytes(&own) + vt_cost_flops(&own) > 0)
        fail_msg("%s, %s: costs %lld bytes and writes none", op->name, c->name,
                 (long long)vt_cost_bytes(&own));
    const vt_batch *batch = vt_op_batch(op, a.args);
    vt_cost asked = batch ? op->cost(a.args, batch) : own;
    if (memcmp(&own, &asked, sizeof own) != 0)
        fail_msg("%s, %s: %lld bytes by its args, %lld by its batch", op->name, c->name,
                 (long long)vt_cost_bytes(&own), (long long)vt_cost_bytes(&asked));
    op_args_release(&a);
}

static void test_every_cost_is_that_of_its_batch(void **state)
{
    (void)state;
    for (const vt_op *const *op = vt_ops; *op; op++) {
        int32_t n = 0;
        vt_case c;
        for (int32_t i = 0; vt_op_case(*op, i, &c); i++)
            if (!c.bench) { /* bench cases take seconds to make */
                check_cost(*op, &c);
                n++;
            }
        print_message("%s: the costs of %d cases\n", (*op)->name, n);
    }
}

/* ---- plans ---- */

static int32_t two_a_token(const void *args, const vt_target *t, const vt_size *size,
                           const vt_batch *batch)
{
    (void)args, (void)t;
    return 2 * (batch ? batch->n_tokens : size->tokens);
}

static size_t a_word_an_item(const void *args, const vt_target *t, const vt_size *size,
                             int32_t items)
{
    (void)args, (void)t, (void)size;
    return (size_t)items * sizeof(int32_t);
}

static int32_t number_items(const void *args, const vt_target *t, const vt_size *size,
                            const vt_batch *batch, int32_t items, void *out, void *side)
{
    (void)args, (void)t, (void)size, (void)side;
    for (int32_t i = 0; i < items; i++)
        ((int32_t *)out)[i] = i;
    return 2 * batch->n_tokens;
}

static const vt_host_plan numbers = {
    .name = "numbers", .items = two_a_token, .bytes = a_word_an_item, .fill = number_items};

/* A row of a CPU may count its items like a row of a GPU: its plan has room for them. */
static void test_plan_with_items_when_made_for_a_cpu_then_filled_whole(void **state)
{
    (void)state;
    static const vt_operand operands[] = {
        {"batch", offsetof(kv_store_args, batch), VT_OPERAND_BATCH, true, false, 0}};
    const vt_op op = {.name = "made up", .operands = operands, .n_operands = 1};
    const vt_impl impl = {.name = "planned", .plan = &numbers};
    vt_batch batch = {.n_tokens = 1000, .n_seqs = 1};
    kv_store_args args = {.batch = &batch};
    on_cpu c;
    assert_int_equal(on_cpu_make(&c, &op, &impl, &args, 2, NULL), VT_OK);
    assert_int_equal(c.items, 2000);
    for (int32_t i = 0; i < c.items; i++)
        assert_int_equal(((const int32_t *)c.plan)[i], i);
    on_cpu_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encoder_ops_cost),
        cmocka_unit_test(test_norms_of_parts_and_capped_logits_cost),
        cmocka_unit_test(test_attention_to_both_sides_costs_whole_squares),
        cmocka_unit_test(test_latent_attention_costs),
        cmocka_unit_test(test_rmsnorm_cost_of_two_rows),
        cmocka_unit_test(test_all_reduce_cost_of_four_ranks),
        cmocka_unit_test(test_norm_over_three_ranks_cost),
        cmocka_unit_test(test_parts_of_a_sum_cost),
        cmocka_unit_test(test_gate_costs_of_two_tokens),
        cmocka_unit_test(test_delta_layer_cost_of_two_sequences),
        cmocka_unit_test(test_state_space_layer_cost_of_two_sequences),
        cmocka_unit_test(test_attention_cost_of_a_mixed_batch),
        cmocka_unit_test(test_attention_cost_of_shared_pages),
        cmocka_unit_test(test_kv_store_rope_and_silu_costs),
        cmocka_unit_test(test_linear_products_count_for_the_unit_that_does_them),
        cmocka_unit_test(test_moe_cost_counts_distinct_experts),
        cmocka_unit_test(test_cost_sums),
        cmocka_unit_test(test_lane_shares_partition_the_work),
        cmocka_unit_test(test_select_takes_the_best_that_the_level_has),
        cmocka_unit_test(test_every_cost_is_that_of_its_batch),
        cmocka_unit_test(test_plan_with_items_when_made_for_a_cpu_then_filled_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
