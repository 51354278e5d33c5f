/* The list of families (model/family.h). */
#include "model/family.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"

#define VT_FAMILY(name) extern const vt_family vt_family_##name;
#include "model/families.h"

const vt_family *const vt_families[] = {
#define VT_FAMILY(name) &vt_family_##name,
#include "model/families.h"
    NULL};

const vt_family *vt_family_find(const char *name)
{
    for (int i = 0; vt_families[i]; i++)
        if (strcmp(vt_families[i]->name, name) == 0)
            return vt_families[i];
    return NULL;
}

const vt_family_role *vt_family_role_of(const vt_family *f, vt_role role)
{
    for (int32_t i = 0; f && i < f->n_roles; i++)
        if (f->roles[i].role == role)
            return &f->roles[i];
    return NULL;
}

void vt_family_names(bool gguf, char *out, size_t size)
{
    static const char more[] = " and 99 more";
    size_t at = 0;
    int left_out = 0;
    *out = '\0';
    for (int i = 0; vt_families[i]; i++) {
        const char *name = gguf ? vt_families[i]->gguf : vt_families[i]->hf;
        if (name && (left_out > 0 || at + strlen(name) + sizeof ", " + sizeof more > size))
            left_out++;
        else if (name)
            vt_append(out, size, &at, "%s%s", at ? ", " : "", name);
    }
    if (left_out > 0)
        vt_append(out, size, &at, " and %d more", left_out);
}

const char *vt_family_embed(const vt_family *f)
{
    const vt_family_role *r = vt_family_role_of(f, VT_ROLE_EMBED);
    return r && r->hf ? r->hf : "model.embed_tokens.weight";
}

const char *vt_family_saved_name(const vt_family *f, const char *name, char *out, size_t size)
{
    static const char mlp[] = ".mlp.";
    const char *at = f && f->hf_mlp ? strstr(name, mlp) : NULL;
    if (!at)
        return name;
    snprintf(out, size, "%.*s.%s.%s", (int)(at - name), name, f->hf_mlp, at + strlen(mlp));
    return out;
}
