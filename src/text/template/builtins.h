/* The builtins: filters, tests, methods and functions that a template can name.
 *
 * What is here: all that tests/golden/templates uses, all that the documentation of Hugging Face
 * promises to authors of chat templates, and the idioms that the published templates of well-known
 * families are known for (Llama 3, Qwen 2.5 to 3 Coder, Mistral, Gemma, DeepSeek, Command R, Phi,
 * Granite, GLM 4, Kimi K2, gpt-oss, Hermes, SmolLM3, Nemotron, MiniMax). A name that is not here
 * fails with one line that names it; add it where a template turns up that needs it.
 *
 *   kind       here                                          left out: known in no chat template
 *   filters    abs capitalize count d default dictsort       attr batch center e escape
 *              first float format groupby indent int items   filesizeformat forceescape pprint
 *              join last length list lower map max min       random slice striptags urlencode
 *              reject rejectattr replace reverse round       urlize wordwrap xmlattr
 *              safe select selectattr sort string sum
 *              title tojson trim truncate unique upper
 *              wordcount
 *   tests      boolean callable defined divisibleby even     escaped filter test
 *              false float in integer iterable lower
 *              mapping none number odd sameas sequence
 *              string true undefined upper, and the
 *              comparisons == != < <= > >= by name
 *   str        capitalize count endswith find format index   casefold center encode expandtabs
 *              isalnum isalpha isdigit islower isspace       format_map isascii isdecimal
 *              isupper join lower lstrip partition           isidentifier isnumeric isprintable
 *              removeprefix removesuffix replace rfind       istitle ljust maketrans rindex rjust
 *              rpartition rsplit rstrip split splitlines     swapcase translate zfill
 *              startswith strip title upper
 *   list       count index copy (tuple, range: the first     what would change the list
 *              two)
 *   dict       copy get items keys values                    fromkeys; what would change the dict
 *   functions  dict joiner namespace raise_exception range   cycler lipsum
 *              strftime_now
 *   loop       changed cycle depth depth0 first index
 *              index0 last length nextitem previtem
 *              revindex revindex0
 *   macro      calling it                                    name arguments catch_kwargs
 *                                                            catch_varargs caller
 *   "%"        s r d i x f e g with flags, width and         a c o u X # *
 *              precision
 *   format()   fields by position, name, .attribute and      !a, nested {} in a specification,
 *              [item]; !s !r; specifications (format.c)      = # _ b c n o X
 *
 * `safe` marks a text as jinja2's Markup does, although Hugging Face switches escaping off: what
 * "+", "%", format(), join() and replace() put into a marked text is escaped, and the result is
 * marked. "~" and output take every text as it is.
 */
#ifndef VT_TEXT_TEMPLATE_BUILTINS_H
#define VT_TEXT_TEMPLATE_BUILTINS_H

#include <jansson.h>

#include "text/template/interpreter.h"

/* ---- the tables ---- */

extern const tpl_table tpl_value_filters;    /* filters.c: of one value */
extern const tpl_table tpl_sequence_filters; /* seq.c: of lists and dicts */
extern const tpl_table tpl_json_filters;     /* json.c: tojson */
extern const tpl_table tpl_tests;            /* tests.c */
extern const tpl_table tpl_globals;          /* globals.c */
extern const tpl_table tpl_str_methods;      /* str.c */
extern const tpl_table tpl_list_methods, tpl_tuple_methods, tpl_dict_methods; /* methods.c */

/* ---- arguments, and what several builtins do (arguments.c) ---- */

/* `what` names the argument in the message. */
vt_status tpl_want_str(tpl_run *r, tpl_value v, const char *what, const tpl_str **out);
/* `absent` stands for a missing argument and for none. */
vt_status tpl_want_int(tpl_run *r, tpl_value v, const char *what, int64_t absent, int64_t *out);
/* s without the characters of `chars` at its ends (absent: without white space). */
vt_status tpl_strip(tpl_run *r, const tpl_str *s, tpl_value chars, bool left, bool right,
                    tpl_value *out);
/* str.replace; count < 0: all. */
vt_status tpl_replace(tpl_run *r, const tpl_str *s, const tpl_str *old, const tpl_str *fresh,
                      int64_t count, tpl_value *out);
vt_status tpl_capitalize(tpl_run *r, const tpl_str *s, tpl_value *out);
/* str.upper(), str.lower() */
vt_status tpl_change_case(tpl_run *r, const tpl_str *s, tpl_case k, tpl_value *out);
/* str.isupper(), str.islower() */
vt_status tpl_case_is(tpl_run *r, const tpl_str *s, bool upper, tpl_value *out);
/* int(s, base) and float(s) of Python; *ok is false where they raise ValueError. */
vt_status tpl_parse_int(tpl_run *r, const tpl_str *s, int64_t base, int64_t *out, bool *ok);
vt_status tpl_parse_float(tpl_run *r, const tpl_str *s, double *out, bool *ok);
/* str.format() (str_format.c) */
vt_status tpl_str_format(tpl_run *r, const tpl_args *a, tpl_value *out);
/* Sorts items[i] by keys[i], stable; `keys` may be `items`. first_part: keys are tuples, ordered by
 * their first value alone. */
vt_status tpl_sort(tpl_run *r, tpl_list *items, const tpl_list *keys, bool first_part,
                   bool reverse);

/* ---- JSON (json.c) ---- */

/* The variables of a rendering: the members of a JSON object. */
vt_status tpl_read_variables(tpl_run *r, json_t *variables, tpl_dict **out);

#endif
