/* Answers as the load generator reads them (load/answer.h): whatever a server sends and however it
 * is cut, the same result, which keeps what the header promises. The first byte says how the second
 * reading is cut, and whether a stream is expected. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "load/measure.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static int gaps;

static void on_gap(void *user, float seconds)
{
    (void)user;
    must(seconds >= 0);
    gaps++;
}

/* Feeds all bytes, `cut` at a time, at one moment; then the connection closes. */
static void read_all(vt_load_answer *a, vt_load_result *r, const char *data, size_t size,
                     size_t cut, bool stream)
{
    gaps = 0;
    *r = (vt_load_result){.due_ns = 1, .begin_ns = 1};
    vt_load_answer_begin(a, r, stream);
    bool ended = false;
    for (size_t at = 0; at < size && !ended; at += cut)
        ended = vt_load_answer_feed(a, data + at, size - at < cut ? size - at : cut, 5);
    if (!ended)
        vt_load_answer_closed(a, 5);
    must(r->end != VT_LOAD_OPEN && r->end < VT_LOAD_N_ENDS);
    must(r->n_pieces >= 0 && gaps == (r->n_pieces > 1 ? r->n_pieces - 1 : 0));
    must(r->prompt >= -1 && r->completion >= -1 && r->cached >= -1);
    must((r->first_ns == 5) == (r->n_pieces > 0));
    must(r->end != VT_LOAD_OK || (r->status == 200 && !r->why[0]));
    must(r->end == VT_LOAD_OK || r->why[0]);
    for (const char *p = r->why; *p; p++)
        must((unsigned char)*p >= 0x20 && *p != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static vt_load_answer a;
    static bool made;
    vt_load_result whole, cut;
    vt_load_summary s;
    if (size < 1 || size > 65536)
        return 0;
    if (!made) {
        vt_load_answer_init(&a);
        a.on_gap = on_gap;
        a.keep_text = made = true;
    }
    bool stream = data[0] & 1;
    size_t by = 1 + (data[0] >> 1) % 19;
    const char *bytes = (const char *)data + 1;
    read_all(&a, &whole, bytes, size - 1, size, stream);
    read_all(&a, &cut, bytes, size - 1, by, stream);
    must(whole.end == cut.end && whole.status == cut.status && whole.n_pieces == cut.n_pieces);
    must(whole.prompt == cut.prompt && whole.completion == cut.completion);
    must(strcmp(whole.why, cut.why) == 0);
    must(vt_load_measure(&whole, 1, NULL, 0, 1, &(vt_load_slo){.ttft = 1}, &s, NULL) == VT_OK);
    must(s.n == 1 && s.ended[whole.end] == 1);
    return 0;
}
