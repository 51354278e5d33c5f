#!/usr/bin/env python3
"""A soak of `vitrine serve`: good requests of all kinds, aborted ones, clients that vanish at every stage, slow readers, requests
that are wrong or have no key, all at once, for some minutes; and batches (`run --batch`) that are killed by SIGKILL and begun
again until they are done. After a quarter of the time the server is killed the same way and started again, with drafts. TAP.

    make soak                      # 10 minutes, the ASan build
    tests/soak/soak.py --minutes 3 --vitrine build/asan/vitrine

At the end every batch must have each of its results once. The server must be alive, must have no request open, must have every KV page back (from /metrics; used 0, and
used + cached + free = all; after /flush_cache all are free), must not have grown but by its recorder's rings and CUDA graphs, and must end with status 0 upon
SIGTERM. Two thirds of the second server's time after its start all clients rest, caches are flushed, and what malloc has handed out is
looked at; at the end again, after half as many requests more: it must be the same (judge.py). No answer may have a status of 500 or more but 503 (the queue is full) and the 501 that profiling gives.

It takes whatever time the machine gives it: nothing here depends on how fast the server is."""
import argparse, atexit, collections, http.client, json, os, random, re, shutil, signal, socket, struct, subprocess, sys, tempfile
import threading, time

import judge

ap = argparse.ArgumentParser()
ap.add_argument("--minutes", type=float, default=10)
ap.add_argument("--vitrine", default="build/asan/vitrine")
ap.add_argument("--generator", help="the program that runs bench serve; the server's, if left out")
ap.add_argument("--model", help="a tiny random one, if left out: what is soaked is the server")
ap.add_argument("--device", default="cpu")
ap.add_argument("--kv-memory", default="2M", help="small enough that pages run out")
ap.add_argument("--server-args", default="", help="further options of the server")
ap.add_argument("--seed", type=int, default=1)
args = ap.parse_args()

ENV = {k: v for k, v in os.environ.items() if not k.startswith("VITRINE_") or k == "VITRINE_CACHE"}
# The quarantine keeps freed memory, up to 256 MiB by default: with that, growth would be seen after many minutes only.
KEYS, ADMIN = ("soak-alice", "soak-bob"), "soak-admin"
ENV.update({"VITRINE_DEVICE": args.device, "SOAK_KEY": KEYS[1], "ASAN_OPTIONS": "quarantine_size_mb=8:thread_local_quarantine_size_kb=64:detect_leaks=1:abort_on_error=0"})
SHORT = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-API-Key: soak-bob\r\nContent-Length: 100\r\n\r\n"
         b"{\"messages\"")
statuses, stages, failures = collections.Counter(), collections.Counter(), []
stop, rest, lock = threading.Event(), threading.Event(), threading.Lock()  # rest: clients begin nothing until it is cleared
at_rest = set()  # seeds of clients
serving = threading.Event()  # before, a server has no handler of signals yet


def note(counter, key):
    with lock:
        counter[key] += 1


# ---- the model ----

def tiny_model(folder):
    """A Llama of two layers with random weights, the tokenizer of a fixture, and a chat template."""
    tokenizer = "tests/golden/tokenizers/gpt2.json"
    vocab, hidden, inner, head = 1 + max(json.load(open(tokenizer))["model"]["vocab"].values()), 64, 96, 16
    rng, tensors, at, blob = random.Random(7), {}, 0, []
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for i in range(2):
        p = f"model.layers.{i}."
        shapes |= {p + "input_layernorm.weight": [hidden], p + "post_attention_layernorm.weight": [hidden],
                   p + "self_attn.q_proj.weight": [4 * head, hidden], p + "self_attn.k_proj.weight": [2 * head, hidden],
                   p + "self_attn.v_proj.weight": [2 * head, hidden], p + "self_attn.o_proj.weight": [hidden, 4 * head],
                   p + "mlp.gate_proj.weight": [inner, hidden], p + "mlp.up_proj.weight": [inner, hidden],
                   p + "mlp.down_proj.weight": [hidden, inner]}
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = struct.pack(f"<{n}f", *(rng.gauss(0, 0.1) if len(shape) > 1 else 1.0 for _ in range(n)))
        blob.append(b"".join(values[i + 2:i + 4] for i in range(0, len(values), 4)))  # BF16: the upper half
        tensors[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * n]}
        at += 2 * n
    header = json.dumps(tensors).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + b"".join(blob))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner,
              "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": head, "vocab_size": vocab,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True,
              "torch_dtype": "bfloat16", "hidden_act": "silu"}
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    for name, value in (("config.json", config), ("tokenizer_config.json", {"chat_template": template})):
        json.dump(value, open(os.path.join(folder, name), "w"))
    shutil.copy(tokenizer, os.path.join(folder, "tokenizer.json"))
    return folder


# ---- the server ----

made = tempfile.TemporaryDirectory()

model = args.model or tiny_model(made.name)
log = tempfile.TemporaryFile()


def start_server(port, *more):
    return subprocess.Popen([args.vitrine, "serve", "-m", model, "--port", str(port), "--max-context", "512", "--kv-memory", args.kv_memory, *more,
                             "--max-queued", "64", "--drain-timeout", "60", "--request-timeout", "600", "--tool-parser", "hermes", "--slo", "itl=1,e2e=20",
                             "--story-dir", os.path.join(made.name, "stories"), *args.server_args.split()],
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                            env={**ENV, "VITRINE_API_KEY": ",".join(KEYS), "VITRINE_ADMIN_KEY": ADMIN})


server = start_server(0)
atexit.register(lambda: server.poll() is None and server.kill())  # also where this program is ended early
signal.signal(signal.SIGTERM, lambda *_: sys.exit("Bail out! the soak was ended by SIGTERM"))


def said():
    return os.pread(log.fileno(), 1 << 30, 0).decode("utf-8", "replace")


def wait_for_start(times):
    """Waits until the log has that many lines of a start; returns host and port of the last."""
    while len(found := re.findall(r"http://(\S+):(\d+) serves", said())) < times:
        if server.poll() is not None:
            sys.exit(f"Bail out! the server ended with {server.returncode}: {said()[-2000:]}")
        time.sleep(0.2)
    return found[-1][0], int(found[-1][1])


HOST, PORT = wait_for_start(1)
serving.set()


def resident_kib():
    return int(open(f"/proc/{server.pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def look_at_rest():
    """(KiB handed out by malloc, KiB resident, of the recorder's rings, of CUDA graphs) for judge.py, of a server that nobody asks for
    anything and that keeps nothing for later, or None if it did not come to rest. Clients go on afterwards."""
    rest.set()
    until, found = time.monotonic() + 330, None
    while time.monotonic() < until and server.poll() is None and len(at_rest) < len(threads):
        time.sleep(0.2)
    try:
        for _ in range(2):  # pages are given back before the engine's next step, and their tree's memory with them
            get("/flush_cache", "POST")
            time.sleep(2.5)  # /metrics looks at malloc once in two seconds
        said = counters()
        if said and "malloc used" in said and len(at_rest) == len(threads):
            mib = said["malloc used"] + said["malloc mapped"], said.get("rings", 0), said.get("graph memory", 0)
            found = mib[0] * 1024, resident_kib(), mib[1] * 1024, mib[2] * 1024
    except (OSError, http.client.HTTPException):
        pass  # the server has ended
    rest.clear()
    return found


# ---- what memory the server holds, by kind ----

COUNTERS = {"gpu_graphs": "graphs", "gpu_graphs_captured_total": "captures", "gpu_kernels": "kernels",
            "gpu_library_shapes": "cuBLASLt shapes", "steps_total": "steps", "http_connections": "connections"}
MIB_COUNTERS = {"recorder_bytes": "rings", "gpu_graph_host_bytes": "graph memory", 'malloc_bytes{state="used"}': "malloc used", 'malloc_bytes{state="free"}': "malloc free",
                'malloc_bytes{state="mapped"}': "malloc mapped"}
EVERY = 20  # seconds from one sample to the next
HEAP_SPAN = 64 << 20  # glibc gives each further malloc arena heaps of this size, aligned to it


def kind_of(begin, end, perms, name):
    """What a mapping is. Anonymous ones have no name: those that begin where a heap of malloc's for threads would are told
    apart from the others, which are told by their size, rounded up to a power of two."""
    if name:
        return name if name.startswith("[") else os.path.basename(name) + (" (written)" if "w" in perms else "")
    if begin % HEAP_SPAN == 0 and end - begin <= HEAP_SPAN and "w" in perms:
        return "[malloc arenas]"
    mib = (end - begin + (1 << 20) - 1) >> 20
    return f"[anonymous, up to {1 << (mib - 1).bit_length()} MiB each]"


def memory_by_kind():
    """{kind: [resident KiB, number of mappings]} of /proc/PID/smaps."""
    found, entry = {}, None
    for line in open(f"/proc/{server.pid}/smaps"):
        m = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)$", line)
        if m:
            entry = found.setdefault(kind_of(int(m[1], 16), int(m[2], 16), m[3], m[4]), [0, 0])
            entry[1] += 1
        elif line.startswith("Rss:"):
            entry[0] += int(line.split()[1])
    return found


def counters():
    """The server's own numbers that may explain growth; None where /metrics was not answered. Bytes are in MiB."""
    try:
        status, text = get("/metrics")
    except (OSError, http.client.HTTPException):
        return None
    found = dict(re.findall(r"^vitrine:(\S+) (\S+)$", text, re.M)) if status == 200 else {}
    all = {label: float(found[k]) for k, label in COUNTERS.items() if k in found}
    return all | {label: float(found[k]) / 2**20 for k, label in MIB_COUNTERS.items() if k in found}


looks = []  # (seconds, resident KiB, memory_by_kind, counters)


def look():
    """Takes a sample and prints it as a comment."""
    try:
        kinds, said = memory_by_kind(), counters()
    except OSError:
        return  # the server has ended
    looks.append((time.monotonic() - begin, sum(v[0] for v in kinds.values()), kinds, said or {}))
    t, resident, _, said = looks[-1]
    print(f"# {t:4.0f} s: {resident / 1024:.1f} MiB resident; " + ", ".join(
        f"{k} {v:.1f}" if k in MIB_COUNTERS.values() else f"{k} {v:.0f}" for k, v in said.items()), flush=True)


def growth():
    """Which kinds of memory grew most from the first sample after a minute to the last."""
    first = next((l for l in looks if l[0] >= 60), looks[0])
    last = looks[-1]
    minutes = (last[0] - first[0]) / 60
    if minutes <= 0:
        return
    grown = {k: (last[2].get(k, [0, 0]), first[2].get(k, [0, 0])) for k in last[2] | first[2]}
    print(f"# from {first[0]:.0f} s to {last[0]:.0f} s: resident {(last[1] - first[1]) / 1024:+.1f} MiB, "
          f"{(last[1] - first[1]) / 1024 / minutes:+.2f} MiB a minute; the five kinds that grew most:")
    for k, (now, then) in sorted(grown.items(), key=lambda g: g[1][1][0] - g[1][0][0])[:5]:
        print(f"#   {(now[0] - then[0]) / 1024:+8.2f} MiB  {then[0] / 1024:.1f} -> {now[0] / 1024:.1f} MiB, {then[1]} -> {now[1]} maps  {k}")
    print("#   counters: " + ", ".join(f"{k} {v - first[3][k]:+.1f}" for k, v in last[3].items() if k in first[3]))


def connect():
    s = socket.create_connection((HOST, PORT), timeout=120)
    return s


def get(path, method="GET"):
    c = http.client.HTTPConnection(HOST, PORT, timeout=120)
    c.request(method, path, b"{}" if method == "POST" else None, {"Authorization": "Bearer " + ADMIN})
    r = c.getresponse()
    body = r.read().decode("utf-8", "replace")
    c.close()
    return r.status, body


# ---- clients ----

def words(rng, n):
    return " ".join(rng.choice(("the", "cat", "sat", "on", "a", "mat", "and", "then", "ran", "off")) for _ in range(n))


def chat(rng, **more):
    return {"messages": [{"role": "system", "content": "You are a soak test. " * 3}, {"role": "user", "content": words(rng, rng.randrange(1, 25))}],
            "max_tokens": rng.randrange(1, 24), **more}


def post(body, path="/v1/chat/completions", key=KEYS[0]):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    who = b"Authorization: Bearer %s\r\n" % key.encode() if key else b""
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        path.encode(), who, len(data), data)


def status_of(data):
    m = re.match(rb"HTTP/1\.1 (\d{3})", data)
    return int(m.group(1)) if m else None


def check(status, what):
    note(statuses, status)
    if status and status >= 500 and status not in (501, 503):
        with lock:
            failures.append(f"{what}: status {status}")


def turns(rng):
    """A chat whose messages grow by what was answered, as in a conversation."""
    messages = chat(rng)["messages"]
    for _ in range(rng.randrange(1, 4)):
        text = yield "/v1/chat/completions", {**chat(rng), "messages": messages}
        messages = messages + [{"role": "assistant", "content": text}, {"role": "user", "content": words(rng, 5)}]


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a"],
          "additionalProperties": False}


TOOLS = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]


def kinds(rng):
    """One request of any kind that the server knows."""
    yield rng.choice((
        ("/v1/chat/completions", chat(rng, n=rng.choice((1, 2, 8)), temperature=rng.choice((0, 1)), seed=rng.randrange(99))),
        ("/v1/chat/completions", chat(rng, logprobs=True, top_logprobs=rng.randrange(0, 21))),
        ("/v1/completions", {"prompt": [words(rng, 3), words(rng, 40)], "max_tokens": 5, "echo": True, "logprobs": rng.randrange(0, 6)}),
        ("/v1/completions", {"prompt": words(rng, 9), "n": 4, "max_tokens": 6, "temperature": 1, "stop": ["the", "a"]}),
        ("/v1/chat/completions", chat(rng, response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}})),
        ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": words(rng, 6)}]}),
        ("/v1/responses", {"max_output_tokens": 16, "input": words(rng, 6)}),
        ("/api/chat", {"messages": [{"role": "user", "content": words(rng, 6)}], "stream": rng.random() < 0.5, "options": {"num_predict": 8}}),
        ("/v1/chat/completions", chat(rng, tools=TOOLS, tool_choice=rng.choice(("auto", "none", "required")))),
        ("/v1/completions", {"prompt": words(rng, 9), "max_tokens": 12, "structured_outputs": {"regex": "(cat|mat)+ [0-9]{2,4}"}}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": words(rng, 6)}]}),
        ("/api/generate", {"prompt": words(rng, 9), "stream": rng.random() < 0.5, "options": {"num_predict": 8}}),
        ("/generate", {"text": words(rng, 9), "sampling_params": {"max_new_tokens": 9, "stop": ["cat"]}}),
        ("/tokenize", {"prompt": words(rng, 400)}), ("/detokenize", {"tokens": [rng.randrange(200) for _ in range(50)]}),
        ("/v1/completions", {"prompt": words(rng, 12), "max_tokens": 9, "cache_salt": str(rng.randrange(3))})))


def whole(rng):
    """A few requests on one connection, answered whole."""
    c = http.client.HTTPConnection(HOST, PORT, timeout=300)
    for _ in range(rng.randrange(1, 4)):
        asks, text = rng.choice((kinds, turns))(rng), None
        try:
            path, body = next(asks)
            while True:
                key = rng.choice(KEYS)
                c.request("POST", path, json.dumps(body), {"Content-Type": "application/json", "Authorization": "Bearer " + key})
                r = c.getresponse()
                data = r.read()
                check(r.status, "whole " + path)
                note(stages, "whole " + path)
                if r.status == 400 and b"context length" not in data:
                    with lock:
                        failures.append(f"{path} {body} was refused: {data[:300]!r}")
                if r.status != 200:
                    break
                text = json.loads(data)["choices"][0]["message"]["content"] if "messages" in body and path[1] == "v" and "choices" in json.loads(data) else ""
                path, body = asks.send(text)
        except StopIteration:
            pass
    c.close()


def slow(rng):
    """Reads a long stream to its end, a little at a time."""
    note(stages, "slow")
    with connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.settimeout(300)
        s.sendall(post(chat(rng, stream=True, max_tokens=100, n=2, logprobs=True, top_logprobs=20), key=rng.choice(KEYS)))
        while (data := s.recv(rng.choice((512, 4096)))) and b"[DONE]" not in data and not stop.is_set():
            stop.wait(0.01)


def without_key(rng):
    """Who has no key, or a wrong one, or a user's where an administrator's is wanted: refused before the body is read."""
    note(stages, "without key")
    path, key, status = rng.choice((("/v1/chat/completions", None, 401), ("/v1/completions", "soak-ali", 401), ("/flush_cache", KEYS[0], 401),
                                    ("/abort_request", "soak-alice2", 401), ("/v1/completions", "x" * 5000, 401)))
    with connect() as s:
        s.sendall(post(b"x", path, key).replace(b"Content-Length: 1", b"Content-Length: 8000000"))
        got = status_of(s.recv(4096))
    check(got, "without key")
    if got != status:
        with lock:
            failures.append(f"{path} with the key {str(key)[:20]} was answered {got}, expected {status}")


n_batches = collections.Counter()


def batch(rng):
    """A file of batch requests, killed by SIGKILL at some times and begun again: each result must be there once in the end."""
    name = os.path.join(made.name, f"batch{rng.random()}")
    ids = [f"line-{i}" for i in range(20)]
    with open(name + ".in", "w") as f:
        for i in ids:
            f.write(json.dumps({"custom_id": i, "method": "POST", "url": "/v1/chat/completions", "body": chat(rng, max_tokens=12)}) + "\n")
    while not stop.is_set():
        p = subprocess.Popen([args.generator or args.vitrine, "run", "--batch", name + ".in", "-o", name + ".out", "-m", model, "--max-context",
                              "512", "--kv-memory", "2M", "-q"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=ENV)
        if rng.random() < 0.7:
            stop.wait(rng.random())
            p.kill()
        _, err = p.communicate()
        note(n_batches, "killed" if p.returncode < 0 else "ended")
        if p.returncode > 0:
            with lock:
                failures.append(f"a batch ended with {p.returncode}: {err[:500]!r}")
        if p.returncode >= 0:
            break
    if p.returncode == 0:
        with open(name + ".out") as f:
            done = [json.loads(l) for l in f]
        if sorted(d["custom_id"] for d in done) != sorted(ids) or any(d["error"] or d["response"]["status_code"] != 200 for d in done):
            with lock:
                failures.append(f"a batch has {len(done)} results of {len(ids)}: {[d['custom_id'] for d in done]}")
    for end in (".in", ".out"):
        if os.path.exists(name + end):
            os.remove(name + end)


def vanish(rng):
    """A client that leaves: in the head, in the body, while it waits, in the middle of a stream."""
    stage = rng.choice(("connect", "head", "body", "wait", "stream", "stream", "stream"))
    note(stages, stage)
    with connect() as s:
        if rng.random() < 0.5:  # RST, not FIN
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if stage == "head":
            s.sendall(SHORT[:rng.randrange(1, 60)])
        elif stage == "body":
            s.sendall(SHORT)
        elif stage in ("wait", "stream"):
            s.sendall(post(chat(rng, stream=True, max_tokens=200)))
            if stage == "wait":
                time.sleep(rng.random() * 0.2)
            for i in range(rng.randrange(1, 12) if stage == "stream" else 0):
                data = s.recv(rng.choice((1, 100, 4096)))
                if i == 0 and len(data) >= 12:
                    check(status_of(data), "stream")
                if not data:
                    break


def unread(rng):
    """Asks for a long stream and reads nothing of it for a while."""
    note(stages, "unread")
    with connect() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.sendall(post(chat(rng, stream=True, max_tokens=300, n=2)))
        stop.wait(rng.random() * 5)


WRONG = [
    post(b"{"), post(b"[]"), post(b"\xff\xfe"), post({"messages": []}), post({"messages": "x"}), post({}), post(b"[" * 5000),
    post({"messages": [{"role": "user", "content": "x"}], "n": 10 ** 9}),
    post({"messages": [{"role": "user", "content": "x"}], "temperature": 1e308}),
    post(b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}'),
    post({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}),
    post({"messages": [{"role": "user", "content": "x " * 3000}]}), post({"prompt": [10 ** 7]}, "/v1/completions"),
    post({"prompt": [-1]}, "/v1/completions"), post({"prompt": []}, "/v1/completions"), post({"model": "other", "prompt": "x"}, "/v1/completions"),
    b"GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", b"DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100000 + b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
]


def wrong(rng):
    """Requests that must be refused."""
    data = rng.choice(WRONG)
    with connect() as s:
        try:
            s.sendall(data)
            answer = s.recv(4096)
        except ConnectionError:
            return  # refused before it was read to its end
    status = status_of(answer)
    check(status, data[:60])
    if answer and not (status and 400 <= status < 600):
        with lock:
            failures.append(f"{data[:80]!r} was answered {status}")


def crowd(rng):
    """Connections that are opened and dropped."""
    note(stages, "crowd")
    some = []
    for _ in range(rng.randrange(1, 40)):
        some.append(connect())
    for s in some:
        s.close()


def generator(rng):
    """Whole runs of bench serve; some are killed in the middle."""
    p = subprocess.Popen([args.generator or args.vitrine, "bench", "serve", "-q", "--json", "--api-key-env", "SOAK_KEY", "--url", f"http://{HOST}:{PORT}", "--num", "12",
                          "--concurrency", str(rng.randrange(1, 9)), "--input", "2:12", "--output", "2:16", "--turns", str(rng.randrange(1, 3)),
                          "--shared-prefix", "8", "--seed", str(rng.randrange(1000))], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV)
    if rng.random() < 0.4:
        note(stages, "killed generator")
        stop.wait(rng.random() * 5)
        p.kill()
        p.communicate()
        return
    out, err = p.communicate()
    if b"Sanitizer" in err:
        with lock:
            failures.append("bench serve: " + err.decode("utf-8", "replace")[:2000])
    if p.returncode in (0, 1) and out:
        r = json.loads(out)
        with lock:
            statuses["generator ok"] += r["completed"]
            statuses["generator failed"] += r["failed"]


def looker(rng):
    """Looks at the server: metrics, stories, the live page's events; asks for a dump by a signal."""
    what = rng.choice(("/metrics", "/v1/loads", "/story", "/story/0", "/story/0?format=text", "/live", "signal"))
    note(stages, "looks at " + what)
    if what == "signal":
        if serving.is_set():
            server.send_signal(signal.SIGUSR2)
    elif what == "/live":
        with connect() as s:
            s.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\n\r\n" % ADMIN.encode())
            for _ in range(rng.randrange(1, 30)):
                if not s.recv(65536) or stop.is_set():  # an idle server says little
                    break
    else:
        check(get(what)[0], what)
    stop.wait(rng.random() * 6)


def client(work, seed):
    rng = random.Random(seed)
    while not stop.is_set():
        if rest.is_set():
            at_rest.add(seed)
            stop.wait(0.1)
            continue
        at_rest.discard(seed)
        try:
            work(rng)
        except (OSError, http.client.HTTPException) as e:
            note(stages, type(e).__name__)
            stop.wait(0.05)
        except Exception as e:
            with lock:
                failures.append(f"{work.__name__}: {e!r}")
        stop.wait(rng.random() * 0.2)


PLAN = [whole] * 4 + [vanish] * 4 + [unread] + [slow] + [wrong] * 2 + [without_key] + [crowd] + [generator] * 2 + [looker] + [batch]
threads = [threading.Thread(target=client, args=(w, args.seed * 1000 + i), daemon=True) for i, w in enumerate(PLAN)]
begin, second, at_rest_looks = time.monotonic(), None, []
for t in threads:
    t.start()
while time.monotonic() - begin < 60 * args.minutes and server.poll() is None:
    if second is None and time.monotonic() - begin > 15 * args.minutes:
        serving.clear()
        server.kill()  # in the middle of everything; nothing of it may keep the next one from its port or its files
        server.wait()
        server = start_server(PORT, "--draft", "lookup")
        wait_for_start(2)
        serving.set()
        second, looks = time.monotonic(), []
        print(f"# killed and started again after {second - begin:.0f} s", flush=True)
    if second and not at_rest_looks and time.monotonic() - second > 30 * args.minutes:
        at_rest_looks.append(look_at_rest())
        print(f"# at rest after {time.monotonic() - begin:.0f} s", flush=True)
    if not looks or time.monotonic() - begin - looks[-1][0] >= EVERY:
        look()
    time.sleep(2)
look()
growth()
at_rest_looks.append(look_at_rest())
stop.set()
for t in threads:
    t.join(330)

# ---- the end ----

tests = []


def result(ok, name, why=""):
    tests.append(ok)
    print(f"{'ok' if ok else 'not ok'} {len(tests)} - {name}" + (f" # {why}" if why else ""), flush=True)


def pages():
    """(used, cached, free, all) as /metrics has them, or None where the server has no such page."""
    status, text = get("/metrics")
    if status != 200:
        return None
    v = {m.group(1): int(float(m.group(2))) for m in re.finditer(r'^vitrine:kv_pages\{state="(\w+)"\} (\S+)$', text, re.M)}
    return v["used"], v["cached"], v["free"], int(re.search(r'num_pages="(\d+)"', text).group(1))


alive = server.poll() is None
kept = collections.Counter(f.split("-")[1] for f in os.listdir(os.path.join(made.name, "stories")) if f.startswith("missed-"))  # by process
result(kept and max(kept.values()) <= 33, "stories of slow requests are written, and each server keeps a bounded number",
       f"{list(kept.values())} files")
result(second is not None and said().count(" serves ") == 2, "the server was killed once, and started again on its port")
result(n_batches["ended"] > 0 and n_batches["killed"] > 0, "batches were killed, begun again and ended", str(dict(n_batches)))
result(alive, "the server is alive", f"exit {server.poll()}" if not alive else "")
result(not any(t.is_alive() for t in threads), "no client waits for ever")
for f in failures[:10]:
    print("# " + str(f).replace("\n", "\n# "))
result(not failures, "no status of 500 or more but planned ones, nothing wrong accepted")
result(statuses[200] > 0 and statuses["generator ok"] > 0 and statuses[400] > 0, "good requests were answered, wrong ones refused")
if alive:
    until, p = time.monotonic() + 120, pages()
    while p and p[0] and time.monotonic() < until:
        time.sleep(0.5)
        p = pages()
    if p is None:
        print("ok %d - every KV page is back # SKIP the server has no /metrics" % (len(tests) + 1))
        tests.append(True)
    else:
        result(p[0] == 0 and sum(p[:3]) == p[3], "every KV page is back", "used %d, cached %d, free %d of %d" % p)
        if get("/flush_cache", "POST")[0] == 200:
            until, p = time.monotonic() + 120, pages()
            while (p[0] or p[1]) and time.monotonic() < until:  # it is done before the engine's next step
                time.sleep(0.5)
                p = pages()
            result(p[0] == p[1] == 0 and p[2] == p[3], "after a flush all pages are free", "used %d, cached %d, free %d of %d" % p)
grown, why = judge.grown(at_rest_looks, args.minutes * 3 / 4)
result(not grown, "memory does not grow", why)
if alive:
    server.send_signal(signal.SIGTERM)
    try:
        code = server.wait(120)
    except subprocess.TimeoutExpired:
        server.kill()
        code = "none within 120 s"
    result(code == 0, "SIGTERM ends it with status 0", f"status {code}" if code else "")
text = said()
bad = [l for l in text.split("\n") if "Sanitizer" in l or "runtime error" in l]
for l in bad[:20]:
    print("# " + l)
result(not bad, "no sanitizer has complained")
print(f"# {args.minutes:g} minutes, {args.vitrine}: " + ", ".join(f"{k}: {v}" for k, v in sorted(statuses.items(), key=str)))
print("# clients that left: " + ", ".join(f"{k}: {v}" for k, v in sorted(stages.items())))
print(f"1..{len(tests)}")
sys.exit(0 if all(tests) else 1)
