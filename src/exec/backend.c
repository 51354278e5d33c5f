/* Reading the values of --attention-backend and --linear-backend (exec/backend.h). */
#include "exec/backend.h"

#include <string.h>

#include "base/buf.h"
#include "base/err.h"

enum { MOST_OPS = VT_MAX_BACKENDS };

static bool has_backend(const vt_op *op, const char *backend)
{
    return op->backend && strcmp(op->backend, backend) == 0;
}

/* The card by which a backend is known: the first one that names it. */
static bool is_first(const vt_op *const *op)
{
    for (const vt_op *const *before = vt_ops; before < op; before++)
        if (has_backend(*before, (*op)->backend))
            return false;
    return true;
}

const char *vt_backend_next(const char *backend)
{
    bool passed = !backend;
    for (const vt_op *const *op = vt_ops; *op; op++) {
        if (!(*op)->backend || !is_first(op))
            continue;
        if (passed)
            return (*op)->backend;
        passed = has_backend(*op, backend);
    }
    return NULL;
}

/* Fills ops[] with the backend's cards, NULL-terminated, that of prefills first. */
static void ops_of(const char *backend, const vt_op *ops[MOST_OPS + 1])
{
    int32_t n = 0;
    for (int others = 0; others < 2; others++)
        for (const vt_op *const *op = vt_ops; *op && n < MOST_OPS; op++)
            if (has_backend(*op, backend) && (((*op)->is & VT_OP_PREFILLS) == 0) == others)
                ops[n++] = *op;
    ops[n] = NULL;
}

/* The string on the op card that equals s[0..n): the name or the family of an implementation for
 * this device. NULL if none of them has that name. */
static const char *find_name(const vt_op *op, vt_device_kind device, const char *s, size_t n)
{
    for (const vt_impl *const *impl = op->impls; *impl; impl++) {
        const char *const name[] = {(*impl)->name, (*impl)->family};
        for (int i = 0; i < 2 && (*impl)->device == device; i++)
            if (name[i] && strlen(name[i]) == n && memcmp(name[i], s, n) == 0)
                return name[i];
    }
    return NULL;
}

/* Returns true if the comma-separated list in `b` contains the name already. */
static bool listed(const vt_buf *b, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = b->data; at && (at = strstr(at, name)); at += n)
        if ((at == b->data || at[-1] == ' ') && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

/* Appends everything that the user could have named: "auto, fa2, fa3, split". */
static void list_names(vt_buf *b, const vt_op *const *ops, vt_device_kind device)
{
    vt_buf_puts(b, "auto");
    for (; *ops; ops++)
        for (const vt_impl *const *impl = (*ops)->impls; *impl; impl++) {
            const char *const name[] = {(*impl)->name, (*impl)->family};
            for (int i = 0; i < 2 && (*impl)->device == device; i++)
                if (name[i] && !listed(b, name[i]))
                    vt_buf_printf(b, ", %s", name[i]);
        }
}

static vt_status unknown(const char *backend, const char *text, const vt_op *const *ops,
                         vt_device_kind device, vt_err *err)
{
    vt_buf names;
    vt_buf_init(&names, 0);
    list_names(&names, ops, device);
    vt_status status = vt_fail(err, VT_ERR_USAGE, "%s-backend is '%s'; on %s it may be %s%s",
                               backend, text, device == VT_DEVICE_CPU ? "a CPU" : "a GPU",
                               names.data ? names.data : "auto",
                               ops[1] ? ", or two of them with a comma between" : "");
    vt_buf_release(&names);
    return status;
}

/* Appends the implementation that text[0, len) names for one op; "auto" appends nothing. Returns
 * false if no implementation of the op has that name. */
static bool take(const vt_op *op, const char *text, size_t len, vt_device_kind device,
                 vt_backend out[VT_MAX_BACKENDS], int32_t *n)
{
    if (len == 4 && memcmp(text, "auto", 4) == 0)
        return true;
    const char *row = find_name(op, device, text, len);
    if (row && *n < VT_MAX_BACKENDS)
        out[(*n)++] = (vt_backend){op->name, row};
    return row;
}

vt_status vt_backend_parse(const char *backend, const char *text, vt_device_kind device,
                           vt_backend out[VT_MAX_BACKENDS], int32_t *n, vt_err *err)
{
    const vt_op *ops[MOST_OPS + 1];
    ops_of(backend, ops);
    const char *at = text;
    bool one = !strchr(text, ','), any = false, all = true;
    for (const vt_op *const *op = ops; *op; op++) {
        size_t len = strcspn(at, ",");
        bool found = take(*op, at, len, device, out, n);
        any = any || found;
        all = all && found;
        if (!one && at[len] != (op[1] ? ',' : '\0'))
            return unknown(backend, text, ops, device, err);
        at += one ? 0 : len + 1;
    }
    return (one ? any : all) ? VT_OK : unknown(backend, text, ops, device, err);
}
