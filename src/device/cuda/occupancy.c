/* Occupancy by rule (device/cuda/occupancy.h).
 *
 *   warps       an SM's warps / warps of a CTA
 *   registers   a warp takes its registers in units of 256, from one of four partitions of 16,384
 *   shared      a CTA takes its bytes, and 1 KB for the driver, in units of 128
 *   CTAs        a constant of the compute capability
 *
 * The smallest of the four holds. Where the launch asks for more CTAs than the SMs hold at once, it
 * runs in waves, of which the last is usually not full: the tail. */
#include "device/cuda/occupancy.h"

#include <math.h>

enum {
    WARP = 32,
    PARTITIONS = 4,
    REGISTERS = 65536, /* of an SM, and the most of a CTA */
    REGISTER_UNIT = 256,
    SHARED_UNIT = 128,
    SHARED_DRIVER = 1024,
    MOST_THREADS = 1024,
    MOST_REGISTERS = 255
};

typedef struct rules {
    int32_t cc, warps, ctas, shared_kib; /* of an SM */
} rules;

static const rules table[] = {
    {80, 64, 32, 164}, {86, 48, 16, 100},  {87, 48, 16, 164},  {89, 48, 24, 100},
    {90, 64, 32, 228}, {100, 64, 32, 228}, {120, 48, 24, 100},
};

static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static const rules *find(int32_t cc)
{
    for (unsigned i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].cc == cc)
            return &table[i];
    return 0;
}

static int64_t by_registers(int32_t registers, int32_t cta_warps)
{
    int64_t a_warp = round_up((int64_t)registers * WARP, REGISTER_UNIT);
    if (a_warp == 0)
        return INT32_MAX;
    if (a_warp * round_up(cta_warps, PARTITIONS) > REGISTERS)
        return 0;
    return REGISTERS / PARTITIONS / a_warp * PARTITIONS / cta_warps;
}

static int64_t by_shared(const rules *r, int64_t bytes)
{
    int64_t sm = (int64_t)r->shared_kib << 10, cta = round_up(bytes + SHARED_DRIVER, SHARED_UNIT);
    return bytes > sm - SHARED_DRIVER ? 0 : sm / cta;
}

/* CTAs of an SM, and what limits them. */
static int32_t ctas_of(const rules *r, int32_t cta_warps, int32_t registers, int64_t shared,
                       vt_occupancy_limit *limit)
{
    int64_t n = r->warps / cta_warps;
    vt_occupancy_limit by = VT_LIMIT_NONE;
    const struct {
        vt_occupancy_limit limit;
        int64_t n;
    } other[] = {{VT_LIMIT_REGISTERS, by_registers(registers, cta_warps)},
                 {VT_LIMIT_SHARED, by_shared(r, shared)},
                 {VT_LIMIT_CTAS, r->ctas}};
    for (int i = 0; i < 3; i++)
        if (other[i].n < n) {
            n = other[i].n;
            by = other[i].limit;
        }
    *limit = by;
    return (int32_t)n;
}

/* The largest value below the present one with which an SM holds more CTAs. */
static void what_if(const rules *r, const vt_occupancy_input *in, int32_t cta_warps,
                    vt_occupancy *out)
{
    vt_occupancy_limit limit;
    out->fewer_registers = -1;
    out->less_shared = -1;
    for (int32_t n = in->registers - 1; n > 0 && out->fewer_registers < 0; n--)
        if (ctas_of(r, cta_warps, n, in->shared_bytes, &limit) > out->ctas)
            out->fewer_registers = n;
    int64_t unit = (in->shared_bytes + SHARED_DRIVER) / SHARED_UNIT * SHARED_UNIT - SHARED_DRIVER;
    for (int64_t n = unit; n >= 0 && out->less_shared < 0; n -= SHARED_UNIT)
        if (ctas_of(r, cta_warps, in->registers, n, &limit) > out->ctas)
            out->less_shared = n;
}

bool vt_occupancy_of(const vt_occupancy_input *in, vt_occupancy *out)
{
    const rules *r = find(in->cc);
    if (!r || in->threads < 1 || in->threads > MOST_THREADS || in->registers < 0 ||
        in->registers > MOST_REGISTERS || in->shared_bytes < 0 || in->shared_bytes > 1 << 20)
        return false;
    int32_t cta_warps = (in->threads + WARP - 1) / WARP;
    *out = (vt_occupancy){.max_warps = r->warps};
    out->ctas = ctas_of(r, cta_warps, in->registers, in->shared_bytes, &out->limit);
    out->warps = out->ctas * cta_warps;
    out->share = (double)out->warps / r->warps;
    int64_t places = (int64_t)out->ctas * in->sm_count;
    if (in->grid > 0 && places > 0) {
        out->waves = (double)in->grid / (double)places;
        out->tail = 1 - out->waves / ceil(out->waves);
    }
    what_if(r, in, cta_warps, out);
    return true;
}

const char *vt_occupancy_limit_name(vt_occupancy_limit l)
{
    static const char *const name[] = {"warps", "registers", "shared memory", "CTAs"};
    return name[(unsigned)l < 4 ? l : 0];
}
