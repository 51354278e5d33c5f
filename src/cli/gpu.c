/* The GPU and its state, as vitrine env and the benches tell it. */
#include "cli/cli.h"
#include "device/cuda.h"
#include "device/nvml.h"

static json_t *known(int64_t v) { return v < 0 ? json_null() : json_integer(v); }

static json_t *reasons_json(int64_t bits)
{
    if (bits < 0)
        return json_null();
    json_t *list = json_array();
    for (int32_t i = 0; vt_nvml_reason(i); i++)
        if (bits >> i & 1)
            json_array_append_new(list, json_string(vt_nvml_reason(i)));
    return list;
}

static json_t *state_json(const vt_gpu_state *s)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "sm_mhz", known(s->sm_mhz),
                     "sm_max_mhz", known(s->sm_max_mhz), "memory_mhz", known(s->memory_mhz),
                     "memory_max_mhz", known(s->memory_max_mhz), "temperature_c",
                     known(s->temperature_c), "power_w",
                     s->power_w < 0 ? json_null() : cli_json_number(s->power_w, 1), "power_limit_w",
                     s->power_limit_w < 0 ? json_null() : cli_json_number(s->power_limit_w, 1),
                     "throttle", reasons_json(s->throttle));
}

json_t *cli_gpu_json(int32_t ordinal)
{
    vt_cuda *gpu;
    vt_gpu_state state;
    vt_err err = {0};
    if (vt_cuda_open(ordinal, &gpu, NULL) != VT_OK)
        return json_null();
    json_t *o = json_pack("{s:i, s:s, s:i, s:i, s:i, s:I, s:I, s:i, s:s, s:i}", "ordinal", ordinal,
                          "name", gpu->name, "cc_major", gpu->cc_major, "cc_minor", gpu->cc_minor,
                          "multiprocessors", gpu->sm_count, "l2_bytes", (json_int_t)gpu->l2_bytes,
                          "memory_bytes", (json_int_t)gpu->total_bytes, "level", gpu->level, "arch",
                          gpu->arch, "driver_version", gpu->driver_version);
    vt_cuda_close(gpu);
    bool there = vt_nvml_read(ordinal, &state, &err) == VT_OK;
    json_object_set_new(o, "state", there ? state_json(&state) : json_null());
    json_object_set_new(o, "state_missing", there ? json_null() : json_string(err.message));
    return o;
}

/* "SM 1980 of 1980 MHz" */
static void put_pair(vt_buf *b, const char *what, double now, double most, const char *unit)
{
    if (now < 0)
        return;
    vt_buf_printf(b, "%s%s%.0f", b->len ? ", " : "", what, now);
    if (most >= 0)
        vt_buf_printf(b, " of %.0f", most);
    vt_buf_printf(b, " %s", unit);
}

void cli_gpu_state(vt_buf *b, int32_t ordinal)
{
    vt_gpu_state s;
    vt_err err = {0};
    bool slow = false;
    if (vt_nvml_read(ordinal, &s, &err) != VT_OK) {
        vt_buf_puts(b, err.message);
        return;
    }
    put_pair(b, "SM ", s.sm_mhz, s.sm_max_mhz, "MHz");
    put_pair(b, "memory ", s.memory_mhz, s.memory_max_mhz, "MHz");
    put_pair(b, "", s.power_w, s.power_limit_w, "W");
    put_pair(b, "", s.temperature_c, -1, "C");
    for (int32_t i = 0; s.throttle > 0 && vt_nvml_reason(i); i++)
        if (s.throttle >> i & 1) {
            vt_buf_printf(b, "%s%s", slow ? " and " : "; clocks held by ", vt_nvml_reason(i));
            slow = true;
        }
}
