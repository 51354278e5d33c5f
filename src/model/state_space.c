/* Mamba-2's state spaces in files (model/state_space.h). */
#include "model/state_space.h"

#include "files/json.h"

vt_status model_set_inner(vt_model *m, const char *key, int64_t inner, vt_err *err)
{
    vt_mamba *s = &m->arch.mamba;
    if (s->heads < 1 || inner < 1 || inner % s->heads != 0)
        return vt_fail(err, VT_ERR_MODEL, "%s: %s %lld is not a multiple of %d heads", m->path, key,
                       (long long)inner, s->heads);
    s->head_dim = (int32_t)(inner / s->heads);
    return VT_OK;
}

vt_status gguf_read_state_space(gguf_reader *r)
{
    vt_arch *a = &r->m->arch;
    vt_mamba *s = &a->mamba;
    int32_t inner = 0;
    TRY(gguf_read_i32(r, "ssm.conv_kernel", true, &a->conv_taps));
    TRY(gguf_read_i32(r, "ssm.state_size", true, &s->state_dim));
    TRY(gguf_read_i32(r, "ssm.group_count", true, &s->groups));
    TRY(gguf_read_i32(r, "ssm.time_step_rank", true, &s->heads));
    TRY(gguf_read_i32(r, "ssm.inner_size", true, &inner));
    return model_set_inner(r->m, r->key, inner, r->err);
}

/* A token's step has no limits: [0, infinity], however the file spells that. */
vt_status hf_refuse_step_limit(hf_reader *c)
{
    const json_t *limits = vt_read_member(c->root, "time_step_limit");
    if (limits)
        TRY(vt_check_array(c->path, "time_step_limit", limits, 2, c->err));
    double low = json_number_value(json_array_get(limits, 0));
    const json_t *high = json_array_get(limits, 1);
    if (low > 0 || (json_is_number(high) && json_number_value(high) < 1e30))
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"time_step_limit\" is %g to %g; without limits (0 to infinity) it is "
                       "supported for %s",
                       c->path, low, json_number_value(high), c->family->hf);
    return VT_OK;
}

vt_status hf_refuse_state_space_biases(hf_reader *c, const char *conv, const char *projection)
{
    bool bias = true;
    TRY(hf_refuse_flag(c, projection));
    TRY(hf_read_bool(c, conv, &bias));
    if (!bias)
        return vt_fail(c->err, VT_ERR_UNSUPPORTED,
                       "%s: \"%s\" is false; that is not supported for %s", c->path, conv,
                       c->family->hf);
    return VT_OK;
}
