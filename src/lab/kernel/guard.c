/* The args of a call between pages that nobody may touch: see kernel/inside.h.
 *
 *   | guard, 64 KiB | filling 0x5a | data, 64-byte aligned | filling | guard, 64 KiB |
 *
 * Data ends less than 64 bytes in front of the second guard, so that reading or writing beyond the
 * end faults almost at once; the filling shows writes of fewer bytes. An operand that is only read
 * has read-only pages. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/quant.h"
#include "lab/kernel/inside.h"
#include "ops/access.h"
#include "ops/calls/on_cpu.h"

enum { FILLING = 0x5a, ALIGN = 64, GUARD = 64 << 10 /* a multiple of every page size in use */ };

typedef struct own_kernel_region region;

static vt_status add_region(own_kernel_guard *g, const vt_operand *o, const void *host,
                            size_t bytes, region **out, vt_err *err)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = vt_round_up(bytes + ALIGN, page);
    if (g->n == OWN_KERNEL_REGIONS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "more than %d operands", OWN_KERNEL_REGIONS);
    region *r = &g->region[g->n];
    *r = (region){.name = o->name, .host = host, .map_bytes = inner + 2 * GUARD, .bytes = bytes};
    void *map = mmap(NULL, r->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %zu bytes of %s", bytes, o->name);
    r->map = map;
    g->n++;
    if (mprotect(r->map + GUARD, inner, PROT_READ | PROT_WRITE) != 0)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for %zu bytes of %s", bytes, o->name);
    memset(r->map + GUARD, FILLING, inner);
    r->at = GUARD + (inner - bytes) / ALIGN * ALIGN;
    *out = r;
    return VT_OK;
}

static region *find(own_kernel_guard *g, const void *host)
{
    for (int32_t i = 0; i < g->n; i++)
        if (g->region[i].host == host)
            return &g->region[i];
    return NULL;
}

/* Copies a tensor; norm weights become fp32. */
static vt_status guard_tensor(own_kernel_guard *g, const vt_operand *o, void **member, vt_err *err)
{
    const vt_tensor *t = *member;
    region *r = find(g, t->data);
    if (!r) {
        int64_t cols = t->dim[t->rank - 1], rows = t->rank == 1 ? 1 : vt_tensor_elems(t) / cols,
                stride = t->rank == 1 ? cols : t->row_stride;
        bool widen = o->kind == VT_OPERAND_F32 && t->dtype != VT_F32;
        vt_dtype type = widen ? VT_F32 : t->dtype;
        TRY(add_region(g, o, t->data, (size_t)vt_dtype_row_bytes(type, rows * stride), &r, err));
        char *to = r->map + r->at;
        if (widen)
            vt_dequant_row(t->dtype, t->data, (float *)(void *)to, rows * stride);
        else
            memcpy(to, t->data, r->bytes);
        vt_tensor *twin = &g->tensor[r - g->region];
        *twin = *t;
        twin->dtype = type;
        twin->data = to;
    }
    r->written |= o->written;
    *member = &g->tensor[r - g->region];
    return VT_OK;
}

/* An index or a token pool: a pointer to a pointer to a word for each row of the output. */
static vt_status guard_words(own_kernel_guard *g, const vt_operand *o, void **member, int64_t rows,
                             vt_err *err)
{
    int32_t *const *host = *member;
    region *r;
    if (!*host)
        return VT_OK;
    TRY(add_region(g, o, *host, (size_t)rows * sizeof(int32_t), &r, err));
    memcpy(r->map + r->at, *host, r->bytes);
    g->words[r - g->region] = (int32_t *)(void *)(r->map + r->at);
    *member = &g->words[r - g->region];
    return VT_OK;
}

/* Outputs begin as NaNs, so that an element which is never written shows. */
static void poison_outputs(own_kernel_guard *g, const vt_op *op)
{
    for (int32_t i = 0; i < g->n; i++) {
        bool read = false;
        for (int32_t k = 0; k < op->n_operands; k++) {
            const vt_operand *o = &op->operands[k];
            const void *p = *(void *const *)((const char *)g->args + o->offset);
            read |= o->read && (p == &g->tensor[i] || p == &g->words[i]);
        }
        if (!read)
            memset(g->region[i].map + g->region[i].at, 0xff, g->region[i].bytes);
    }
}

vt_status own_kernel_guard_make(own_kernel_guard *g, const vt_op *op, const void *args,
                                vt_arena *arena, vt_err *err)
{
    *g = (own_kernel_guard){.args = vt_arena_alloc(arena, 1, op->args_size)};
    if (!g->args)
        return vt_fail(err, VT_ERR_MEMORY, "%s: out of memory", op->name);
    memcpy(g->args, args, op->args_size);
    vt_status status = VT_OK;
    for (int32_t i = 0; i < op->n_operands && status == VT_OK; i++) {
        const vt_operand *o = &op->operands[i];
        void **member = (void **)((char *)g->args + o->offset);
        if (!*member)
            continue;
        if (o->kind == VT_OPERAND_INDEX || o->kind == VT_OPERAND_POOL)
            status = guard_words(g, o, member, vt_op_output_rows(op, args), err);
        else if (o->kind <= VT_OPERAND_INT || o->kind == VT_OPERAND_TABLE)
            status = guard_tensor(g, o, member, err);
        else
            status = vt_fail(err, VT_ERR_UNSUPPORTED,
                             "%s: operand %s has no form for a kernel of "
                             "one's own",
                             op->name, o->name);
    }
    if (status == VT_OK)
        poison_outputs(g, op);
    else
        own_kernel_guard_release(g);
    return status;
}

vt_status own_kernel_guard_close(own_kernel_guard *g, vt_err *err)
{
    for (int32_t i = 0; i < g->n; i++) {
        region *r = &g->region[i];
        if (!r->written && mprotect(r->map + GUARD, r->map_bytes - 2 * GUARD, PROT_READ) != 0)
            return vt_fail(err, VT_ERR_MEMORY, "the pages of %s cannot be protected", r->name);
    }
    return VT_OK;
}

void own_kernel_guard_release(own_kernel_guard *g)
{
    for (int32_t i = 0; i < g->n; i++)
        munmap(g->region[i].map, g->region[i].map_bytes);
    g->n = 0;
}

vt_tensor *own_kernel_guard_find(own_kernel_guard *g, const vt_tensor *host)
{
    region *r = find(g, host->data);
    return r ? &g->tensor[r - g->region] : NULL;
}

bool own_kernel_guard_check(const own_kernel_guard *g, char why[OWN_KERNEL_TEXT])
{
    for (int32_t i = 0; i < g->n; i++) {
        const region *r = &g->region[i];
        size_t end = r->at + r->bytes;
        for (size_t k = GUARD; k < r->map_bytes - GUARD; k++) {
            if (k == r->at)
                k = end;
            if (k >= r->map_bytes - GUARD || r->map[k] == FILLING)
                continue;
            snprintf(why, OWN_KERNEL_TEXT, "it wrote %s %s, %zu byte%s %s",
                     k < r->at ? "in front of" : "behind the end of", r->name,
                     k < r->at ? r->at - k : k - end,
                     (k < r->at ? r->at - k : k - end) == 1 ? "" : "s",
                     k < r->at ? "in front" : "behind");
            return false;
        }
    }
    return true;
}

void own_kernel_guard_describe(const own_kernel_guard *g, const void *address, char *out,
                               size_t size)
{
    const char *p = address;
    for (int32_t i = 0; i < g->n; i++) {
        const region *r = &g->region[i];
        if (p < r->map || p >= r->map + r->map_bytes)
            continue;
        const char *begin = r->map + r->at, *end = begin + r->bytes;
        if (p >= end)
            snprintf(out, size, "%s, %td bytes behind its end", r->name, p - end);
        else if (p < begin)
            snprintf(out, size, "%s, %td bytes in front of it", r->name, begin - p);
        else
            snprintf(out, size, "%s, which the op only reads", r->name);
        return;
    }
    snprintf(out, size, "address %p, which belongs to no operand", address);
}
