#!/usr/bin/env python3
"""A GGUF file of a Qwen3 shape with random weights that llama.cpp, ik_llama.cpp and vitrine all load: every matrix, embedding
and head in one type, norms 1, a tokenizer of bytes and made-up words.

    python3 bench/peers/random_gguf.py SHAPE TYPE OUT.gguf       SHAPE: qwen3-0.6b qwen3-8b tiny    TYPE: q4_0 q8_0 q4_k bf16

A matrix is made of random blocks whose weights have a standard deviation of about 0.02, as those of trained models; the
blocks repeat after 65,536. A model with such weights writes nonsense at a real model's speed. Prints OUT.gguf."""
import random, struct, sys

SHAPES = {  # hidden, ffn, layers, heads, kv heads, vocabulary, tied
    "tiny": (512, 1024, 2, 4, 2, 1000, False),
    "qwen3-0.6b": (1024, 3072, 28, 16, 8, 151936, True),
    "qwen3-8b": (4096, 12288, 36, 32, 8, 151936, False),
}
TYPES = {  # GGUF type, file type, weights of a block, bytes of a block
    "q4_0": (2, 2, 32, 18),
    "q8_0": (8, 7, 32, 34),
    "q4_k": (12, 14, 256, 144),
    "bf16": (30, 32, 32, 64),
}
DEVIATION, HEAD_DIM, BLOCKS = 0.02, 128, 1 << 16


def random_blocks(kind, r):
    """BLOCKS blocks, one behind the other: random quants under a scale that varies by 30 %."""
    size, out = TYPES[kind][3], bytearray()
    for _ in range(BLOCKS):
        if kind == "bf16":  # the high halves of floats
            out += b"".join(struct.pack("<f", r.gauss(0, DEVIATION))[2:] for _ in range(TYPES[kind][2]))
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


def tensors(shape):
    """(name, columns, rows); rows 0: a norm"""
    hidden, ffn, layers, heads, kv, vocab, tied = SHAPES[shape]
    yield "token_embd.weight", hidden, vocab
    for i in range(layers):
        for name, cols, rows in (("attn_norm", hidden, 0), ("attn_q", hidden, heads * HEAD_DIM),
                                 ("attn_k", hidden, kv * HEAD_DIM), ("attn_v", hidden, kv * HEAD_DIM),
                                 ("attn_output", heads * HEAD_DIM, hidden), ("attn_q_norm", HEAD_DIM, 0),
                                 ("attn_k_norm", HEAD_DIM, 0), ("ffn_norm", hidden, 0), ("ffn_gate", hidden, ffn),
                                 ("ffn_up", hidden, ffn), ("ffn_down", ffn, hidden)):
            yield f"blk.{i}.{name}.weight", cols, rows
    yield "output_norm.weight", hidden, 0
    if not tied:
        yield "output.weight", hidden, vocab


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def vocabulary(n):
    """(texts, types): the bytes, two merged tokens, made-up words, and three special tokens at the end."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    words = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))] + ["\u0120t", "\u0120a"]
    words += [f"w{i}" for i in range(len(words), n - 3)] + ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return words, [1] * (n - 3) + [3] * 3


def header(shape, kind):
    hidden, ffn, layers, heads, kv, vocab, _ = SHAPES[shape]
    words, types = vocabulary(vocab)
    out = []

    def put(key, number, data):
        out.append(text(key) + struct.pack("<I", number) + data)
    put("general.architecture", 8, text("qwen3"))
    put("general.name", 8, text(f"random {shape} {kind}"))
    for key, v in (("general.file_type", TYPES[kind][1]), ("general.quantization_version", 2), ("qwen3.block_count", layers),
                   ("qwen3.context_length", 40960), ("qwen3.embedding_length", hidden), ("qwen3.feed_forward_length", ffn),
                   ("qwen3.attention.head_count", heads), ("qwen3.attention.head_count_kv", kv),
                   ("qwen3.attention.key_length", HEAD_DIM), ("qwen3.attention.value_length", HEAD_DIM),
                   ("tokenizer.ggml.eos_token_id", vocab - 1), ("tokenizer.ggml.padding_token_id", vocab - 3),
                   ("tokenizer.ggml.bos_token_id", vocab - 3)):
        put(key, 4, struct.pack("<I", v))
    put("qwen3.rope.freq_base", 6, struct.pack("<f", 1e6))
    put("qwen3.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-6))
    put("tokenizer.ggml.model", 8, text("gpt2"))
    put("tokenizer.ggml.pre", 8, text("qwen2"))
    put("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, vocab) + b"".join(map(text, words)))
    put("tokenizer.ggml.token_type", 9, struct.pack("<IQ", 5, vocab) + struct.pack(f"<{vocab}i", *types))
    put("tokenizer.ggml.merges", 9, struct.pack("<IQ", 8, 2) + text("\u0120 t") + text("\u0120 a"))
    put("tokenizer.ggml.add_bos_token", 7, b"\0")
    return out


def write(shape, kind, path):
    number, _, block, size = TYPES[kind]
    r = random.Random(12345)
    pool = random_blocks(kind, r)
    twice = memoryview(pool + pool)
    infos, at, plan = [], 0, []
    for name, cols, rows in tensors(shape):
        n = cols * rows // block * size if rows else 4 * cols
        dims = (cols, rows) if rows else (cols,)
        infos.append(text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) +
                     struct.pack("<IQ", number if rows else 0, at))
        plan.append((n, bool(rows)))
        at += -(-n // 32) * 32
    values = header(shape, kind)
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(values)) + b"".join(values) + b"".join(infos))
        f.write(b"\0" * (-f.tell() % 32))
        for n, matrix in plan:
            start, left = r.randrange(BLOCKS) * size, n
            while matrix and left:
                part = min(left, len(pool))
                f.write(twice[start:start + part])
                left -= part
            if not matrix:
                f.write(struct.pack("<f", 1) * (n // 4))
            f.write(b"\0" * (-n % 32))


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in SHAPES or sys.argv[2] not in TYPES:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    write(*sys.argv[1:])
    print(sys.argv[3])
    return 0


if __name__ == "__main__":
    sys.exit(main())
