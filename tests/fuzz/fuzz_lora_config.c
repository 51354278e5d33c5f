/* Any bytes as an adapter's adapter_config.json: reading them gives ranks in range and finite
 * scales for every module, or fails with a message. */
#include <math.h>
#include <stdlib.h>

#include "model/lora/lora.h"

enum { MOST_MEMORY = 16 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const vt_lora_config *c)
{
    static const char *const module[] = {"model.layers.0.self_attn.q_proj",
                                         "model.layers.10.mlp.down_proj", "q_proj", ""};
    for (size_t i = 0; i < sizeof module / sizeof *module; i++) {
        int32_t rank = vt_lora_config_rank(c, module[i]);
        if (rank < 1 || rank > VT_LORA_MOST_RANK || !isfinite(vt_lora_config_scale(c, module[i])))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *root;
    vt_arena arena;
    vt_lora_config config;
    vt_err err = {0};
    if (vt_read_json_text("fuzz", (const char *)data, size, &root, &err) != VT_OK)
        return 0;
    vt_arena_init(&arena, MOST_MEMORY);
    vt_status status = vt_lora_config_of("fuzz", root, &arena, &config, &err);
    if (status == VT_OK)
        check(&config);
    else if (!err.message[0])
        abort();
    json_decref(root);
    vt_arena_release(&arena);
    return 0;
}
