/* vitrine show: what a model is, without running it. The weights are found and their shapes
 * checked, as for running it, but not read. */
#include <stdarg.h>
#include <stdio.h>

#include "base/term/figure.h"
#include "cli/cli.h"
#include "model/load.h"
#include "text/tokenizer/tokenizer.h"

static const char *scaling_name(vt_rope_scaling s)
{
    static const char *const name[] = {"none", "linear", "llama3", "yarn", "longrope"};
    return (unsigned)s < sizeof name / sizeof *name ? name[s] : "unknown";
}

/* Counts of a model's layers. */
typedef struct {
    int32_t attend, rotated, windowed; /* of those that attend: with rope, with a window */
    int32_t keep_state;
    const char *state;   /* the kind of state */
    int64_t state_bytes; /* a sequence's, of all layers */
} layer_counts;

static layer_counts count_layers(const vt_model *m)
{
    static const char *const kind[] = {
        [VT_BLOCK_CONV] = "short convolution",
        [VT_BLOCK_DELTA] = "delta rule",
        [VT_BLOCK_KDA] = "delta rule with a decay for each channel",
        [VT_BLOCK_MAMBA] = "selective state space",
    };
    layer_counts n = {0};
    for (int32_t i = 0; m->layer && i < m->arch.n_layers; i++) {
        const vt_layer *l = &m->layer[i];
        bool attends = vt_layer_attends(l);
        n.attend += attends;
        n.rotated += attends && l->head.rope >= 0;
        n.windowed += attends && l->head.window > 0;
        if (l->state_bytes > 0) {
            n.keep_state++;
            n.state_bytes += l->state_bytes;
            n.state = l->mixer < sizeof kind / sizeof *kind ? kind[l->mixer] : NULL;
        }
    }
    return n;
}

static int print_object(const vt_model *m)
{
    const vt_arch *a = &m->arch;
    layer_counts n = count_layers(m);
    vt_json w;
    vt_json_object(&w);
    vt_json_string(&w, "name", m->name);
    vt_json_string(&w, "path", m->path);
    vt_json_string(&w, "architecture", a->family);
    vt_json_int(&w, "parameters", m->n_params);
    vt_json_int(&w, "tensors", m->n_tensors);
    vt_json_int(&w, "bytes", m->weight_bytes);
    if (m->skipped) {
        vt_json_string(&w, "skipped", m->skipped);
        vt_json_int(&w, "skipped_bytes", m->skipped_bytes);
    }
    vt_json_string(&w, "type", m->quant);
    vt_json_int(&w, "context", a->max_context);
    vt_json_int(&w, "layers", a->n_layers);
    vt_json_int(&w, "attention_layers", n.attend);
    vt_json_int(&w, "state_layers", n.keep_state);
    vt_json_int(&w, "state_bytes", n.state_bytes);
    vt_json_int(&w, "hidden", a->hidden);
    vt_json_int(&w, "heads", a->n_heads);
    vt_json_int(&w, "kv_heads", a->n_kv_heads);
    vt_json_int(&w, "head_dim", a->head_dim);
    vt_json_int(&w, "ffn", a->ffn);
    vt_json_int(&w, "vocabulary", a->vocab);
    vt_json_int(&w, "experts", a->n_experts);
    vt_json_int(&w, "experts_used", a->n_experts ? a->n_experts_used : 0);
    vt_json_int(&w, "window", a->window);
    vt_json_real(&w, "rope_base", a->rope[0].base);
    vt_json_string(&w, "rope_scaling", scaling_name(a->rope[0].scaling));
    vt_json_bool(&w, "tied_head", a->tied_head);
    vt_json_known(&w, "tokens", m->tokenizer ? vt_tokenizer_vocab(m->tokenizer) : -1);
    vt_json_bool(&w, "chat_template", m->chat_template != NULL);
    return cli_object_print(&w);
}

static void row(vt_buf *b, const vt_term *term, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void row(vt_buf *b, const vt_term *term, const char *name, const char *fmt, ...)
{
    char text[4200];
    size_t start = b->len;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    vt_text_ink(b, term, VT_INK_DIM, name);
    vt_text_pad(b, start, 14);
    vt_buf_printf(b, "%s\n", text);
}

/* Writes the rows of what mixes tokens: attention, and states in place of keys and values. */
static void put_mixers(vt_buf *b, const vt_term *term, const vt_model *m)
{
    const vt_arch *a = &m->arch;
    layer_counts n = count_layers(m);
    vt_buf text = {0};
    if (n.attend > 0) {
        if (n.attend < a->n_layers)
            vt_text_printf(&text, "in %d of %d layers: ", n.attend, a->n_layers);
        vt_text_printf(&text, "%d heads of %d", a->n_heads, a->head_dim);
        if (a->mla.kv_rank > 0)
            vt_text_printf(&text, " to latents of %d", a->mla.kv_rank);
        else
            vt_text_printf(&text, ", %d KV head%s", a->n_kv_heads, vt_text_s(a->n_kv_heads));
        if (n.rotated > 0 && a->mla.kv_rank > 0)
            vt_text_printf(&text, ", %d of the %d rotated", a->mla.rope, a->head_dim);
        if (n.rotated == 0)
            vt_text_printf(&text, ", without rope");
        else if (n.rotated < n.attend)
            vt_text_printf(&text, ", without rope in %d", n.attend - n.rotated);
        row(b, term, "attention", "%s", text.data ? text.data : "");
    }
    if (a->window)
        row(b, term, "window", "%d tokens%s", a->window,
            n.windowed < n.attend ? ", in some layers" : "");
    if (n.keep_state > 0) {
        vt_buf_clear(&text);
        vt_text_printf(&text, "in %d of %d layers: %s, %f B a sequence", n.keep_state, a->n_layers,
                       n.state ? n.state : "unnamed", (double)n.state_bytes);
        row(b, term, "state", "%s", text.data ? text.data : "");
    }
    vt_buf_release(&text);
}

static void put_text(vt_buf *b, const vt_term *term, const vt_model *m)
{
    const vt_arch *a = &m->arch;
    bool billions = m->n_params >= 1000000000;
    vt_buf size;
    vt_buf_init(&size, 64);
    vt_text_bytes(&size, (double)m->weight_bytes);
    row(b, term, "name", "%s", m->name);
    row(b, term, "path", "%s", m->path);
    row(b, term, "architecture", "%s", a->family);
    row(b, term, "parameters", "%.4g %s in %lld tensors",
        (double)m->n_params * (billions ? 1e-9 : 1e-6), billions ? "billion" : "million",
        (long long)m->n_tensors);
    row(b, term, "weights", "%s, %s", m->quant, size.data ? size.data : "");
    if (m->skipped)
        row(b, term, "not run", "%s", m->skipped);
    row(b, term, "context", "%d tokens%s%s", a->max_context,
        a->rope[0].scaling == VT_ROPE_PLAIN ? "" : ", rope scaling ",
        a->rope[0].scaling == VT_ROPE_PLAIN ? "" : scaling_name(a->rope[0].scaling));
    row(b, term, "shape", "%d layers, hidden %d, feed-forward %d", a->n_layers, a->hidden, a->ffn);
    put_mixers(b, term, m);
    if (a->n_experts)
        row(b, term, "experts", "%d of %d rows, %d for each token", a->n_experts, a->expert_ffn,
            a->n_experts_used);
    if (m->tokenizer)
        row(b, term, "tokenizer", "%d tokens", vt_tokenizer_vocab(m->tokenizer));
    else
        row(b, term, "tokenizer", "none");
    row(b, term, "template", "%s", m->chat_template ? "yes" : "no");
    vt_buf_release(&size);
}

static int print_text(const vt_term *term, const vt_model *m)
{
    vt_buf b = {0};
    put_text(&b, term, m);
    return cli_text_print(&b);
}

int cli_show(cli *c)
{
    vt_err err = {0};
    vt_model *m;
    const char *name = c->n_args > 0 ? c->arg[0] : vt_options_get(c->options, "model");
    if (vt_model_load(name, &m, &err) != VT_OK)
        return cli_fail(&err);
    int code = c->json ? print_object(m) : print_text(&c->out, m);
    vt_model_free(m);
    return code;
}
