/* Any bytes as a story.json: see story_forms.h. */
#include "story_forms.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_story_forms((const char *)data, size, size % 2 ? VT_TERM_WIDTH : 80, size % 4,
                      "linear.qkv");
    return 0;
}
