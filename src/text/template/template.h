/* Chat templates: a sandboxed Jinja interpreter that renders what jinja2 renders as Hugging Face
 * sets it up: trim_blocks, lstrip_blocks, loop controls, tojson, raise_exception, strftime_now,
 * generation blocks. No I/O, no attribute access beyond the values given.
 *
 * Steps, depth, memory and output are limited: any template with any variables below 10 MB ends
 * with a text or an error within 5 seconds and 1 GB (a step takes at most about 200 ns, see
 * values.h; the values of a rendering are bounded to 256 MiB, and so is a parsed template).
 *
 * Not as jinja2, and refused by name: integers beyond 64 bits, complex numbers, block, include,
 * import, from, extends, autoescape, print, printing what Python shows as a memory address, and the
 * filters, tests and methods that no chat template uses. builtins.h lists what is there. */
#ifndef VT_TEXT_TEMPLATE_H
#define VT_TEXT_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

typedef struct vt_template vt_template;

/* Parses once; immutable and shareable afterwards. `name` is used in messages, which carry line
 * numbers. */
vt_status vt_template_parse(const char *name, const char *source, size_t len, vt_template **out,
                            vt_err *err);
void vt_template_free(vt_template *t);
const char *vt_template_source(const vt_template *t); /* belongs to the template */

typedef struct vt_template_limits {
    int64_t max_steps; /* evaluation steps; 0: 10 million */
    int32_t max_depth; /* nesting of calls, bodies, expressions and values; 0: 400 */
    size_t max_output; /* bytes; 0: 16 MiB */
    int64_t now;       /* seconds since the epoch for strftime_now; 0: the clock */
    /* Asked every few thousand steps; true ends the rendering with VT_ERR_CANCELLED. NULL:
     * never. */
    bool (*stop)(void *context);
    void *stop_context;
    int64_t *steps_taken; /* out, after failures too; may be NULL */
} vt_template_limits;

/* variables: one JSON object (UTF-8) whose members become the template's variables. Output is
 * appended to out. raise_exception's message becomes the error's. An error inside a loop over
 * the list `messages` names the message that the loop was at. */
vt_status vt_template_render(const vt_template *t, const char *variables, size_t len,
                             const vt_template_limits *limits, vt_buf *out, vt_err *err);

/* The two halves of it. Parses a JSON object; a text whose values would take more than
 * VT_JSON_MAX_TREE bytes is refused before it is parsed. `name` is used in messages; free `*out`
 * with json_decref. */
vt_status vt_template_parse_variables(const char *name, const char *json, size_t len, json_t **out,
                                      vt_err *err);
/* Renders with variables that are a parsed JSON object, which is only read. */
vt_status vt_template_render_object(const vt_template *t, json_t *variables,
                                    const vt_template_limits *limits, vt_buf *out, vt_err *err);

#endif
