/* Knobs of cards, and all knobs (ops/knobs.h). */
#include "ops/knobs.h"

#include <assert.h>

/* The next card, from *op on, that has a knob; NULL: there are no more. */
static const vt_knob_row *next_knob(const vt_op *const **op)
{
    while (**op && !(**op)->knob)
        ++*op;
    return **op ? (*(*op)++)->knob : NULL;
}

const vt_knob_row *vt_knob_at(int32_t i)
{
    const vt_op *const *op = vt_ops;
    const vt_knob_row *k = i < VT_N_KNOBS ? &vt_knobs[i] : next_knob(&op);
    for (; k && i > VT_N_KNOBS; i--)
        k = next_knob(&op);
    return k;
}

vt_status vt_knob_check_all(vt_err *err)
{
    const vt_knob_row *k;
    for (int32_t i = 0; (k = vt_knob_at(i)); i++)
        TRY(vt_knob_check(k, err));
    return VT_OK;
}

int64_t vt_target_knob(const vt_target *t, const vt_knob_row *k)
{
    for (int32_t i = 0; i < t->n_knobs; i++)
        if (t->knob[i].row == k)
            return t->knob[i].value;
    return k->preset;
}

static void set_knobs(vt_target *t, bool read, int64_t value)
{
    const vt_op *const *op = vt_ops;
    t->n_knobs = 0;
    for (const vt_knob_row *k; (k = next_knob(&op));) {
        assert(t->n_knobs < VT_MAX_KNOBS);
        t->knob[t->n_knobs++] = (vt_knob_value){k, read ? vt_knob_int(k) : value};
    }
}

void vt_target_read_knobs(vt_target *t) { set_knobs(t, true, 0); }
void vt_target_turn_knobs(vt_target *t, int64_t value) { set_knobs(t, false, value); }
