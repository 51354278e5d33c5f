/* Latent attention: layers, and the two halves of kv_b (model/latent.h). */
#include "model/latent.h"

#include <math.h>
#include <string.h>

#include "base/quant.h"
#include "model/assemble.h"
#include "model/family.h"

enum { MAX_RANK = 1 << 14, MAX_ROW = 1024, MAX_DIM = 1024, SCALE_BLOCK = 128 };

static vt_status check(const vt_model *m, vt_err *err)
{
    const vt_mla *a = &m->arch.mla;
    const struct {
        const char *name;
        int32_t value, min, max;
    } all[] = {
        {"rank of the latent of queries (q_lora_rank, attention.q_lora_rank)", a->q_rank, 0,
         MAX_RANK},
        {"rank of the latent of keys and values (kv_lora_rank, attention.kv_lora_rank)", a->kv_rank,
         1, MAX_ROW},
        {"head dimension without rope (qk_nope_head_dim, attention.key_length_mla less "
         "rope.dimension_count)",
         a->nope, 1, MAX_DIM},
        {"head dimension with rope (qk_rope_head_dim, rope.dimension_count)", a->rope, 2, MAX_DIM},
        {"head dimension of values (v_head_dim, attention.value_length_mla)", a->v, 1, MAX_DIM},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].value < all[i].min || all[i].value > all[i].max)
            return vt_fail(err, VT_ERR_MODEL, "%s: the %s is %d (%d to %d allowed)", m->path,
                           all[i].name, all[i].value, all[i].min, all[i].max);
    if (a->rope % 2 != 0 || (a->kv_rank + a->rope) % 2 != 0 || a->kv_rank + a->rope > MAX_ROW)
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: rows of the cache have %d dimensions with rope (qk_rope_head_dim, "
                       "rope.dimension_count) and %d without (kv_lora_rank; even numbers with a "
                       "sum of at most %d expected)",
                       m->path, a->rope, a->kv_rank, MAX_ROW);
    return VT_OK;
}

vt_status model_attend_latents(vt_model *m, vt_err *err)
{
    vt_arch *a = &m->arch;
    TRY(check(m, err));
    a->head_dim = a->mla.nope + a->mla.rope;
    a->n_kv_heads = 1;
    a->attn_scale = (float)(1 / sqrt((double)a->head_dim));
    a->mla.norm_eps = 1e-6f; /* that of the class of these norms, whatever the others have */
    a->rope[0].dims = a->mla.rope;
    for (int32_t i = 0; i < a->n_layers; i++) {
        m->layer[i].mixer = VT_BLOCK_MLA;
        m->layer[i].head = (vt_heads){.heads = a->n_heads,
                                      .kv_heads = 1,
                                      .dim = a->mla.rope + a->mla.kv_rank,
                                      .v_dim = a->mla.kv_rank,
                                      .rope = m->family && m->family->no_rope ? -1 : 0};
    }
    return VT_OK;
}

vt_status model_temper_latents(vt_model *m, double temper, vt_err *err)
{
    vt_rope_params *p = &m->arch.rope[0];
    if (temper == 0)
        return VT_OK;
    if (!p->interleaved || (p->scaling != VT_ROPE_PLAIN && p->attn_factor != 1))
        return vt_fail(
            err, VT_ERR_UNSUPPORTED,
            "%s: queries of latent attention grow with their position "
            "(\"llama_4_scaling_beta\"), and rope turns %s with an amplitude of %g; only "
            "neighbouring pairs (\"rope_interleave\") with an amplitude of 1 (\"mscale\" "
            "as large as \"mscale_all_dim\", or \"attention_factor\") are supported",
            m->path, p->interleaved ? "neighbouring pairs" : "halves", p->attn_factor);
    p->span = m->arch.mla.rope;
    p->dims = m->arch.mla.rope + m->arch.mla.kv_rank;
    p->still = m->arch.mla.kv_rank / 2;
    model_temper(m, temper);
    return VT_OK;
}

/* Returns a copy of quantised kv_b, or of FP8 with its scales, in F32; NULL: out of memory. */
static float *in_f32(vt_model *m, const vt_tensor *w, const vt_tensor *scale)
{
    int64_t rows = w->dim[0], cols = w->dim[1];
    float *out = vt_arena_alloc(&m->arena, (size_t)rows, (size_t)cols * sizeof *out);
    bool one = scale && vt_tensor_elems(scale) == 1;
    for (int64_t r = 0; out && r < rows; r++) {
        float *row = out + r * cols;
        vt_dequant_row(w->dtype, (const char *)w->data + vt_dtype_row_bytes(w->dtype, r * cols),
                       row, cols);
        for (int64_t c = 0; scale && c < cols; c++) {
            int64_t at = one ? 0 : r / SCALE_BLOCK * scale->dim[1] + c / SCALE_BLOCK;
            float factor;
            vt_dequant_row(scale->dtype,
                           (const char *)scale->data + vt_dtype_row_bytes(scale->dtype, at),
                           &factor, 1);
            row[c] *= factor;
        }
    }
    return out;
}

/* Copies the transpose of `rows` rows. */
static void transpose(const char *from, int64_t rows, int64_t cols, int64_t bytes, char *out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            memcpy(out + (c * rows + r) * bytes, from + (r * cols + c) * bytes, (size_t)bytes);
}

vt_status model_split_kv_b(vt_model *m, const vt_tensor *kv_b, const vt_tensor *scale,
                           vt_tensor *k_b, vt_tensor *v_b, vt_err *err)
{
    const vt_mla *a = &m->arch.mla;
    int64_t heads = m->arch.n_heads, nope = a->nope, v = a->v, rank = a->kv_rank;
    bool is_float = kv_b->dtype == VT_F32 || kv_b->dtype == VT_F16 || kv_b->dtype == VT_BF16;
    if (kv_b->rank != 2 || kv_b->dim[0] != heads * (nope + v) || kv_b->dim[1] != rank ||
        (!is_float && !scale && !vt_dtype_quantised(kv_b->dtype)))
        return vt_fail(err, VT_ERR_MODEL,
                       "%s: tensor %s has rank %d, shape [%lld, %lld] and type %s; [%lld, %lld] of "
                       "a float type, a quantised one, or FP8 with scales was expected",
                       m->path, kv_b->name, kv_b->rank, (long long)kv_b->dim[0],
                       (long long)kv_b->dim[1], vt_dtype_get(kv_b->dtype)->name,
                       (long long)(heads * (nope + v)), (long long)rank);
    vt_dtype type = is_float ? kv_b->dtype : VT_F32;
    int64_t bytes = vt_dtype_row_bytes(type, 1), head = (nope + v) * rank * bytes;
    char *all = is_float ? kv_b->data : (char *)in_f32(m, kv_b, scale);
    char *k = vt_arena_alloc(&m->arena, (size_t)(heads * nope), (size_t)(rank * bytes));
    void **matrix = vt_arena_alloc(&m->arena, (size_t)heads, sizeof *matrix);
    if (!all || !k || !matrix)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
    for (int64_t h = 0; h < heads; h++) {
        transpose(all + h * head, nope, rank, bytes, k + h * nope * rank * bytes);
        matrix[h] = all + h * head + nope * rank * bytes;
    }
    *k_b = (vt_tensor){
        .data = k, .dtype = type, .rank = 3, .dim = {heads, rank, nope}, .row_stride = nope};
    *v_b = (vt_tensor){.data = matrix[0],
                       .dtype = type,
                       .rank = 3,
                       .dim = {heads, v, rank},
                       .row_stride = rank,
                       .matrix = matrix};
    return VT_OK;
}
