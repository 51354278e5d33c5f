/* All labs, and looking them up. */
#include "lab/kit/list.h"

#include <string.h>

#include "base/err.h"
#include "lab/kit/tracks.h"

const char *const lab_track_name[LAB_TRACKS] = {"sglang", "mini-sglang", "flashinfer",
                                                "experiments"};

const lab_def *const *lab_list_of(lab_track t)
{
    const lab_def *const *const list[LAB_TRACKS] = {lab_sglang, lab_mini_sglang, lab_flashinfer,
                                                    lab_experiments};
    return list[t];
}

bool lab_track_find(const char *name, lab_track *out)
{
    for (int t = 0; t < LAB_TRACKS; t++)
        if (strcmp(lab_track_name[t], name) == 0) {
            *out = (lab_track)t;
            return true;
        }
    return false;
}

/* "2" means "02". */
static bool is_number(const char *asked, const char *number)
{
    return strcmp(asked, number) == 0 || (number[0] == '0' && strcmp(asked, number + 1) == 0);
}

const lab_def *lab_find(lab_track t, const char *asked)
{
    for (const lab_def *const *d = lab_list_of(t); *d; d++) {
        char full[96];
        snprintf(full, sizeof full, "%s_%s", (*d)->number, (*d)->name);
        if (is_number(asked, (*d)->number) || strcmp(asked, (*d)->name) == 0 ||
            strcmp(asked, full) == 0)
            return *d;
        for (int i = 0; i < LAB_MAX_ALIASES && (*d)->alias[i]; i++)
            if (strcmp(asked, (*d)->alias[i]) == 0)
                return *d;
    }
    return NULL;
}

vt_status lab_find_or_fail(lab_track t, const char *asked, const lab_def **out, vt_err *err)
{
    vt_buf names = {0};
    *out = lab_find(t, asked);
    if (*out)
        return VT_OK;
    for (const lab_def *const *d = lab_list_of(t); *d; d++)
        vt_buf_printf(&names, "%s%s", names.len ? ", " : "", (*d)->number);
    vt_fail(err, VT_ERR_USAGE, "no lab '%.40s' in %s; there are: %s", asked, lab_track_name[t],
            names.data ? names.data : "none");
    vt_buf_release(&names);
    return VT_ERR_USAGE;
}
