/* Shapes of a program's calls (ops/shape_of.h): the card says which case a call is; here its sizes
 * are rounded and the case is written as a text. */
#include "ops/shape_of.h"

#include "base/buf.h"
#include "ops/case_text.h"
#include "ops/cases.h"

/* The nearest power of two in the logarithm: 3 -> 4, 23 -> 16, 24 -> 32. */
static int64_t nearest_power(int64_t n)
{
    int64_t p = 1;
    while (n * n > 2 * p * p)
        p *= 2;
    return p;
}

/* The most that a field of a step's size may have in a case that is measured. Sequences of `each`
 * new tokens share the tokens of a step. */
static int64_t most_of(const vt_field *f, int64_t each)
{
    vt_limits most = case_limits(1);
    if (f->grows == VT_GROWS_CONTEXT)
        return most.max_context;
    if (f->grows != VT_GROWS_SEQS)
        return most.max_tokens;
    return most.max_tokens / each < most.max_seqs ? most.max_tokens / each : most.max_seqs;
}

static void round_field(const vt_field *f, int64_t each, bool as_class, int64_t *v)
{
    int64_t least = f->preset != 0, most = most_of(f, each);
    *v = *v < least ? least : *v > most ? most : *v;
    if (as_class && *v > 0)
        *v = nearest_power(*v);
}

/* Cuts the sizes of a step to what can be measured and, for a class, rounds them. How many
 * sequences fit depends on the new tokens of each, so these are rounded first. */
static void round_sizes(const vt_op *op, bool as_class, int64_t *p)
{
    int64_t each = 1;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < op->n_fields; i++) {
            const vt_field *f = &op->fields[i];
            if (p[i] == VT_UNSAID || !f->grows || (f->grows == VT_GROWS_SEQS) != (pass == 1))
                continue;
            round_field(f, each, as_class, &p[i]);
            if (f->grows == VT_GROWS_EACH)
                each = p[i];
        }
}

bool vt_shape_of(const vt_op *op, const void *args, const vt_batch *batch, int64_t most_weights,
                 bool as_class, char out[VT_SHAPE_TEXT])
{
    int64_t p[VT_MAX_FIELDS];
    char room[VT_VALUE_TEXT];
    size_t at = 0;
    bool fits = true;
    out[0] = '\0';
    if (!op->shape)
        return false;
    for (int32_t i = 0; i < op->n_fields; i++)
        p[i] = VT_UNSAID;
    op->shape(args, batch, most_weights, p);
    round_sizes(op, as_class, p);
    for (int32_t i = 0; i < op->n_fields && fits; i++) {
        const vt_field *f = &op->fields[i];
        bool usual = !f->is_type && f->preset == 0 && p[i] == 0;
        if (p[i] != VT_UNSAID && !usual)
            fits = vt_append(out, VT_SHAPE_TEXT, &at, "%s%s=%s", at ? "," : "", f->name,
                             vt_field_text(f, p[i], room));
    }
    return at > 0 && fits;
}
