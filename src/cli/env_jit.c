/* The cache of compiled kernels as `vitrine env --jit` shows it: its folder, then two parts for
 * each kernel, in as many columns as the terminal has.
 *
 *     31 compiled kernels in /home/me/.cache/vitrine/cubin
 *
 *     linear_quant  sm_90a nvrtc 13.1 64 regs 0 B spilled 1527 ms 18320 B 0df017ccc97f
 *         type=3 k=136 warps=1 tiles=2 level=90 pdl=1
 */
#include <stdio.h>
#include <string.h>

#include "base/cache_dir.h"
#include "base/err.h"
#include "cli/cli.h"

/* "linear_quant<type=3,k=136> sm_90a  nvrtc ...": the line of a kernel (vt_jit_list). */
static void put_kernel(vt_buf *b, const vt_term *term, const char *line, size_t n)
{
    enum { FLAGS = 4, FACTS = 2 };
    vt_buf flags = {0}, facts = {0};
    size_t name = 0, end = 0;
    while (name < n && line[name] != '<' && line[name] != ' ')
        name++;
    while (end < n && line[end] != ' ')
        end++;
    for (size_t i = name + 1; i + 1 < end; i++)
        vt_buf_putc(&flags, line[i] == ',' ? ' ' : line[i]);
    vt_buf_printf(&facts, "%.*s  %.*s", (int)name, line, (int)(n - end), line + end);
    vt_text_wrap(b, facts.data ? facts.data : "", FACTS, term->width);
    vt_buf_putc(b, '\n');
    if (flags.len) {
        vt_text_pad(b, b->len, FLAGS);
        vt_text_wrap(b, flags.data, FLAGS, term->width);
        vt_buf_putc(b, '\n');
    }
    b->failed |= flags.failed || facts.failed;
    vt_buf_release(&flags);
    vt_buf_release(&facts);
}

int cli_put_kernels(const cli *c, const vt_buf *lines)
{
    char folder[1200] = "the cache";
    vt_buf b = {0};
    int32_t n = 0;
    if (vt_cache_path("cubin", folder, sizeof folder, NULL) != VT_OK)
        snprintf(folder, sizeof folder, "the cache");
    for (size_t i = 0; i < lines->len; i++)
        n += lines->data[i] == '\n';
    if (n == 0)
        cli_note(c, "there are no compiled GPU kernels in %s yet", folder);
    else
        vt_buf_printf(&b, "%d compiled kernel%s in %s\n\n", n, vt_text_s(n), folder);
    for (const char *p = lines->data; p && *p; p += *p == '\n') {
        size_t len = strcspn(p, "\n");
        put_kernel(&b, &c->out, p, len);
        p += len;
    }
    bool ok = !b.failed && cli_put_all(stdout, b.data ? b.data : "", b.len);
    vt_buf_release(&b);
    return ok ? CLI_DONE : CLI_FAILED;
}
