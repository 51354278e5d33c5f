#!/usr/bin/env python3
"""Our tokenizer beside Hugging Face's `tokenizers`, on the same file and texts, one core each, in one run.

    build/bench_tokenizer must exist (its first lines say how to build it)
    v/bin/python bench/peers/hf_tokenizers.py tokenizer.json TEXT...

Both are timed in CPU time, best of several passes; ids are compared. Texts go in whole and, as a second row, cut into
pieces of about 4 KB, which is how a server sees them."""
import os
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer, __version__  # noqa: E402


def best(f, passes=3):
    times = []
    for _ in range(passes):
        start = time.process_time()
        result = f()
        times.append(time.process_time() - start)
    return min(times), result


def main():
    path, texts = sys.argv[1], sys.argv[2:]
    print(subprocess.run(["build/bench_tokenizer", path, *texts], capture_output=True, text=True, check=True).stdout,
          end="")
    took, t = best(lambda: Tokenizer.from_file(path))
    print("tokenizers %s: loaded in %.1f ms" % (__version__, took * 1e3))
    t.encode_special_tokens = True
    for name in texts:
        text = open(name, encoding="utf-8", newline="").read()
        size = len(text.encode())
        pieces = [text[i:i + 4096] for i in range(0, len(text), 4096)]
        whole, ids = best(lambda: t.encode(text, add_special_tokens=False).ids)
        cut, _ = best(lambda: [t.encode(p, add_special_tokens=False).ids for p in pieces])
        back, _ = best(lambda: t.decode(ids, skip_special_tokens=False))
        print("%s: %d ids, encode %.1f MB/s whole, %.1f MB/s in pieces, decode %.1f MB/s" % (
            name, len(ids), size / whole / 1e6, size / cut / 1e6, size / back / 1e6))


main()
