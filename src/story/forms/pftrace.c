/* A trace in Perfetto's protobuf form (.pftrace), which ui.perfetto.dev and trace_processor read.
 *
 * The numbers of fields are those of perfetto/trace/trace_packet.proto, track_descriptor.proto and
 * track_event.proto. Only seven messages are written, so the encoder is this file; protobuf-c, the
 * library of Debian that would do it, needs a generated file of 40,000 lines for them.
 *
 *   process (the model)
 *     request, steps, calls   slices and moments; a flow leads from a step to its calls
 *     kernels recorded        slices, in some steps
 *     pages held, cached, free and a track for each lane: counters */
#include <math.h>
#include <string.h>

#include "story/forms/trace.h"

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2 };
enum { SLICE_BEGIN = 1, SLICE_END, INSTANT, COUNTER }; /* TrackEvent.Type */
enum { PROCESS_TRACK = 1, FIRST_TRACK, FIRST_COUNTER = 16, SEQUENCE = 1 };

static void put_varint(vt_buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        vt_buf_putc(b, (char)(uint8_t)(v | 0x80));
    vt_buf_putc(b, (char)(uint8_t)v);
}

static void put_uint(vt_buf *b, int field, uint64_t v)
{
    put_varint(b, (uint64_t)field << 3 | WIRE_VARINT);
    put_varint(b, v);
}

static void put_64(vt_buf *b, int field, const void *bits)
{
    char bytes[8];
    uint64_t v;
    memcpy(&v, bits, sizeof v);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(uint8_t)(v >> (8 * i));
    put_varint(b, (uint64_t)field << 3 | WIRE_64);
    vt_buf_add(b, bytes, sizeof bytes);
}

static void put_bytes(vt_buf *b, int field, const char *data, size_t n)
{
    put_varint(b, (uint64_t)field << 3 | WIRE_BYTES);
    put_varint(b, n);
    vt_buf_add(b, data, n);
}

static void put_string(vt_buf *b, int field, const char *s) { put_bytes(b, field, s, strlen(s)); }

/* Adds a message as a field of `into`, and releases it. */
static void put_message(vt_buf *into, int field, vt_buf *message)
{
    into->failed |= message->failed;
    put_bytes(into, field, message->data ? message->data : "", message->len);
    vt_buf_release(message);
}

/* A packet of the trace: at a time (-1: none), with a TrackEvent (11) or a TrackDescriptor (60). */
static void put_packet(vt_buf *out, int64_t at_ns, int field, vt_buf *message)
{
    vt_buf packet = {0};
    if (at_ns >= 0)
        put_uint(&packet, 8, (uint64_t)at_ns);
    put_uint(&packet, 10, SEQUENCE);
    put_message(&packet, field, message);
    put_message(out, 1, &packet);
}

static void put_process(const trace *t, vt_buf *out)
{
    vt_buf track = {0}, process = {0};
    put_uint(&process, 1, 1);
    put_string(&process, 6, *t->process ? t->process : "vitrine");
    put_uint(&track, 1, PROCESS_TRACK);
    put_message(&track, 3, &process);
    put_packet(out, -1, 60, &track);
}

static void put_track(vt_buf *out, uint64_t id, const char *name, const char *value, bool counter)
{
    vt_buf track = {0}, label = {0}, none = {0};
    vt_buf_printf(&label, "%s%s%s", name, *value ? " " : "", value);
    put_uint(&track, 1, id);
    put_uint(&track, 5, PROCESS_TRACK);
    put_message(&track, 2, &label);
    if (counter)
        put_message(&track, 8, &none);
    put_packet(out, -1, 60, &track);
}

/* Stories begin before time 0 where a step was running when the request arrived; `zero` moves all
 * times behind 0. */
static int64_t ns_of(double us, double zero_us)
{
    double ns = (us - zero_us) * 1e3;
    return ns >= 0 && ns < 9e18 ? (int64_t)llround(ns) : 0;
}

static void annotate(vt_buf *event, const trace_span *s)
{
    vt_buf note = {0};
    if (*s->text) {
        put_string(&note, 10, "text");
        put_string(&note, 6, s->text);
        put_message(event, 4, &note);
    }
    for (int32_t k = 0; k < s->n_facts; k++) {
        vt_buf fact = {0};
        if (!isfinite(s->fact[k]))
            continue;
        put_string(&fact, 10, s->fact_name[k]);
        put_64(&fact, 5, &s->fact[k]);
        put_message(event, 4, &fact);
    }
}

static void put_span(const trace_span *s, double zero_us, vt_buf *out)
{
    bool lasts = isfinite(s->us) && s->us >= 0;
    vt_buf event = {0};
    uint64_t track = FIRST_TRACK + (uint64_t)s->track, flow = (uint64_t)s->step;
    put_uint(&event, 9, lasts ? SLICE_BEGIN : INSTANT);
    put_uint(&event, 11, track);
    put_string(&event, 23, s->name);
    if (s->step >= 0)
        put_64(&event, 47, &flow);
    annotate(&event, s);
    put_packet(out, ns_of(s->begin_us, zero_us), 11, &event);
    if (!lasts)
        return;
    vt_buf end = {0};
    put_uint(&end, 9, SLICE_END);
    put_uint(&end, 11, track);
    put_packet(out, ns_of(s->begin_us + s->us, zero_us), 11, &end);
}

/* The counts of one name, from `i` on: a track for each of their values. Returns the next one. */
static size_t put_counter(const trace *t, size_t i, uint64_t *track, double zero_us, vt_buf *out)
{
    const trace_count *first = &t->count[i];
    for (int32_t k = 0; k < first->n_values; k++)
        put_track(out, *track + (uint64_t)k, first->name,
                  first->n_values > 1 ? first->value_name[k] : "", true);
    for (; i < t->n_counts && strcmp(t->count[i].name, first->name) == 0; i++)
        for (int32_t k = 0; k < t->count[i].n_values; k++) {
            vt_buf event = {0};
            if (!isfinite(t->count[i].value[k]))
                continue;
            put_uint(&event, 9, COUNTER);
            put_uint(&event, 11, *track + (uint64_t)k);
            put_64(&event, 44, &t->count[i].value[k]);
            put_packet(out, ns_of(t->count[i].at_us, zero_us), 11, &event);
        }
    *track += (uint64_t)first->n_values;
    return i;
}

void trace_to_pftrace(const trace *t, vt_buf *out)
{
    double zero_us = 0;
    uint64_t track = FIRST_COUNTER;
    for (size_t i = 0; i < t->n_spans; i++)
        zero_us = fmin(zero_us, t->span[i].begin_us);
    for (size_t i = 0; i < t->n_counts; i++)
        zero_us = fmin(zero_us, t->count[i].at_us);
    put_process(t, out);
    for (int k = 0; k < t->n_tracks; k++)
        put_track(out, FIRST_TRACK + (uint64_t)k, trace_track_names[k], "", false);
    for (size_t i = 0; i < t->n_spans; i++)
        put_span(&t->span[i], zero_us, out);
    for (size_t i = 0; i < t->n_counts;)
        i = put_counter(t, i, &track, zero_us, out);
}
