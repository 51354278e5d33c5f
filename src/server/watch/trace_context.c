#include "server/watch/trace_context.h"

#include <stdio.h>
#include <string.h>

static bool is_id_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("-_.:/+=@", c));
}

void server_request_id(const char *header, uint64_t fresh, char out[SERVER_MAX_ID + 1])
{
    size_t n = 0;
    while (header && n <= SERVER_MAX_ID && is_id_character(header[n]))
        n++;
    if (n > 0 && n <= SERVER_MAX_ID && header[n] == '\0')
        memcpy(out, header, n + 1);
    else
        snprintf(out, SERVER_MAX_ID + 1, "req-%016llx", (unsigned long long)fresh);
}

/* The digits of one field at *at, which must be `n` long and end with '-' or the text's end. Zeros
 * alone are not allowed where `some` is set. */
static bool take_hex(const char **at, int n, bool some, char *out)
{
    const char *p = *at;
    bool zero = true;
    for (int i = 0; i < n; i++) {
        bool digit = (p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f');
        if (!digit)
            return false;
        zero = zero && p[i] == '0';
        out[i] = p[i];
    }
    out[n] = '\0';
    if ((p[n] != '-' && p[n] != '\0') || (some && zero))
        return false;
    *at = p + n + (p[n] == '-');
    return true;
}

/* "00-<32 digits>-<16 digits>-<2 digits>". Versions above 00 may have more fields behind these;
 * version ff is invalid. */
static bool read_traceparent(const char *p, server_trace *out)
{
    char version[3], flags[3], trace[33], parent[17];
    const char *end = p + strlen(p);
    if (!take_hex(&p, 2, false, version) || strcmp(version, "ff") == 0 ||
        !take_hex(&p, 32, true, trace) || !take_hex(&p, 16, true, parent))
        return false;
    const char *last = p;
    if (!take_hex(&p, 2, false, flags) || (strcmp(version, "00") == 0 && last + 2 != end))
        return false;
    memcpy(out->trace_id, trace, sizeof trace);
    memcpy(out->parent_id, parent, sizeof parent);
    int low = flags[1] >= 'a' ? flags[1] - 'a' + 10 : flags[1] - '0';
    out->sampled = low & 1;
    return true;
}

void server_trace_begin(const char *traceparent, const uint64_t fresh[3], server_trace *out)
{
    *out = (server_trace){.sampled = true};
    /* an id of zeros is invalid */
    snprintf(out->span_id, sizeof out->span_id, "%016llx", (unsigned long long)(fresh[0] | 1));
    if (traceparent && read_traceparent(traceparent, out))
        return;
    snprintf(out->trace_id, sizeof out->trace_id, "%016llx%016llx", (unsigned long long)fresh[1],
             (unsigned long long)(fresh[2] | 1));
}
