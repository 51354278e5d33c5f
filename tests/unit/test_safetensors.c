/* Safetensors files and Hugging Face folders: the contents of good ones, and the message for each
 * kind of broken one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

#include "files/safetensors.h"
#include "model/assemble.h"
#include "model/load.h"
#include "text/template/template.h"

#define CORPUS "tests/fuzz/corpus/safetensors/"
#define FOLDERS "tests/golden/folders/"
#define MODELS "tests/golden/models/"

typedef struct broken {
    const char *name, *words;
    vt_status status;
} broken;

static const vt_tensor *find(const st_file *f, const char *name)
{
    for (int64_t i = 0; i < f->n_tensors; i++)
        if (strcmp(f->tensor[i].name, name) == 0)
            return &f->tensor[i];
    return NULL;
}

static void test_safetensors_types_and_scalars_are_read(void **state)
{
    (void)state;
    st_file *f;
    vt_err err = {0};
    if (st_open(CORPUS "ok_types.safetensors", &f, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(f->n_tensors, 5); /* __metadata__ is not a tensor */
    const vt_tensor *a = find(f, "a"), *b = find(f, "b"), *c = find(f, "c"), *s = find(f, "scalar");
    assert_true(a && b && c && s);
    assert_int_equal(a->dtype, VT_BF16);
    assert_int_equal(b->dtype, VT_F16);
    assert_int_equal(c->dtype, VT_FP8_E4M3);
    assert_true(b->rank == 2 && b->dim[0] == 2 && b->dim[1] == 2);
    assert_true(s->rank == 1 && s->dim[0] == 1 && s->dtype == VT_F32);
    assert_int_equal((const uint8_t *)b->data - (const uint8_t *)a->data, 8);
    st_close(f);
}

static void test_safetensors_that_touch_are_read(void **state)
{
    (void)state;
    st_file *f;
    vt_err err = {0};
    if (st_open(CORPUS "ok_touching.safetensors", &f, &err) != VT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(f->n_tensors, 2);
    st_close(f);
}

static void test_safetensors_dimensions_from_the_fourth_on_count_as_one(void **state)
{
    (void)state;
    st_file *f;
    vt_err err = {0};
    if (st_open(CORPUS "ok_video.safetensors", &f, &err) != VT_OK)
        fail_msg("%s", err.message);
    const vt_tensor *t = find(f, "t"); /* [2, 3, 1, 2, 4] */
    assert_true(t && t->rank == 4 && t->row_stride == 8);
    assert_true(t->dim[0] == 2 && t->dim[1] == 3 && t->dim[2] == 1 && t->dim[3] == 8);
    st_close(f);
}

static void test_safetensors_broken_files_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const broken cases[] = {
        {"bad_empty", "the file is empty", VT_ERR_FORMAT},
        {"bad_short", "3 bytes are too few", VT_ERR_FORMAT},
        {"bad_header_length", "a header of 4611686018427387904 bytes", VT_ERR_FORMAT},
        {"bad_header_beyond", "a header of 400 bytes in a file of", VT_ERR_FORMAT},
        {"bad_json", "the header: line 1, byte", VT_ERR_FORMAT},
        {"bad_not_object", "the header is an array; an object was expected", VT_ERR_FORMAT},
        {"bad_twice", "tensor t appears twice", VT_ERR_FORMAT},
        {"bad_entry", "tensor t: its entry is a number; an object was expected", VT_ERR_FORMAT},
        {"bad_no_dtype", "\"dtype\" is missing", VT_ERR_FORMAT},
        {"bad_dtype", "tensor t has type F64; supported are", VT_ERR_UNSUPPORTED},
        {"bad_no_shape", "\"shape\" is missing", VT_ERR_FORMAT},
        {"bad_shape_rank", "tensor t has 9 dimensions", VT_ERR_FORMAT},
        {"bad_shape_negative", "\"shape\" holds -1; whole numbers of 1 or more", VT_ERR_FORMAT},
        {"bad_shape_zero", "\"shape\" holds 0; whole numbers of 1 or more", VT_ERR_FORMAT},
        {"bad_shape_overflow", "\"shape\" has more elements than 2^60", VT_ERR_FORMAT},
        {"bad_shape_real", "\"shape\" holds 1.5; whole numbers of 1 or more", VT_ERR_FORMAT},
        {"bad_offsets_missing", "\"data_offsets\" is missing; a pair", VT_ERR_FORMAT},
        {"bad_offsets_order", "\"data_offsets\" holds 0; two numbers in rising order",
         VT_ERR_FORMAT},
        {"bad_offsets_negative", "\"data_offsets\" holds -4; whole numbers from 0 on",
         VT_ERR_FORMAT},
        {"bad_offsets_beyond", "ends at byte 24 of the data, which has 23", VT_ERR_FORMAT},
        {"bad_offsets_size", "tensor t has 20 bytes, its shape and type 24", VT_ERR_FORMAT},
        {"bad_overlap", "tensors a and b overlap", VT_ERR_FORMAT},
        {"bad_overlap_byte", "tensors a and b overlap", VT_ERR_FORMAT},
        {"bad_name_nul", "holds a NUL", VT_ERR_FORMAT},
        {"bad_unaligned", "not aligned to its type", VT_ERR_FORMAT},
        {"bad_name_long", "name has 300 bytes", VT_ERR_FORMAT},
        {"bad_deep", "nested too deep", VT_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[200];
        st_file *f;
        vt_err err = {0};
        snprintf(path, sizeof path, CORPUS "%s.safetensors", cases[i].name);
        vt_status status = st_open(path, &f, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].words))
            fail_msg("%s: status %d, \"%s\"", cases[i].name, status, err.message);
    }
}

/* More bytes than the shape needs are as wrong as fewer: somebody reads another tensor there. */
static void test_safetensors_when_a_tensor_has_bytes_to_spare_then_it_is_refused(void **state)
{
    (void)state;
    char file[300] = {0};
    const char *header = "{\"t\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,28]}}   ";
    size_t n = strlen(header);
    st_file *f;
    vt_err err = {0};
    file[0] = (char)n;
    memcpy(file + 8, header, n);
    assert_int_equal(st_open_bytes("spare", file, 8 + n + 28, &f, &err), VT_ERR_FORMAT);
    assert_string_equal(err.message, "spare: tensor t has 28 bytes, its shape and type 24");
}

static void test_safetensors_every_truncation_is_refused(void **state)
{
    (void)state;
    st_file *whole, *f;
    assert_int_equal(st_open(CORPUS "ok_one.safetensors", &whole, NULL), VT_OK);
    for (size_t n = 0; n < whole->view.size; n++) {
        uint8_t *copy = test_malloc(n ? n : 1);
        vt_err err = {0};
        memcpy(copy, whole->view.map, n);
        assert_int_not_equal(st_open_bytes("cut", copy, n, &f, &err), VT_OK);
        assert_true(err.message[0] != 0);
        test_free(copy);
    }
    st_close(whole);
}

static void test_folder_that_is_wrong_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const broken cases[] = {
        {"bad_no_config", "holds no config.json", VT_ERR_IO},
        {"bad_no_weights", "holds neither model.safetensors nor", VT_ERR_IO},
        {"bad_config_json", "config.json: not valid JSON: line 1", VT_ERR_FORMAT},
        {"bad_model_type", "model type mamba is not supported", VT_ERR_UNSUPPORTED},
        {"bad_no_model_type", "\"model_type\" is missing", VT_ERR_FORMAT},
        {"bad_no_layers", "\"num_hidden_layers\" is missing", VT_ERR_FORMAT},
        {"bad_layers", "\"num_hidden_layers\" is 100000", VT_ERR_MODEL},
        {"bad_hidden_text", "\"hidden_size\" is a string; a number was expected", VT_ERR_FORMAT},
        {"bad_hidden_real", "\"hidden_size\" is 8.5", VT_ERR_FORMAT},
        {"bad_heads", "\"num_attention_heads\" is 0", VT_ERR_MODEL},
        {"bad_activation", "\"hidden_act\" relu is not supported", VT_ERR_UNSUPPORTED},
        {"bad_rope_type", "\"rope_type\" dynamic is not supported", VT_ERR_UNSUPPORTED},
        {"bad_rope_factor", "\"factor\" is missing", VT_ERR_FORMAT},
        {"bad_quantisation", "\"quant_method\" eetq is not supported", VT_ERR_UNSUPPORTED},
        {"bad_bias", "layer 0 has no q, k or v bias", VT_ERR_MODEL},
        {"bad_shape", "mlp.gate_proj.weight has shape [12, 8]; [16, 8] was expected", VT_ERR_MODEL},
        {"bad_eos", "eos_token_id 10 lies outside the vocabulary of 10", VT_ERR_MODEL},
        {"bad_eos_text", "\"eos_token_id\" is \"</s>\"; a token id or a list of them was expected",
         VT_ERR_FORMAT},
        {"bad_longrope", "\"short_factor\" is a number; an array of 2 was expected", VT_ERR_FORMAT},
        {"bad_nested", "model type seesall is not supported", VT_ERR_UNSUPPORTED},
        {"bad_softcap", "\"final_logit_softcapping\" is 30", VT_ERR_UNSUPPORTED},
        {"bad_layer_types", "layer 0 has type chunked_attention", VT_ERR_UNSUPPORTED},
        {"bad_mistral_kv", "\"num_key_value_heads\" is missing", VT_ERR_FORMAT},
        {"bad_template", "\"template\" of the \"chat_template\" that counts is missing",
         VT_ERR_FORMAT},
        {"bad_index_path",
         "\"weight_map\" has the file \"../ok_plain/model.safetensors\"; the plain name",
         VT_ERR_FORMAT},
        {"bad_index_missing_file", "nothing.safetensors: cannot be opened", VT_ERR_IO},
        {"bad_index_missing_tensor", "tensor u is not in a.safetensors", VT_ERR_FORMAT},
        {"bad_index_no_map", "\"weight_map\" is missing; an object was expected", VT_ERR_FORMAT},
        {"bad_index_value", "\"weight_map\" has a number for t; the name of a file", VT_ERR_FORMAT},
        {"bad_index_twice", "tensor t is in more than one file", VT_ERR_FORMAT},
        {"bad_experts_missing", "layers.0.mlp.experts.1.up_proj.weight is missing", VT_ERR_MODEL},
        {"bad_experts_type",
         "mlp.experts.1.up_proj.weight is BF16 [3, 136]; FP8_E4M3 [3, 136] as in expert 0 was",
         VT_ERR_MODEL},
        {"bad_experts_rank", "mlp.experts.0.up_proj.weight has rank 1; 2 was expected",
         VT_ERR_MODEL},
        {"bad_experts_no_scale",
         "mlp.experts.1.gate_proj.weight is FP8 and has no scale: neither model.layers.0.mlp."
         "experts.1.gate_proj.weight_scale_inv nor",
         VT_ERR_MODEL},
        {"bad_experts_scale_shape",
         "mlp.experts.0.gate_proj.weight_scale_inv has type F32 and shape [2, 1]; one float or "
         "[1, 2] of them",
         VT_ERR_UNSUPPORTED},
        {"bad_experts_scale_type", "mlp.experts.1.down_proj.weight_scale has type I32 and shape",
         VT_ERR_UNSUPPORTED},
        {"bad_experts_scale_number",
         "mlp.experts.1.gate_proj.weight_scale_inv has 1 elements of type F32; 2 of type F32 as in "
         "expert 0 were expected",
         VT_ERR_MODEL},
        {"bad_experts_scale_nan",
         "mlp.experts.1.gate_proj.weight_scale_inv is nan in place 1; a finite number was expected",
         VT_ERR_MODEL},
        {"bad_experts_scale_twice", "mlp.experts.1.gate_proj.weight_scale has no place in a",
         VT_ERR_MODEL},
        {"bad_fp8_no_scale",
         "self_attn.q_proj.weight is FP8 and has no scale: neither model.layers.0.self_attn.q_proj."
         "weight_scale_inv nor",
         VT_ERR_MODEL},
        {"bad_fp8_scale_shape",
         "self_attn.q_proj.weight_scale_inv has type F32 and shape [8, 1]; one float or [1, 2] of",
         VT_ERR_UNSUPPORTED},
        {"bad_fp8_scale_infinite",
         "self_attn.q_proj.weight_scale is inf in place 0; a finite number was expected",
         VT_ERR_MODEL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[200];
        vt_model *m;
        vt_err err = {0};
        snprintf(path, sizeof path, FOLDERS "%s", cases[i].name);
        vt_status status = vt_model_load(path, &m, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].words) ||
            !strstr(err.message, cases[i].name))
            fail_msg("%s: status %d, \"%s\"", cases[i].name, status, err.message);
    }
}

static vt_model *load_good(const char *path)
{
    vt_model *m = NULL;
    vt_err err = {0};
    if (vt_model_load(path, &m, &err) != VT_OK)
        fail_msg("%s", err.message);
    return m;
}

static void test_folder_end_of_text_comes_from_config_or_generation_config(void **state)
{
    (void)state;
    vt_model *m = load_good(FOLDERS "ok_plain");
    assert_int_equal(m->n_eos, 2);
    assert_true(m->eos[0] == 3 && m->eos[1] == 4);
    assert_true(isnan(m->gen_temperature) && m->gen_top_k == -1);
    vt_model_free(m);
    m = load_good(FOLDERS "ok_generation");
    assert_int_equal(m->n_eos, 2); /* 5, 6, 5 */
    assert_true(m->eos[0] == 5 && m->eos[1] == 6);
    assert_float_equal(m->gen_temperature, 0.6, 1e-6);
    assert_float_equal(m->gen_top_p, 0.95, 1e-6);
    assert_int_equal(m->gen_top_k, 20);
    assert_true(isnan(m->gen_min_p));
    vt_model_free(m);
}

static void test_folder_of_a_model_that_sees_is_read_past_its_encoder(void **state)
{
    (void)state;
    vt_model *m = load_good(FOLDERS "ok_text_model");
    assert_string_equal(m->arch.family, "llama");
    assert_true(m->arch.hidden == 8 && m->arch.n_layers == 1);
    vt_model_free(m);
}

/* Each of the three forms has the template {{ 1 }}; the wrong choice would give {{ 2 }}. */
static void test_folder_chat_template_is_found_in_its_three_forms(void **state)
{
    (void)state;
    static const char *const names[] = {"ok_template_string", "ok_template_list",
                                        "ok_template_file"};
    for (size_t i = 0; i < 3; i++) {
        char path[200];
        vt_buf out;
        vt_err err = {0};
        snprintf(path, sizeof path, FOLDERS "%s", names[i]);
        vt_model *m = load_good(path);
        assert_non_null(m->chat_template);
        vt_buf_init(&out, 0);
        if (vt_template_render(m->chat_template, "{}", 2, NULL, &out, &err) != VT_OK)
            fail_msg("%s", err.message);
        assert_string_equal(out.data, "1");
        vt_buf_release(&out);
        vt_model_free(m);
    }
}

static void test_folder_of_gemma_sets_its_knobs(void **state)
{
    (void)state;
    vt_model *m = load_good(MODELS "gemma3-windows");
    const vt_arch *a = &m->arch;
    assert_true(a->norm_plus_one && a->tied_head && a->n_ropes == 2);
    assert_int_equal(m->layer[0].norms, VT_NORM_BEFORE | VT_NORM_AFTER);
    assert_non_null(m->layer[0].weight[VT_ROLE_K_NORM]);
    assert_int_equal(a->activation, VT_ACT_GELU_TANH);
    assert_float_equal(a->embed_scale, sqrt(a->hidden), 1e-5);
    assert_float_equal(a->attn_scale, 1 / sqrt(24.0), 1e-7);
    assert_int_equal(a->window, 6);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(m->layer[i].head.window, i == 2 ? 0 : 6);
        assert_int_equal(m->layer[i].head.rope, i != 2);
    }
    assert_true(a->rope[0].base == 1e6 && a->rope[1].base == 1e4 && !a->rope[0].interleaved);
    assert_non_null(m->layer[3].weight[VT_ROLE_POST_FFN_NORM]);
    vt_model_free(m);
}

static void test_folder_of_experts_stacks_them(void **state)
{
    (void)state;
    vt_model *m = load_good(MODELS "qwen3moe-norm-mixed");
    const vt_arch *a = &m->arch;
    assert_true(a->norm_topk);
    assert_true(!m->layer[1].weight[VT_ROLE_ROUTER] && m->layer[1].weight[VT_ROLE_GATE] &&
                !m->layer[0].weight[VT_ROLE_GATE]);
    const vt_tensor *g = m->layer[2].weight[VT_ROLE_EXPERT_GATE],
                    *d = m->layer[2].weight[VT_ROLE_EXPERT_DOWN];
    assert_true(g->rank == 3 && g->dim[0] == a->n_experts && g->dim[1] == a->expert_ffn &&
                g->dim[2] == a->hidden);
    assert_true(d->dim[1] == a->hidden && d->dim[2] == a->expert_ffn);
    st_set *set;
    assert_int_equal(st_open_folder(MODELS "qwen3moe-norm-mixed", &set, NULL), VT_OK);
    const vt_tensor *one =
        set->tensor[st_find(set, "model.layers.2.mlp.experts.3.down_proj.weight")];
    size_t bytes = (size_t)vt_tensor_bytes(one);
    assert_memory_equal(vt_tensor_matrix(d, 3).data, one->data, bytes);
    st_close_set(set);
    vt_model_free(m);
}

static void test_folder_of_fp8_gives_every_matrix_its_scales(void **state)
{
    (void)state;
    vt_model *m = load_good(MODELS "qwen3-fp8");
    const vt_layer *l = &m->layer[0];
    assert_int_equal(l->weight[VT_ROLE_GATE]->dtype, VT_FP8_E4M3);
    assert_string_equal(m->quant, "FP8_E4M3");
    const vt_tensor *scale[] = {l->scale[VT_ROLE_Q],   l->scale[VT_ROLE_K],    l->scale[VT_ROLE_V],
                                l->scale[VT_ROLE_O],   l->scale[VT_ROLE_GATE], l->scale[VT_ROLE_UP],
                                l->scale[VT_ROLE_DOWN]};
    const vt_tensor *w[] = {l->weight[VT_ROLE_Q],   l->weight[VT_ROLE_K],    l->weight[VT_ROLE_V],
                            l->weight[VT_ROLE_O],   l->weight[VT_ROLE_GATE], l->weight[VT_ROLE_UP],
                            l->weight[VT_ROLE_DOWN]};
    for (size_t i = 0; i < 4; i++) /* the attention's: one for the tensor */
        assert_true(scale[i] && w[i]->dtype == VT_FP8_E4M3 && vt_tensor_elems(scale[i]) == 1);
    for (size_t i = 4; i < 7; i++) { /* the feed-forward's: one for each block */
        assert_non_null(scale[i]);
        assert_int_equal(scale[i]->dim[0], (w[i]->dim[0] + 127) / 128);
        assert_int_equal(scale[i]->dim[1], (w[i]->dim[1] + 127) / 128);
    }
    vt_model_free(m);
}

/* Expert e's scales are those of the file's tensor of expert e. */
static void test_folder_of_fp8_experts_stacks_their_scales(void **state)
{
    (void)state;
    static const char *const what[] = {"gate_proj", "up_proj", "down_proj"};
    static const int64_t blocks[3][2] = {{1, 2}, {1, 2}, {2, 1}};
    vt_model *m = load_good(MODELS "qwen3moe-fp8");
    st_set *set;
    assert_int_equal(st_open_folder(MODELS "qwen3moe-fp8", &set, NULL), VT_OK);
    for (int layer = 0; layer < 2; layer++) {
        const vt_layer *l = &m->layer[layer];
        const vt_tensor *w[] = {l->weight[VT_ROLE_EXPERT_GATE], l->weight[VT_ROLE_EXPERT_UP],
                                l->weight[VT_ROLE_EXPERT_DOWN]};
        const vt_tensor *scale[] = {l->scale[VT_ROLE_EXPERT_GATE], l->scale[VT_ROLE_EXPERT_UP],
                                    l->scale[VT_ROLE_EXPERT_DOWN]};
        for (int p = 0; p < 3; p++) {
            assert_int_equal(w[p]->dtype, VT_FP8_E4M3);
            assert_true(scale[p]->rank == 3);
            assert_int_equal(scale[p]->dtype, layer ? VT_F32 : VT_BF16);
            assert_int_equal(scale[p]->dim[0], m->arch.n_experts);
            for (int i = 0; i < 2; i++) /* the second layer's: one for each matrix */
                assert_int_equal(scale[p]->dim[1 + i], layer ? 1 : blocks[p][i]);
            int64_t each = scale[p]->dim[1] * scale[p]->dim[2];
            for (int e = 0; e < m->arch.n_experts; e++) {
                char name[120];
                snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.weight_scale%s",
                         layer, e, what[p], layer ? "" : "_inv");
                const vt_tensor *one = set->tensor[st_find(set, name)];
                assert_int_equal(vt_tensor_elems(one), each);
                size_t bytes = (size_t)vt_tensor_bytes(one);
                assert_memory_equal((char *)scale[p]->data + (size_t)e * bytes, one->data, bytes);
            }
        }
    }
    st_close_set(set);
    vt_model_free(m);
    vt_model_free(load_good(FOLDERS "ok_experts"));
}

/* ---- scales of an FP8 cache ---- */

typedef struct declared {
    vt_tensor *tensor;
    int64_t n;
} declared;

static int64_t declared_find(const void *file, const char *name)
{
    const declared *d = file;
    for (int64_t i = 0; i < d->n; i++)
        if (strcmp(d->tensor[i].name, name) == 0)
            return i;
    return -1;
}

static const vt_tensor *declared_at(const void *file, int64_t i)
{
    return &((const declared *)file)->tensor[i];
}

/* A model of qwen3-gqa2's shape, its tensors without data, and one more. */
static vt_model *assemble_with(const vt_tensor *more, vt_err *err)
{
    vt_model *shape = load_good(MODELS "qwen3-gqa2"), *m = NULL;
    declared d;
    assert_int_equal(model_new("x", &m, err), VT_OK);
    m->arch = shape->arch;
    vt_model_free(shape);
    assert_int_equal(model_declare(m, VT_BF16, &d.tensor, &d.n, err), VT_OK);
    d.tensor[d.n++] = *more;
    weight_source source = {
        .hf_names = true, .file = &d, .n_tensors = d.n, .find = declared_find, .at = declared_at};
    if (model_assemble(m, &source, err) == VT_OK)
        return m;
    model_release(m);
    return NULL;
}

static void test_kv_scales_of_a_file_are_found_under_both_names(void **state)
{
    (void)state;
    float k = 0.25f;
    uint16_t v = vt_f32_to_bf16(3);
    vt_err err = {0};
    vt_tensor scale = {.data = &k, .dtype = VT_F32, .name = "model.layers.0.self_attn.k_scale"};
    vt_model *m = assemble_with(&scale, &err);
    assert_non_null(m);
    assert_true(m->layer[0].kv_k_scale == k && m->layer[0].kv_v_scale == 1);
    assert_true(m->layer[1].kv_k_scale == 1 && m->layer[1].kv_v_scale == 1);
    model_release(m);
    scale = (vt_tensor){.data = &v,
                        .dtype = VT_BF16,
                        .rank = 1,
                        .dim = {1},
                        .row_stride = 1,
                        .name = "model.layers.1.self_attn.v_proj.v_scale"};
    m = assemble_with(&scale, &err);
    assert_non_null(m);
    assert_true(m->layer[1].kv_v_scale == 3 && m->layer[1].kv_k_scale == 1);
    model_release(m);
}

static void test_kv_scales_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    float bad[] = {0, -1, NAN, INFINITY, 1e-45f}, pair[2] = {1, 1};
    vt_err err = {0};
    vt_tensor scale = {.data = pair,
                       .dtype = VT_F32,
                       .rank = 1,
                       .dim = {2},
                       .row_stride = 2,
                       .name = "model.layers.0.self_attn.v_scale"};
    assert_null(assemble_with(&scale, &err));
    assert_non_null(strstr(err.message, "v_scale has 2 elements of type F32; one float"));
    scale.dim[0] = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        scale.data = &bad[i];
        assert_null(assemble_with(&scale, &err));
        assert_non_null(strstr(err.message, "self_attn.v_scale is "));
        assert_non_null(strstr(err.message, "a positive number was expected"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors_types_and_scalars_are_read),
        cmocka_unit_test(test_safetensors_that_touch_are_read),
        cmocka_unit_test(test_safetensors_dimensions_from_the_fourth_on_count_as_one),
        cmocka_unit_test(test_safetensors_broken_files_are_refused_with_the_reason),
        cmocka_unit_test(test_safetensors_when_a_tensor_has_bytes_to_spare_then_it_is_refused),
        cmocka_unit_test(test_safetensors_every_truncation_is_refused),
        cmocka_unit_test(test_folder_that_is_wrong_is_refused_with_the_reason),
        cmocka_unit_test(test_folder_end_of_text_comes_from_config_or_generation_config),
        cmocka_unit_test(test_folder_of_a_model_that_sees_is_read_past_its_encoder),
        cmocka_unit_test(test_folder_chat_template_is_found_in_its_three_forms),
        cmocka_unit_test(test_folder_of_gemma_sets_its_knobs),
        cmocka_unit_test(test_folder_of_experts_stacks_them),
        cmocka_unit_test(test_folder_of_fp8_gives_every_matrix_its_scales),
        cmocka_unit_test(test_folder_of_fp8_experts_stacks_their_scales),
        cmocka_unit_test(test_kv_scales_of_a_file_are_found_under_both_names),
        cmocka_unit_test(test_kv_scales_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
