"""A model folder made on the spot: a Llama of one layer with random weights, a byte-level tokenizer and a ChatML template.
It answers in microseconds, has a real tokenizer, and takes any chat template: what tests of the server need."""
import json, math, os, random

from tensors_file import f32, write_tensors

HIDDEN, HEADS, KV_HEADS, FF, CONTEXT = 32, 4, 2, 48, 4096
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHATML = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def byte_characters():
    """The character that byte-level vocabularies spell each byte with (GPT-2's table)."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    out, extra = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in out:
            out[b], extra = chr(256 + extra), extra + 1
    return out


def write_numbers(path, shapes, value):
    """A safetensors file of F32 tensors; value(name) is called for each number."""
    write_tensors(path, {name: f32(shape, [value(name) for _ in range(math.prod(shape))]) for name, shape in shapes.items()})


def make_adapter(folder, seed):
    """Writes a PEFT adapter for the model, of rank 2 for q and down, and returns its path."""
    rng = random.Random(seed)
    os.makedirs(folder, exist_ok=True)
    shapes = {}
    for module, rows, cols in (("self_attn.q_proj", HIDDEN, HIDDEN), ("mlp.down_proj", HIDDEN, FF)):
        shapes[f"base_model.model.model.layers.0.{module}.lora_A.weight"] = [2, cols]
        shapes[f"base_model.model.model.layers.0.{module}.lora_B.weight"] = [rows, 2]
    write_numbers(os.path.join(folder, "adapter_model.safetensors"), shapes, lambda name: rng.gauss(0, 1))
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj", "down_proj"], "bias": "none"}, f)
    return folder


def write_weights(path, vocab, seed):
    rng = random.Random(seed)
    d = HIDDEN // HEADS
    layer = {"input_layernorm.weight": [HIDDEN], "post_attention_layernorm.weight": [HIDDEN],
             "self_attn.q_proj.weight": [HIDDEN, HIDDEN], "self_attn.k_proj.weight": [KV_HEADS * d, HIDDEN],
             "self_attn.v_proj.weight": [KV_HEADS * d, HIDDEN], "self_attn.o_proj.weight": [HIDDEN, HIDDEN],
             "mlp.gate_proj.weight": [FF, HIDDEN], "mlp.up_proj.weight": [FF, HIDDEN], "mlp.down_proj.weight": [HIDDEN, FF]}
    shapes = {"model.embed_tokens.weight": [vocab, HIDDEN], "model.norm.weight": [HIDDEN], "lm_head.weight": [vocab, HIDDEN],
              **{"model.layers.0." + k: v for k, v in layer.items()}}
    write_numbers(path, shapes, lambda name: 1.0 if "norm" in name else rng.gauss(0, 0.4))


def make(folder, template=CHATML, seed=1, context=CONTEXT):
    """Writes the folder and returns its path."""
    os.makedirs(folder, exist_ok=True)
    characters = byte_characters()
    vocab = {characters[b]: b for b in range(256)}
    added = [{"id": 256 + i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, s in enumerate(SPECIAL)]
    size = 256 + len(SPECIAL)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    files = {
        "config.json": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "num_hidden_layers": 1,
                        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HIDDEN // HEADS,
                        "intermediate_size": FF, "vocab_size": size, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                        "max_position_embeddings": context, "tie_word_embeddings": False, "hidden_act": "silu",
                        "eos_token_id": 258, "torch_dtype": "float32"},
        "tokenizer.json": {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                           "pre_tokenizer": level, "post_processor": None, "decoder": level,
                           "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                                     "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                                     "vocab": vocab, "merges": []}},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>",
                                  "chat_template": template}}
    for name, value in files.items():
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f)
    write_weights(os.path.join(folder, "model.safetensors"), size, seed)
    return folder
