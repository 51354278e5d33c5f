/* PC sampling (pc.h).
 *
 * In its continuous mode CUPTI collects samples on a thread of its own and hands all of them over
 * when it is disabled, in records that the caller has made room for: one an instruction, with the
 * number of samples for each stall reason.
 *
 * CUPTI has two counts of each reason: that of all samples, and that of the samples in which the
 * SM's scheduler issued no instruction at all ("..._not_issued"). The first is read; it has the
 * meaning of ranges' stall reasons (vitals.h). */
#include "device/cupti/pc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "device/cupti/stalls.h"

enum {
    MOST_PLACES = 1 << 14, /* instructions; ours have a few thousand a kernel */
    MOST_REASONS = 128,
    PERIOD = 11 /* of each SM a sample every 2^11 cycles: about a million a second and SM */
};

struct vt_pc {
    vt_cupti cupti;
    const vt_cuda *gpu;
    bool on;
    size_t n_reasons;
    uint32_t index[MOST_REASONS];
    int stall[MOST_REASONS]; /* a vt_stall; -1: it is not counted */
    cupti_pc_data data;
    cupti_pc_reason *reasons; /* of all records */
};

/* ---- opening ---- */

static vt_status open_pc(vt_pc *p, vt_err *err)
{
    TRY(vt_cupti_open(&p->cupti, err));
    if (p->cupti.no_pc[0])
        return vt_fail(err, VT_ERR_UNSUPPORTED, "%s", p->cupti.no_pc);
    if (p->cupti.version < CUPTI_HAS_CORRELATION) {
        char release[32];
        vt_cupti_release(p->cupti.version, release, sizeof release);
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "CUPTI %s writes shorter records of samples than are read here, which CUDA "
                       "12.4's and later write",
                       release);
    }
    return vt_cupti_supported(&p->cupti, p->gpu, CUPTI_API_PC_SAMPLING, err);
}

vt_status vt_pc_open(const vt_cuda *gpu, vt_pc **out, vt_err *err)
{
    vt_pc *p = vt_calloc(1, sizeof *p);
    if (!p)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for sampling the program counter");
    p->gpu = gpu;
    vt_status status = open_pc(p, err);
    if (status == VT_OK)
        *out = p;
    else
        vt_pc_close(p);
    return status;
}

void vt_pc_close(vt_pc *p)
{
    if (!p)
        return;
    vt_pc_end(p, NULL, NULL, NULL, NULL);
    free(p->data.record);
    free(p->reasons);
    free(p);
}

/* ---- sampling ---- */

/* "smsp__pcsamp_warps_issue_stalled_long_scoreboard" -> VT_STALL_long_scoreboard; -1: it is not
 * counted. A reason that has no row of its own (warpgroup_arrive) is something else. */
static int stall_named(const char *name)
{
    static const char before[] = "issue_stalled_", half[] = "_not_issued";
    const char *reason = strstr(name, before);
    if (!reason || strstr(reason, half))
        return -1;
    reason += sizeof before - 1;
    for (int i = 0; i < VT_STALLS; i++)
        if (strcmp(vt_stalls[i].name, reason) == 0)
            return i;
    return strcmp(reason, "no_instructions") == 0 ? VT_STALL_no_instruction : VT_STALL_misc;
}

static vt_status read_reasons(vt_pc *p, vt_err *err)
{
    char text[MOST_REASONS][CUPTI_PC_NAME_BYTES] = {{0}}, *name[MOST_REASONS];
    int32_t n_known = 0;
    for (int i = 0; i < MOST_REASONS; i++)
        name[i] = text[i];
    cupti_pc_count count = {CUPTI_PARAMS(cupti_pc_count), .context = p->gpu->context,
                            .n = &p->n_reasons};
    TRY(vt_cupti_check(&p->cupti, p->cupti.f.pc_count(&count), "counting stall reasons", err));
    if (p->n_reasons == 0 || p->n_reasons > MOST_REASONS)
        return vt_fail(err, VT_ERR_UNSUPPORTED, "CUPTI has %zu stall reasons", p->n_reasons);
    cupti_pc_reasons reasons = {CUPTI_PARAMS(cupti_pc_reasons), .context = p->gpu->context,
                                .n = p->n_reasons, .index = p->index, .name = name};
    TRY(vt_cupti_check(&p->cupti, p->cupti.f.pc_reasons(&reasons), "naming stall reasons", err));
    for (size_t i = 0; i < p->n_reasons; i++) {
        text[i][CUPTI_PC_NAME_BYTES - 1] = 0;
        p->stall[i] = stall_named(text[i]);
        n_known += p->stall[i] >= 0;
    }
    if (n_known == 0)
        return vt_fail(err, VT_ERR_UNSUPPORTED,
                       "of CUPTI's %zu stall reasons none is known here; the first is %.60s",
                       p->n_reasons, text[0]);
    return VT_OK;
}

static vt_status make_room(vt_pc *p, vt_err *err)
{
    cupti_pc_record *record = p->data.record;
    if (!record)
        record = vt_calloc(MOST_PLACES, sizeof *record);
    if (!p->reasons)
        p->reasons = vt_calloc((size_t)MOST_PLACES * p->n_reasons, sizeof *p->reasons);
    p->data = (cupti_pc_data){.size = sizeof p->data, .room = MOST_PLACES, .record = record};
    if (!record || !p->reasons)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for samples of the program counter");
    for (size_t i = 0; i < MOST_PLACES; i++)
        record[i] = (cupti_pc_record){.size = sizeof *record,
                                      .reason = p->reasons + i * p->n_reasons};
    return VT_OK;
}

static vt_status begin(vt_pc *p, vt_err *err)
{
    cupti_pc_attribute attribute[] = {
        {.type = CUPTI_PC_MODE, .value.mode = CUPTI_PC_CONTINUOUS},
        {.type = CUPTI_PC_PERIOD, .value.period = PERIOD},
        {.type = CUPTI_PC_DATA, .value.data = &p->data},
    };
    cupti_pc_call enable = {CUPTI_PARAMS(cupti_pc_call), .context = p->gpu->context};
    TRY(vt_cupti_check(&p->cupti, p->cupti.f.pc_enable(&enable), "sampling the program counter",
                       err));
    p->on = true;
    TRY(read_reasons(p, err));
    TRY(make_room(p, err));
    cupti_pc_config config = {CUPTI_PARAMS(cupti_pc_config), .context = p->gpu->context,
                              .n = sizeof attribute / sizeof *attribute, .attribute = attribute};
    return vt_cupti_check(&p->cupti, p->cupti.f.pc_configure(&config), "setting how it samples",
                          err);
}

vt_status vt_pc_begin(vt_pc *p, vt_err *err)
{
    vt_status status = begin(p, err);
    if (status != VT_OK)
        vt_pc_end(p, NULL, NULL, NULL, NULL);
    return status;
}

static void tell(const vt_pc *p, const cupti_pc_record *r, vt_pc_seen *seen, void *user)
{
    vt_pc_place place = {
        .function = r->function ? r->function : "", .pc = r->pc, .cubin_sum = r->cubin_crc};
    for (size_t i = 0; i < r->n && i < p->n_reasons; i++)
        for (size_t k = 0; k < p->n_reasons; k++)
            if (p->index[k] == r->reason[i].index && p->stall[k] >= 0) {
                place.stalled[p->stall[k]] += r->reason[i].samples;
                place.samples += r->reason[i].samples;
            }
    if (place.samples > 0)
        seen(user, &place);
}

vt_status vt_pc_end(vt_pc *p, vt_pc_seen *seen, void *user, vt_pc_totals *totals, vt_err *err)
{
    cupti_pc_call disable = {CUPTI_PARAMS(cupti_pc_call), .context = p->gpu->context};
    if (!p->on)
        return VT_OK;
    p->on = false;
    TRY(vt_cupti_check(&p->cupti, p->cupti.f.pc_disable(&disable), "collecting samples", err));
    size_t n = p->data.n < MOST_PLACES ? p->data.n : MOST_PLACES;
    for (size_t i = 0; seen && i < n; i++)
        tell(p, &p->data.record[i], seen, user);
    if (totals)
        *totals = (vt_pc_totals){.samples = p->data.samples,
                                 .dropped = p->data.dropped,
                                 .whole = p->data.left == 0 && !p->data.full};
    return VT_OK;
}

const vt_cupti *vt_pc_library(const vt_pc *p) { return &p->cupti; }

uint64_t vt_cupti_cubin_sum(const vt_cupti *c, const void *cubin, size_t bytes)
{
    cupti_pc_sum p = {CUPTI_PARAMS(cupti_pc_sum), .cubin_bytes = bytes, .cubin = cubin};
    return c->f.pc_sum(&p) == CUPTI_OK ? p.sum : 0;
}

int32_t vt_cupti_line(const vt_cupti *c, const void *cubin, size_t bytes, const char *function,
                      uint64_t pc, char *file, size_t size)
{
    cupti_pc_line at = {CUPTI_PARAMS(cupti_pc_line), .cubin = cubin, .function = function,
                        .cubin_bytes = bytes, .pc = pc};
    int32_t line = 0;
    if (c->f.pc_line(&at) == CUPTI_OK && at.file && at.file[0]) {
        const char *slash = strrchr(at.file, '/');
        snprintf(file, size, "%s", slash ? slash + 1 : at.file);
        line = (int32_t)at.line;
    }
    free(at.file);
    free(at.folder);
    return line;
}
