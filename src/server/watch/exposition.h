/* Metrics as text: Prometheus's format 0.0.4, or OpenMetrics 1.0.
 *
 *     server_exposition w = {.out = &buf, .open = true};
 *     server_family(&w, SERVER_COUNTER, "vitrine:requests", "Requests that have ended.");
 *     server_sample(&w, 17, "finish", "stop");            labels: pairs, NULL ends them
 *     server_exposition_end(&w);                          "# EOF"
 *
 * The two differ in how counters are declared (OpenMetrics leaves "_total" out of the family's
 * name) and in the last line. Names come from this program; label values may come from outside and
 * are escaped. */
#ifndef VT_SERVER_WATCH_EXPOSITION_H
#define VT_SERVER_WATCH_EXPOSITION_H

#include "base/buf.h"
#include "server/watch/histogram.h"

typedef enum server_family_type {
    SERVER_GAUGE,
    SERVER_COUNTER,
    SERVER_HISTOGRAM
} server_family_type;

typedef struct server_exposition {
    vt_buf *out;
    bool open;               /* OpenMetrics */
    const char *model;       /* where not NULL: the value of a label model_name on every sample */
    server_family_type type; /* of the family that is being written */
    const char *name;
} server_exposition;

#define SERVER_TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define SERVER_OPEN_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Begins a family. A counter's name is given without "_total". */
void server_family(server_exposition *w, server_family_type type, const char *name,
                   const char *help);
/* One sample of a gauge or counter; then pairs of a label's name and value, and NULL. */
void server_sample(server_exposition *w, double value, ...) __attribute__((sentinel));
/* All samples of a histogram, in OpenMetrics with an exemplar a bucket; it has no label but the
 * model's. */
void server_histogram_samples(server_exposition *w, const server_histogram *h);
/* A family of one sample without labels. */
void server_metric(server_exposition *w, server_family_type type, const char *name,
                   const char *help, double value);
void server_exposition_end(server_exposition *w);

/* Returns true if a client that sends this Accept header (NULL: none) would rather have
 * OpenMetrics. */
bool server_accepts_openmetrics(const char *accept);

#endif
