/* Chat templates: a sandboxed Jinja interpreter that renders what jinja2 renders as Hugging Face
 * sets it up: trim_blocks, lstrip_blocks, loop controls, tojson, raise_exception, strftime_now,
 * generation blocks. No I/O, no attribute access beyond the values given; steps, depth, memory and
 * output are limited.
 *
 * Not as jinja2, and refused by name: integers beyond 64 bits, complex numbers, block, include,
 * import, from, extends, autoescape, the filters pprint, random, urlize, xmlattr, lipsum(),
 * str.encode and the like, named HTML entities in striptags beyond the common six, printing what
 * Python shows as a memory address. Characters are those of Unicode 14 (Python 3.11). */
#ifndef VT_TEXT_TEMPLATE_H
#define VT_TEXT_TEMPLATE_H

#include "base/buf.h"
#include "base/err.h"

typedef struct vt_template vt_template;

/* Parses once; immutable and shareable afterwards. `name` is used in messages, which carry line
 * numbers. */
vt_status vt_template_parse(const char *name, const char *source, size_t len, vt_template **out,
                            vt_err *err);
void vt_template_free(vt_template *t);

typedef struct vt_template_limits {
    int64_t max_steps; /* evaluation steps; 0: 10 million */
    int32_t max_depth; /* nesting of calls, bodies, expressions and values; 0: 400 */
    size_t max_output; /* bytes; 0: 16 MiB */
    int64_t now;       /* seconds since the epoch for strftime_now; 0: the clock */
} vt_template_limits;

/* variables: one JSON object (UTF-8) whose members become the template's variables. Output is
 * appended to out. raise_exception's message becomes the error's. */
vt_status vt_template_render(const vt_template *t, const char *variables, size_t len,
                             const vt_template_limits *limits, vt_buf *out, vt_err *err);

struct json_t; /* jansson.h */

/* The same with variables that are a parsed JSON object, which is only read. */
vt_status vt_template_render_object(const vt_template *t, struct json_t *variables,
                                    const vt_template_limits *limits, vt_buf *out, vt_err *err);

#endif
