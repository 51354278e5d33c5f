/* The cache of compiled kernels as a tree (lab/env/env.h).
 *
 *   12 compiled kernels in /home/me/.cache/vitrine/cubin
 *   ├── embed            2 kernels, sm_90a, 12.3 KB, compiled in 48.1 ms
 *   │     <hidden, vec, scaled, level, pdl>
 *   └── linear_quant     10 kernels, ...
 *
 * and with every kernel:
 *
 *   ├── embed
 *   │   ├── hidden=1024 vec=8 scaled=0 level=90 pdl=1
 *   │   │     sm_90a  nvrtc 13.1  24 regs  0 B spilled  24.1 ms  6.15 KB  0df017ccc97f */
#include <string.h>

#include "base/term/figure.h"
#include "lab/env/env.h"

static size_t base_of(const char *name) { return strcspn(name, "<"); }

static bool same_kernel(const jit_cached *a, const jit_cached *b)
{
    size_t n = base_of(a->name);
    return n == base_of(b->name) && memcmp(a->name, b->name, n) == 0;
}

/* Wraps a text; its first line begins with `first`, the others with `rest`. */
static void put_branch(vt_buf *b, const vt_term *term, const char *first, const char *rest,
                       const char *text)
{
    vt_buf lines = {0};
    int32_t width = term->width - vt_text_width(rest, strlen(rest));
    vt_text_wrap(&lines, text, 0, width);
    for (const char *p = lines.data; p && *p;) {
        size_t n = strcspn(p, "\n");
        vt_buf_printf(b, "%s%.*s\n", p == lines.data ? first : rest, (int)n, p);
        p += n + (p[n] != '\0');
    }
    b->failed |= lines.failed;
    vt_buf_release(&lines);
}

/* "hidden=1024 vec=8" or, without values, "<hidden, vec>". */
static void put_parameters(vt_buf *to, const char *name, bool values)
{
    const char *p = name + base_of(name);
    vt_buf_puts(to, values ? "" : "<");
    while (*p == '<' || *p == ',') {
        p++;
        size_t n = strcspn(p, ",>"), key = strcspn(p, "=,>");
        vt_buf_printf(to, "%.*s", (int)(values ? n : key), p);
        p += n;
        if (*p == ',')
            vt_buf_puts(to, values ? " " : ", ");
    }
    vt_buf_puts(to, values ? "" : ">");
}

static void put_kernel(vt_buf *b, const vt_term *term, const jit_cached *c, bool last_name,
                       bool last)
{
    char first[32], rest[32];
    vt_buf text = {0};
    snprintf(first, sizeof first, "%s%s", last_name ? "    " : "│   ", last ? "└── " : "├── ");
    snprintf(rest, sizeof rest, "%s%s", last_name ? "    " : "│   ", last ? "      " : "│     ");
    if (c->name[base_of(c->name)] == '<')
        put_parameters(&text, c->name, true);
    else
        vt_buf_puts(&text, "no template parameters");
    put_branch(b, term, first, rest, text.data ? text.data : "");
    vt_buf_clear(&text);
    vt_text_printf(&text, "%s, nvrtc %d.%d, %d regs, %d B spilled, %f s, %f B, %.12s", c->arch,
                   c->nvrtc_major, c->nvrtc_minor, c->registers, c->spill_bytes,
                   c->compile_ms * 1e-3, (double)c->bytes, c->key);
    put_branch(b, term, rest, rest, text.data ? text.data : "");
    vt_buf_release(&text);
}

/* One name with all its kernels, c[0..n). */
static void put_name(vt_buf *b, const jit_cached *c, int32_t n, bool last)
{
    vt_buf text = {0};
    double ms = 0, bytes = 0;
    bool one_arch = true;
    for (int32_t i = 0; i < n; i++) {
        ms += c[i].compile_ms;
        bytes += (double)c[i].bytes;
        one_arch &= strcmp(c[i].arch, c[0].arch) == 0;
    }
    vt_buf_printf(&text, "%.*s", (int)base_of(c->name), c->name);
    vt_text_pad(&text, 0, 24);
    vt_text_printf(&text, " %d kernel%s, %s, %f B, compiled in %f s", n, vt_text_s(n),
                   one_arch ? c->arch : "several architectures", bytes, ms * 1e-3);
    vt_buf_printf(b, "%s%s\n", last ? "└── " : "├── ", text.data ? text.data : "");
    vt_buf_release(&text);
}

void lab_env_put_kernels(vt_buf *b, const vt_term *term, const char *folder, const jit_cached *c,
                         int32_t n, bool all)
{
    vt_buf_printf(b, "%d compiled kernel%s in %s\n", n, vt_text_s(n), folder);
    for (int32_t i = 0, end; i < n; i = end) {
        vt_buf text = {0};
        for (end = i + 1; end < n && same_kernel(&c[i], &c[end]); end++)
            ;
        put_name(b, &c[i], end - i, end == n);
        for (int32_t k = i; all && k < end; k++)
            put_kernel(b, term, &c[k], end == n, k + 1 == end);
        const char *rest = end == n ? "      " : "│     ";
        put_parameters(&text, c[i].name, false);
        if (!all && text.len > 2)
            put_branch(b, term, rest, rest, text.data);
        vt_buf_release(&text);
    }
}

void lab_env_put_cache(vt_buf *b, const vt_term *term, const lab_env *e)
{
    vt_buf tree = {0};
    if (e->cache_err.status != VT_OK) {
        lab_env_line(b, term, "kernels", e->cache_err.message);
        return;
    }
    if (e->n_cached == 0) {
        vt_buf_printf(&tree,
                      "none yet in %s: the first start of a model on a GPU compiles those that it "
                      "needs and keeps them there",
                      e->cubin_folder);
        lab_env_line(b, term, "kernels", tree.data ? tree.data : "");
        vt_buf_release(&tree);
        return;
    }
    vt_term narrow = *term;
    narrow.width -= 2;
    lab_env_put_kernels(&tree, &narrow, e->cubin_folder, e->cached, e->n_cached, false);
    for (const char *p = tree.data; p && *p;) {
        size_t n = strcspn(p, "\n");
        vt_buf_printf(b, "  %.*s\n", (int)n, p);
        p += n + (p[n] != '\0');
    }
    b->failed |= tree.failed;
    vt_buf_release(&tree);
}
