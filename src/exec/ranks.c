/* Sharding (exec/ranks.h, docs/ranks.md).
 *
 *   rows     q k v of whole heads with their biases; gate and up; the head; the embedding
 *   columns  o, down: each rank computes a part of the sum, and all_reduce adds the parts
 *   experts  as gate, up and down, of each expert and of a shared one
 *   whole    norms, routers, rope tables; biases of o and down, which rank 0 adds
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

enum { SCALE_BLOCK = 128, ROW_UNIT = 16 };

vt_range vt_rank_part(int64_t n, int64_t unit, const vt_rank *r)
{
    int64_t units = vt_ceil_div(n, unit), each = units / r->n, more = units % r->n;
    int64_t begin = each * r->index + (r->index < more ? r->index : more);
    int64_t end = begin + each + (r->index < more ? 1 : 0);
    begin = begin * unit < n ? begin * unit : n;
    end = end * unit < n ? end * unit : n;
    return (vt_range){begin, end - begin};
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

/* Returns how many KV heads must stay together so that every cut of a layer's q, k, v and o lies on
 * a border; with `of_q`, how many query heads. */
static int64_t head_unit(const vt_layer *l, bool of_q)
{
    int64_t group = l->head.heads / l->head.kv_heads, dim = l->head.dim;
    int64_t q = lcm(row_unit(l, VT_ROLE_Q), column_unit(l, VT_ROLE_O)),
            kv = lcm(row_unit(l, VT_ROLE_K), row_unit(l, VT_ROLE_V));
    int64_t q_heads = q / gcd(q, dim), kv_heads = kv / gcd(kv, dim);
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

static head_part heads_of(const vt_model *m, int32_t layer, const vt_rank *r)
{
    const vt_layer *l = &m->layer[layer];
    int32_t heads = l->head.heads, kv_heads = l->head.kv_heads, group = heads / kv_heads;
    if (kv_heads >= r->n) {
        vt_range kv = vt_rank_part(kv_heads, kv_unit(m, layer), r);
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
    vt_range q = vt_rank_part(group, head_unit(l, true), &among);
    return (head_part){{kv * group + q.begin, q.n}, {kv, 1}};
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

static vt_range vocab_of(int64_t n, const vt_rank *r)
{
    return vt_rank_part(n, n >= (int64_t)ROW_UNIT * r->n ? ROW_UNIT : 1, r);
}

/* ---- checks ---- */

static vt_status check_heads(const vt_model *m, int32_t layer, const vt_rank *r, vt_err *err)
{
    const vt_layer *l = &m->layer[layer];
    head_part p = heads_of(m, layer, r);
    const vt_tensor *norm = l->weight[VT_ROLE_Q_NORM];
    if (norm && norm->dim[0] != l->head.dim)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "tp is %d, and %s has norms over all heads together (layer %d), which a "
                       "rank cannot compute from some of them; expected 1",
                       r->n, m->name, layer);
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

static vt_status check_layer(const vt_model *m, int32_t layer, const vt_rank *r, vt_err *err)
{
    const vt_layer *l = &m->layer[layer];
    if (l->mixer == VT_BLOCK_MLA)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "tp is %d, and layer %d of %s attends to latents, which all heads share and "
                       "ranks do not divide yet; expected 1",
                       r->n, layer, m->name);
    if (l->mixer != VT_BLOCK_ATTENTION)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "tp is %d, and layer %d of %s has sequence state, which ranks do not divide "
                       "yet; expected 1",
                       r->n, layer, m->name);
    TRY(check_heads(m, layer, r, err));
    if (m->arch.v_norm || l->weight[VT_ROLE_LAYER_SCALE])
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "tp is %d, and layer %d of %s has normalised values and a factor of its "
                       "own, which ranks do not divide yet; expected 1",
                       r->n, layer, m->name);
    TRY(check_ffn(m, layer, main_of(l), r, err));
    return check_ffn(m, layer, &shared, r, err);
}

vt_status vt_ranks_check(const vt_model *m, int32_t n, vt_err *err)
{
    for (int32_t k = 0; k < n && n > 1; k++) {
        vt_rank r = {k, n};
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

static vt_range times(vt_range heads, int64_t dim)
{
    return (vt_range){heads.begin * dim, heads.n * dim};
}

static void narrow_entry(const vt_model *m, vt_layout_entry *e, const vt_rank *r)
{
    const vt_layer *l = e->layer >= 0 ? &m->layer[e->layer] : NULL;
    head_part heads = {0};
    if (l && l->mixer == VT_BLOCK_ATTENTION)
        heads = heads_of(m, e->layer, r);
    for (int32_t k = 0; k < e->n_parts; k++) {
        vt_layout_part *p = &e->part[k];
        switch (e->role) {
        case VT_ROLE_EMBED:
        case VT_ROLE_HEAD:
            narrow_rows(p, vocab_of(p->rows, r));
            break;
        case VT_ROLE_QKV:
        case VT_ROLE_QKV_BIAS:
            narrow_rows(p, times(k == 0 ? heads.q : heads.kv, l->head.dim));
            break;
        case VT_ROLE_Q:
        case VT_ROLE_Q_BIAS:
            narrow_rows(p, times(heads.q, l->head.dim));
            break;
        case VT_ROLE_K:
        case VT_ROLE_V:
        case VT_ROLE_K_BIAS:
        case VT_ROLE_V_BIAS:
            narrow_rows(p, times(heads.kv, l->head.dim));
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
    for (int32_t i = 0; r->n > 1 && i < m->arch.n_layers; i++)
        if (m->layer[i].mixer == VT_BLOCK_ATTENTION && m->layer[i].kv_of == i)
            out->group[m->layer[i].kv_group].kv_heads = (int32_t)heads_of(m, i, r).kv.n;
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

size_t vt_ranks_kv_window_page_bytes(const vt_model *m, vt_dtype dtype, int32_t n,
                                     int32_t page_size)
{
    return sum_bytes(m, dtype, n, page_size, vt_kv_window_page_bytes);
}
