/* The list of families (model/family.h). */
#include "model/family.h"

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
    size_t at = 0;
    *out = '\0';
    for (int i = 0; vt_families[i]; i++) {
        const char *name = gguf ? vt_families[i]->gguf : vt_families[i]->hf;
        if (name)
            vt_append(out, size, &at, "%s%s", at ? ", " : "", name);
    }
}
