/* Chat templates applied to parsed messages, and the token ids of the rendered text. */
#ifndef VT_ENGINE_CHAT_H
#define VT_ENGINE_CHAT_H

#include <jansson.h>

#include "base/buf.h"
#include "vitrine.h"

struct vt_template_limits; /* text/template/template.h */
struct vt_prompt_limit;    /* engine/request.h */

/* vt_render_chat for variables that are parsed already. `variables` is an object with "messages"
 * and whatever else the template may use; bos_token, eos_token and add_generation_prompt are added
 * where it does not have them. It is only read. `limits` are the rendering's; NULL: the usual. */
vt_status vt_chat_render(const vt_model *m, json_t *variables, bool open_turn,
                         const struct vt_template_limits *limits, vt_buf *out, vt_err *err);

/* vt_encode_chat for variables that are parsed already; `flags` are VT_CHAT_... of vitrine.h. With
 * VT_CHAT_LITERAL there are up to three renderings, and each may take as much as `limits` say. A
 * rendered text that is sure to have more tokens than `most` (may be NULL) is refused before it is
 * tokenised. *rendered_ns (may be NULL) gets the time between rendering and tokenising. */
vt_status vt_chat_encode(const vt_model *m, json_t *variables, unsigned flags,
                         const struct vt_template_limits *limits,
                         const struct vt_prompt_limit *most, int32_t **ids, size_t *n_ids,
                         int64_t *rendered_ns, vt_err *err);

#endif
