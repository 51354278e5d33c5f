/* Merge of two attention states over the vector type: see simd_portable.h for how this header is
 * compiled. */
#include <math.h>

#include "ops/access.h"
#include "ops/merge_state/merge_state.h"
#include "ops/simd_any.h"

static vt_status merge_state_run(const void *args, const vt_lane *lane)
{
    const merge_state_args *a = args;
    const float *sa = a->sa->data, *sb = a->sb->data;
    float *s = a->s->data;
    int64_t d = a->o->dim[1], begin, end;
    vt_lane_share(lane, a->o->dim[0], 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float m = sa[t] > sb[t] ? sa[t] : sb[t];
        bool empty = m == -INFINITY;
        float wa = empty ? 0 : exp2f(sa[t] - m), wb = empty ? 0 : exp2f(sb[t] - m);
        float inverse = empty ? 0 : 1.0f / (wa + wb);
        const float *oa = row_f32(a->oa, t), *ob = row_f32(a->ob, t);
        float *o = row_f32(a->o, t);
        for (int64_t i = 0; i < d; i += VF) {
            int lanes = lanes_left(i, d);
            vf x = vf_mul(vf_load_n(oa + i, lanes), vf_set1(wa * inverse));
            vf_store_n(o + i, vf_fma(vf_load_n(ob + i, lanes), vf_set1(wb * inverse), x), lanes);
        }
        s[t] = empty ? -INFINITY : m + log2f(wa + wb);
    }
    return VT_OK;
}

static bool merge_state_supports(const void *args)
{
    const merge_state_args *a = args;
    return a->oa->dtype == VT_F32 && a->ob->dtype == VT_F32 && a->o->dtype == VT_F32;
}
