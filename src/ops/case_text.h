/* Cases from text: those of the cards, `--shape 'tokens=1|8|64,type=q4_k,cols=4096'` of `vitrine
 * bench kernels`, and the cases of tests/gpu.
 *
 *   text    FIELD=VALUE[|VALUE ...] FIELD=...   fields of the card (vt_op.fields), each once, with
 *                                               a space or a comma between
 *   value   a number; a type by its name ("q4_k", "bf16"); a word of the field ("swiglu", "blocks")
 *
 * A field that is not named has its preset. Several values of a field make several cases; several
 * such fields make all combinations, in which the last field changes fastest. The name of a case is
 * a text that makes it again. */
#ifndef VT_OPS_CASE_TEXT_H
#define VT_OPS_CASE_TEXT_H

#include "ops/op.h"

enum { VT_CASE_VALUES = 32, VT_MAX_TEXT_CASES = 256, VT_VALUE_TEXT = 24 };

/* Makes the cases of the text, out[0 .. *n), at most `most`. Errors (VT_ERR_USAGE) name the field
 * and what was expected; for an unknown field they list those of the card. */
vt_status vt_cases_from_text(const vt_op *op, const char *text, vt_case *out, int32_t most,
                             int32_t *n, vt_err *err);
/* Makes the case of a text without lists. */
vt_status vt_case_from_text(const vt_op *op, const char *text, vt_case *out, vt_err *err);
/* Makes case `number` of the card, from 0. False: the card has no more. */
bool vt_op_case(const vt_op *op, int32_t number, vt_case *out);
int32_t vt_op_n_cases(const vt_op *op);
/* Gives every field its preset. */
void vt_case_presets(const vt_op *op, vt_case *out);
/* Names a case by its fields: the first one, and those that do not have their presets. */
void vt_case_name(const vt_op *op, vt_case *c);
/* Reads one value of a field: "4096", "q4_k", "swiglu". Errors as above. */
vt_status vt_field_read(const vt_op *op, const vt_field *f, const char *text, size_t len,
                        int64_t *out, vt_err *err);
/* The text of a field's value, a constant or in `room`: "4096", "q4_k", "swiglu". */
const char *vt_field_text(const vt_field *f, int64_t v, char room[VT_VALUE_TEXT]);
/* The value of the field of this name; 0: the card has none. */
int64_t vt_case_get(const vt_op *op, const vt_case *c, const char *field);
/* Returns true if only one rank of several makes such a call (vt_field.of_rank). */
bool vt_case_of_rank(const vt_op *op, const vt_case *c);

#endif
