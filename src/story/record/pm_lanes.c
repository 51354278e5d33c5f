/* Lanes of a GPU's counters over time (pm_lanes.h).
 *
 *   steps     |---------||---------|            |---------|
 *   samples   s s s s s s s s s s s s          s s s s s s       those of the chosen steps
 *   values    |---1---|---2---|---3-|  (null)  |---4---|--       means over groups of samples
 *
 * Bytes a second become shares of the roof that was measured for them, as all lanes are shares. The
 * least, the mean and the most are of the samples themselves. */
#include "story/record/pm_lanes.h"

#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "device/cupti/pm.h"
#include "story/record/columns.h"
#include "story/record/numbers.h"
#include "story/record/places.h"

/* The next GPU from `from` on; NULL: there is no other. */
static const story_source *next_gpu(const story_input *in, const story_source *from)
{
    for (const story_source *s = from; s < in->source + in->n_sources; s++)
        if (s->is.kind == VT_SOURCE_STREAM)
            return s;
    return NULL;
}

/* The samples between the begin of the first chosen step and the end of the last one. */
typedef struct sampled {
    const story_source *from; /* NULL: there is no GPU */
    const vt_pm_event *at;
    int64_t n;
    double lost_s;
} sampled;

static sampled samples_of(const story_source *from, const story_record *r)
{
    sampled s = {.from = from};
    int64_t begin = INT64_MAX, end = INT64_MIN;
    for (int32_t i = 0; i < r->n_steps; i++)
        if (r->step[i].chosen) {
            begin = r->step[i].device.begin_ns < begin ? r->step[i].device.begin_ns : begin;
            end = r->step[i].device.end_ns > end ? r->step[i].device.end_ns : end;
        }
    for (uint64_t i = 0; s.from && i < s.from->n_pm; i++) {
        const vt_pm_event *e = &s.from->pm[i];
        if (e->end_ns <= begin || e->begin_ns >= end)
            continue;
        s.at = s.n++ == 0 ? e : s.at;
        s.lost_s += s.n > 1 ? (double)e->lost_us * 1e-6 : 0;
    }
    return s;
}

/* Returns the bytes a second that a lane's values become shares of; 1 for those that are shares.
 * NAN: not known. */
static double roof_of(const story_input *in, const sampled *s, vt_pm_lane lane)
{
    const vt_roofs *of = story_roofs(in, s->from);
    double roof = lane == VT_PM_DRAM_READ || lane == VT_PM_DRAM_WRITTEN ? vt_roofs_bandwidth(of)
                  : lane == VT_PM_PCIE_IN                               ? of->to_device_bytes_per_s
                  : lane == VT_PM_PCIE_OUT ? of->from_device_bytes_per_s
                                           : 1;
    return roof > 0 ? roof : NAN;
}

static bool follows_gap(const vt_pm_event *e)
{
    return e[0].begin_ns - e[-1].end_ns > (e[0].end_ns - e[0].begin_ns) / 2;
}

/* Cuts the samples into groups of neighbours; a group ends before a gap, where there is room for
 * that. Writes the first sample of each to group[]; returns how many there are. */
static int32_t cut(const sampled *s, int64_t group[STORY_MAX_LANE])
{
    int64_t most = STORY_MAX_LANE / 2, size = (s->n + most - 1) / most, gaps = 0;
    int32_t n = 0;
    for (int64_t i = 1; i < s->n; i++)
        gaps += follows_gap(&s->at[i]);
    bool split = gaps < STORY_MAX_LANE / 4;
    for (int64_t i = 0, held = 0; i < s->n; i++, held++)
        if (i == 0 || held >= size || (split && follows_gap(&s->at[i]))) {
            group[n++] = i;
            held = 0;
        }
    return n;
}

typedef struct lane_room {
    double begin_ms[STORY_MAX_LANE], value[STORY_MAX_LANE];
    int64_t group[STORY_MAX_LANE];
    int32_t n_groups;
} lane_room;

/* The groups' means of a lane, and a null where a gap begins; returns how many points. */
static int32_t fill(const sampled *s, vt_pm_lane lane, double roof, int64_t origin, lane_room *room)
{
    int32_t n = 0;
    for (int32_t g = 0; g < room->n_groups; g++) {
        int64_t to = g + 1 < room->n_groups ? room->group[g + 1] : s->n;
        const vt_pm_event *e = &s->at[room->group[g]];
        double sum = 0, time = 0;
        if (g > 0 && n + room->n_groups - g < STORY_MAX_LANE && follows_gap(e)) {
            room->begin_ms[n] = (double)(e[-1].end_ns - origin) * 1e-6;
            room->value[n++] = NAN;
        }
        room->begin_ms[n] = (double)(e->begin_ns - origin) * 1e-6;
        for (int64_t i = room->group[g]; i < to; i++) {
            double length = (double)(s->at[i].end_ns - s->at[i].begin_ns);
            sum += (double)s->at[i].value[lane] * length;
            time += length;
        }
        room->value[n++] = sum / time / roof;
    }
    return n;
}

/* The lane's name: "sm", or of one of several ranks "rank 1 sm". */
static const char *lane_name(const story_source *from, vt_pm_lane lane, char out[48])
{
    snprintf(out, 48, "%s%s%s", from->is.n_ranks > 1 ? from->is.name : "",
             from->is.n_ranks > 1 ? " " : "", vt_pm_rows[lane].key);
    return out;
}

static void put_item(vt_json *w, const sampled *s, vt_pm_lane lane, double roof, int64_t origin,
                     lane_room *room)
{
    char name[48];
    double least = INFINITY, most = -INFINITY, sum = 0, time = 0;
    for (int64_t i = 0; i < s->n; i++) {
        double v = (double)s->at[i].value[lane] / roof,
               length = (double)(s->at[i].end_ns - s->at[i].begin_ns);
        least = fmin(least, v);
        most = fmax(most, v);
        sum += v * length;
        time += length;
    }
    int32_t n = fill(s, lane, roof, origin, room);
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "name", lane_name(s->from, lane, name));
    vt_json_string(w, "what", vt_pm_rows[lane].what);
    story_put_column(w, "begin_ms", room->begin_ms, n, 4);
    story_put_column(w, "values", room->value, n, 4);
    vt_json_tagged(w, "least", least, 4, measured);
    vt_json_tagged(w, "mean", sum / time, 4, measured);
    vt_json_tagged(w, "most", most, 4, measured);
    if (!vt_pm_rows[lane].percent)
        vt_json_tagged(w, "roof_bytes_per_s", roof, 0, measured);
    vt_json_string(w, "tag", measured);
    vt_json_close(w);
}

/* Returns true if the lane was sampled and can be told as a share. */
static bool is_told(const story_input *in, const sampled *s, vt_pm_lane lane)
{
    return isfinite(s->at[s->n - 1].value[lane]) && isfinite(roof_of(in, s, lane));
}

vt_status story_put_pm_items(vt_json *w, const story_input *in, story_record *r, vt_err *err)
{
    lane_room *room = vt_arena_alloc(&r->arena, 1, sizeof *room);
    if (!room)
        return vt_fail(err, VT_ERR_MEMORY, "out of memory for a story");
    for (const story_source *g = next_gpu(in, in->source); g; g = next_gpu(in, g + 1)) {
        sampled s = samples_of(g, r);
        room->n_groups = s.n > 0 ? cut(&s, room->group) : 0;
        for (int k = 0; k < VT_PM_LANES && s.n > 0; k++)
            if (is_told(in, &s, (vt_pm_lane)k))
                put_item(w, &s, (vt_pm_lane)k, roof_of(in, &s, (vt_pm_lane)k), story_origin(r),
                         room);
    }
    return VT_OK;
}

/* Why a GPU has no sample in the story; NULL: it has. */
static const char *why_not(const sampled *s)
{
    if (s->n > 0)
        return NULL;
    if (s->from->is.no_pm)
        return s->from->is.no_pm;
    return s->from->is.pm ? "no sample lies in the story's steps: they are older than its ring"
                          : "--story-lanes samples them";
}

const char *story_no_pm(const story_input *in, const story_record *r)
{
    const char *first = "the CPU ran the steps", *why;
    for (const story_source *g = next_gpu(in, in->source); g; g = next_gpu(in, g + 1)) {
        sampled s = samples_of(g, r);
        why = why_not(&s);
        if (!why)
            return NULL;
        first = g == next_gpu(in, in->source) ? why : first;
    }
    return first;
}

static void put_one_not_sampled(vt_json *w, const char *lane, const char *why)
{
    vt_json_open(w, NULL, '{');
    vt_json_string(w, "lane", lane);
    vt_json_string(w, "why", why);
    vt_json_close(w);
}

/* Of a rank without any sample its name alone. */
static void put_not_sampled(vt_json *w, const story_input *in, const sampled *s)
{
    const vt_pm_set *set = s->from->is.pm_set;
    char name[48];
    if (s->n == 0 && s->from->is.n_ranks > 1) {
        put_one_not_sampled(w, s->from->is.name, why_not(s));
        return;
    }
    for (int k = 0; k < VT_PM_LANES; k++) {
        const char *why = set && set->why_not[k][0] ? set->why_not[k]
                          : s->n && !is_told(in, s, (vt_pm_lane)k)
                              ? "the roof that it would be a share of is not known"
                              : NULL;
        if (why)
            put_one_not_sampled(w, lane_name(s->from, (vt_pm_lane)k, name), why);
    }
}

void story_put_sampled(vt_json *w, const story_input *in, const story_record *r)
{
    const story_source *first = next_gpu(in, in->source);
    int64_t n = 0;
    double length = 0, lost = 0;
    if (!first || !first->is.pm) {
        vt_json_null(w, "sampled");
        return;
    }
    for (const story_source *g = first; g; g = next_gpu(in, g + 1)) {
        sampled s = samples_of(g, r);
        n += s.n;
        length = s.n && length == 0 ? (double)(s.at[s.n - 1].end_ns - s.at[s.n - 1].begin_ns) * 1e-9
                                    : length;
        lost = fmax(lost, s.lost_s);
    }
    vt_json_open(w, "sampled", '{');
    vt_json_string(w, "tier", "T2");
    vt_json_string(w, "why", n ? NULL : story_no_pm(in, r));
    vt_json_int(w, "count", n);
    put_us(w, "interval_us", length > 0 ? length : NAN, measured);
    put_ms(w, "lost_ms", lost, measured);
    vt_json_open(w, "not_sampled", '[');
    for (const story_source *g = first; g; g = next_gpu(in, g + 1)) {
        sampled s = samples_of(g, r);
        put_not_sampled(w, in, &s);
    }
    vt_json_close(w);
    vt_json_close(w);
}
