/* Sharding (exec/ranks.h, docs/ranks.md).
 *
 *   rows     q k v of whole heads with their biases, and with the part of norms over all heads;
 *            gate and up; the head; the embedding
 *   columns  o, down: each rank computes a part of the sum, and all_reduce adds the parts
 *   experts  as gate, up and down, of each expert and of a shared one; or whole experts
 *   heads    of latent attention: rows of q, columns of o, matrices of k_b and v_b; of delta rules,
 *            of state spaces and of short convolutions: rows of all that goes in, columns of what
 *            comes out, state
 *   whole    other norms, routers, rope tables, latents, those of gates; biases of o and down, that
 *            rank 0 adds
 *   adapters B with the rows of its weight, A with the columns; the other one is whole
 *
 * Heads. Where there are at least as many KV heads as ranks, they are divided, each with its query
 * heads. Where there are fewer, the ranks are divided among the KV heads: those of one KV head each
 * have a copy of it and a part of its query heads.
 *
 *   9 query heads, 3 KV heads     2 ranks  q 0-5 kv 0-1 | q 6-8 kv 2
 *                                 4 ranks  q 0-1 kv 0 | q 2 kv 0 | q 3-5 kv 1 | q 6-8 kv 2
 *
 * Cuts lie between two blocks of a quantised type, and of FP8 scales. */
#include "exec/ranks.h"

#include "base/err.h"

enum { SCALE_BLOCK = VT_SCALE_BLOCK, ROW_UNIT = 16 };

vt_range vt_rank_part(int64_t n, int64_t unit, const vt_rank *r)
{
    int64_t units = vt_ceil_div(n, unit), each = units / r->n, more = units % r->n;
    int64_t begin = each * r->index + (r->index < more ? r->index : more);
    int64_t end = begin + each + (r->index < more ? 1 : 0);
    begin = begin * unit < n ? begin * unit : n;
    end = end * unit < n ? end * unit : n;
    return (vt_range){begin, end - begin};
}

static vt_range times(vt_range heads, int64_t dim)
{
    return (vt_range){heads.begin * dim, heads.n * dim};
}

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

static int64_t lcm(int64_t a, int64_t b) { return a / gcd(a, b) * b; }

/* Returns what a cut between two columns of a weight must be a multiple of. */
static int64_t column_unit(const vt_layer *l, vt_role role)
{
    const vt_tensor *t = l->weight[role], *scale = l->scale[role];
    if (!t)
        return 1;
    bool blocks = scale && vt_tensor_elems(scale) > (t->rank == 3 ? t->dim[0] : 1);
    return blocks ? SCALE_BLOCK : vt_dtype_get(t->dtype)->block;
}

/* Returns what a cut between two rows must be a multiple of. */
static int64_t row_unit(const vt_layer *l, vt_role role)
{
    return l->scale[role] && column_unit(l, role) == SCALE_BLOCK ? SCALE_BLOCK : 1;
}

/* ---- heads ---- */

/* A rank's heads in a layer. */
typedef struct head_part {
    vt_range q, kv;
} head_part;

/* Returns the least number of heads of `dim` rows, or columns, whose border is a multiple of
 * `unit`. */
static int64_t heads_in(int64_t unit, int64_t dim) { return unit / gcd(unit, dim); }

/* Returns how many KV heads must stay together so that every cut of a layer's q, k, v and o lies on
 * a border; with `of_q`, how many query heads. */
static int64_t head_unit(const vt_layer *l, bool of_q)
{
    int64_t group = l->head.heads / l->head.kv_heads, dim = l->head.dim;
    int64_t q = lcm(row_unit(l, VT_ROLE_Q), column_unit(l, VT_ROLE_O)),
            kv = lcm(row_unit(l, VT_ROLE_K), row_unit(l, VT_ROLE_V));
    int64_t q_heads = heads_in(q, dim), kv_heads = heads_in(kv, dim);
    return of_q ? q_heads : lcm(q_heads / gcd(q_heads, group), kv_heads);
}

/* Returns the unit of a layer's KV heads: that of all layers with the same pools, since they must
 * be cut at the same places. */
static int64_t kv_unit(const vt_model *m, int32_t layer)
{
    int64_t unit = 1;
    for (int32_t i = 0; i < m->arch.n_layers; i++)
        if (m->layer[i].mixer == VT_BLOCK_ATTENTION &&
            m->layer[i].kv_group == m->layer[layer].kv_group)
            unit = lcm(unit, head_unit(&m->layer[i], false));
    return unit;
}

/* Divides heads in groups that have one KV head each: KV heads in units of `kv_unit`, or, where
 * there are fewer than ranks, the heads of each in units of `q_unit`. */
static head_part divide_heads(int32_t heads, int32_t kv_heads, int64_t q_unit, int64_t kv_unit,
                              const vt_rank *r)
{
    int32_t group = heads / kv_heads;
    if (kv_heads >= r->n) {
        vt_range kv = vt_rank_part(kv_heads, kv_unit, r);
        return (head_part){{kv.begin * group, kv.n * group}, kv};
    }
    int32_t each = r->n / kv_heads, more = r->n % kv_heads; /* ranks of a KV head */
    int32_t in_more = more * (each + 1), kv, first, n;
    if (r->index < in_more) {
        kv = r->index / (each + 1);
        first = kv * (each + 1);
        n = each + 1;
    } else {
        kv = more + (r->index - in_more) / each;
        first = in_more + (kv - more) * each;
        n = each;
    }
    vt_rank among = {r->index - first, n};
    vt_range q = vt_rank_part(group, q_unit, &among);
    return (head_part){{kv * group + q.begin, q.n}, {kv, 1}};
}

static head_part heads_of(const vt_model *m, int32_t layer, const vt_rank *r)
{
    const vt_layer *l = &m->layer[layer];
    return divide_heads(l->head.heads, l->head.kv_heads, head_unit(l, true), kv_unit(m, layer), r);
}

bool vt_ranks_counts_kv(const vt_model *m, int32_t layer, const vt_rank *r)
{
    const vt_layer *l = &m->layer[layer];
    return heads_of(m, layer, r).q.begin % (l->head.heads / l->head.kv_heads) == 0;
}

/* The heads of latent attention: the same in all such layers. */
static vt_range latent_heads_of(const vt_model *m, const vt_rank *r)
{
    const vt_mla *s = &m->arch.mla;
    int64_t unit = 1;
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        const vt_layer *l = &m->layer[i];
        if (l->mixer != VT_BLOCK_MLA)
            continue;
        int64_t rows = lcm(row_unit(l, VT_ROLE_MLA_Q), row_unit(l, VT_ROLE_MLA_Q_B));
        unit = lcm(unit, lcm(heads_in(rows, s->nope + s->rope),
                             heads_in(column_unit(l, VT_ROLE_MLA_O), s->v)));
    }
    return vt_rank_part(m->arch.n_heads, unit, r);
}

/* ---- sequence state ---- */

/* A rank's heads in the layers with a delta rule: the same in all of them, for they have one size
 * of state. V heads are a range. Their K heads are up to two, in the order in which the V heads
 * need them:
 *
 *   grouped   V 0 1 | 2 3   K 0 | 1       with fewer K heads than ranks as for KV heads
 *   tiled     V 0 1 2 | 3 4 5 of K 0 1 0 1 0 1    ranks have K 0 1 and K 1 0 */
typedef struct delta_part {
    vt_range v, k[2];
} delta_part;

static delta_part tiled_part(vt_range v, int64_t k_heads)
{
    int64_t first = v.begin % k_heads, n = v.n < k_heads ? v.n : k_heads;
    int64_t up = n < k_heads - first ? n : k_heads - first; /* to the last K head */
    return (delta_part){v, {{first, up}, {0, n - up}}};
}

static delta_part delta_of(const vt_model *m, const vt_rank *r)
{
    const vt_delta *d = &m->arch.delta;
    int64_t k_unit = 1, v_unit = 1, group = d->v_heads / d->k_heads;
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        const vt_layer *l = &m->layer[i];
        if (l->mixer != VT_BLOCK_DELTA)
            continue;
        int64_t both = row_unit(l, VT_ROLE_DELTA_QKV), z = row_unit(l, VT_ROLE_DELTA_Z),
                gates = lcm(row_unit(l, VT_ROLE_DELTA_A), row_unit(l, VT_ROLE_DELTA_B));
        k_unit = lcm(k_unit, heads_in(both, d->k_dim));
        v_unit = lcm(
            v_unit,
            lcm(gates, heads_in(lcm(lcm(both, z), column_unit(l, VT_ROLE_DELTA_OUT)), d->v_dim)));
    }
    if (d->tiled)
        return tiled_part(vt_rank_part(d->v_heads, lcm(k_unit, v_unit), r), d->k_heads);
    head_part p = divide_heads(d->v_heads, d->k_heads, v_unit,
                               lcm(k_unit, v_unit / gcd(v_unit, group)), r);
    return (delta_part){p.q, {p.kv}};
}

/* A rank's heads in the layers of Kimi delta attention: the same in all of them. */
static vt_range kda_of(const vt_model *m, const vt_rank *r)
{
    const vt_delta *d = &m->arch.delta;
    int64_t unit = 1;
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        const vt_layer *l = &m->layer[i];
        if (l->mixer != VT_BLOCK_KDA)
            continue;
        int64_t rows = lcm(row_unit(l, VT_ROLE_KDA_F_B), row_unit(l, VT_ROLE_KDA_G_B));
        for (int32_t role = VT_ROLE_KDA_Q; role <= VT_ROLE_KDA_V; role++)
            rows = lcm(rows, row_unit(l, (vt_role)role));
        rows = lcm(rows, column_unit(l, VT_ROLE_KDA_OUT));
        unit = lcm(unit, lcm(row_unit(l, VT_ROLE_KDA_B), heads_in(rows, d->v_dim)));
    }
    return vt_rank_part(d->v_heads, unit, r);
}

/* A rank's heads in the layers with a state space (Mamba-2), and the groups whose B and C they
 * read: the same in all such layers. Ranks have whole groups; a single group has a copy on every
 * rank, and its heads are divided. */
typedef struct mamba_part {
    vt_range heads, groups;
} mamba_part;

/* Returns how many heads lie between two cuts of an FP8 mamba_in with scales of blocks: z, x, B
 * and C begin at borders and are cut there; the last rows, one for each head, are few enough that
 * each rank's lie inside a block, or are cut at borders too. All heads, if they begin at none. */
static int64_t scaled_heads(const vt_mamba *s)
{
    int64_t inner = (int64_t)s->heads * s->head_dim, keys = (int64_t)s->groups * s->state_dim,
            unit = heads_in(SCALE_BLOCK, s->head_dim);
    if (inner % SCALE_BLOCK != 0 || keys % SCALE_BLOCK != 0)
        return s->heads;
    if (s->groups > 1)
        unit = lcm(unit, heads_in(SCALE_BLOCK, s->state_dim) * (s->heads / s->groups));
    return s->heads > SCALE_BLOCK ? lcm(unit, SCALE_BLOCK) : unit;
}

static mamba_part mamba_of(const vt_model *m, const vt_rank *r)
{
    const vt_mamba *s = &m->arch.mamba;
    int64_t unit = 1, each = s->heads / s->groups;
    for (int32_t i = 0; i < m->arch.n_layers; i++) {
        const vt_layer *l = &m->layer[i];
        if (l->mixer != VT_BLOCK_MAMBA)
            continue;
        if (row_unit(l, VT_ROLE_MAMBA_IN) > 1)
            unit = scaled_heads(s);
        unit = lcm(unit, heads_in(column_unit(l, VT_ROLE_MAMBA_OUT), s->head_dim));
    }
    if (s->groups == 1)
        return (mamba_part){vt_rank_part(s->heads, unit, r), {0, 1}};
    vt_range groups = vt_rank_part(s->groups, heads_in(unit, each), r);
    return (mamba_part){times(groups, each), groups};
}

/* A rank's channels in the layers of short convolutions. */
static vt_range channels_of(const vt_model *m, const vt_rank *r)
{
    int64_t unit = ROW_UNIT;
    for (int32_t i = 0; i < m->arch.n_layers; i++)
        if (m->layer[i].mixer == VT_BLOCK_CONV)
            unit = lcm(unit, lcm(row_unit(&m->layer[i], VT_ROLE_CONV_IN),
                                 column_unit(&m->layer[i], VT_ROLE_CONV_OUT)));
    return vt_rank_part(m->arch.hidden, unit, r);
}

/* Returns the numbers of a sequence's state in a layer of this kind: a convolution's last inputs,
 * and the matrices of a delta rule or a state space. */
static int64_t state_of(const vt_model *m, vt_block_kind mixer, const vt_rank *r)
{
    const vt_delta *d = &m->arch.delta;
    int64_t before = m->arch.conv_taps - 1;
    if (mixer == VT_BLOCK_CONV)
        return before * channels_of(m, r).n;
    if (mixer == VT_BLOCK_MAMBA) {
        const vt_mamba *s = &m->arch.mamba;
        mamba_part p = mamba_of(m, r);
        int64_t inner = p.heads.n * s->head_dim;
        return before * (inner + 2 * p.groups.n * s->state_dim) + inner * s->state_dim;
    }
    if (mixer == VT_BLOCK_KDA) {
        int64_t heads = kda_of(m, r).n;
        return before * 3 * heads * d->v_dim + heads * d->k_dim * d->v_dim;
    }
    delta_part p = delta_of(m, r);
    int64_t qkv = 2 * (p.k[0].n + p.k[1].n) * d->k_dim + p.v.n * d->v_dim;
    return before * qkv + p.v.n * d->k_dim * d->v_dim;
}

/* ---- other sizes ---- */

/* The three matrices of a feed-forward. */
typedef struct gated {
    vt_role gate, up, down;
} gated;

static const gated dense = {VT_ROLE_GATE, VT_ROLE_UP, VT_ROLE_DOWN},
                   expert = {VT_ROLE_EXPERT_GATE, VT_ROLE_EXPERT_UP, VT_ROLE_EXPERT_DOWN},
                   shared = {VT_ROLE_SHARED_GATE, VT_ROLE_SHARED_UP, VT_ROLE_SHARED_DOWN};

static const gated *main_of(const vt_layer *l)
{
    return l->ffn == VT_BLOCK_EXPERTS ? &expert : &dense;
}

static int64_t ffn_unit(const vt_layer *l, const gated *f)
{
    return lcm(lcm(row_unit(l, f->gate), row_unit(l, f->up)), column_unit(l, f->down));
}

/* A rank's part of the columns of down: of n, in units of 16, if there are enough, so that no tile
 * of packed rows is cut. */
static vt_range ffn_of(const vt_layer *l, const gated *f, int64_t n, const vt_rank *r)
{
    int64_t unit = ffn_unit(l, f), tiles = lcm(unit, ROW_UNIT);
    return vt_rank_part(n, vt_ceil_div(n, tiles) >= r->n ? tiles : unit, r);
}

/* The experts that a rank has. */
static vt_range experts_of(const vt_model *m, const vt_rank *r)
{
    return vt_rank_part(m->arch.n_experts, 1, r);
}

static bool has_whole_experts(const vt_layer *l, const vt_rank *r)
{
    return r->whole_experts && l->ffn == VT_BLOCK_EXPERTS;
}

static vt_range vocab_of(int64_t n, const vt_rank *r)
{
    return vt_rank_part(n, n >= (int64_t)ROW_UNIT * r->n ? ROW_UNIT : 1, r);
}

/* ---- checks ---- */

static vt_status check_heads(const vt_model *m, int32_t layer, const vt_rank *r, vt_err *err)
{
    const vt_layer *l = &m->layer[layer];
    head_part p = heads_of(m, layer, r);
    if (p.q.n == 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "tp is %d, and %s has in layer %d %d query heads and %d KV heads of %d, %s "
                       "weights: cut between heads and between blocks they have no part for rank "
                       "%d",
                       r->n, m->name, layer, l->head.heads, l->head.kv_heads, l->head.dim,
                       vt_dtype_get(l->weight[VT_ROLE_O]->dtype)->name, r->index);
    return VT_OK;
}

/* Fails if the feed-forward has no columns for the rank. */
static vt_status check_ffn(const vt_model *m, int32_t layer, const gated *f, const vt_rank *r,
                           vt_err *err)
{
    const vt_layer *l = &m->layer[layer];
    const vt_tensor *down = l->weight[f->down];
    if (down && ffn_of(l, f, down->dim[down->rank - 1], r).n == 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "tp is %d, and the %s of layer %d of %s has %lld columns of %s in blocks of "
                       "%lld: there is no block for rank %d",
                       r->n, f == &shared ? "shared expert" : "feed-forward", layer, m->name,
                       (long long)down->dim[down->rank - 1], vt_dtype_get(down->dtype)->name,
                       (long long)ffn_unit(l, f), r->index);
    return VT_OK;
}

/* Fails if the rank has no part of what a mixer other than attention divides. */
static vt_status check_part(const vt_model *m, int32_t layer, const char *what, int64_t of,
                            int64_t part, vt_role out, const vt_rank *r, vt_err *err)
{
    if (part > 0)
        return VT_OK;
    return vt_fail(err, VT_ERR_UNSUPPORTED,
                   "tp is %d, and %s has in layer %d %lld %s, with %s weights behind them: cut "
                   "between blocks they have no part for rank %d",
                   r->n, m->name, layer, (long long)of, what,
                   vt_dtype_get(m->layer[layer].weight[out]->dtype)->name, r->index);
}

static vt_status check_mixer(const vt_model *m, int32_t layer, const vt_rank *r, vt_err *err)
{
    switch ((vt_block_kind)m->layer[layer].mixer) {
    case VT_BLOCK_NONE:
        return VT_OK;
    case VT_BLOCK_MLA:
        return check_part(m, layer, "heads", m->arch.n_heads, latent_heads_of(m, r).n,
                          VT_ROLE_MLA_O, r, err);
    case VT_BLOCK_DELTA:
        return check_part(m, layer, "value heads", m->arch.delta.v_heads, delta_of(m, r).v.n,
                          VT_ROLE_DELTA_OUT, r, err);
    case VT_BLOCK_KDA:
        return check_part(m, layer, "heads of linear attention", m->arch.delta.v_heads,
                          kda_of(m, r).n, VT_ROLE_KDA_OUT, r, err);
    case VT_BLOCK_MAMBA:
        return check_part(m, layer, m->arch.mamba.groups > 1 ? "groups of heads" : "heads",
                          m->arch.mamba.groups > 1 ? m->arch.mamba.groups : m->arch.mamba.heads,
                          mamba_of(m, r).heads.n, VT_ROLE_MAMBA_OUT, r, err);
    case VT_BLOCK_CONV:
        return check_part(m, layer, "channels", m->arch.hidden, channels_of(m, r).n,
                          VT_ROLE_CONV_OUT, r, err);
    default:
        return check_heads(m, layer, r, err);
    }
}

static vt_status check_layer(const vt_model *m, int32_t layer, const vt_rank *r, vt_err *err)
{
    const vt_layer *l = &m->layer[layer];
    TRY(check_mixer(m, layer, r, err));
    if (!has_whole_experts(l, r))
        TRY(check_ffn(m, layer, main_of(l), r, err));
    else if (experts_of(m, r).n == 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "tp is %d with enable-expert-parallel, and %s has %d experts: there is none "
                       "for rank %d",
                       r->n, m->name, m->arch.n_experts, r->index);
    return check_ffn(m, layer, &shared, r, err);
}

vt_status vt_ranks_check(const vt_model *m, int32_t n, bool whole_experts, vt_err *err)
{
    if (whole_experts && (n < 2 || m->arch.n_experts == 0))
        return vt_fail(err, VT_ERR_USAGE,
                       "enable-expert-parallel is for models with experts on several ranks; tp is "
                       "%d and %s has %d experts",
                       n, m->name, m->arch.n_experts);
    for (int32_t k = 0; k < n && n > 1; k++) {
        vt_rank r = {k, n, whole_experts};
        if (vocab_of(m->arch.vocab, &r).n == 0)
            return vt_fail(err, VT_ERR_UNSUPPORTED,
                           "tp is %d, and %s has a vocabulary of %d: there is no part for rank %d",
                           n, m->name, m->arch.vocab, k);
        for (int32_t i = 0; i < m->arch.n_layers; i++)
            TRY(check_layer(m, i, &r, err));
    }
    return VT_OK;
}

/* ---- narrowing ---- */

static void narrow_rows(vt_layout_part *p, vt_range to)
{
    p->row += to.begin;
    p->rows = to.n;
}

static void narrow_columns(vt_layout_part *p, vt_range to)
{
    p->col += to.begin;
    p->cols = to.n;
}

/* Narrows the weights of a norm to some heads, unless it is of each head and all heads share it. */
static void narrow_norm(vt_layout_part *p, vt_range heads, int64_t dim)
{
    if (p->rows != dim)
        narrow_rows(p, times(heads, dim));
}

/* Returns the rows of some of the heads of a part. A head of q may have a gate beside its dim. */
static vt_range of_heads(const vt_layout_part *p, int32_t n, vt_range heads)
{
    return times(heads, p->rows / n);
}

/* Adds rows [at + to.begin, ...) of part `of` as a part of its own, unless there are none. */
static void add_rows(vt_layout_entry *e, const vt_layout_part *of, int64_t at, vt_range to)
{
    if (to.n == 0)
        return;
    vt_layout_part *p = &e->part[e->n_parts++];
    *p = *of;
    p->row += at + to.begin;
    p->rows = to.n;
}

/* Narrows an entry of a layer with a delta rule. One part of a file's q, k and v becomes up to
 * five. */
static void narrow_delta(const vt_model *m, vt_layout_entry *e, const vt_rank *r)
{
    const vt_delta *d = &m->arch.delta;
    delta_part p = delta_of(m, r);
    if (e->role == VT_ROLE_DELTA_OUT) {
        narrow_columns(&e->part[0], times(p.v, d->v_dim));
        return;
    }
    const vt_layout_entry whole = *e;
    int64_t keys = (int64_t)d->k_heads * d->k_dim;
    e->n_parts = 0;
    for (int32_t i = 0; i < whole.n_parts; i++) {
        const vt_layout_part *of = &whole.part[i];
        int64_t before = of->rows > (int64_t)d->v_heads * d->v_dim ? 2 * keys : 0; /* q and k */
        for (int32_t k = 0; k < 4 && before > 0; k++)
            add_rows(e, of, k / 2 * keys, times(p.k[k % 2], d->k_dim));
        add_rows(e, of, before, times(p.v, (of->rows - before) / d->v_heads));
    }
}

/* Narrows an entry of a layer of Kimi delta attention. What f and g are made with stays whole, and
 * so does the norm, which all heads share. */
static void narrow_kda(const vt_model *m, vt_layout_entry *e, const vt_rank *r)
{
    const vt_delta *d = &m->arch.delta;
    vt_range heads = kda_of(m, r);
    if (e->role == VT_ROLE_KDA_OUT) {
        narrow_columns(&e->part[0], times(heads, d->v_dim));
        return;
    }
    if (e->role == VT_ROLE_KDA_F_A || e->role == VT_ROLE_KDA_G_A || e->role == VT_ROLE_KDA_NORM)
        return;
    for (int32_t k = 0; k < e->n_parts; k++) {
        bool whole = e->role == VT_ROLE_KDA_IN &&
                     (k == VT_ROLE_KDA_F_A - VT_ROLE_KDA_Q || k == VT_ROLE_KDA_G_A - VT_ROLE_KDA_Q);
        if (!whole)
            narrow_rows(&e->part[k], of_heads(&e->part[k], d->v_heads, heads));
    }
}

/* Narrows an entry of a layer with a state space. The rows of mamba_in are z, x, B, C and dt, and
 * the convolution's channels x, B and C. */
static void narrow_mamba(const vt_model *m, vt_layout_entry *e, const vt_rank *r)
{
    const vt_mamba *s = &m->arch.mamba;
    const vt_layout_part whole = e->part[0];
    mamba_part p = mamba_of(m, r);
    vt_range inner = times(p.heads, s->head_dim), keys = times(p.groups, s->state_dim);
    int64_t all = (int64_t)s->heads * s->head_dim, all_keys = (int64_t)s->groups * s->state_dim;
    int64_t at = 0; /* of x */
    if (e->role == VT_ROLE_MAMBA_OUT) {
        narrow_columns(&e->part[0], inner);
        return;
    }
    if (e->role >= VT_ROLE_MAMBA_DECAY && e->role <= VT_ROLE_MAMBA_NORM) {
        narrow_rows(&e->part[0], times(p.heads, whole.rows / s->heads));
        return;
    }
    e->n_parts = 0;
    if (e->role == VT_ROLE_MAMBA_IN) {
        add_rows(e, &whole, 0, inner);
        at = all;
    }
    add_rows(e, &whole, at, inner);
    add_rows(e, &whole, at + all, keys);
    add_rows(e, &whole, at + all + all_keys, keys);
    if (e->role == VT_ROLE_MAMBA_IN)
        add_rows(e, &whole, at + all + 2 * all_keys, p.heads);
}

/* Narrows an entry of a layer of latent attention. Latents and their norms stay whole. */
static void narrow_latent(const vt_model *m, vt_layout_entry *e, const vt_rank *r)
{
    const vt_mla *s = &m->arch.mla;
    vt_range heads = latent_heads_of(m, r);
    if (e->role == VT_ROLE_MLA_Q || e->role == VT_ROLE_MLA_Q_B) {
        narrow_rows(&e->part[0], times(heads, s->nope + s->rope));
    } else if (e->role == VT_ROLE_MLA_O) {
        narrow_columns(&e->part[0], times(heads, s->v));
    } else if (e->role == VT_ROLE_MLA_K_B || e->role == VT_ROLE_MLA_V_B) {
        e->matrix += heads.begin;
        e->matrices = heads.n;
    }
}

/* Narrows an entry of a short convolution: the rows of conv_in are gates, gates and inputs. */
static void narrow_channels(const vt_model *m, vt_layout_entry *e, const vt_rank *r)
{
    const vt_layout_part whole = e->part[0];
    vt_range channels = channels_of(m, r);
    if (e->role == VT_ROLE_CONV_OUT) {
        narrow_columns(&e->part[0], channels);
        return;
    }
    e->n_parts = 0;
    for (int64_t at = 0; at < whole.rows; at += m->arch.hidden)
        add_rows(e, &whole, at, channels);
}

/* Returns true for the roles that narrow_delta knows: the norm is one for all heads. */
static bool is_delta(vt_role role)
{
    return (role >= VT_ROLE_DELTA_QKV && role <= VT_ROLE_DELTA_OUT && role != VT_ROLE_DELTA_NORM) ||
           role == VT_ROLE_DELTA_IN || role == VT_ROLE_DELTA_BA;
}

/* Returns true for the roles that narrow_kda knows. */
static bool is_kda(vt_role role)
{
    return (role >= VT_ROLE_KDA_Q && role <= VT_ROLE_KDA_OUT) || role == VT_ROLE_KDA_IN ||
           role == VT_ROLE_KDA_CONV;
}

/* Narrows an entry to the rank's experts. Returns false for roles that do not belong to one. */
static bool narrow_experts(const vt_model *m, vt_layout_entry *e, const vt_rank *r)
{
    vt_range mine = experts_of(m, r);
    if (e->role == VT_ROLE_EXPERT_GATE_UP || e->role == VT_ROLE_EXPERT_UP ||
        e->role == VT_ROLE_EXPERT_DOWN) {
        e->matrix += mine.begin;
        e->matrices = mine.n;
        return true;
    }
    if (e->role != VT_ROLE_EXPERT_BIAS && e->role != VT_ROLE_EXPERT_DOWN_BIAS)
        return false;
    for (int32_t k = 0; k < e->n_parts; k++) /* a row has those of an expert */
        narrow_rows(&e->part[k], mine);
    return true;
}

/* Narrows the adapters' part for a weight as that weight: B, which lies turned, where its rows are
 * cut; A where its columns are. */
static void narrow_adapters(const vt_model *m, vt_layout_entry *e, const vt_rank *r)
{
    const vt_layer *l = &m->layer[e->layer];
    vt_layout_part *p = &e->part[0], turned = {.rows = p->cols};
    bool columns = e->role == VT_ROLE_O || e->role == VT_ROLE_DOWN;
    if (columns != (e->kind == VT_KIND_LORA_A))
        return;
    if (e->role == VT_ROLE_O)
        narrow_columns(p, times(heads_of(m, e->layer, r).q, l->head.dim));
    else if (e->role == VT_ROLE_Q)
        narrow_columns(p, of_heads(&turned, l->head.heads, heads_of(m, e->layer, r).q));
    else if (e->role == VT_ROLE_K || e->role == VT_ROLE_V)
        narrow_columns(p, times(heads_of(m, e->layer, r).kv, l->head.dim));
    else
        narrow_columns(p, ffn_of(l, main_of(l), p->cols, r));
}

static void narrow_entry(const vt_model *m, vt_layout_entry *e, const vt_rank *r)
{
    const vt_layer *l = e->layer >= 0 ? &m->layer[e->layer] : NULL;
    head_part heads = {0};
    if (e->kind == VT_KIND_LORA_A || e->kind == VT_KIND_LORA_B) {
        narrow_adapters(m, e, r);
        return;
    }
    if (l && l->mixer == VT_BLOCK_ATTENTION)
        heads = heads_of(m, e->layer, r);
    if (e->role >= VT_ROLE_MLA_Q && e->role <= VT_ROLE_MLA_O)
        narrow_latent(m, e, r);
    if (e->role >= VT_ROLE_CONV_IN && e->role <= VT_ROLE_CONV_OUT)
        narrow_channels(m, e, r);
    if (is_delta(e->role))
        narrow_delta(m, e, r);
    if (is_kda(e->role))
        narrow_kda(m, e, r);
    if (e->role >= VT_ROLE_MAMBA_IN && e->role <= VT_ROLE_MAMBA_OUT)
        narrow_mamba(m, e, r);
    if (l && has_whole_experts(l, r) && narrow_experts(m, e, r))
        return;
    for (int32_t k = 0; k < e->n_parts; k++) {
        vt_layout_part *p = &e->part[k];
        switch (e->role) {
        case VT_ROLE_EMBED:
        case VT_ROLE_HEAD:
            narrow_rows(p, vocab_of(p->rows, r));
            break;
        case VT_ROLE_QKV:
        case VT_ROLE_QKV_BIAS:
            narrow_rows(p, k == 0 ? of_heads(p, l->head.heads, heads.q)
                                  : of_heads(p, l->head.kv_heads, heads.kv));
            break;
        case VT_ROLE_Q:
        case VT_ROLE_Q_BIAS:
            narrow_rows(p, of_heads(p, l->head.heads, heads.q));
            break;
        case VT_ROLE_K:
        case VT_ROLE_V:
        case VT_ROLE_K_BIAS:
        case VT_ROLE_V_BIAS:
            narrow_rows(p, times(heads.kv, l->head.dim));
            break;
        case VT_ROLE_Q_NORM:
            narrow_norm(p, heads.q, l->head.dim);
            break;
        case VT_ROLE_K_NORM:
            narrow_norm(p, heads.kv, l->head.dim);
            break;
        case VT_ROLE_SINKS:
            narrow_rows(p, heads.q);
            break;
        case VT_ROLE_O:
            narrow_columns(p, times(heads.q, l->head.dim));
            break;
        case VT_ROLE_GATE:
        case VT_ROLE_UP:
        case VT_ROLE_GATE_UP:
        case VT_ROLE_GATE_BIAS:
        case VT_ROLE_UP_BIAS:
        case VT_ROLE_EXPERT_GATE_UP:
        case VT_ROLE_EXPERT_UP:
            narrow_rows(p, ffn_of(l, main_of(l), p->rows, r));
            break;
        case VT_ROLE_EXPERT_BIAS: /* a row has those of an expert */
            narrow_columns(p, ffn_of(l, main_of(l), p->cols, r));
            break;
        case VT_ROLE_DOWN:
        case VT_ROLE_EXPERT_DOWN:
            narrow_columns(p, ffn_of(l, main_of(l), p->cols, r));
            break;
        case VT_ROLE_SHARED_GATE_UP:
        case VT_ROLE_SHARED_UP:
            narrow_rows(p, ffn_of(l, &shared, p->rows, r));
            break;
        case VT_ROLE_SHARED_DOWN:
            narrow_columns(p, ffn_of(l, &shared, p->cols, r));
            break;
        default:
            break;
        }
    }
}

void vt_ranks_narrow(vt_layout *l, const vt_rank *r)
{
    for (int32_t i = 0; r->n > 1 && i < l->n; i++)
        narrow_entry(l->model, &l->entry[i], r);
}

void vt_ranks_kv_shape(const vt_model *m, vt_dtype dtype, const vt_rank *r, vt_kv_shape *out)
{
    vt_kv_shape_of(m, dtype, out);
    for (int32_t i = 0; r->n > 1 && i < m->arch.n_layers; i++) {
        const vt_layer *l = &m->layer[i];
        if (l->mixer == VT_BLOCK_ATTENTION && l->kv_of == i)
            out->group[l->kv_group].kv_heads = (int32_t)heads_of(m, i, r).kv.n;
        if (l->state_bytes > 0)
            out->state_bytes = (size_t)state_of(m, (vt_block_kind)l->mixer, r) * sizeof(float);
    }
}

static size_t sum_bytes(const vt_model *m, vt_dtype dtype, int32_t n, int32_t page_size,
                        size_t (*of)(const vt_kv_shape *s, int32_t page_size))
{
    size_t bytes = 0;
    for (int32_t k = 0; k < n; k++) {
        vt_rank r = {k, n};
        vt_kv_shape shape;
        vt_ranks_kv_shape(m, dtype, &r, &shape);
        bytes += of(&shape, page_size);
    }
    return bytes;
}

size_t vt_ranks_kv_page_bytes(const vt_model *m, vt_dtype dtype, int32_t n, int32_t page_size)
{
    return sum_bytes(m, dtype, n, page_size, vt_kv_page_bytes);
}

static size_t slot_bytes(const vt_kv_shape *s, int32_t page_size)
{
    (void)page_size;
    return vt_kv_slot_bytes(s);
}

size_t vt_ranks_kv_slot_bytes(const vt_model *m, int32_t n)
{
    return sum_bytes(m, VT_F32, n, 1, slot_bytes);
}

size_t vt_ranks_kv_window_page_bytes(const vt_model *m, vt_dtype dtype, int32_t n,
                                     int32_t page_size)
{
    return sum_bytes(m, dtype, n, page_size, vt_kv_window_page_bytes);
}
