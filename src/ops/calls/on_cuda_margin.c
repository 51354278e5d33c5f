/* Device memory of a call, and whether a run wrote only where it may: see on_cuda.h.
 *
 *   base          operand              base + 2 margin + bytes
 *   | margin 0x7f | bytes | slack      | margin 0x7f |
 *
 * Margins are filled once. As BF16 or fp32 the pattern is a huge number, and as a token id a row
 * that no table has, so a kernel that reads there shows in its results as well. A block whose
 * operand the row only reads has a checksum. The slack belongs to the last margin. */
#include "ops/calls/on_cuda_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"

enum { MARGIN_PATTERN = 0x7f };

vt_status on_cuda_new_block(on_cuda *c, size_t bytes, void **out, vt_err *err)
{
    if (c->n_blocks == c->max_blocks) {
        int32_t most = c->max_blocks ? 2 * c->max_blocks : 64;
        on_cuda_block *more = realloc(c->block, (size_t)most * sizeof *more);
        if (!more)
            return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", c->op->name);
        c->block = more;
        c->max_blocks = most;
    }
    size_t margin = c->gpu->margin;
    on_cuda_block *b = &c->block[c->n_blocks];
    *b = (on_cuda_block){.bytes = bytes};
    TRY(vt_cuda_alloc(c->gpu->cuda, bytes + ON_CUDA_SLACK + 2 * margin, &b->base, err));
    c->n_blocks++;
    *out = (char *)b->base + margin;
    if (margin == 0)
        return VT_OK;
    TRY(on_cuda_fill(c, b->base, MARGIN_PATTERN, margin, err));
    return on_cuda_fill(c, (char *)b->base + margin + bytes, MARGIN_PATTERN, margin + ON_CUDA_SLACK,
                        err);
}

/* ---- checking ---- */

static bool inside(const on_cuda *c, const on_cuda_block *b, const void *p)
{
    const char *at = p, *begin = (const char *)b->base + c->gpu->margin;
    return at >= begin && at < begin + b->bytes;
}

/* Returns true if the row may write the operand of this block. */
static bool is_written(const on_cuda *c, const on_cuda_block *b)
{
    for (int32_t i = 0; i < c->n_twins; i++)
        if (c->twin[i].written && inside(c, b, c->twin[i].base))
            return true;
    for (int32_t i = 0; i < c->op->n_operands; i++) {
        const vt_operand *o = &c->op->operands[i];
        void *const *p = *member(c->args, o);
        if (p && o->written && (o->kind == VT_OPERAND_INDEX || o->kind == VT_OPERAND_POOL) &&
            inside(c, b, *p))
            return true;
    }
    return false;
}

/* Returns the card's name of the operand of this block. */
static const char *name_of(const on_cuda *c, const on_cuda_block *b)
{
    for (int32_t i = 0; i < c->op->n_operands; i++) {
        const vt_operand *o = &c->op->operands[i];
        const void *p = *member(c->args, o);
        if (!p)
            continue;
        bool words = o->kind == VT_OPERAND_INDEX || o->kind == VT_OPERAND_POOL;
        if (words ? inside(c, b, *(void *const *)p)
                  : o->kind <= VT_OPERAND_KV && inside(c, b, ((const vt_tensor *)p)->data))
            return o->name;
        if (o->kind == VT_OPERAND_TABLE && inside(c, b, ((const vt_tensor *)p)->data))
            return o->name;
        if (o->kind == VT_OPERAND_WEIGHT && inside(c, b, ((const vt_weight *)p)->part[0]->data))
            return o->name;
    }
    return "another operand";
}

static vt_status download(on_cuda *c, const on_cuda_block *b, unsigned char **out, vt_err *err)
{
    on_cuda_gpu *g = c->gpu;
    size_t all = b->bytes + ON_CUDA_SLACK + 2 * g->margin;
    *out = malloc(all);
    if (!*out)
        return no_memory(c, err);
    vt_status status = vt_cuda_check(
        g->cuda, g->cuda->driver.copy_to_host(*out, address(b->base), all, g->lane.stream),
        "download", err);
    if (status == VT_OK)
        status = on_cuda_wait(g, "download", err);
    if (status != VT_OK)
        free(*out);
    return status;
}

static uint64_t sum_of(const on_cuda *c, const on_cuda_block *b, const unsigned char *image)
{
    return is_written(c, b) ? 0 : vt_fnv1a(VT_FNV_OFFSET, image + c->gpu->margin, b->bytes);
}

vt_status on_cuda_note_margins(on_cuda *c, vt_err *err)
{
    for (int32_t i = 0; i < c->n_blocks && c->gpu->margin; i++) {
        unsigned char *image;
        TRY(download(c, &c->block[i], &image, err));
        c->block[i].sum = sum_of(c, &c->block[i], image);
        free(image);
    }
    return VT_OK;
}

/* Counts bytes of p[0..n) that have lost the pattern; *first is the first of them. */
static size_t count_changed(const unsigned char *p, size_t n, size_t *first, size_t *last)
{
    size_t changed = 0;
    for (size_t i = 0; i < n; i++)
        if (p[i] != MARGIN_PATTERN) {
            *first = changed++ ? *first : i;
            *last = i;
        }
    return changed;
}

static bool check_block(const on_cuda *c, const on_cuda_block *b, const unsigned char *image,
                        char why[256])
{
    size_t margin = c->gpu->margin, first = 0, last = 0, n;
    const unsigned char *end = image + margin + b->bytes;
    if ((n = count_changed(end, margin + ON_CUDA_SLACK, &first, &last)) > 0)
        snprintf(why, 256,
                 "it wrote %zu byte%s behind the end of %s, the first of them %zu bytes behind", n,
                 n == 1 ? "" : "s", name_of(c, b), first);
    else if ((n = count_changed(image, margin, &first, &last)) > 0)
        snprintf(why, 256,
                 "it wrote %zu byte%s in front of %s, the last of them %zu bytes in front", n,
                 n == 1 ? "" : "s", name_of(c, b), margin - last);
    else if (b->sum != sum_of(c, b, image))
        snprintf(why, 256, "it wrote into %s, which the op only reads", name_of(c, b));
    else
        return true;
    return false;
}

vt_status on_cuda_check_margins(on_cuda *c, bool *good, char why[256], vt_err *err)
{
    *good = true;
    for (int32_t i = 0; i < c->n_blocks && *good && c->gpu->margin; i++) {
        unsigned char *image;
        TRY(download(c, &c->block[i], &image, err));
        *good = check_block(c, &c->block[i], image, why);
        free(image);
    }
    return VT_OK;
}
