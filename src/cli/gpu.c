/* The GPU and its state, as vitrine env and the benches tell it. */
#include <math.h>

#include "cli/cli.h"
#include "device/cuda/cuda.h"
#include "device/nvml.h"

static void write_watts(vt_json *w, const char *key, double v)
{
    vt_json_fixed(w, key, v < 0 ? NAN : v, 1);
}

static void write_reasons(vt_json *w, int64_t bits)
{
    if (bits < 0) {
        vt_json_null(w, "throttle");
        return;
    }
    vt_json_open(w, "throttle", '[');
    for (int32_t i = 0; vt_nvml_reason(i); i++)
        if (bits >> i & 1)
            vt_json_string(w, NULL, vt_nvml_reason(i));
    vt_json_close(w);
}

static void write_state(vt_json *w, const vt_gpu_state *s)
{
    vt_json_open(w, "state", '{');
    vt_json_known(w, "sm_mhz", s->sm_mhz);
    vt_json_known(w, "sm_max_mhz", s->sm_max_mhz);
    vt_json_known(w, "memory_mhz", s->memory_mhz);
    vt_json_known(w, "memory_max_mhz", s->memory_max_mhz);
    vt_json_known(w, "temperature_c", s->temperature_c);
    write_watts(w, "power_w", s->power_w);
    write_watts(w, "power_limit_w", s->power_limit_w);
    write_reasons(w, s->throttle);
    vt_json_close(w);
}

bool cli_gpu_open(vt_json *w, const char *key, int32_t ordinal)
{
    vt_cuda *gpu;
    vt_gpu_state state;
    vt_err err = {0};
    if (vt_cuda_open(ordinal, &gpu, NULL) != VT_OK) {
        vt_json_null(w, key);
        return false;
    }
    vt_json_open(w, key, '{');
    vt_json_int(w, "ordinal", ordinal);
    vt_json_string(w, "name", gpu->name);
    vt_json_int(w, "cc_major", gpu->cc_major);
    vt_json_int(w, "cc_minor", gpu->cc_minor);
    vt_json_int(w, "multiprocessors", gpu->sm_count);
    vt_json_int(w, "l2_bytes", gpu->l2_bytes);
    vt_json_int(w, "memory_bytes", (int64_t)gpu->total_bytes);
    vt_json_int(w, "max_shared_bytes", gpu->max_shared_bytes);
    vt_json_int(w, "level", gpu->level);
    vt_json_string(w, "arch", gpu->arch);
    vt_json_int(w, "driver_version", gpu->driver_version);
    vt_cuda_close(gpu);
    bool there = vt_nvml_read(ordinal, &state, &err) == VT_OK;
    if (there)
        write_state(w, &state);
    else
        vt_json_null(w, "state");
    vt_json_string(w, "state_missing", there ? NULL : err.message);
    return true;
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
