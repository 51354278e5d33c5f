#!/usr/bin/env python3
"""A GGUF file of a published shape with random weights that llama.cpp and vitrine load, and ik_llama.cpp where it has the family:
every matrix, embedding and head in one type, norms about 1, a tokenizer of bytes and made-up words.

    python3 bench/peers/random_gguf.py SHAPE TYPE OUT.gguf [LAYERS]     TYPE: q4_0 q8_0 q4_k bf16 f32
    SHAPE: exaone-4.0-1.2b gemma-2-2b gemma-3-1b glm-4.7-flash granite-4.0-h-micro lfm2-1.2b lfm2-350m
           llama-3.2-1b nemotron-h-8b olmo-2-1b phi-4-mini qwen3-0.6b qwen3-8b qwen3-30b-a3b qwen3.5-0.8b smollm3-3b tiny

LAYERS: so many of the shape's layers, for files that fit. A matrix is made of random blocks whose weights have a standard deviation
of about 0.02, as those of trained models; the blocks repeat after 65,536. A model with such weights writes nonsense at a real
model's speed. Prints OUT.gguf."""
import random, struct, sys

TYPES = {  # GGUF type, file type, weights of a block, bytes of a block
    "f32": (0, 0, 32, 128),
    "q4_0": (2, 2, 32, 18),
    "q8_0": (8, 7, 32, 34),
    "q4_k": (12, 14, 256, 144),
    "bf16": (30, 32, 32, 64),
}
DEVIATION, BLOCKS = 0.02, 1 << 16


def shape(arch, vocab, tied, layers, hidden, ffn, heads, kv, dim, eps=1e-6, rope=1e6, mixers="a", **more):
    """mixers: a letter for each layer, repeated: a attention, m Mamba-2, d delta rule, c short convolution, f feed-forward alone.
    more: metadata keys, with _ for . where a double stands."""
    return {"arch": arch, "vocab": vocab, "tied": tied, "layers": layers, "hidden": hidden, "ffn": ffn, "heads": heads, "kv": kv,
            "dim": dim, "eps": eps, "rope": rope, "mixers": (mixers * layers)[:layers], "more": more}


SHAPES = {  # from the models' published config.json
    "tiny": shape("qwen3", 1000, False, 2, 512, 1024, 4, 2, 128),
    "qwen3-0.6b": shape("qwen3", 151936, True, 28, 1024, 3072, 16, 8, 128),
    "qwen3-8b": shape("qwen3", 151936, False, 36, 4096, 12288, 32, 8, 128),
    "qwen3-30b-a3b": shape("qwen3moe", 151936, False, 48, 2048, 6144, 32, 4, 128, expert_count=128, expert_used_count=8,
                           expert_feed_forward_length=768),
    "qwen3.5-0.8b": shape("qwen35", 248320, True, 24, 1024, 3584, 8, 2, 256, rope=1e7, mixers="ddda", full_attention_interval=4,
                          rope__dimension_count=64, rope__dimension_sections=[11, 11, 10, 0], ssm__conv_kernel=4,
                          ssm__state_size=128, ssm__group_count=16, ssm__time_step_rank=16, ssm__inner_size=2048),
    "llama-3.2-1b": shape("llama", 128256, True, 16, 2048, 8192, 32, 8, 64, eps=1e-5, rope=5e5),
    "gemma-2-2b": shape("gemma2", 256000, True, 26, 2304, 9216, 8, 4, 256, rope=1e4, attention__sliding_window=4096,
                        attn_logit_softcapping=50.0, final_logit_softcapping=30.0),
    "gemma-3-1b": shape("gemma3", 262144, True, 26, 1152, 6912, 4, 1, 256, attention__sliding_window=512),
    "granite-4.0-h-micro": shape("granitehybrid", 100352, True, 40, 2048, 8192, 32, 8, 64, eps=1e-5, rope=1e4,
                                 mixers="mmmmmammmmmmmmmammmmmmmmmammmmmmmmmammmm", ssm__conv_kernel=4, ssm__state_size=128,
                                 ssm__group_count=1, ssm__time_step_rank=64, ssm__inner_size=4096, embedding_scale=12.0,
                                 residual_scale=0.22, attention__scale=0.015625, logit_scale=8.0, rope__scaling__finetuned=False),
    "nemotron-h-8b": shape("nemotron_h", 131072, False, 52, 4096, 21504, 32, 8, 128, eps=1e-5, rope=1e4,
                           mixers="mfmfmfmafmfmfmfmfmafmfmfmfmfmafmfmfmfmfmafmfmfmfmfmf", ssm__conv_kernel=4, ssm__state_size=128,
                           ssm__group_count=8, ssm__time_step_rank=128, ssm__inner_size=8192),
    "smollm3-3b": shape("smollm3", 128256, True, 36, 2048, 11008, 16, 4, 128, rope=5e6),
    "olmo-2-1b": shape("olmo2", 100352, False, 16, 2048, 8192, 16, 16, 128, rope=5e5),
    "phi-4-mini": shape("phi3", 200064, True, 32, 3072, 8192, 24, 8, 128, eps=1e-5, rope=1e4, rope__dimension_count=96),
    "exaone-4.0-1.2b": shape("exaone4", 102400, True, 30, 2048, 4096, 32, 8, 64, eps=1e-5),
    "lfm2-350m": shape("lfm2", 65536, True, 16, 1024, 4608, 16, 8, 64, eps=1e-5, mixers="ccaccaccacacacac", shortconv__l_cache=3),
    "lfm2-1.2b": shape("lfm2", 65536, True, 16, 2048, 8192, 32, 8, 64, eps=1e-5, mixers="ccaccaccacacacac", shortconv__l_cache=3),
    "glm-4.7-flash": shape("deepseek2", 154880, False, 47, 2048, 10240, 20, 1, 576, eps=1e-5, leading_dense_block_count=1,
                           expert_count=64, expert_used_count=4, expert_feed_forward_length=1536, expert_shared_count=1,
                           expert_weights_scale=1.8, expert_weights_norm=True, expert_gating_func=2, expert_group_count=1,
                           expert_group_used_count=1, attention__q_lora_rank=768, attention__kv_lora_rank=512,
                           attention__key_length_mla=256, attention__value_length_mla=256, rope__dimension_count=64),
}


def random_blocks(kind, r):
    """BLOCKS blocks, one behind the other: random quants under a scale that varies by 30 %."""
    size, out = TYPES[kind][3], bytearray()
    for _ in range(BLOCKS):
        if kind in ("bf16", "f32"):  # of bf16 the high halves of floats
            low = 2 if kind == "bf16" else 0
            out += b"".join(struct.pack("<f", r.gauss(0, DEVIATION))[low:] for _ in range(TYPES[kind][2]))
            continue
        vary = DEVIATION * r.uniform(0.7, 1.3)
        if kind == "q8_0":  # quants -128 .. 127
            head = struct.pack("<e", vary / 74)
        elif kind == "q4_0":  # quants -8 .. 7
            head = struct.pack("<e", vary / 4.6)
        else:  # d * scale * quant - dmin * min: scales and mins of 0 .. 63, quants of 0 .. 15
            head = struct.pack("<ee", vary / (31.5 * 4.6), 7.5 * vary / (31.5 * 4.6))
        out += head + r.randbytes(size - len(head))
    return bytes(out)


def mixer(s, kind):
    """(name, dims) of a layer's tensors before its feed-forward; (name, dims, (least, most)): a vector or small table in F32."""
    hidden, heads, kv, dim, arch, more = s["hidden"], s["heads"], s["kv"], s["dim"], s["arch"], s["more"]
    if kind == "f":
        return
    if kind == "c":
        yield "shortconv.in_proj", (hidden, 3 * hidden)
        yield "shortconv.conv", (more["shortconv__l_cache"], hidden), (-0.6, 0.6)
        yield "shortconv.out_proj", (hidden, hidden)
        return
    if kind in "md":
        inner, groups, states = more["ssm__inner_size"], more["ssm__group_count"], more["ssm__state_size"]
        ranks, mixed = more["ssm__time_step_rank"], inner + 2 * groups * states
        if kind == "d":
            for name, rows in (("attn_qkv", mixed), ("attn_gate", inner), ("ssm_beta", ranks), ("ssm_alpha", ranks)):
                yield name, (hidden, rows)
            yield "ssm_a", (ranks,), (-4, -0.1)
            yield "ssm_norm", (inner // ranks,), (0.9, 1.1)
        else:
            yield "ssm_in", (hidden, mixed + inner + ranks)
            yield "ssm_conv1d.bias", (mixed,), (-0.2, 0.2)
            yield "ssm_a", (1, ranks), (-16, -1)
            yield "ssm_d", (1, ranks), (0.5, 1.5)
            yield "ssm_norm", (inner // groups, groups), (0.9, 1.1)
        yield "ssm_conv1d", (more["ssm__conv_kernel"], mixed), (-0.5, 0.5)
        yield "ssm_dt.bias", (ranks,), (-4, -2)
        yield "ssm_out", (inner, hidden)
        return
    if arch == "deepseek2":
        q, latent, k, v = (more["attention__" + n] for n in ("q_lora_rank", "kv_lora_rank", "key_length_mla", "value_length_mla"))
        rope = more["rope__dimension_count"]
        yield from (("attn_q_a", (hidden, q)), ("attn_q_a_norm", (q,)), ("attn_q_b", (q, heads * k)), ("attn_kv_a_norm", (latent,)),
                    ("attn_kv_a_mqa", (hidden, latent + rope)), ("attn_k_b", (k - rope, latent, heads)),
                    ("attn_v_b", (latent, v, heads)), ("attn_output", (heads * v, hidden)))
        return
    if arch == "phi3":
        yield "attn_qkv", (hidden, (heads + 2 * kv) * dim)
    else:
        gate = 2 if arch == "qwen35" else 1
        yield from (("attn_q", (hidden, gate * heads * dim)), ("attn_k", (hidden, kv * dim)), ("attn_v", (hidden, kv * dim)))
    yield "attn_output", (heads * dim, hidden)
    if arch in ("qwen3", "qwen3moe", "qwen35", "gemma3", "exaone4", "lfm2"):
        yield from (("attn_q_norm", (dim,)), ("attn_k_norm", (dim,)))
    elif arch == "olmo2":
        yield from (("attn_q_norm", (heads * dim,)), ("attn_k_norm", (kv * dim,)))


def feed_forward(s, layer):
    hidden, ffn, more = s["hidden"], s["ffn"], s["more"]
    if s["arch"] == "nemotron_h":  # a layer is one block
        if s["mixers"][layer] == "f":
            yield from (("ffn_up", (hidden, ffn)), ("ffn_down", (ffn, hidden)))
        return
    experts = more.get("expert_count", 0) if layer >= more.get("leading_dense_block_count", 0) else 0
    if experts:
        part = more["expert_feed_forward_length"]
        yield "ffn_gate_inp", (hidden, experts), (-0.03, 0.03)
        yield from (("ffn_gate_exps", (hidden, part, experts)), ("ffn_up_exps", (hidden, part, experts)),
                    ("ffn_down_exps", (part, hidden, experts)))
        if s["arch"] == "deepseek2":
            yield "exp_probs_b.bias", (experts,), (-0.05, 0.05)
            yield from (("ffn_gate_shexp", (hidden, part)), ("ffn_up_shexp", (hidden, part)), ("ffn_down_shexp", (part, hidden)))
    elif s["arch"] == "phi3":
        yield from (("ffn_up", (hidden, 2 * ffn)), ("ffn_down", (ffn, hidden)))
    else:
        yield from (("ffn_gate", (hidden, ffn)), ("ffn_up", (hidden, ffn)), ("ffn_down", (ffn, hidden)))


NORMS = {"gemma2": ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), "qwen35": ("attn_norm", "post_attention_norm"),
         "exaone4": ("post_attention_norm", "post_ffw_norm"), "nemotron_h": ("attn_norm",)}
NORMS |= {"gemma3": NORMS["gemma2"], "olmo2": NORMS["exaone4"]}


def tensors(s):
    """(name, dims, None or the range of an F32 tensor's numbers)"""
    yield "token_embd.weight", (s["hidden"], s["vocab"]), None
    for i in range(s["layers"]):
        norms = [(name, (s["hidden"],)) for name in NORMS.get(s["arch"], ("attn_norm", "ffn_norm"))]
        for name, dims, *given in [*norms, *mixer(s, s["mixers"][i]), *feed_forward(s, i)]:
            name += "" if name.endswith(".bias") or name in ("ssm_a", "ssm_d") else ".weight"
            yield f"blk.{i}.{name}", dims, given[0] if given else (0.9, 1.1) if len(dims) == 1 else None
    yield "token_embd_norm.weight" if s["arch"] == "lfm2" else "output_norm.weight", (s["hidden"],), (0.9, 1.1)
    if not s["tied"]:
        yield "output.weight", (s["hidden"], s["vocab"]), None


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def vocabulary(n):
    """(texts, types): the bytes, two merged tokens, made-up words, and three special tokens at the end."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    words = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))] + ["\u0120t", "\u0120a"]
    words += [f"w{i}" for i in range(len(words), n - 3)] + ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return words, [1] * (n - 3) + [3] * 3


def value(v):
    """A metadata value with its type before it."""
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    of = [value(x) for x in v]
    return struct.pack("<IIQ", 9, struct.unpack("<I", of[0][:4])[0], len(v)) + b"".join(x[4:] for x in of)


def header(name, s, kind):
    arch, vocab, layers = s["arch"], s["vocab"], s["layers"]
    words, types = vocabulary(vocab)
    mixed = set(s["mixers"]) & set("mcf")
    per_layer = {"block_count": layers, "context_length": 40960, "embedding_length": s["hidden"],
                 "feed_forward_length": [s["ffn"] * (k == "f") for k in s["mixers"]] if arch == "nemotron_h" else s["ffn"],
                 "attention.head_count": s["heads"],
                 "attention.head_count_kv": [s["kv"] * (k == "a") for k in s["mixers"]] if mixed else s["kv"],
                 "attention.key_length": s["dim"],
                 "attention.value_length": s["more"].get("attention__kv_lora_rank", s["dim"]),
                 "attention.layer_norm_rms_epsilon": s["eps"], "rope.freq_base": s["rope"]}
    if arch == "nemotron_h":
        per_layer["attention.layer_norm_epsilon"] = s["eps"]
    per_layer |= {k.replace("__", "."): v for k, v in s["more"].items()}
    whole = {"general.architecture": arch, "general.name": f"random {name} {kind}", "general.file_type": TYPES[kind][1],
             "general.quantization_version": 2, **{f"{arch}.{k}": v for k, v in per_layer.items()},
             "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": words,
             "tokenizer.ggml.merges": ["\u0120 t", "\u0120 a"], "tokenizer.ggml.add_bos_token": False,
             "tokenizer.ggml.eos_token_id": vocab - 1, "tokenizer.ggml.padding_token_id": vocab - 3,
             "tokenizer.ggml.bos_token_id": vocab - 3}
    out = [text(k) + value(v) for k, v in whole.items()]
    return out + [text("tokenizer.ggml.token_type") + struct.pack("<IIQ", 9, 5, vocab) + struct.pack(f"<{vocab}i", *types)]


def write(name, kind, path, layers=0):
    s = dict(SHAPES[name])
    s["layers"] = layers or s["layers"]
    s["mixers"] = s["mixers"][:s["layers"]]
    number, _, block, size = TYPES[kind]
    r = random.Random(12345)
    pool = random_blocks(kind, r)
    twice = memoryview(pool + pool)
    infos, at, plan = [], 0, []
    for tensor, dims, given in tensors(s):
        count = 1
        for d in dims:
            count *= d
        assert given or dims[0] % block == 0, f"{tensor} has rows of {dims[0]}, which are no blocks of {kind}"
        n = 4 * count if given else count // block * size
        infos.append(text(tensor) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) +
                     struct.pack("<IQ", 0 if given else number, at))
        plan.append((n, given))
        at += -(-n // 32) * 32
    values = header(name, s, kind)
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(values)) + b"".join(values) + b"".join(infos))
        f.write(b"\0" * (-f.tell() % 32))
        for n, given in plan:
            start, left = r.randrange(BLOCKS) * size, n
            if given:
                f.write(struct.pack(f"<{n // 4}f", *(r.uniform(*given) for _ in range(n // 4))))
                left = 0
            while left:
                part = min(left, len(pool))
                f.write(twice[start:start + part])
                left -= part
            f.write(b"\0" * (-n % 32))


def main():
    if len(sys.argv) not in (4, 5) or sys.argv[1] not in SHAPES or sys.argv[2] not in TYPES:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    write(*sys.argv[1:4], int((sys.argv + ["0"])[4]))
    print(sys.argv[3])
    return 0


if __name__ == "__main__":
    sys.exit(main())
