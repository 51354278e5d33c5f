/* Bodies of other APIs on their way to a chat's (translation.h). */
#include "openai/translation.h"

#include <ctype.h>
#include <stdio.h>

#include "base/err.h"

static vt_status refuse_unknown(const char *name, const translation_member *member, size_t n,
                                unsigned where, vt_openai_error *e)
{
    vt_nearest near = vt_nearest_begin(name);
    for (size_t i = 0; i < n; i++)
        if (member[i].where & where)
            vt_nearest_try(&near, member[i].name);
    return vt_openai_refuse_unknown(e, name, "", &near);
}

vt_status translation_begin(translation *t, const json_t *body, const translation_member *member,
                            size_t n, unsigned where, vt_openai_error *e)
{
    const char *name;
    const json_t *v;
    *t = (translation){.body = body,
                       .chat = json_object(),
                       .messages = json_array(),
                       .kwargs = json_object(),
                       .e = e};
    if (!json_is_object(body))
        return vt_openai_refuse(e, 400, NULL, "the request is not a JSON object");
    json_object_foreach((json_t *)(uintptr_t)body, name, v)
    {
        size_t i = 0;
        while (i < n && !((member[i].where & where) && strcmp(member[i].name, name) == 0))
            i++;
        if (i == n && !json_is_null(v))
            return refuse_unknown(name, member, n, where, e);
    }
    return VT_OK;
}

vt_status translation_read(translation *t, const translation_member *member, size_t n,
                           unsigned where)
{
    for (const translation_member *m = member; m < member + n; m++) {
        const json_t *v = (m->where & where) ? json_object_get(t->body, m->name) : NULL;
        if (!v || json_is_null(v))
            continue;
        if (m->read)
            TRY(m->read(t, v));
        else if (m->as)
            TRY(put(t, t->chat, m->as, borrow(v)));
    }
    return VT_OK;
}

json_t *translation_end(translation *t, vt_status status, bool chat)
{
    if (status == VT_OK && chat)
        status = put(t, t->chat, "messages", json_incref(t->messages));
    if (status == VT_OK && json_object_size(t->kwargs) > 0)
        status = put(t, t->chat, "chat_template_kwargs", json_incref(t->kwargs));
    json_decref(t->messages);
    json_decref(t->kwargs);
    json_decref(t->turn);
    vt_buf_release(&t->said);
    if (status == VT_OK)
        return t->chat;
    json_decref(t->chat);
    return NULL;
}

/* ---- errors ---- */

/* Returns true if a letter, digit or underscore stands there, or what goes on with a name. */
static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

void translation_rename(vt_openai_error *e, const char *param, const char *said)
{
    char text[sizeof e->message];
    size_t n = 0, len = strlen(e->param);
    for (const char *s = e->message; *s && n + 1 < sizeof text;) {
        bool word = len > 0 && strncmp(s, e->param, len) == 0 && !in_word(s[len]) &&
                    s[len] != '[' && (s == e->message || !in_word(s[-1]));
        if (word)
            vt_append(text, sizeof text, &n, "%s", said);
        else
            text[n++] = *s;
        s += word ? len : 1;
    }
    text[n] = '\0';
    memcpy(e->message, text, n + 1);
    snprintf(e->param, sizeof e->param, "%s", param);
}

void translation_own_names(const translation_member *member, size_t n, vt_openai_error *e)
{
    for (const translation_member *m = member; m < member + n; m++)
        if (m->as && strcmp(m->as, e->param) == 0) {
            translation_rename(e, m->name, m->said ? m->said : m->name);
            return;
        }
}
