/* Building and binding the program (exec/program.h).
 *
 *   x [tokens, hidden]  the residual stream
 *   h [tokens, hidden]  a normed copy: the input of a block
 *   t [tokens, hidden]  a block's output before it joins x, where layers have norms after blocks
 *   r [rows, hidden], logits [rows, vocab]
 *
 * and those of the blocks (exec/blocks). All layers share these buffers. Without norms after them,
 * blocks add their results into x in their epilogues. With them (Gemma), part_norm adds norm(t)
 * into x in one pass. A norm before a block may be made by the calls that read it
 * (build_offer_norm).
 *
 * A rank of a group has buffers that its peers read (ops/comm.h): blocks write their part of the
 * sum into one, and all_reduce adds the parts into x or t. The embedding's rows are summed
 * likewise, and the logits of the rank's part of the vocabulary are gathered.
 */
#include "exec/program.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "exec/blocks/block.h"
#include "model/lora/lora.h"
#include "ops/all_gather/all_gather.h"
#include "ops/all_reduce/all_reduce.h"
#include "ops/all_reduce_rmsnorm/all_reduce_rmsnorm.h"
#include "ops/embed/embed.h"
#include "ops/layernorm/layernorm.h"
#include "ops/logit_cap/logit_cap.h"
#include "ops/lora/lora.h"
#include "ops/page_copy/page_copy.h"
#include "ops/add_position/add_position.h"
#include "ops/attention/attention.h"
#include "ops/part_norm/part_norm.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/sample/sample.h"
#include "ops/segment_sum/segment_sum.h"
#include "ops/sharded_rmsnorm/sharded_rmsnorm.h"

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

vt_tensor *build_activation(builder *b, const char *name, vt_follows follows, int64_t cols,
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

vt_tensor *build_input(builder *b, const char *name, int64_t cols)
{
    vt_tensor *t = build_alloc(b, 1, sizeof *t);
    if (!t)
        return NULL;
    *t = vt_tensor_2d(NULL, b->p->activation, b->p->target.limits.max_tokens, cols);
    t->name = name;
    t->follows = VT_FOLLOWS_TOKENS;
    add_symbolic(b, t);
    return t;
}

vt_tensor *build_slice(builder *b, const char *name, const vt_tensor *of, int64_t at, int64_t cols)
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

vt_tensor *build_narrow(builder *b, vt_tensor *of, int64_t cols)
{
    if (!of || of->dim[1] == cols)
        return of;
    vt_tensor *t = build_slice(b, of->name, of, 0, cols);
    if (t)
        t->row_stride = cols;
    return t;
}

/* Makes what the ranks of a group share. */
static void make_buffers(builder *b)
{
    vt_program *p = b->p;
    const vt_weight *head = b->w->ends.weight[VT_ROLE_HEAD];
    if (!p->comm)
        return;
    p->buffer[VT_SLOT_EMBED] = build_activation(b, "embed part", VT_FOLLOWS_TOKENS,
                                                b->m->arch.hidden, p->activation);
    p->buffer[VT_SLOT_MIXER] = build_activation(b, "mixer part", VT_FOLLOWS_TOKENS,
                                                b->m->arch.hidden, p->activation);
    p->buffer[VT_SLOT_FFN] = build_activation(b, "ffn part", VT_FOLLOWS_TOKENS, b->m->arch.hidden,
                                              p->activation);
    if (b->config->end == VT_END_LOGITS)
        p->buffer[VT_SLOT_LOGITS] = build_activation(b, "logits part", VT_FOLLOWS_ROWS, head->rows,
                                                     VT_F32);
}

static void make_tensors(builder *b)
{
    const vt_arch *a = &b->m->arch;
    vt_dtype act = b->p->activation;
    bool after = false, has[VT_BLOCKS] = {false};
    for (int32_t i = 0; i < a->n_layers; i++) {
        after = after || b->m->layer[i].norms & VT_NORM_AFTER;
        has[b->m->layer[i].mixer] = has[b->m->layer[i].ffn] = true;
    }
    b->x = build_activation(b, "x", VT_FOLLOWS_TOKENS, a->hidden, act);
    b->h = build_activation(b, "h", VT_FOLLOWS_TOKENS, a->hidden, act);
    b->t = after ? build_activation(b, "t", VT_FOLLOWS_TOKENS, a->hidden, act) : NULL;
    make_buffers(b);
    vt_layer_end_tensors(b);
    vt_mtp_tensors(b);
    for (int k = 0; k < VT_BLOCKS; k++)
        if (has[k] && vt_blocks[k])
            vt_blocks[k]->tensors(b);
    b->p->hidden = build_activation(b, "r", VT_FOLLOWS_ROWS, a->hidden, act);
    if (b->config->end == VT_END_POOLED)
        b->p->states = build_activation(b, "sums", VT_FOLLOWS_ROWS, 2 * a->hidden, VT_F32);
    else if (b->config->states == VT_STATES_ROWS)
        b->p->states = b->p->hidden;
    else if (b->config->states == VT_STATES_STREAM)
        b->p->states = b->x;
    else if (b->config->states == VT_STATES_TOKENS && b->m->aux.in)
        b->p->states = b->aux = build_activation(b, "aux", VT_FOLLOWS_TOKENS, b->m->aux.in->dim[0],
                                                 act);
    else if (b->config->states == VT_STATES_TOKENS)
        b->p->states = b->s = build_activation(b, "s", VT_FOLLOWS_TOKENS, a->hidden, act);
    if (b->config->end == VT_END_POOLED)
        return;
    b->p->logits = build_activation(b, "logits", VT_FOLLOWS_ROWS, a->vocab, VT_F32);
    b->p->token = build_activation(b, "token", VT_FOLLOWS_ROWS, 1, VT_I32);
    b->p->logprob = build_activation(b, "logprob", VT_FOLLOWS_ROWS, 1, VT_F32);
    b->p->top_id = build_activation(b, "top_id", VT_FOLLOWS_ROWS, VT_MAX_TOP_LOGPROBS, VT_I32);
    b->p->top_logprob = build_activation(b, "top_logprob", VT_FOLLOWS_ROWS, VT_MAX_TOP_LOGPROBS,
                                         VT_F32);
}

/* ---- calls ---- */

/* The index of the plan of this kind and key; adds the plan when a call first needs it. */
static int16_t plan_index(builder *b, const vt_host_plan *plan, const vt_call *c)
{
    vt_program *p = b->p;
    uint64_t key = plan->key ? plan->key(c->args) : 0;
    for (int32_t i = 0; i < p->n_plans; i++)
        if (p->plan[i].plan == plan && p->plan[i].key == key && p->plan[i].windowed == b->windowed)
            return (int16_t)i;
    if (p->n_plans == VT_MAX_PLANS) {
        b->status = vt_fail(
            b->err, VT_ERR_UNSUPPORTED,
            "%s: the calls of a step need more than %d different plans (of attention and others)",
            c->label, VT_MAX_PLANS);
        return -1;
    }
    p->plan[p->n_plans] = (vt_program_plan){plan, c->args, key, c->when, b->windowed};
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

void build_emit(builder *b, const vt_op *op, const void *args, size_t size, int32_t layer,
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

void build_linear(builder *b, int32_t layer, const char *what, linear_args args, vt_when when)
{
    if (args.scale == 0)
        args.scale = 1;
    build_emit(b, &linear_op, &args, sizeof args, layer, what, when);
}

void build_lora(builder *b, int32_t layer, const char *what, vt_role role, const vt_tensor *x,
                vt_tensor *const *y, int32_t n, float scale)
{
    static_assert((int)VT_LORA_MOST <= LORA_ADAPTERS && (int)VT_LORA_MOST_RANK <= LORA_RANK,
                  "more than the op takes");
    const vt_layer_weights *lw = &b->w->layer[layer];
    lora_args a = {.batch = &b->p->batch, .x = x, .factor = scale == 0 ? 1 : scale};
    for (int32_t i = 0; i < n; i++) {
        const vt_lora_matrix *m = vt_lora_of(b->m, layer, (vt_role)(role + i));
        if (!m)
            continue;
        a.n = m->n;
        a.part[a.n_parts++] = (lora_part){.a = lw->lora_a[role + i],
                                          .b = lw->lora_b[role + i],
                                          .y = y[i],
                                          .first = m->first,
                                          .scale = m->scale,
                                          .most_rank = m->most_rank};
    }
    if (a.n_parts > 0)
        build_emit(b, &lora_op, &a, sizeof a, layer, what, VT_WHEN_TOKENS);
}

const vt_batch *build_pages(const builder *b, int32_t kv_group)
{
    return b->kv->shape.group[kv_group].windowed ? &b->p->windowed : &b->p->batch;
}

bool build_window_pages(const builder *b, int32_t kv_group)
{
    return b->kv->n_windows > 0 && b->kv->shape.group[kv_group].windowed;
}

const vt_tensor *build_joined_bias(const builder *b, const vt_tensor *bias)
{
    return b->p->comm && b->p->comm->rank > 0 ? NULL : bias;
}

vt_tensor *build_part(const builder *b, vt_comm_slot slot, vt_tensor *y)
{
    return b->p->comm ? b->p->buffer[slot] : y;
}

void build_all_reduce(builder *b, int32_t layer, const char *what, vt_comm_slot slot,
                      const vt_tensor *residual, vt_tensor *y)
{
    if (!b->p->comm)
        return;
    EMIT(b, all_reduce, layer, what, VT_WHEN_TOKENS,
         {.comm = b->p->comm,
          .slot = slot,
          .order = ++b->p->n_comm,
          .x = b->p->buffer[slot],
          .residual = residual,
          .y = y});
}

void build_norm_buffer(builder *b)
{
    vt_tensor **sums = &b->p->buffer[VT_SLOT_NORM];
    if (!*sums)
        *sums = build_activation(b, "norm part", VT_FOLLOWS_TOKENS, SHARDED_PARTS, VT_F32);
}

static void emit_norm(builder *b, int32_t layer, const char *what, const vt_tensor *x,
                      const vt_tensor *weight, vt_tensor *y)
{
    if (b->m->arch.layer_norm)
        EMIT(b, layernorm, layer, what, VT_WHEN_TOKENS,
             {.x = x, .weight = weight, .y = y, .eps = b->m->arch.norm_eps});
    else
        EMIT(b, rmsnorm, layer, what, VT_WHEN_TOKENS,
             {.x = x,
              .weight = weight,
              .y = y,
              .eps = b->m->arch.norm_eps,
              .plus_one = b->m->arch.norm_plus_one});
}

/* x += norm(t) */
static void emit_join(builder *b, int32_t layer, const char *what, const vt_tensor *weight)
{
    EMIT(b, part_norm, layer, what, VT_WHEN_TOKENS,
         {.x = b->t,
          .weight = weight,
          .add = b->x,
          .y = b->x,
          .dim = b->m->arch.hidden,
          .eps = b->m->arch.norm_eps,
          .plus_one = b->m->arch.norm_plus_one});
}

/* Returns the layer's mixer or feed-forward; NULL if it has none. */
static const vt_block *block_of(const builder *b, int32_t layer, bool ffn)
{
    const vt_layer *l = &b->m->layer[layer];
    return vt_blocks[ffn ? l->ffn : l->mixer];
}

/* Returns the weight of the norm before the layer's block; NULL if it has none there. */
static const vt_tensor *norm_before(const builder *b, int32_t layer, bool ffn)
{
    return b->w->layer[layer].tensor[block_of(b, layer, ffn)->norm_role];
}

/* Returns the weight of the norm before the block that comes after this one; NULL if there is no
 * such norm or block. */
static const vt_tensor *norm_behind(const builder *b, int32_t layer, bool ffn)
{
    do {
        layer += ffn;
        ffn = !ffn;
    } while (layer < b->m->arch.n_layers && !block_of(b, layer, ffn));
    return layer < b->m->arch.n_layers ? norm_before(b, layer, ffn) : NULL;
}

/* y = the layer's norm of x, the sum of a block's result and what it was added to. */
static void emit_layernorm(builder *b, int32_t layer, const char *what, const vt_tensor *weight,
                           const vt_tensor *bias, const int32_t *const *row, vt_tensor *y)
{
    EMIT(b, layernorm, layer, what, row ? VT_WHEN_ROWS : VT_WHEN_TOKENS,
         {.x = b->x,
          .row = row,
          .weight = weight,
          .bias = bias,
          .y = y,
          .eps = b->m->arch.norm_eps});
}

/* Returns the slot of the next block's sum: not that of the one before it. Mixers and feed-forwards
 * that take turns have one each. */
static vt_comm_slot next_slot(builder *b)
{
    b->slot = b->slot == VT_SLOT_MIXER ? VT_SLOT_FFN : VT_SLOT_MIXER;
    return b->slot;
}

/* A block whose sum with its input is normalised (VT_NORM_JOINED). The last norm of the model is
 * of the rows that are wanted. */
static void build_joined_block(builder *b, int32_t i, bool ffn)
{
    const vt_block *block = block_of(b, i, ffn);
    const vt_layer_weights *lw = &b->w->layer[i];
    vt_comm_slot slot = next_slot(b);
    bool last = ffn && i == b->m->arch.n_layers - 1;
    block->emit(b, i, b->x, build_part(b, slot, b->x));
    build_all_reduce(b, i, block->norm, slot, b->x, b->x);
    emit_layernorm(b, i, block->post_norm, lw->tensor[block->post_norm_role],
                   lw->tensor[block->post_norm_bias_role],
                   last ? (const int32_t *const *)&b->p->batch.row_token : NULL,
                   last ? b->p->hidden : b->x);
}

/* x += the sum of the ranks' parts; h = norm(x), where the next block has such a norm. Returns true
 * if h is made. */
static bool emit_reduce_norm(builder *b, int32_t layer, const char *what, vt_comm_slot slot,
                             const vt_tensor *next)
{
    if (!b->p->comm || !next || b->m->arch.layer_norm)
        return false;
    EMIT(b, all_reduce_rmsnorm, layer, what, VT_WHEN_TOKENS,
         {.sum = {.comm = b->p->comm,
                  .slot = slot,
                  .order = ++b->p->n_comm,
                  .x = b->p->buffer[slot],
                  .residual = b->x,
                  .y = b->x},
          .weight = next,
          .y = b->h,
          .eps = b->m->arch.norm_eps,
          .plus_one = b->m->arch.norm_plus_one});
    return true;
}

/* Returns true if a call reads the tensor. */
static bool call_reads(const vt_call *c, const vt_tensor *t)
{
    for (int32_t i = 0; i < c->op->n_operands; i++) {
        const vt_operand *o = &c->op->operands[i];
        bool tensor = o->kind == VT_OPERAND_ACTIVATION && o->read;
        const vt_tensor *const *at = (const void *)((const char *)c->args + o->offset);
        if (tensor && *at && (*at)->data == t->data)
            return true;
    }
    return false;
}

/* Returns true for a linear call of x that could make x, a norm, itself. */
static bool reads_norm(const vt_call *c, const vt_tensor *x)
{
    const linear_args *a = c->args;
    return c->op == &linear_op && a->x == x && !a->residual;
}

/* Lets the linear calls right behind the norm at `at` make that norm themselves, if no other call
 * reads the normed rows. Which rows of linear do is their affair (vt_impl.makes_before). */
void build_offer_norm(builder *b, int32_t at)
{
    vt_program *p = b->p;
    vt_call *norm = &p->call[at];
    if (b->status != VT_OK || at >= p->n_calls || norm->op != &rmsnorm_op ||
        p->target.device != VT_DEVICE_CUDA)
        return;
    const rmsnorm_args *n = norm->args;
    int32_t end = at + 1;
    while (end < p->n_calls && reads_norm(&p->call[end], n->y))
        end++;
    for (int32_t i = end; i < p->n_calls; i++)
        if (call_reads(&p->call[i], n->y))
            return;
    for (int32_t i = at + 1; i < end; i++) {
        linear_args *a = p->call[i].args;
        a->before = n->x;
        a->norm = n->weight;
        a->eps = n->eps;
        a->plus_one = n->plus_one;
        choose(b, &p->call[i]);
    }
    norm->readers = (uint8_t)(end - at - 1);
}

/* Lets a decode's attention make what rope_store made for it, the call in front of it. Attention of
 * prefills reads that too: a row of the former makes it only in steps without the latter. */
void build_offer_turn(builder *b)
{
    vt_program *p = b->p;
    if (b->status != VT_OK || p->n_calls < 2 || p->target.device != VT_DEVICE_CUDA)
        return;
    vt_call *call = &p->call[p->n_calls - 2];
    if (call[0].op != &rope_store_op || call[1].op != &attention_decode_op)
        return;
    ((attention_args *)call[1].args)->before = *(const rope_store_args *)call[0].args;
    call[0].readers = 1;
}

/* A block with its norms. *normed: h has its input already, and afterwards that of the next block.
 *
 *   norm before         h = norm(x), unless the block before this one made it
 *   no norm after       x += block(h or x), in the epilogue of the block's last product; over
 *                       ranks with their sum, in a call that makes the next block's h too
 *   norm after          t = block(h or x); one pass then adds norm(t) into x
 *   more at its end     blocks/layer_end.c */
static void build_block(builder *b, int32_t i, bool ffn, bool *normed)
{
    const vt_block *block = block_of(b, i, ffn);
    const vt_tensor *before = norm_before(b, i, ffn),
                    *after = b->w->layer[i].tensor[block->post_norm_role];
    bool norms = before && !*normed;
    int32_t first = b->p->n_calls;
    if (norms)
        emit_norm(b, i, block->norm, b->x, before, b->h);
    *normed = false;
    vt_comm_slot slot = next_slot(b);
    vt_tensor *y = after ? b->t : b->x;
    bool joins = block->joins && block->joins(b, i);
    const vt_tensor *next = norm_behind(b, i, ffn);
    const vt_tensor *x = b->pair && b->m->eagle.is && !ffn ? b->pair : b->x;
    block->emit(b, i, before ? b->h : x, joins ? y : build_part(b, slot, y));
    if (norms)
        build_offer_norm(b, first);
    if (!joins && !after)
        *normed = emit_reduce_norm(b, i, block->norm, slot, next);
    if (!joins && !*normed)
        build_all_reduce(b, i, block->norm, slot, after ? NULL : b->x, y);
    if (ffn && vt_layer_end(b, i, after))
        return;
    if (after)
        emit_join(b, i, block->post_norm, after);
}

/* Adds to the embedding's rows the vectors of their positions, and normalises the sum. */
static void build_positions(builder *b)
{
    const vt_layer_weights *w = &b->w->ends;
    if (w->tensor[VT_ROLE_POSITIONS])
        EMIT(b, add_position, -1, "", VT_WHEN_TOKENS,
             {.batch = &b->p->batch,
              .table = w->tensor[VT_ROLE_POSITIONS],
              .types = w->tensor[VT_ROLE_TYPES],
              .first = b->m->arch.first_position,
              .x = b->x});
    if (w->tensor[VT_ROLE_EMBED_NORM])
        emit_layernorm(b, -1, "embed", w->tensor[VT_ROLE_EMBED_NORM],
                       w->tensor[VT_ROLE_EMBED_NORM_BIAS], NULL, b->x);
}

/* Adds to `aux` what an EAGLE-3 head reads of the input of layer i. */
static void build_aux(builder *b, int32_t i)
{
    for (int32_t k = 0; b->aux && k < VT_AUX_LAYERS; k++)
        if (b->m->aux.layer[k] == i)
            build_linear(b, -1, vt_roles[VT_ROLE_AUX + k].name,
                         (linear_args){.x = b->x,
                                       .w = b->w->ends.weight[VT_ROLE_AUX + k],
                                       .residual = b->n_aux++ > 0 ? b->aux : NULL,
                                       .y = b->aux},
                         VT_WHEN_TOKENS);
}

/* Returns true if the rows that are wanted still have to be normalised. */
static bool build_layers(builder *b)
{
    bool normed = false, joined = false;
    for (int32_t i = 0; i < b->m->arch.n_layers; i++) {
        build_aux(b, i);
        joined = b->m->layer[i].norms & VT_NORM_JOINED;
        for (int ffn = 0; ffn < 2; ffn++)
            if (!block_of(b, i, ffn))
                continue; /* the layer has one block alone */
            else if (joined)
                build_joined_block(b, i, ffn);
            else
                build_block(b, i, ffn, &normed);
    }
    build_aux(b, b->m->arch.n_layers);
    return !joined;
}

/* Normalises the rows that are wanted, and all tokens where their hidden states are. */
static void build_final_norm(builder *b)
{
    const vt_arch *a = &b->m->arch;
    const vt_tensor *weight = b->w->ends.tensor[VT_ROLE_FINAL_NORM];
    if (b->s)
        emit_norm(b, -1, "states", b->x, weight, b->s);
    const int32_t *const *row = (const int32_t *const *)&b->p->batch.row_token;
    if (a->layer_norm)
        emit_layernorm(b, -1, "final", weight, NULL, row, b->p->hidden);
    else
        EMIT(b, rmsnorm, -1, "final", VT_WHEN_ROWS,
             {.x = b->x,
              .row = row,
              .weight = weight,
              .y = b->p->hidden,
              .eps = a->norm_eps,
              .plus_one = a->norm_plus_one});
}

static void build_calls(builder *b)
{
    vt_program *p = b->p;
    const vt_arch *a = &b->m->arch;
    for (int32_t g = 0, first = 0; g < b->kv->shape.n_groups; g++) {
        int32_t n = b->kv->shape.group[g].n_layers;
        b->windowed = build_window_pages(b, g);
        EMIT(b, page_copy, -1, "", VT_WHEN_COPIES,
             {.batch = build_pages(b, g),
              .k = b->kv->k + first,
              .v = b->kv->shape.group[g].v_in_k ? NULL : b->kv->v + first,
              .n_layers = n,
              .first_page = b->kv->first_page});
        first += n;
    }
    b->windowed = false;
    p->n_before = p->n_calls;
    const vt_tensor *rows = p->buffer[VT_SLOT_EMBED];
    EMIT(b, embed, -1, "", VT_WHEN_TOKENS,
         {.table = b->w->ends.tensor[VT_ROLE_EMBED],
          .tokens = &p->batch.token,
          .token_pool = &p->token_pool,
          .y = build_part(b, VT_SLOT_EMBED, b->x),
          .scale = a->embed_scale,
          .part = rows,
          .first = b->w->first_token});
    build_all_reduce(b, -1, "embed", VT_SLOT_EMBED, NULL, b->x);
    build_positions(b);
    vt_layer_embeddings(b);
    vt_mtp_input(b);
    if (build_layers(b))
        build_final_norm(b);
    if (b->config->end == VT_END_POOLED) {
        EMIT(b, segment_sum, -1, "", VT_WHEN_ROWS,
             {.batch = &p->batch,
              .x = p->hidden,
              .sum = build_slice(b, "sum", p->states, 0, a->hidden),
              .rest = build_slice(b, "rest", p->states, a->hidden, a->hidden)});
        p->n_forward = p->n_calls;
        return;
    }
    vt_tensor *logits = p->buffer[VT_SLOT_LOGITS];
    build_linear(b, -1, "head",
                 (linear_args){.x = p->hidden,
                               .w = b->w->ends.weight[VT_ROLE_HEAD],
                               .y = logits ? logits : p->logits,
                               .scale = a->logit_scale},
                 VT_WHEN_ROWS);
    if (logits)
        EMIT(b, all_gather, -1, "logits", VT_WHEN_ROWS,
             {.comm = p->comm,
              .slot = VT_SLOT_LOGITS,
              .order = ++p->n_comm,
              .x = logits,
              .y = p->logits});
    if (a->logits_within > 0)
        EMIT(b, logit_cap, -1, "", VT_WHEN_ROWS, {.y = p->logits, .cap = a->logits_within});
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
        if (p->symbolic[i] != p->before)
            p->symbolic[i]->data = (char *)memory + (size_t)p->symbolic[i]->data;
}

/* The first implementation chosen for calls of op `op`, in this layer or (-1) in any, whose name or
 * family is `name` (`is` true) or is not (`is` false). NULL if there is none. */
static const vt_impl *row_that(const vt_program *p, const char *op, int32_t layer, const char *name,
                               bool is)
{
    for (int32_t k = 0; k < p->n_calls; k++) {
        const vt_call *c = &p->call[k];
        bool asked = strcmp(c->op->name, op) == 0 && (layer < 0 || c->layer == layer);
        for (int32_t j = 0; asked && j < c->n_choices; j++)
            if (vt_impl_is(c->choice[j].impl, name) == is)
                return c->choice[j].impl;
    }
    return NULL;
}

/* Fails if an implementation that the user asked for runs no call. */
static void check_backends(builder *b)
{
    const vt_target *t = &b->p->target;
    for (int32_t i = 0; i < t->n_backends && b->status == VT_OK; i++)
        if (!row_that(b->p, t->backend[i].op, -1, t->backend[i].row, true))
            b->status = vt_fail(b->err, VT_ERR_UNSUPPORTED, "%s: %s cannot run on %s here%s",
                                b->m->name, t->backend[i].op, t->backend[i].row,
                                t->deterministic
                                    ? " (deterministic takes only rows whose sums have "
                                      "a fixed order)"
                                    : "");
}

/* Deterministic programs run two ops of a layer with implementations of one family where the op's
 * card says so (vt_op.one_family_with). Fails if the choices do not. */
static void check_families(builder *b)
{
    for (int32_t k = 0; k < b->p->n_calls && b->status == VT_OK; k++) {
        const vt_call *c = &b->p->call[k];
        const char *family = c->choice[0].impl->family, *with = c->op->one_family_with;
        if (!b->p->target.deterministic || !with || !family)
            continue;
        const vt_impl *other = row_that(b->p, with, c->layer, family, false);
        other = other ? other : row_that(b->p, c->op->name, c->layer, family, false);
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
    if (!m->head && config->end == VT_END_LOGITS)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s has no head (lm_head.weight): it makes embeddings and no text (vitrine "
                       "embed); option pooling says how",
                       m->name);
    if (vt_model_bidirectional(m) && config->end == VT_END_LOGITS)
        return vt_fail(
            err, VT_ERR_MODEL,
            "%s: a token sees those behind it, so the model makes embeddings and no text "
            "(vitrine embed); option pooling says how",
            m->name);
    if (m->lora && config->end == VT_END_POOLED)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "%s: adapters (lora) are not supported with embeddings (pooling); expected "
                       "none",
                       m->name);
    vt_program *p = vt_calloc(1, sizeof *p);
    if (!p)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory building the program of %s", m->name);
    vt_arena_init(&p->arena, 0);
    p->target = config->target;
    p->target.workspace_bytes = 0;
    p->activation = config->activation;
    p->comm = config->comm;
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

vt_batch vt_program_windowed(const vt_batch *batch)
{
    vt_batch b = *batch;
    if (batch->window_slot) {
        b.slot = batch->window_slot;
        b.page_ids = batch->window_page_ids;
        b.copies = batch->window_copies;
        if (batch->window_page_start)
            b.page_start = batch->window_page_start;
    }
    return b;
}

void vt_program_bind(vt_program *p, const vt_batch *batch, const vt_size *size,
                     const vt_sample_row *rows)
{
    p->batch = *batch;
    p->windowed = vt_program_windowed(batch);
    p->size = *size;
    p->rows = rows;
    if (p->before)
        p->before->data = (void *)batch->hidden;
    for (int32_t i = 0; i < p->n_symbolic; i++)
        p->symbolic[i]->dim[0] = p->symbolic[i]->follows == VT_FOLLOWS_TOKENS ? size->tokens
                                                                              : size->rows;
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

bool vt_call_active(const vt_call *c, const vt_size *size)
{
    bool read = c->readers == 0; /* by a call that does not make it */
    for (int32_t i = 1; i <= c->readers; i++) {
        const vt_impl *reader = vt_call_impl(c + i, size);
        read = read || !reader->makes_before || !reader->makes_before(c[i].args, size);
    }
    return deciding(c, size) > 0 && read;
}

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
