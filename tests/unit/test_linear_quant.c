/* Quantised tiles: read back in the layout of linear_quant.h, they give the values to which the
 * rows of the file dequantise. Their sizes are the documented ones. A model's weights keep their
 * types on a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "exec/weights_cuda.h"
#include "model/load.h"
#include "base/quant.h"
#include "ops/cases.h"
#include "ops/linear/quant/linear_quant.h"

enum { TYPES = 14, LANE_WORD = 4 };
static const vt_dtype types[TYPES] = {VT_Q8_0,  VT_Q4_0, VT_Q4_1,   VT_Q5_0,     VT_Q5_1,
                                      VT_Q4_K,  VT_Q5_K, VT_Q6_K,   VT_FP8_E4M3, VT_IQ4_NL,
                                      VT_MXFP4, VT_Q3_K, VT_IQ4_XS, VT_Q2_K};

static bool is_k(vt_dtype t) { return vt_dtype_get(t)->block == 256; }
/* Q3_K is read in the form of Q6_K. */
static bool has_form_of_q6_k(vt_dtype t) { return t == VT_Q6_K || t == VT_Q3_K; }
static bool has_halves(vt_dtype t) { return has_form_of_q6_k(t) || t == VT_Q2_K; }
static bool has_min(vt_dtype t)
{
    return t == VT_Q4_1 || t == VT_Q5_1 || t == VT_Q4_K || t == VT_Q5_K;
}
static int high_bits(vt_dtype t)
{
    return has_halves(t) ? 2 : t == VT_Q5_0 || t == VT_Q5_1 || t == VT_Q5_K;
}
static bool is_bytes(vt_dtype t)
{
    return t == VT_Q8_0 || t == VT_FP8_E4M3 || t == VT_IQ4_NL || t == VT_IQ4_XS || t == VT_MXFP4;
}

/* ---- the drawing of linear_quant.h, read one element at a time ---- */

static uint32_t word(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static float half(const uint8_t *p) { return vt_f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

static int low_size(vt_dtype t, int n)
{
    return is_bytes(t) ? 256 * n : t == VT_Q2_K ? 0 : 128 * (n == 3 ? 4 : n);
}

/* The element at column k of chunk c, of `n` in the unit. */
static float element(vt_dtype t, const uint8_t *unit, const uint8_t *super, int n, int c, int g,
                     int k)
{
    int words = n == 3 ? 4 : n, low = low_size(t, n);
    bool halves = has_halves(t);
    int q = halves ? k % 16 / 4 : k / 8, e = halves ? k / 16 * 4 + k % 4 : k % 8;
    int lane = 4 * g + q, pair = e / 2, odd = e % 2 * 16;
    uint32_t u;
    if (is_bytes(t)) {
        static const int kPlace[4] = {0, 2, 1, 3};
        int beside = n - c / 2 * 2 > 1 ? 16 : 8;
        u = unit[c / 2 * 512 + lane * beside + c % 2 * 8 + e / 4 * 4 + kPlace[e % 4]];
    } else {
        u = low ? word(unit + (lane * words + c) * LANE_WORD) >> (4 * pair + odd) & 15 : 0;
        if (high_bits(t) == 1)
            u |= (word(unit + low + lane * LANE_WORD) >> (4 * c + pair + odd) & 1) << 4;
        if (high_bits(t) == 2)
            u |= (word(unit + low + lane * 8 + c / 2 * 4) >> (2 * (4 * (c % 2) + pair) + odd) & 3)
                 << (low ? 4 : 0);
    }
    const uint8_t *s = unit + low + 128 * high_bits(t);
    float d32;
    switch (t) {
    case VT_FP8_E4M3:
        memcpy(&d32, s + 4 * g, 4);
        return d32 * vt_fp8_e4m3_to_f32((uint8_t)u);
    case VT_MXFP4:
        return vt_bf16_to_f32(
                   (uint16_t)(s[(g * words + c) * 2] | s[(g * words + c) * 2 + 1] << 8)) *
               (float)(int8_t)u;
    case VT_IQ4_NL:
    case VT_Q8_0:
        return half(s + (g * words + c) * 2) * (float)(int8_t)u;
    case VT_Q4_0:
        return half(s + (g * words + c) * 2) * (float)((int)u - 8);
    case VT_Q5_0:
        return half(s + (g * words + c) * 2) * (float)((int)u - 16);
    case VT_Q4_1:
    case VT_Q5_1:
        return half(s + (g * words + c) * 4) * (float)u + half(s + (g * words + c) * 4 + 2);
    case VT_Q6_K:
    case VT_Q3_K:
        memcpy(&d32, super + 4 * g, 4);
        return d32 * (float)(s[8 * g + 2 * c + k / 16] - 128) * (float)((int)u - 32);
    case VT_Q2_K:
        return half(super + 4 * g) * (float)(s[8 * g + 2 * c + k / 16] & 15) * (float)u -
               half(super + 4 * g + 2) * (float)(s[8 * g + 2 * c + k / 16] >> 4);
    case VT_IQ4_XS:
        return half(super + 4 * g) * (float)s[8 * g + c] * (float)(int8_t)u;
    default:
        return half(super + 4 * g) * (float)s[8 * g + c] * (float)u -
               half(super + 4 * g + 2) * (float)s[8 * g + 4 + c];
    }
}

static int unit_size(vt_dtype t, int n)
{
    int words = n == 3 ? 4 : n;
    int scales = t == VT_FP8_E4M3 ? 4 : is_k(t) ? 8 : words * (has_min(t) ? 4 : 2);
    return low_size(t, n) + 128 * high_bits(t) + 8 * scales;
}

static float at(vt_dtype t, const uint8_t *tile, int64_t cols, int g, int64_t k)
{
    int64_t unit = k / 128, full = unit_size(t, 4), left = (cols + 31) / 32 - unit * 4;
    const uint8_t *p = tile + unit * full + (is_k(t) ? unit / 2 * 32 : 0);
    const uint8_t *super = tile + (unit / 2 + 1) * (2 * full + 32) - 32;
    return element(t, p, super, left < 4 ? (int)left : 4, (int)(k % 128 / 32), g, (int)(k % 32));
}

/* ---- tests ---- */

static void check(vt_arena *arena, vt_dtype t, int64_t cols, const int64_t *rows, int32_t n_parts,
                  bool paired, bool scaled)
{
    uint64_t rng = (uint64_t)(cols * 31 + rows[0] + t);
    vt_weight *w = case_weight(arena, t, n_parts, rows, cols, paired, &rng);
    linear_quant_source s = {.n_parts = n_parts, .paired = paired};
    for (int32_t i = 0; i < n_parts; i++) {
        s.part[i].rows = w->part[i];
        if (scaled)
            s.part[i].scale = case_fill(
                arena, case_tensor_2d(arena, VT_F32, (rows[i] + 127) / 128, (cols + 127) / 128), 1,
                0.25f, &rng);
    }
    int64_t bytes = linear_quant_tile_bytes(t, cols);
    size_t size = linear_quant_matrix_bytes(t, w->rows, cols, paired);
    uint8_t *tiles = vt_arena_alloc(arena, size, 1);
    int64_t n = (int64_t)size / bytes;
    assert_int_equal(n * bytes, size);
    linear_quant_pack(&s, 0, n / 2, tiles); /* in two pieces, like an upload */
    linear_quant_pack(&s, n / 2, n - n / 2, tiles + n / 2 * bytes);
    float *want = vt_arena_alloc(arena, (size_t)cols, sizeof *want);
    int64_t first = 0; /* row of the part's row 0 */
    for (int32_t p = 0; p < n_parts; p++) {
        for (int64_t r = 0; r < rows[p]; r++) {
            vt_dequant_row(t, (char *)w->part[p]->data + r * vt_dtype_row_bytes(t, cols), want,
                           cols);
            for (int64_t k = 0; k < cols; k++) {
                float scale =
                    scaled
                        ? ((float *)s.part[p].scale->data)[r / 128 * ((cols + 127) / 128) + k / 128]
                        : 1;
                int64_t row = first + r;
                assert_float_equal(at(t, tiles + row / 8 * bytes, cols, (int)(row % 8), k),
                                   want[k] * scale, 0);
            }
        }
        first += paired ? (rows[p] + 7) / 8 * 8 : rows[p];
    }
}

static void test_tiles_when_read_as_drawn_then_the_files_values(void **state)
{
    (void)state;
    static const int64_t stacked[3] = {13, 3, 9}, pair[2] = {11, 11};
    static const int64_t widths[] = {32, 64, 96, 128, 160, 576}, k_widths[] = {256, 768};
    for (int i = 0; i < TYPES; i++) {
        int n = is_k(types[i]) ? 2 : 6;
        for (int c = 0; c < n; c++) {
            vt_arena arena;
            vt_arena_init(&arena, 0);
            int64_t cols = is_k(types[i]) ? k_widths[c] : widths[c];
            check(&arena, types[i], cols, stacked, 3, false, false);
            check(&arena, types[i], cols, pair, 2, true, false);
            vt_arena_release(&arena);
        }
    }
}

static void test_fp8_tiles_when_scales_are_blocks_and_columns_end_inside_a_chunk(void **state)
{
    (void)state;
    static const int64_t rows[2] = {130, 140};
    vt_arena arena;
    vt_arena_init(&arena, 0);
    check(&arena, VT_FP8_E4M3, 136, rows, 2, false, true);
    check(&arena, VT_FP8_E4M3, 264, rows, 1, false, true);
    vt_arena_release(&arena);
}

static void test_tile_sizes_are_those_of_the_header(void **state)
{
    (void)state;
    static const int bytes[TYPES] = {1088, 576,  640,  704,  768, 592,  720,
                                     848,  1056, 1088, 1088, 848, 1104, 336};
    for (int i = 0; i < TYPES; i++)
        assert_int_equal(linear_quant_tile_bytes(types[i], 1024), 8 * bytes[i]);
    assert_int_equal(linear_quant_matrix_bytes(VT_Q4_0, 17, 128, false), 3 * 576);
    assert_int_equal(linear_quant_matrix_bytes(VT_Q4_0, 18, 128, true), 4 * 576);
}

static vt_model *load(const char *name)
{
    vt_model *m;
    vt_err err = {0};
    if (vt_model_load(name, &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    return m;
}

static vt_cuda_weights *describe(const vt_model *m)
{
    vt_cuda_weights *w;
    vt_err err = {0};
    if (vt_cuda_weights_load(NULL, m, 256, 1, &w, &err) != VT_OK)
        fail_msg("%s", err.message);
    return w;
}

static void test_weights_on_a_gpu_keep_their_type_and_tied_embeddings_are_one(void **state)
{
    (void)state;
    vt_model *m = load("tests/golden/models/llama-quantised-Q4_K.gguf");
    vt_cuda_weights *w = describe(m);
    const vt_layer_weights *l = &w->weights.layer[0];
    assert_non_null(l->weight[VT_ROLE_QKV]);
    assert_int_equal(l->weight[VT_ROLE_QKV]->dtype, VT_Q4_K);
    assert_int_equal(l->weight[VT_ROLE_QKV]->rows, 64 + 16 + 16);
    assert_int_equal(l->weight[VT_ROLE_QKV]->packed_bytes, 12 * 1184);
    assert_int_equal(l->weight[VT_ROLE_O]->dtype, VT_Q8_0);
    assert_non_null(l->weight[VT_ROLE_GATE_UP]);
    assert_ptr_equal(w->weights.ends.tensor[VT_ROLE_EMBED],
                     w->weights.ends.weight[VT_ROLE_HEAD]->part[0]);
    assert_int_equal(w->weights.ends.weight[VT_ROLE_HEAD]->packed_bytes, 5 * 1184);
    /* qkv, o, gate and up, down, embedding; rounded up to 256 each; norms and the rope table */
    size_t matrices = 12 * 1184 + 32 * 544 + 64 * 1184 + 32 * 1184 + 5 * 1184;
    assert_in_range(w->bytes, matrices, matrices + 5 * 255 + 3 * 1024 + 256 * 16 * 4 + 256);
    vt_cuda_weights_free(NULL, w);
    vt_model_free(m);
}

static void test_weights_of_mixed_types_stay_apart(void **state)
{
    (void)state;
    vt_model *m = load("tests/golden/models/llama-quantised-Q4_K.gguf");
    vt_tensor v = *m->layer[0].weight[VT_ROLE_V], up = *m->layer[0].weight[VT_ROLE_UP];
    v.dtype = VT_Q6_K;
    up.dtype = VT_F16;
    m->layer[0].weight[VT_ROLE_V] = &v;
    m->layer[0].weight[VT_ROLE_UP] = &up;
    vt_cuda_weights *w = describe(m);
    const vt_layer_weights *l = &w->weights.layer[0];
    assert_null(l->weight[VT_ROLE_QKV]);
    assert_int_equal(l->weight[VT_ROLE_K]->dtype, VT_Q4_K);
    assert_int_equal(l->weight[VT_ROLE_V]->dtype, VT_Q6_K);
    assert_null(l->weight[VT_ROLE_GATE_UP]);
    assert_int_equal(l->weight[VT_ROLE_GATE]->dtype, VT_Q4_K);
    assert_int_equal(l->weight[VT_ROLE_UP]->dtype, VT_BF16);
    vt_cuda_weights_free(NULL, w);
    vt_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_when_read_as_drawn_then_the_files_values),
        cmocka_unit_test(test_fp8_tiles_when_scales_are_blocks_and_columns_end_inside_a_chunk),
        cmocka_unit_test(test_tile_sizes_are_those_of_the_header),
        cmocka_unit_test(test_weights_on_a_gpu_keep_their_type_and_tied_embeddings_are_one),
        cmocka_unit_test(test_weights_of_mixed_types_stay_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
