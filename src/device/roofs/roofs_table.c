/* The table of roofs: how each is named, and where its figure lies in vt_roofs. */
#include <stddef.h>

#include "device/roofs/roofs.h"

const vt_roof_row vt_roof_rows[VT_ROOFS] = {
    [VT_ROOF_MEMORY] = {"memory_bytes_per_s", "memory read", "B", NULL},
    [VT_ROOF_WEIGHTS] = {"weights_bytes_per_s", "weights read", "B", "again and again"},
    [VT_ROOF_COPY] = {"copy_bytes_per_s", "memory copy", "B", "bytes read and written"},
    [VT_ROOF_L2] = {"l2_bytes_per_s", "L2 read", "B", NULL},
    [VT_ROOF_L3] = {"l3_bytes_per_s", "L3 read", "B", NULL},
    [VT_ROOF_FP32] = {"fp32_per_s", "fp32", "FLOP", NULL},
    [VT_ROOF_BF16] = {"bf16_per_s", "bf16", "FLOP", NULL},
    [VT_ROOF_FP8] = {"fp8_per_s", "fp8", "FLOP", NULL},
    [VT_ROOF_INT8] = {"int8_per_s", "int8", "OP", NULL},
    [VT_ROOF_MEETING] = {"meeting_us", "meeting", NULL, "all threads at a barrier"},
    [VT_ROOF_KERNEL] = {"kernel_us", "empty kernel", NULL, "one after another in a graph"},
    [VT_ROOF_KERNEL_PDL] = {"kernel_pdl_us", "kernel, PDL", NULL, "launched before the last ends"},
    [VT_ROOF_TO_DEVICE] = {"to_device_bytes_per_s", "to device", "B", "pinned memory"},
    [VT_ROOF_FROM_DEVICE] = {"from_device_bytes_per_s", "from device", "B", "pinned memory"},
};

const char *const vt_roof_tag_name[VT_ROOF_TAGS] = {"n/a", "measured", "disturbed", "datasheet"};

/* Offsets in vt_roofs; 0: there is none. */
static const struct place {
    size_t value, working_set, how;
} place[VT_ROOFS] = {
#define AT(member) offsetof(vt_roofs, member)
    [VT_ROOF_MEMORY] = {AT(memory_bytes_per_s), AT(far_bytes), 0},
    [VT_ROOF_WEIGHTS] = {AT(near_bytes_per_s), AT(near_bytes), 0},
    [VT_ROOF_COPY] = {AT(copy_bytes_per_s), AT(copy_bytes), 0},
    [VT_ROOF_L2] = {AT(l2_bytes_per_s), AT(l2_bytes), 0},
    [VT_ROOF_L3] = {AT(l3_bytes_per_s), AT(l3_bytes), 0},
    [VT_ROOF_FP32] = {AT(fp32_per_s), 0, AT(fp32_how)},
    [VT_ROOF_BF16] = {AT(bf16_per_s), 0, AT(bf16_how)},
    [VT_ROOF_FP8] = {AT(fp8_per_s), 0, AT(fp8_how)},
    [VT_ROOF_INT8] = {AT(int8_per_s), 0, AT(int8_how)},
    [VT_ROOF_MEETING] = {AT(meeting_s), 0, 0},
    [VT_ROOF_KERNEL] = {AT(kernel_s), 0, 0},
    [VT_ROOF_KERNEL_PDL] = {AT(kernel_pdl_s), 0, 0},
    [VT_ROOF_TO_DEVICE] = {AT(to_device_bytes_per_s), AT(link_bytes), 0},
    [VT_ROOF_FROM_DEVICE] = {AT(from_device_bytes_per_s), AT(link_bytes), 0},
#undef AT
};

double vt_roof_get(const vt_roofs *r, vt_roof_kind kind)
{
    return *(const double *)((const char *)r + place[kind].value);
}

void vt_roof_set(vt_roofs *r, vt_roof_kind kind, double value, vt_roof_tag tag, int64_t when)
{
    *(double *)((char *)r + place[kind].value) = value;
    r->mark[kind] = (vt_roof_mark){tag, when};
}

int64_t *vt_roof_working_set(vt_roofs *r, vt_roof_kind kind)
{
    return place[kind].working_set ? (int64_t *)((char *)r + place[kind].working_set) : NULL;
}

const char *vt_roof_how(const vt_roofs *r, vt_roof_kind kind)
{
    if (place[kind].how)
        return *(const char *const *)((const char *)r + place[kind].how);
    return vt_roof_rows[kind].how;
}

void vt_roof_better(vt_roofs *r, vt_roof_kind kind, double value, vt_roof_tag tag, int64_t when)
{
    static const double same = 1.03;
    double old = vt_roof_get(r, kind);
    bool time = !vt_roof_rows[kind].unit;
    if (tag == VT_ROOF_DISTURBED && r->mark[kind].tag == VT_ROOF_MEASURED && value < same * old &&
        old < same * value)
        return;
    if (value > 0 && (old <= 0 || (time ? value < old : value > old)))
        vt_roof_set(r, kind, value, tag, when);
}

bool vt_roofs_sanitized(void)
{
#ifdef VT_SANITIZE
    return true;
#else
    return false;
#endif
}

bool vt_roofs_disturbed(const vt_roofs *r)
{
    for (int i = 0; i < VT_ROOFS; i++)
        if (r->mark[i].tag == VT_ROOF_DISTURBED)
            return true;
    return false;
}

double vt_roofs_bandwidth(const vt_roofs *r)
{
    return r->near_bytes_per_s > 0 ? r->near_bytes_per_s : r->memory_bytes_per_s;
}

/* A disturbed time is too long, and so it is no floor. */
static double undisturbed(const vt_roofs *r, vt_roof_kind kind)
{
    return r->mark[kind].tag == VT_ROOF_DISTURBED ? 0 : vt_roof_get(r, kind);
}

double vt_roofs_launch_s(const vt_roofs *r, bool pdl)
{
    double kernel_s = undisturbed(r, VT_ROOF_KERNEL), pdl_s = undisturbed(r, VT_ROOF_KERNEL_PDL);
    if (pdl && pdl_s > 0 && (kernel_s <= 0 || pdl_s < kernel_s))
        return pdl_s;
    return kernel_s > 0 ? kernel_s : undisturbed(r, VT_ROOF_MEETING);
}
