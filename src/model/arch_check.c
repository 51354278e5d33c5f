/* The numbers of an architecture: their ranges, and what has to divide what (model/assemble.h).
 * Messages name a number's keys: that of config.json, then that of GGUF files. */
#include <math.h>

#include "model/assemble.h"
#include "model/family.h"

enum {
    MAX_LAYERS = 1024,
    MAX_HIDDEN = 1 << 17,
    MAX_HEADS = 4096,
    MAX_HEAD_DIM = 1024,
    MAX_TAPS = 8,
    MAX_DELTA_HEADS = 256,
    MAX_DELTA_DIM = 256,
    MAX_FFN = 1 << 20,
    MAX_CONTEXT = 1 << 26,
    MAX_EXPERTS = 4096,
};

vt_status model_check_factor(const char *path, const char *key, double value, vt_err *err)
{
    if (fabs(value) >= MODEL_SCALE_MIN && fabs(value) <= MODEL_SCALE_MAX)
        return VT_OK;
    return vt_fail(err, VT_ERR_MODEL, "%s: %s is %g (between %g and %g expected)", path, key, value,
                   MODEL_SCALE_MIN, MODEL_SCALE_MAX);
}

/* Longrope's factors divide frequencies. */
static vt_status check_factors(const vt_model *m, const vt_rope_params *r, vt_err *err)
{
    const float *list[] = {r->short_factor, r->long_factor};
    for (int32_t k = 0; k < 2; k++)
        for (int32_t i = 0; i < r->dims / 2; i++)
            if (!(list[k][i] > 0 && list[k][i] < 1e6f))
                return vt_fail(err, VT_ERR_MODEL,
                               "%s: %s is %g for pair %d (a positive number expected)", m->path,
                               k ? "long_factor (rope_factors_long.weight)"
                                 : "short_factor (rope_factors_short.weight)",
                               (double)list[k][i], i);
    return VT_OK;
}

static vt_status check_rope(const vt_model *m, const vt_rope_params *r, int32_t head_dim,
                            vt_err *err)
{
    if (r->dims < 2 || r->dims % 2 != 0 || r->dims > head_dim)
        return vt_fail(
            err, VT_ERR_MODEL,
            "%s: %d rotated dimensions (partial_rotary_factor, rope.dimension_count) of a "
            "head of %d (an even number from 2 to that was expected)",
            m->path, r->dims, head_dim);
    if (!(r->base > 1 && r->base < 1e18))
        return vt_fail(
            err, VT_ERR_MODEL,
            "%s: the rope's base (rope_theta, rope.freq_base) is %g (more than 1 expected)",
            m->path, r->base);
    bool scales = r->scaling != VT_ROPE_PLAIN && r->scaling != VT_ROPE_LONGROPE;
    if (r->still < 0 || r->still > r->dims / 2)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: %d of the %d pairs of rope are not rotated (partial_rotary_factor, "
                       "rope_freqs.weight); 0 to all were expected",
                       m->path, r->still, r->dims / 2);
    if (scales && !(r->factor > 0 && r->factor < 1e6))
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: the rope's scaling factor (factor, rope.scaling.factor) is %g (a "
                       "positive number expected)",
                       m->path, r->factor);
    if (((scales && r->scaling != VT_ROPE_LINEAR) || r->scaling == VT_ROPE_LONGROPE ||
         r->temper != 0) &&
        r->original_context < 1)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: the rope's scaling needs original_max_position_embeddings "
                       "(rope.scaling.original_context_length), which is missing",
                       m->path);
    if (r->scaling == VT_ROPE_LLAMA3 &&
        !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor))
        return vt_fail(
            err, VT_ERR_MODEL,
            "%s: the rope's low_freq_factor is %g and its high_freq_factor %g (0 < low < high "
            "expected)",
            m->path, r->low_freq_factor, r->high_freq_factor);
    if (r->scaling == VT_ROPE_LONGROPE)
        TRY(check_factors(m, r, err));
    if (r->scaling == VT_ROPE_YARN && !(r->beta_slow > 0 && r->beta_fast >= r->beta_slow))
        return vt_fail(
            err, VT_ERR_MODEL,
            "%s: the rope's beta_fast (rope.scaling.yarn_beta_fast) is %g and its beta_slow "
            "(rope.scaling.yarn_beta_slow) %g (0 < slow <= fast expected)",
            m->path, r->beta_fast, r->beta_slow);
    return VT_OK;
}

typedef struct number {
    const char *name;
    int32_t value, min, max;
} number;

static vt_status check_numbers(const vt_model *m, const number *all, size_t n, vt_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (all[i].value < all[i].min || all[i].value > all[i].max)
            return vt_fail(err, VT_ERR_MODEL, "%s: the %s is %d (%d to %d allowed)", m->path,
                           all[i].name, all[i].value, all[i].min, all[i].max);
    return VT_OK;
}

static vt_status check_moe(const vt_model *m, vt_err *err)
{
    const vt_arch *a = &m->arch;
    const number numbers[] = {
        {"number of experts (num_experts, expert_count)", a->n_experts, 1, MAX_EXPERTS},
        {"number of experts that a token uses (num_experts_per_tok, expert_used_count)",
         a->n_experts_used, 1, a->n_experts},
        {"size of an expert (moe_intermediate_size, expert_feed_forward_length)", a->expert_ffn, 1,
         MAX_FFN},
    };
    TRY(check_numbers(m, numbers, sizeof numbers / sizeof *numbers, err));
    int32_t groups = a->expert_groups, kept = a->expert_groups_used;
    if (groups && (groups < 1 || a->n_experts % groups != 0 || a->n_experts / groups < 2 ||
                   kept < 1 || kept > groups || a->n_experts_used > a->n_experts / groups * kept))
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: %d groups (n_group, expert_group_count), of which a token keeps %d "
                       "(topk_group, expert_group_used_count), cannot divide %d experts, of which "
                       "it uses %d",
                       m->path, groups, kept, a->n_experts, a->n_experts_used);
    return VT_OK;
}

static vt_status check_layer(const vt_model *m, int32_t i, vt_err *err)
{
    const vt_layer *l = &m->layer[i], *of;
    const vt_heads *h = &l->head;
    const number numbers[] = {
        {"number of heads (num_attention_heads, attention.head_count)", h->heads, 1, MAX_HEADS},
        {"number of KV heads (num_key_value_heads, attention.head_count_kv)", h->kv_heads, 1,
         MAX_HEADS},
        {"head dimension (head_dim, attention.key_length)", h->dim, 2, MAX_HEAD_DIM},
        {"sliding window (sliding_window, attention.sliding_window)", h->window, 0, MAX_CONTEXT},
        {"rope of a layer", h->rope, -1, m->arch.n_ropes - 1},
        {"layer whose keys and values are read", l->kv_of, 0, i},
    };
    TRY(check_numbers(m, numbers, sizeof numbers / sizeof *numbers, err));
    if (h->heads % h->kv_heads != 0)
        return vt_fail(
            err, VT_ERR_MODEL,
            "%s: %d heads (num_attention_heads, attention.head_count) are not a multiple of "
            "%d KV heads (num_key_value_heads, attention.head_count_kv)",
            m->path, h->heads, h->kv_heads);
    if (h->dim % 2 != 0)
        return vt_fail(
            err, VT_ERR_MODEL,
            "%s: the head dimension (head_dim, attention.key_length) is %d (an even number "
            "expected)",
            m->path, h->dim);
    of = &m->layer[l->kv_of];
    if (of->kv_of != l->kv_of || of->head.kv_heads != h->kv_heads || of->head.dim != h->dim ||
        of->head.v_dim != h->v_dim)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: layer %d cannot read the keys and values of layer %d: that has none of "
                       "its own, or of another shape",
                       m->path, i, l->kv_of);
    return h->rope >= 0 ? check_rope(m, &m->arch.rope[h->rope], h->dim, err) : VT_OK;
}

int64_t model_state_bytes(const vt_arch *a, vt_block_kind mixer)
{
    const vt_delta *d = &a->delta;
    int64_t before = a->conv_taps - 1, each = sizeof(float);
    if (mixer == VT_BLOCK_CONV)
        return before * a->hidden * each;
    if (mixer == VT_BLOCK_MAMBA)
        return (before * mamba_channels(&a->mamba) + mamba_inner(&a->mamba) * a->mamba.state_dim) *
               each;
    if (mixer != VT_BLOCK_DELTA && mixer != VT_BLOCK_KDA)
        return 0;
    return (before * delta_channels(d) + (int64_t)d->v_heads * d->k_dim * d->v_dim) * each;
}

static vt_status check_delta(const vt_model *m, vt_err *err)
{
    const vt_delta *d = &m->arch.delta;
    const number numbers[] = {
        {"number of key heads of linear attention (linear_num_key_heads, ssm.group_count)",
         d->k_heads, 1, MAX_DELTA_HEADS},
        {"number of value heads of linear attention (linear_num_value_heads, ssm.time_step_rank)",
         d->v_heads, 1, MAX_DELTA_HEADS},
        {"key dimension of linear attention (linear_key_head_dim, ssm.state_size)", d->k_dim, 1,
         MAX_DELTA_DIM},
        {"value dimension of linear attention (linear_value_head_dim, ssm.inner_size)", d->v_dim, 1,
         MAX_DELTA_DIM},
    };
    TRY(check_numbers(m, numbers, sizeof numbers / sizeof *numbers, err));
    if (d->v_heads % d->k_heads != 0)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: %d value heads of linear attention (linear_num_value_heads, "
                       "ssm.time_step_rank) are not a multiple of %d key heads "
                       "(linear_num_key_heads, ssm.group_count)",
                       m->path, d->v_heads, d->k_heads);
    return VT_OK;
}

/* Kimi delta attention has one number of heads, of one size, and narrow products for its gates. */
static vt_status check_kda(const vt_model *m, vt_err *err)
{
    const vt_delta *d = &m->arch.delta;
    const number rank = {"rank of the gates of linear attention", d->gate_rank, 1, MAX_DELTA_DIM};
    TRY(check_delta(m, err));
    TRY(check_numbers(m, &rank, 1, err));
    if (d->k_heads != d->v_heads || d->k_dim != d->v_dim)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: linear attention has %d key heads of %d and %d value heads of %d; "
                       "equal ones were expected",
                       m->path, d->k_heads, d->k_dim, d->v_heads, d->v_dim);
    return VT_OK;
}

static vt_status check_mamba(const vt_model *m, vt_err *err)
{
    const vt_mamba *s = &m->arch.mamba;
    const number numbers[] = {
        {"number of heads of a state space (mamba_num_heads or mamba_n_heads, ssm.time_step_rank)",
         s->heads, 1, MAX_DELTA_HEADS},
        {"number of groups of a state space (n_groups or mamba_n_groups, ssm.group_count)",
         s->groups, 1, MAX_DELTA_HEADS},
        {"head dimension of a state space (mamba_head_dim or mamba_expand, ssm.inner_size)",
         s->head_dim, 1, MAX_HEAD_DIM},
        {"state dimension of a state space (ssm_state_size or mamba_d_state, ssm.state_size)",
         s->state_dim, 1, MAX_DELTA_DIM},
    };
    TRY(check_numbers(m, numbers, sizeof numbers / sizeof *numbers, err));
    if (s->heads % s->groups != 0)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: %d heads of a state space (mamba_num_heads or mamba_n_heads, "
                       "ssm.time_step_rank) are not a multiple of %d groups (n_groups or "
                       "mamba_n_groups, ssm.group_count)",
                       m->path, s->heads, s->groups);
    return VT_OK;
}

/* The state of a layer must be as large as its block uses it. */
static vt_status check_state(const vt_model *m, int32_t i, vt_err *err)
{
    const vt_layer *l = &m->layer[i];
    const number taps = {"number of taps of a convolution (conv_kernel and the like, "
                         "ssm.conv_kernel or shortconv.l_cache)",
                         m->arch.conv_taps, 2, MAX_TAPS};
    if (l->mixer == VT_BLOCK_CONV || l->mixer == VT_BLOCK_DELTA || l->mixer == VT_BLOCK_KDA ||
        l->mixer == VT_BLOCK_MAMBA)
        TRY(check_numbers(m, &taps, 1, err));
    if (l->mixer == VT_BLOCK_DELTA)
        TRY(check_delta(m, err));
    if (l->mixer == VT_BLOCK_KDA)
        TRY(check_kda(m, err));
    if (l->mixer == VT_BLOCK_MAMBA)
        TRY(check_mamba(m, err));
    int64_t want = model_state_bytes(&m->arch, (vt_block_kind)l->mixer);
    if (l->state_bytes != want)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: layer %d has %d bytes of sequence state, and its block needs %lld",
                       m->path, i, l->state_bytes, (long long)want);
    return VT_OK;
}

vt_status arch_check(const vt_model *m, vt_err *err)
{
    const vt_arch *a = &m->arch;
    const number numbers[] = {
        {"number of layers (num_hidden_layers, block_count)", a->n_layers, 1, MAX_LAYERS},
        {"hidden size (hidden_size, embedding_length)", a->hidden, 1, MAX_HIDDEN},
        {"feed-forward size (intermediate_size, feed_forward_length)", a->ffn, a->n_experts ? 0 : 1,
         MAX_FFN},
        {"context length (max_position_embeddings, context_length)", a->max_context, 1,
         MAX_CONTEXT},
        {"feed-forward size of the shared expert (moe_shared_expert_intermediate_size and the "
         "like, expert_shared_feed_forward_length)",
         a->shared_ffn, 0, MAX_FFN},
        {"number of learned positions (rows of the table of positions)", a->n_positions, 0,
         MAX_CONTEXT},
        {"number of types of texts (type_vocab_size, rows of token_types.weight)", a->n_types, 0,
         2},
        {"number of labels (id2label, rows of cls.output.weight)", a->n_labels, 0, 1},
    };
    TRY(check_numbers(m, numbers, sizeof numbers / sizeof *numbers, err));
    for (int32_t i = 0; m->layer && i < a->n_layers; i++) {
        TRY(check_layer(m, i, err));
        TRY(check_state(m, i, err));
    }
    if (a->n_positions > 0 && a->max_context > a->n_positions - a->first_position)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: the context (max_position_embeddings, context_length) of %d tokens is "
                       "longer than the table of %d learned positions from %d on",
                       m->path, a->max_context, a->n_positions, a->first_position);
    if (!(a->norm_eps > 0 && a->norm_eps < 1))
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: the norms' epsilon (rms_norm_eps and the like, "
                       "attention.layer_norm_rms_epsilon) is %g (between 0 and 1 expected)",
                       m->path, (double)a->norm_eps);
    if (!(a->attn_scale > 0) || !isfinite(a->attn_scale))
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: the attention scale (attention_multiplier and the like, "
                       "attention.scale) is %g (a positive number expected)",
                       m->path, (double)a->attn_scale);
    if (!isfinite(a->logit_scale) || a->logit_scale == 0)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: the logit scale (logits_scaling, logit_scale) is %g (a finite number "
                       "that is not 0 expected)",
                       m->path, (double)a->logit_scale);
    for (int32_t i = 0; i < a->n_ropes; i++)
        TRY(check_rope(m, &a->rope[i], MAX_HEAD_DIM, err));
    return a->n_experts || (m->family && m->family->experts) ? check_moe(m, err) : VT_OK;
}
