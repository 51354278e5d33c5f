/* dummy:NAME - a model of a published shape with made-up weights (model/dummy.h has the function).
 *
 * Loading only reserves address space: `vitrine explain -m dummy:qwen3-32b` needs no 65 GB, and a
 * GPU makes its weights itself. vt_model_host_weights fills the reserved memory with all CPUs. One
 * hash gives four elements, and rounding to bf16 is branch-free: 1.4 ns an element on one Sapphire
 * Rapids core, so qwen3-0.6b takes 0.4 s on two.
 */
#include "model/dummy.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/team.h"
#include "model/assemble.h"
#include "model/family.h"
#include "model/latent.h"
#include "model/load.h"
#include "model/mtp.h"
#include "text/template/template.h"
#include "text/tokenizer/tokenizer.h"

/* ChatML: each message between its markers, then the assistant's opening. */
static const char chatml[] =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

static void set_arch(vt_model *m, const vt_family *f, const vt_family_shape *s)
{
    vt_arch *a = &m->arch;
    m->family = f;
    snprintf(a->family, sizeof a->family, "%s", f->name);
    a->n_layers = s->n_layers;
    a->hidden = s->hidden;
    a->n_heads = s->n_heads;
    a->n_kv_heads = s->n_kv_heads;
    a->head_dim = s->head_dim;
    a->ffn = s->ffn;
    a->vocab = s->vocab;
    a->max_context = s->max_context;
    a->norm_eps = s->eps;
    a->tied_head = s->tied;
    a->attn_scale = 1 / __builtin_sqrtf((float)s->head_dim);
    a->rope[0] = (vt_rope_params){.base = s->rope_base,
                                  .dims = s->rope_dims ? s->rope_dims : s->head_dim};
    a->n_ropes = f->no_rope || s->rope_base == 0 ? 0 : 1;
    a->layer_norm = f->layer_norm;
    if (f->mlp)
        a->activation = VT_ACT_GELU_ERF;
    if (f->encoder) {
        a->n_positions = s->max_context;
        a->n_types = 2;
        m->pooled.how = VT_POOLING_MEAN;
    }
    if (s->llama3_factor > 0) {
        a->rope[0].scaling = VT_ROPE_LLAMA3;
        a->rope[0].factor = s->llama3_factor;
        a->rope[0].low_freq_factor = 1;
        a->rope[0].high_freq_factor = 4;
        a->rope[0].original_context = 8192;
    }
    a->n_experts = s->n_experts;
    a->n_experts_used = s->n_experts_used;
    a->expert_ffn = s->expert_ffn;
    a->norm_topk = s->n_experts > 0;
    a->shared_ffn = s->shared_ffn;
    a->route_sigmoid = s->route_sigmoid;
    a->route_scale = s->route_scale;
    a->conv_taps = s->conv_taps;
    a->window = s->window;
    a->activation = s->act_limit > 0 ? VT_ACT_CLAMPED : a->activation;
    a->act_limit = s->act_limit;
    a->delta = s->delta;
    a->mamba = s->mamba;
    a->out_gate = s->out_gate;
    a->mla = s->mla;
}

/* Makes the layers, of which those that do not attend keep a state. */
static vt_status make_layers(vt_model *m, const vt_family_shape *s, vt_err *err)
{
    TRY(model_make_layers(m, err));
    if (s->mla.kv_rank > 0)
        TRY(model_attend_latents(m, err));
    for (int32_t i = 0; i < s->n_layers; i++) {
        if (m->family->experts_by_file && s->n_experts > 0)
            m->layer[i].ffn = VT_BLOCK_EXPERTS;
        if (m->arch.n_ropes == 0)
            m->layer[i].head.rope = -1;
    }
    for (int32_t i = 0; i < s->first_dense; i++)
        m->layer[i].ffn = VT_BLOCK_FFN;
    for (int32_t i = 0; s->window_period > 0 && i < s->n_layers; i++)
        m->layer[i].head.window = (i + 1) % s->window_period != 0 ? s->window : 0;
    for (int32_t i = 0; i < s->n_layers; i++) {
        bool keeps = s->kinds ? s->kinds[i] != 'a'
                              : s->attends_every > 0 && (i + 1) % s->attends_every != 0;
        if (keeps)
            model_keep_state(m, i,
                             s->delta.gate_rank ? VT_BLOCK_KDA
                             : s->delta.k_heads ? VT_BLOCK_DELTA
                             : s->mamba.heads   ? VT_BLOCK_MAMBA
                                                : VT_BLOCK_CONV);
    }
    return m->family->from_shape ? m->family->from_shape(m, s, err) : VT_OK;
}

/* ---- the function ---- */

dummy_rule dummy_rule_of(const vt_tensor *t)
{
    dummy_rule r = {.key = dummy_key(t->name), .base = 1, .scale = 0x1p-19f};
    if (t->rank > 1) {
        r.base = 0;
        r.scale = 1.0f / (float)(INT64_C(1) << (15 + dummy_shift(t->dim[t->rank - 1])));
    }
    return r;
}

/* vt_f32_to_bf16 without its NaN case, so that the loop below becomes vector code. */
static inline uint16_t element(const dummy_rule *r, uint64_t word, unsigned lane)
{
    union {
        float f;
        uint32_t u;
    } v = {.f = r->base + (float)(int16_t)(uint16_t)(word >> (16 * lane)) * r->scale};
    return (uint16_t)((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}

void dummy_fill(const dummy_rule *rule, uint64_t begin, int64_t n, uint16_t *out)
{
    int64_t done = 0;
    for (; done < n && (begin + (uint64_t)done) % 4 != 0; done++) {
        uint64_t i = begin + (uint64_t)done;
        out[done] = element(rule, dummy_word(rule->key, i / 4), i % 4);
    }
    for (; done + 4 <= n; done += 4) {
        uint64_t word = dummy_word(rule->key, (begin + (uint64_t)done) / 4);
        for (unsigned lane = 0; lane < 4; lane++)
            out[done + lane] = element(rule, word, lane);
    }
    for (; done < n; done++) {
        uint64_t i = begin + (uint64_t)done;
        out[done] = element(rule, dummy_word(rule->key, i / 4), i % 4);
    }
}

/* ---- weights: reserved at load, filled on request ---- */

enum { TENSOR_ALIGN = 4096, CHUNK = 1 << 20 /* elements a worker takes at a time */ };

typedef struct dummy_source {
    vt_tensor *tensor; /* [n] */
    int64_t n;
    name_entry *index;
    char *memory;
    size_t bytes;
    pthread_mutex_t lock; /* for filled */
    bool filled;
} dummy_source;

static vt_status reserve(dummy_source *s, vt_model *m, vt_err *err)
{
    size_t total = 0;
    s->index = vt_arena_alloc(&m->arena, (size_t)s->n, sizeof *s->index);
    if (!s->index)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", m->path);
    for (int64_t i = 0; i < s->n; i++)
        total += vt_round_up((size_t)vt_tensor_bytes(&s->tensor[i]), TENSOR_ALIGN);
    s->memory = mmap(NULL, total, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->memory == MAP_FAILED) {
        s->memory = NULL;
        return vt_fail(err, VT_ERR_MEMORY, "%s: %.1f GB of address space are not to be had",
                       m->path, (double)total / 1e9);
    }
    s->bytes = total;
    madvise(s->memory, total, MADV_HUGEPAGE); /* a hint: failure changes nothing */
    char *at = s->memory;
    for (int64_t i = 0; i < s->n; i++) {
        s->tensor[i].data = at;
        at += vt_round_up((size_t)vt_tensor_bytes(&s->tensor[i]), TENSOR_ALIGN);
        s->index[i] = (name_entry){s->tensor[i].name, strlen(s->tensor[i].name), (uint32_t)i};
    }
    name_index_sort(s->index, (size_t)s->n);
    return VT_OK;
}

typedef struct fill_job {
    const dummy_source *source;
    atomic_llong ticket; /* chunks of all tensors, counted through */
} fill_job;

static void fill_worker(void *arg, int32_t worker)
{
    fill_job *job = arg;
    (void)worker;
    int64_t tensor = 0, before = 0; /* chunks of the tensors before this one */
    for (;;) {
        int64_t mine = atomic_fetch_add(&job->ticket, 1);
        for (; tensor < job->source->n; tensor++) {
            int64_t chunks = vt_ceil_div(vt_tensor_elems(&job->source->tensor[tensor]), CHUNK);
            if (mine < before + chunks)
                break;
            before += chunks;
        }
        if (tensor == job->source->n)
            return;
        const vt_tensor *t = &job->source->tensor[tensor];
        int64_t begin = (mine - before) * CHUNK, n = vt_tensor_elems(t) - begin;
        dummy_rule rule = dummy_rule_of(t);
        dummy_fill(&rule, (uint64_t)begin, n < CHUNK ? n : CHUNK, (uint16_t *)t->data + begin);
    }
}

static vt_status fill(const vt_model *m, dummy_source *s, vt_err *err)
{
    vt_team *team;
    double need = (double)s->bytes,
           have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (need > have)
        return vt_fail(err, VT_ERR_MEMORY, "%s: its weights take %.1f GB, this machine has %.1f GB",
                       m->path, need / 1e9, have / 1e9);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    TRY(vt_team_new(cpus < 1 ? 1 : cpus > 64 ? 64 : (int32_t)cpus, &team, err));
    fill_job job = {.source = s};
    vt_team_run(team, fill_worker, &job);
    vt_team_free(team);
    return VT_OK;
}

/* ---- loading ---- */

static int64_t source_find(const void *file, const char *name)
{
    const dummy_source *s = file;
    return name_index_find(s->index, (size_t)s->n, name, strlen(name));
}

static const vt_tensor *source_at(const void *file, int64_t i)
{
    return &((const dummy_source *)file)->tensor[i];
}

static void close_dummy(vt_model *m)
{
    dummy_source *s = m->source;
    if (s->memory)
        munmap(s->memory, s->bytes);
    pthread_mutex_destroy(&s->lock);
    model_release(m); /* s is in its arena */
}

bool vt_model_is_dummy(const vt_model *m) { return m->close == close_dummy; }

static vt_status make_weights(const vt_model *m, vt_err *err)
{
    dummy_source *s = m->source;
    pthread_mutex_lock(&s->lock);
    vt_status status = s->filled ? VT_OK : fill(m, s, err);
    s->filled = status == VT_OK;
    pthread_mutex_unlock(&s->lock);
    return status;
}

static vt_status build(vt_model *m, dummy_source *s, vt_err *err)
{
    TRY(arch_check(m, err));
    TRY(model_declare(m, VT_BF16, &s->tensor, &s->n, err));
    TRY(reserve(s, m, err));
    weight_source src = {
        .hf_names = true, .file = s, .n_tensors = s->n, .find = source_find, .at = source_at};
    TRY(model_assemble(m, &src, err));
    if (vt_model_is_head(m))
        return VT_OK;
    TRY(vt_tokenizer_synthetic(m->arch.vocab, &m->tokenizer, err));
    TRY(vt_template_parse("chatml", chatml, sizeof chatml - 1, &m->chat_template, err));
    return model_set_special(m, NULL, 0, err);
}

/* Returns the shape after s in the list of all families' shapes, the first for NULL. *f is its
 * family, where the search begins. */
static const vt_family_shape *next_shape(const vt_family *const **f, const vt_family_shape *s)
{
    s = s ? s + 1 : (**f)->shapes;
    while (!s || !s->name) {
        if (!*++*f)
            return NULL;
        s = (**f)->shapes;
    }
    return s;
}

/* Names the shapes that begin like `name`, then the others, as many as a message holds. */
static vt_status unknown(const char *name, vt_err *err)
{
    enum { LIKE = 4, ROOM = 360 };
    char all[ROOM + 80] = "";
    size_t used = 0;
    int32_t more = 0;
    for (int pass = 0; pass < 2; pass++) {
        const vt_family *const *f = vt_families;
        for (const vt_family_shape *s = next_shape(&f, NULL); s; s = next_shape(&f, s)) {
            bool like = strncmp(s->name, name, LIKE) == 0;
            if (like != (pass == 0) || strstr(s->name, "-tiny")) /* made up, for tests */
                continue;
            if (used + strlen(s->name) < ROOM)
                vt_append(all, sizeof all, &used, " %s", s->name);
            else
                more++;
        }
    }
    return vt_fail(err, VT_ERR_USAGE, "dummy:%.60s is not known; known are%s, and %d more", name,
                   all, more);
}

static vt_status load_dummy(const char *name, bool mtp, vt_model **out, vt_err *err)
{
    const vt_family *const *f = vt_families;
    const vt_family_shape *found = next_shape(&f, NULL);
    while (found && strcmp(found->name, name) != 0)
        found = next_shape(&f, found);
    vt_model *m;
    char path[80];
    if (!found)
        return unknown(name, err);
    snprintf(path, sizeof path, "dummy:%s", found->name);
    TRY(model_new(path, &m, err));
    dummy_source *s = vt_arena_alloc(&m->arena, 1, sizeof *s);
    if (!s || pthread_mutex_init(&s->lock, NULL) != 0) {
        model_release(m);
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", path);
    }
    m->source = s;
    m->close = close_dummy;
    m->make_weights = make_weights;
    set_arch(m, *f, found);
    vt_status status = make_layers(m, found, err);
    if (status == VT_OK && mtp)
        status = model_mtp_make(m, err);
    if (status == VT_OK)
        status = build(m, s, err);
    if (status != VT_OK) {
        close_dummy(m);
        return status;
    }
    *out = m;
    return VT_OK;
}

vt_status vt_model_load_dummy(const char *name, vt_model **out, vt_err *err)
{
    return load_dummy(name, false, out, err);
}

vt_status vt_model_load_dummy_mtp(const char *name, vt_model **out, vt_err *err)
{
    return load_dummy(name, true, out, err);
}
