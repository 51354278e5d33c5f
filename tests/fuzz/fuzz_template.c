/* Any bytes as a chat template over a fixed conversation: parsing and rendering either fail with a
 * message or give text, within the limits of a real rendering. Bytes after a NUL are the variables
 * instead.
 *
 * Run it with -timeout=30: a rendering that uses all of its 10 million steps takes about a second,
 * ten times that under the sanitizers. A longer one is work that the steps do not pay for. */
#include <stdlib.h>
#include <string.h>

#include "text/template/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char variables[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
    "\"content\": \"H\xc3\xa9\"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": "
    "\"f\", \"arguments\": {\"x\": 1.5}}}]}],"
    " \"tools\": [{\"a\": [1, true]}], \"add_generation_prompt\": true, \"bos_token\": \"<s>\", "
    "\"l\": [3, 1, 2], \"n\": 7}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t len = nul ? (size_t)(nul - data) : size;
    vt_template_limits limits = {.now = 1};
    vt_template *t = NULL;
    vt_err err = {0};
    vt_buf out;
    vt_buf_init(&out, 0);
    vt_status s = vt_template_parse("fuzz", (const char *)data, len, &t, &err);
    if (s == VT_OK && nul)
        s = vt_template_render(t, (const char *)nul + 1, size - len - 1, &limits, &out, &err);
    else if (s == VT_OK)
        s = vt_template_render(t, variables, sizeof variables - 1, &limits, &out, &err);
    if (s != VT_OK && !err.message[0])
        abort();
    vt_buf_release(&out);
    vt_template_free(t);
    return 0;
}
