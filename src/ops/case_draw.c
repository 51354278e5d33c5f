/* Random cases of a card (ops/case_draw.h). */
#include "ops/case_draw.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ops/case_text.h"
#include "ops/cases.h"

enum { TRIES = 200, MOST_FIRST = 40 };

static bool is_fine(const vt_op *op, const vt_case *c) { return !op->refuses || !op->refuses(c); }

/* The field of this name, which the card's own text says. */
static int32_t find_field(const vt_op *op, const char *name, size_t len)
{
    for (int32_t i = 0; i < op->n_fields; i++)
        if (strlen(op->fields[i].name) == len && strncmp(op->fields[i].name, name, len) == 0)
            return i;
    return -1;
}

/* One of "7", "q4_k", "1..65", "~200" and "rows". */
static int64_t draw_value(const vt_op *op, const vt_field *f, const char *text, size_t len,
                          const int64_t *p, uint64_t *state)
{
    const char *dots = strstr(text, "..");
    int64_t v = 0;
    if (text[0] == '~')
        return case_few(state, strtoll(text + 1, NULL, 10));
    if (dots && dots < text + len)
        return case_between(state, strtoll(text, NULL, 10), strtoll(dots + 2, NULL, 10));
    int32_t other = f->words || f->is_type ? -1 : find_field(op, text, len);
    if (other >= 0)
        return p[other];
    vt_status status = vt_field_read(op, f, text, len, &v, NULL);
    assert(status == VT_OK); /* a card's own text, of which test_op_parity draws */
    (void)status;
    return v;
}

bool vt_case_draw(const vt_op *op, const char *text, uint64_t *state, vt_case *out)
{
    vt_case_presets(op, out);
    for (const char *at = text; *at;) {
        size_t name = strcspn(at, "="), values = strcspn(at, " ") - name;
        int32_t field = find_field(op, at, name);
        assert(field >= 0);
        const char *value = at + name + 1, *end = at + name + values;
        int64_t n = 1;
        for (const char *c = value; c < end; c++)
            n += *c == '|';
        for (int64_t skip = case_between(state, 1, n) - 1; skip > 0; skip--)
            value += strcspn(value, "|") + 1;
        out->p[field] = draw_value(op, &op->fields[field], value, strcspn(value, "| "), out->p,
                                   state);
        at = *end ? end + 1 : end;
    }
    vt_case_name(op, out);
    return is_fine(op, out);
}

/* A case of the card that is small if it has one, with another first value, and one time in two
 * with a flag turned over. */
static bool draw_from_cases(const vt_op *op, uint64_t *state, vt_case *out)
{
    const vt_field *first = &op->fields[0];
    vt_op_case(op, (int32_t)case_between(state, 0, vt_op_n_cases(op) - 1), out);
    for (int32_t i = 0; out->bench && vt_op_case(op, i, out); i++)
        continue;
    int32_t flag = (int32_t)case_between(state, 0, 2 * op->n_fields - 1);
    out->p[0] = case_few(state, first->most && first->most < MOST_FIRST ? first->most : MOST_FIRST);
    if (flag < op->n_fields && op->fields[flag].most == 1 && !op->fields[flag].words)
        out->p[flag] = !out->p[flag];
    vt_case_name(op, out);
    return is_fine(op, out);
}

bool vt_op_draw(const vt_op *op, uint64_t *state, vt_case *out)
{
    int64_t n = 0;
    bool found = false;
    while (op->draws && op->draws[n])
        n++;
    for (int i = 0; i < TRIES && !found && !op->no_draw; i++)
        found = n == 0 || case_between(state, 0, 3) == 0
                    ? draw_from_cases(op, state, out)
                    : vt_case_draw(op, op->draws[case_between(state, 0, n - 1)], state, out);
    return found;
}
