/* Building and binding the program (exec/program.h).
 *
 *   x [tokens, hidden]  the residual stream
 *   h [tokens, hidden]  a normed copy: the input of a sub-layer
 *   t [tokens, hidden]  a sub-layer's output before it joins x, where layers have post-norms
 *   qkv [tokens, (Hq + 2 Hk) d]   q, k and v are slices of it
 *   o [tokens, Hq d]    attention's output
 *   f [tokens, ffn]     after SwiGLU; g [tokens, 2 ffn] where gate and up could not be paired
 *   r [rows, hidden], logits [rows, vocab]
 *
 * All layers share these buffers. There are two kinds of layers: in pre-norm layers `linear o` and
 * `linear down` add their results into x in their epilogues. Gemma's layers have norms after the
 * sub-layers too; there add_rmsnorm adds t into x and makes the next sub-layer's input in one pass.
 */
#include "exec/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "ops/attention/attention.h"
#include "ops/embed/embed.h"
#include "ops/linear/linear.h"
#include "ops/moe/moe.h"
#include "ops/page_copy/page_copy.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rope_store/rope_store.h"
#include "ops/sample/sample.h"
#include "ops/silu_mul/silu_mul.h"

typedef struct builder {
    vt_program *p;
    const vt_program_config *config;
    const vt_model *m;
    const vt_weights *w;
    const vt_kv_cache *kv;
    vt_err *err;
    int32_t room_calls, room_symbolic; /* of the program's arrays, which grow */
    vt_status status;                  /* the first failure; after it nothing is built any more */
    vt_tensor *x, *h, *t, *qkv, *q, *k, *v, *o, *f, *g, *gate, *up, *r, *expert, *expert_weight;
} builder;

static void *build_alloc(builder *b, size_t n, size_t size)
{
    void *p = b->status == VT_OK ? vt_arena_alloc(&b->p->arena, n, size) : NULL;
    if (!p && b->status == VT_OK)
        b->status = vt_fail(b->err, VT_ERR_MEMORY, "out of memory building the program of %s",
                            b->m->name);
    return p;
}

/* Returns an array of n elements that has room for one more: `array`, or a larger copy of it. */
static void *build_grow(builder *b, void *array, int32_t n, int32_t *room, size_t size)
{
    if (n < *room)
        return array;
    int32_t larger = n ? 2 * n : 64;
    void *p = build_alloc(b, (size_t)larger, size);
    if (!p)
        return NULL;
    if (n)
        memcpy(p, array, (size_t)n * size);
    *room = larger;
    return p;
}

/* ---- tensors: their data pointers are offsets until vt_program_place ---- */

/* Notes that the tensor's rows follow the batch, and its address the program's memory. */
static void add_symbolic(builder *b, vt_tensor *t)
{
    vt_tensor **list = build_grow(b, b->p->symbolic, b->p->n_symbolic, &b->room_symbolic,
                                  sizeof *list);
    if (!list)
        return;
    b->p->symbolic = list;
    list[b->p->n_symbolic++] = t;
}

/* An activation of its own: a new buffer of `cols` columns, with one row for each token or row. */
static vt_tensor *activation(builder *b, const char *name, vt_follows follows, int64_t cols,
                             vt_dtype dtype)
{
    vt_tensor *t = build_alloc(b, 1, sizeof *t);
    if (!t)
        return NULL;
    const vt_limits *lim = &b->p->target.limits;
    int64_t rows = follows == VT_FOLLOWS_TOKENS ? lim->max_tokens : lim->max_rows;
    *t = vt_tensor_2d(NULL, dtype, rows, cols);
    t->name = name;
    t->follows = follows;
    t->data = (void *)b->p->activation_bytes; /* an offset until vt_program_place */
    b->p->activation_bytes = vt_round_up(b->p->activation_bytes + (size_t)vt_tensor_bytes(t), 256);
    add_symbolic(b, t);
    return t;
}

/* Columns [at, at + cols) of a wider activation. */
static vt_tensor *slice(builder *b, const char *name, const vt_tensor *of, int64_t at, int64_t cols)
{
    vt_tensor *t = build_alloc(b, 1, sizeof *t);
    if (!t || !of)
        return NULL;
    *t = *of;
    t->name = name;
    t->dim[1] = cols;
    t->data = (char *)of->data + at * vt_dtype_get(of->dtype)->bytes;
    add_symbolic(b, t);
    return t;
}

/* Whether some layer has gate and up as two weights, which could not be paired. */
static bool needs_plain_gate_up(const builder *b)
{
    for (int32_t i = 0; i < b->m->arch.n_layers; i++)
        if (b->w->layer[i].weight[VT_ROLE_GATE])
            return true;
    return false;
}

static void make_tensors(builder *b)
{
    const vt_arch *a = &b->m->arch;
    vt_dtype act = b->p->activation;
    int64_t q_cols = (int64_t)a->n_heads * a->head_dim,
            kv_cols = (int64_t)a->n_kv_heads * a->head_dim;
    b->x = activation(b, "x", VT_FOLLOWS_TOKENS, a->hidden, act);
    b->h = activation(b, "h", VT_FOLLOWS_TOKENS, a->hidden, act);
    b->t = a->post_norms ? activation(b, "t", VT_FOLLOWS_TOKENS, a->hidden, act) : NULL;
    b->qkv = activation(b, "qkv", VT_FOLLOWS_TOKENS, q_cols + 2 * kv_cols, act);
    b->q = slice(b, "q", b->qkv, 0, q_cols);
    b->k = slice(b, "k", b->qkv, q_cols, kv_cols);
    b->v = slice(b, "v", b->qkv, q_cols + kv_cols, kv_cols);
    b->o = activation(b, "o", VT_FOLLOWS_TOKENS, q_cols, act);
    if (a->n_experts) {
        b->expert = activation(b, "expert", VT_FOLLOWS_TOKENS, a->n_experts_used, VT_I32);
        b->expert_weight = activation(b, "expert_weight", VT_FOLLOWS_TOKENS, a->n_experts_used,
                                      VT_F32);
    }
    b->f = a->ffn ? activation(b, "f", VT_FOLLOWS_TOKENS, a->ffn, act) : NULL;
    if (a->ffn && needs_plain_gate_up(b)) {
        b->g = activation(b, "g", VT_FOLLOWS_TOKENS, 2 * (int64_t)a->ffn, act);
        b->gate = slice(b, "gate", b->g, 0, a->ffn);
        b->up = slice(b, "up", b->g, a->ffn, a->ffn);
    }
    b->r = activation(b, "r", VT_FOLLOWS_ROWS, a->hidden, act);
    b->p->logits = activation(b, "logits", VT_FOLLOWS_ROWS, a->vocab, VT_F32);
    b->p->token = activation(b, "token", VT_FOLLOWS_ROWS, 1, VT_I32);
    b->p->logprob = activation(b, "logprob", VT_FOLLOWS_ROWS, 1, VT_F32);
    b->p->top_id = activation(b, "top_id", VT_FOLLOWS_ROWS, VT_MAX_TOP_LOGPROBS, VT_I32);
    b->p->top_logprob = activation(b, "top_logprob", VT_FOLLOWS_ROWS, VT_MAX_TOP_LOGPROBS, VT_F32);
}

/* ---- calls ---- */

/* The index of the plan of this kind and key; adds the plan when a call first needs it. */
static int16_t plan_index(builder *b, const vt_host_plan *plan, const vt_call *c)
{
    vt_program *p = b->p;
    uint64_t key = plan->key ? plan->key(c->args) : 0;
    for (int32_t i = 0; i < p->n_plans; i++)
        if (p->plan[i].plan == plan && p->plan[i].key == key)
            return (int16_t)i;
    if (p->n_plans == VT_MAX_PLANS) {
        b->status = vt_fail(
            b->err, VT_ERR_UNSUPPORTED,
            "%s: the calls of a step need more than %d different plans (of attention and others)",
            c->label, VT_MAX_PLANS);
        return -1;
    }
    p->plan[p->n_plans] = (vt_program_plan){plan, c->args, key, c->when};
    return (int16_t)p->n_plans++;
}

/* The largest value of the number that decides which implementation runs a call (see deciding). */
static int32_t most_of(const vt_call *c, const vt_limits *lim)
{
    return c->when == VT_WHEN_ROWS     ? lim->max_rows
           : c->when == VT_WHEN_DECODE ? lim->max_seqs
                                       : lim->max_tokens;
}

/* Chooses the implementations of a call, adds their plans to the program, and makes the workspace
 * large enough for them. */
static void choose(builder *b, vt_call *c)
{
    vt_program *p = b->p;
    vt_choice choice[VT_MAX_CHOICES];
    int32_t n = vt_op_choose(c->op, c->args, &p->target, most_of(c, &p->target.limits), choice);
    if (n == 0) {
        b->status = vt_fail(b->err, VT_ERR_UNSUPPORTED,
                            "%s: no implementation of %s for this device", c->label, c->op->name);
        return;
    }
    c->choice = build_alloc(b, (size_t)n, sizeof *c->choice);
    c->plan = build_alloc(b, (size_t)n, sizeof *c->plan);
    if (!c->choice || !c->plan)
        return;
    c->n_choices = (int16_t)n;
    for (int32_t i = 0; i < n; i++) {
        const vt_impl *impl = choice[i].impl;
        c->choice[i] = choice[i];
        c->plan[i] = -1;
        if (impl->plan)
            c->plan[i] = plan_index(b, impl->plan, c);
        size_t bytes = impl->workspace ? impl->workspace(c->args, &p->target) : 0;
        if (bytes > p->target.workspace_bytes)
            p->target.workspace_bytes = bytes;
    }
}

/* Appends a call with a copy of its args. */
static void emit(builder *b, const vt_op *op, const void *args, size_t size, int32_t layer,
                 const char *what, vt_when when)
{
    void *copy = build_alloc(b, 1, size);
    vt_call *list = build_grow(b, b->p->call, b->p->n_calls, &b->room_calls, sizeof *list);
    if (!copy || !list)
        return;
    memcpy(copy, args, size);
    b->p->call = list;
    vt_call *c = &list[b->p->n_calls++];
    *c = (vt_call){.op = op, .args = copy, .layer = (int16_t)layer, .when = (uint8_t)when};
    if (layer >= 0)
        snprintf(c->label, sizeof c->label, "L%02d.%s%s%s", layer, op->name, *what ? "." : "",
                 what);
    else
        snprintf(c->label, sizeof c->label, "%s%s%s", op->name, *what ? "." : "", what);
    choose(b, c);
}
#define EMIT(b, op, layer, what, when, ...) \
    emit(b, &op##_op, &(op##_args)__VA_ARGS__, sizeof(op##_args), layer, what, when)

static void emit_linear(builder *b, int32_t layer, const char *what, linear_args args, vt_when when)
{
    if (args.scale == 0)
        args.scale = 1;
    emit(b, &linear_op, &args, sizeof args, layer, what, when);
}

static void emit_norm(builder *b, int32_t layer, const char *what, const vt_tensor *x,
                      const vt_tensor *weight, vt_tensor *y)
{
    EMIT(b, rmsnorm, layer, what, VT_WHEN_TOKENS,
         {.x = x,
          .weight = weight,
          .y = y,
          .eps = b->m->arch.norm_eps,
          .plus_one = b->m->arch.norm_plus_one});
}

/* x += t; y = norm(x) */
static void emit_add_norm(builder *b, int32_t layer, const char *what, const vt_tensor *t,
                          const vt_tensor *weight, vt_tensor *y)
{
    rmsnorm_args args = {.x = t,
                         .residual = b->x,
                         .weight = weight,
                         .y = y,
                         .eps = b->m->arch.norm_eps,
                         .plus_one = b->m->arch.norm_plus_one};
    emit(b, &add_rmsnorm_op, &args, sizeof args, layer, what, VT_WHEN_TOKENS);
}

/* Whether the layer's attention sees only a window of tokens. */
static bool windowed(const vt_arch *a, int32_t layer)
{
    return a->window > 0 && (!a->layer_window || a->layer_window[layer]);
}

static void build_qkv(builder *b, int32_t i)
{
    const vt_layer_weights *lw = &b->w->layer[i];
    if (lw->weight[VT_ROLE_QKV]) {
        emit_linear(b, i, "qkv",
                    (linear_args){.x = b->h,
                                  .w = lw->weight[VT_ROLE_QKV],
                                  .bias = lw->tensor[VT_ROLE_QKV_BIAS],
                                  .y = b->qkv},
                    VT_WHEN_TOKENS);
        return;
    }
    static const char *const kName[3] = {"q", "k", "v"};
    const vt_tensor *bias[3] = {lw->tensor[VT_ROLE_Q_BIAS], lw->tensor[VT_ROLE_K_BIAS],
                                lw->tensor[VT_ROLE_V_BIAS]};
    vt_tensor *y[3] = {b->q, b->k, b->v};
    for (int32_t k = 0; k < 3; k++)
        emit_linear(
            b, i, kName[k],
            (linear_args){.x = b->h, .w = lw->weight[VT_ROLE_Q + k], .bias = bias[k], .y = y[k]},
            VT_WHEN_TOKENS);
}

static void build_attention(builder *b, int32_t i)
{
    const vt_arch *a = &b->m->arch;
    const vt_layer_weights *lw = &b->w->layer[i];
    bool local = windowed(a, i) && a->has_rope_local;
    const vt_rope_params *rope = local ? &a->rope_local : &a->rope;
    int32_t pool = vt_kv_pool_of(b->m, i);
    vt_tensor *k_pool = &b->kv->k[pool], *v_pool = &b->kv->v[pool];
    bool scaled = k_pool->dtype == VT_FP8_E4M3; /* the scales in the file are meant for FP8 */
    float k_scale = scaled ? lw->kv_k_scale : 1, v_scale = scaled ? lw->kv_v_scale : 1;
    build_qkv(b, i);
    rope_args rotate = {.batch = &b->p->batch,
                        .q = b->q,
                        .k = b->k,
                        .head_dim = a->head_dim,
                        .dims = rope->dims,
                        .interleaved = rope->interleaved,
                        .cos_sin = local ? b->w->ends.tensor[VT_ROLE_ROPE_LOCAL]
                                         : b->w->ends.tensor[VT_ROLE_ROPE],
                        .q_norm = lw->tensor[VT_ROLE_Q_NORM],
                        .k_norm = lw->tensor[VT_ROLE_K_NORM],
                        .eps = a->norm_eps,
                        .plus_one = a->norm_plus_one};
    kv_store_args store = {.batch = &b->p->batch,
                           .k = b->k,
                           .v = b->v,
                           .k_pool = k_pool,
                           .v_pool = v_pool,
                           .k_scale = k_scale,
                           .v_scale = v_scale};
    EMIT(b, rope_store, i, "", VT_WHEN_TOKENS, {.rope = rotate, .store = store});
    attention_args att = {.batch = &b->p->batch,
                          .q = b->q,
                          .k_pool = k_pool,
                          .v_pool = v_pool,
                          .o = b->o,
                          .heads = a->n_heads,
                          .kv_heads = a->n_kv_heads,
                          .head_dim = a->head_dim,
                          .scale = a->attn_scale,
                          .k_scale = k_scale,
                          .v_scale = v_scale,
                          .window = windowed(a, i) ? a->window : 0};
    emit(b, &attention_decode_op, &att, sizeof att, i, "", VT_WHEN_DECODE);
    emit(b, &attention_prefill_op, &att, sizeof att, i, "", VT_WHEN_PREFILL);
}

/* y = ffn(h), or y += ffn(h) if y is the residual stream. */
static void build_ffn(builder *b, int32_t i, vt_tensor *y)
{
    const vt_arch *a = &b->m->arch;
    const vt_layer_weights *lw = &b->w->layer[i];
    const vt_tensor *residual = y == b->x ? y : NULL;
    if (lw->tensor[VT_ROLE_ROUTER]) {
        EMIT(b, moe_route, i, "", VT_WHEN_TOKENS,
             {.x = b->h,
              .router = lw->tensor[VT_ROLE_ROUTER],
              .k = a->n_experts_used,
              .normalise = a->norm_topk,
              .expert = b->expert,
              .weight = b->expert_weight});
        EMIT(b, moe_linear, i, "", VT_WHEN_TOKENS,
             {.x = b->h,
              .expert = b->expert,
              .weight = b->expert_weight,
              .gate_up = lw->weight[VT_ROLE_EXPERT_GATE_UP],
              .down = lw->weight[VT_ROLE_EXPERT_DOWN],
              .n_experts = a->n_experts,
              .activation = a->activation,
              .y = y,
              .accumulate = residual != NULL});
        return;
    }
    if (lw->weight[VT_ROLE_GATE_UP]) {
        emit_linear(
            b, i, "gate+up",
            (linear_args){.x = b->h,
                          .w = lw->weight[VT_ROLE_GATE_UP],
                          .y = b->f,
                          .epilogue = a->activation == VT_ACT_SILU ? LINEAR_SWIGLU : LINEAR_GEGLU},
            VT_WHEN_TOKENS);
    } else {
        emit_linear(b, i, "gate",
                    (linear_args){.x = b->h,
                                  .w = lw->weight[VT_ROLE_GATE],
                                  .bias = lw->tensor[VT_ROLE_GATE_BIAS],
                                  .y = b->gate},
                    VT_WHEN_TOKENS);
        emit_linear(b, i, "up",
                    (linear_args){.x = b->h,
                                  .w = lw->weight[VT_ROLE_UP],
                                  .bias = lw->tensor[VT_ROLE_UP_BIAS],
                                  .y = b->up},
                    VT_WHEN_TOKENS);
        EMIT(b, silu_mul, i, "", VT_WHEN_TOKENS,
             {.x = b->g, .y = b->f, .activation = a->activation});
    }
    emit_linear(b, i, "down",
                (linear_args){.x = b->f,
                              .w = lw->weight[VT_ROLE_DOWN],
                              .bias = lw->tensor[VT_ROLE_DOWN_BIAS],
                              .residual = residual,
                              .y = y},
                VT_WHEN_TOKENS);
}

static void build_layer(builder *b, int32_t i)
{
    const vt_layer_weights *lw = &b->w->layer[i];
    if (!b->m->arch.post_norms) {
        emit_norm(b, i, "attn", b->x, lw->tensor[VT_ROLE_ATTN_NORM], b->h);
        build_attention(b, i);
        emit_linear(b, i, "o",
                    (linear_args){.x = b->o,
                                  .w = lw->weight[VT_ROLE_O],
                                  .bias = lw->tensor[VT_ROLE_O_BIAS],
                                  .residual = b->x,
                                  .y = b->x},
                    VT_WHEN_TOKENS);
        emit_norm(b, i, "ffn", b->x, lw->tensor[VT_ROLE_FFN_NORM], b->h);
        build_ffn(b, i, b->x);
        return;
    }
    if (i == 0)
        emit_norm(b, i, "attn", b->x, lw->tensor[VT_ROLE_ATTN_NORM], b->h);
    build_attention(b, i);
    emit_linear(
        b, i, "o",
        (linear_args){
            .x = b->o, .w = lw->weight[VT_ROLE_O], .bias = lw->tensor[VT_ROLE_O_BIAS], .y = b->t},
        VT_WHEN_TOKENS);
    emit_norm(b, i, "post_attn", b->t, lw->tensor[VT_ROLE_POST_ATTN_NORM], b->t);
    emit_add_norm(b, i, "ffn", b->t, lw->tensor[VT_ROLE_FFN_NORM], b->h);
    build_ffn(b, i, b->t);
    emit_norm(b, i, "post_ffn", b->t, lw->tensor[VT_ROLE_POST_FFN_NORM], b->t);
    bool last =
        i + 1 ==
        b->m->arch.n_layers; /* after the last layer only x matters: `final` norms its rows */
    emit_add_norm(b, i, last ? "join" : "attn", b->t,
                  last ? b->w->ends.tensor[VT_ROLE_FINAL_NORM]
                       : b->w->layer[i + 1].tensor[VT_ROLE_ATTN_NORM],
                  b->h);
}

static void build_calls(builder *b)
{
    vt_program *p = b->p;
    const vt_arch *a = &b->m->arch;
    for (int32_t g = 0, first = 0; g < b->kv->shape.n_groups; g++) {
        int32_t n = b->kv->shape.group[g].n_layers;
        EMIT(b, page_copy, -1, "", VT_WHEN_COPIES,
             {.batch = &p->batch,
              .k = b->kv->k + first,
              .v = b->kv->v + first,
              .n_layers = n,
              .first_page = b->kv->first_page});
        first += n;
    }
    p->n_before = p->n_calls;
    EMIT(b, embed, -1, "", VT_WHEN_TOKENS,
         {.table = b->w->ends.tensor[VT_ROLE_EMBED],
          .tokens = &p->batch.token,
          .token_pool = &p->token_pool,
          .y = b->x,
          .scale = a->embed_scale});
    for (int32_t i = 0; i < a->n_layers; i++)
        build_layer(b, i);
    EMIT(b, rmsnorm, -1, "final", VT_WHEN_ROWS,
         {.x = b->x,
          .row = &p->batch.row_token,
          .weight = b->w->ends.tensor[VT_ROLE_FINAL_NORM],
          .y = b->r,
          .eps = a->norm_eps,
          .plus_one = a->norm_plus_one});
    emit_linear(b, -1, "head",
                (linear_args){.x = b->r,
                              .w = b->w->ends.weight[VT_ROLE_HEAD],
                              .y = p->logits,
                              .scale = a->logit_scale},
                VT_WHEN_ROWS);
    p->n_forward = p->n_calls;
    EMIT(b, sample, -1, "", VT_WHEN_ROWS,
         {.logits = p->logits,
          .row = &p->rows,
          .token_pool = &p->token_pool,
          .token = p->token,
          .logprob = p->logprob,
          .top_id = p->top_id,
          .top_logprob = p->top_logprob});
}

void vt_program_place(vt_program *p, void *memory)
{
    for (int32_t i = 0; i < p->n_symbolic; i++)
        p->symbolic[i]->data = (char *)memory + (size_t)p->symbolic[i]->data;
}

/* The first implementation chosen for calls of op `op` whose name or family is `name` (`is` true)
 * or is not (`is` false). NULL if there is none. */
static const vt_impl *row_that(const vt_program *p, const char *op, const char *name, bool is)
{
    for (int32_t k = 0; k < p->n_calls; k++)
        for (int32_t j = 0; strcmp(p->call[k].op->name, op) == 0 && j < p->call[k].n_choices; j++)
            if (vt_impl_is(p->call[k].choice[j].impl, name) == is)
                return p->call[k].choice[j].impl;
    return NULL;
}

/* Fails if an implementation that the user asked for runs no call. */
static void check_backends(builder *b)
{
    const vt_target *t = &b->p->target;
    for (int32_t i = 0; i < t->n_backends && b->status == VT_OK; i++)
        if (!row_that(b->p, t->backend[i].op, t->backend[i].row, true))
            b->status = vt_fail(b->err, VT_ERR_UNSUPPORTED, "%s: %s cannot run on %s here%s",
                                b->m->name, t->backend[i].op, t->backend[i].row,
                                t->deterministic
                                    ? " (deterministic takes only rows whose sums have "
                                      "a fixed order)"
                                    : "");
}

/* Deterministic programs run two ops with implementations of one family where the op's card says so
 * (vt_op.one_family_with). Fails if the choices do not. */
static void check_families(builder *b)
{
    for (int32_t k = 0; k < b->p->n_calls && b->status == VT_OK; k++) {
        const vt_call *c = &b->p->call[k];
        const char *family = c->choice[0].impl->family, *with = c->op->one_family_with;
        if (!b->p->target.deterministic || !with || !family)
            continue;
        const vt_impl *other = row_that(b->p, with, family, false);
        other = other ? other : row_that(b->p, c->op->name, family, false);
        if (other)
            b->status = vt_fail(
                b->err, VT_ERR_UNSUPPORTED,
                "deterministic: %s runs on %s and %s on %s, and both must be of one "
                "family, because a token may pass through either",
                c->op->name, family, with, other->family ? other->family : other->name);
    }
}

vt_status vt_program_build(const vt_model *m, const vt_weights *w, const vt_kv_cache *kv,
                           const vt_program_config *config, vt_program **out, vt_err *err)
{
    vt_program *p = vt_calloc(1, sizeof *p);
    if (!p)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory building the program of %s", m->name);
    vt_arena_init(&p->arena, 0);
    p->target = config->target;
    p->target.workspace_bytes = 0;
    p->activation = config->activation;
    builder b = {.p = p, .config = config, .m = m, .w = w, .kv = kv, .err = err};
    make_tensors(&b);
    if (b.status == VT_OK)
        build_calls(&b);
    check_backends(&b);
    check_families(&b);
    if (b.status == VT_OK && p->target.device == VT_DEVICE_CPU && !config->describe) {
        p->memory = vt_pages_alloc(p->activation_bytes);
        if (!p->memory)
            b.status = vt_fail(err, VT_ERR_MEMORY, "out of memory for %zu bytes of activations",
                               p->activation_bytes);
        else
            vt_program_place(p, p->memory);
    }
    if (b.status != VT_OK) {
        vt_program_free(p);
        return b.status;
    }
    *out = p;
    return VT_OK;
}

void vt_program_free(vt_program *p)
{
    if (!p)
        return;
    vt_pages_free(p->memory, p->activation_bytes);
    vt_arena_release(&p->arena);
    free(p);
}

void vt_program_bind(vt_program *p, const vt_batch *batch, const vt_size *size,
                     const vt_sample_row *rows)
{
    p->batch = *batch;
    p->size = *size;
    p->rows = rows;
    for (int32_t i = 0; i < p->n_symbolic; i++)
        p->symbolic[i]->dim[0] = p->symbolic[i]->follows == VT_FOLLOWS_TOKENS ? size->tokens
                                                                              : size->rows;
}

vt_size vt_size_of(const vt_batch *b)
{
    return (vt_size){.tokens = b->n_tokens,
                     .seqs = b->n_seqs,
                     .rows = b->n_rows,
                     .decodes = b->n_decode,
                     .prefills = b->n_seqs - b->n_decode,
                     .copies = b->n_copies};
}

/* The number that decides whether a call runs (it is above 0) and with which implementation. */
static int32_t deciding(const vt_call *c, const vt_size *size)
{
    switch ((vt_when)c->when) {
    case VT_WHEN_DECODE:
        return size->decodes;
    case VT_WHEN_PREFILL:
        return size->prefills > 0 ? size->tokens : 0;
    case VT_WHEN_ROWS:
        return size->rows;
    case VT_WHEN_COPIES:
        return size->copies;
    case VT_WHEN_TOKENS:
        break;
    }
    return size->tokens;
}

bool vt_call_active(const vt_call *c, const vt_size *size) { return deciding(c, size) > 0; }

int32_t vt_call_choice(const vt_call *c, const vt_size *size)
{
    int32_t n = deciding(c, size), i = 0;
    while (n > c->choice[i].upto)
        i++;
    return i;
}

void vt_program_plans_used(const vt_program *p, const vt_size *size, bool used[VT_MAX_PLANS])
{
    memset(used, 0, VT_MAX_PLANS * sizeof *used);
    for (int32_t i = 0; i < p->n_calls && p->n_plans > 0; i++) {
        const vt_call *c = &p->call[i];
        int16_t plan = vt_call_active(c, size) ? c->plan[vt_call_choice(c, size)] : -1;
        if (plan >= 0)
            used[plan] = true;
    }
}
