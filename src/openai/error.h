/* Errors as the OpenAI API reports them: an HTTP status, and an object that names the field.
 *
 *   {"message": "temperature: ...", "type": "invalid_request_error", "param": "temperature",
 *    "code": null} */
#ifndef VT_OPENAI_ERROR_H
#define VT_OPENAI_ERROR_H

#include <jansson.h>

#include "base/json_write.h"
#include "base/term/nearest.h"
#include "vitrine.h"

typedef struct vt_openai_error {
    int http;         /* 400, 404, 429, 500, 503; 0: there is no error */
    const char *code; /* static text such as "model_not_found"; NULL: null */
    char param[64];   /* the field that is wrong; empty: null */
    char message[512];
} vt_openai_error;

/* Fills `e` and returns VT_ERR_USAGE, so that TRY passes it up. `param` may be NULL. Control
 * characters in the message become spaces. */
vt_status vt_openai_refuse(vt_openai_error *e, int http, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Refuses the value at a place, such as "messages[%zu].role", by what it is (a number itself, of
 * others their type: texts are users') and by what was expected. NULL: it is missing. */
vt_status vt_openai_refuse_value(vt_openai_error *e, const char *param, const json_t *v,
                                 const char *want, const char *place, ...)
    __attribute__((format(printf, 5, 6)));
/* The same for a value that should be one of a few words: a text is shown, up to 40 bytes of it. */
vt_status vt_openai_refuse_word(vt_openai_error *e, const char *param, const json_t *v,
                                const char *want, const char *place, ...)
    __attribute__((format(printf, 5, 6)));

/* Refuses a member that nothing reads, `near->asked`, and names the nearest one that something
 * does. The sentence begins with `in`, such as "options.". */
vt_status vt_openai_refuse_unknown(vt_openai_error *e, const char *param, const char *in,
                                   const vt_nearest *near);

/* Turns the engine's error into one: a full queue is 503, a device, file or memory failure 500,
 * everything else 400. Where the sentence names the model's file, it names the model instead: a
 * client has no business with the server's paths. Returns VT_ERR_USAGE. */
vt_status vt_openai_refuse_as(vt_openai_error *e, const vt_err *why, const vt_model *m,
                              const char *param);

/* The error object. `key` as in base/json_write.h. */
void vt_openai_error_write(const vt_openai_error *e, vt_json *w, const char *key);

#endif
