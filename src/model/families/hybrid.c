/* Short convolutions and attention in turn, made up: there are no files of this family. Its model
 * is what sequence state is tested with (docs/engine.md). */
#include "model/family.h"

static const vt_family_shape shapes[] = {
    {.name = "hybrid-tiny",
     .n_layers = 6,
     .hidden = 128,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 32,
     .ffn = 256,
     .vocab = 512,
     .max_context = 2048,
     .rope_base = 10000,
     .eps = 1e-5f,
     .tied = true,
     .conv_taps = 3,
     .attends_every = 3},
    {.name = NULL},
};

const vt_family vt_family_hybrid = {.name = "hybrid", .shapes = shapes};
