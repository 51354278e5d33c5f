#!/usr/bin/env python3
"""What `vitrine serve` says of itself: health, loads, models, metrics, logs, spans, stories, and who may ask for what."""
import atexit, glob, http.client, http.server, os, re, shutil, signal, socket, subprocess, sys, tempfile, threading

import tiny_model
from tap import *

SMALL = ["--max-context", "512", "--kv-memory", "64M"]
SHARED = {}


class Server:
    def __init__(self, *args, env=None):
        self.p = start("serve", *SMALL, "-m", DUMMY, "--port", "0", *args, env=env)
        atexit.register(self.p.kill)
        self.log, self.lock = b"", threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()
        wait_until(lambda: self.match(rb"http://127\.0\.0\.1:(\d+) serves") or self.p.poll() is not None, "the first line")
        assert self.p.poll() is None, self.text()
        self.port = int(self.match(rb"http://127\.0\.0\.1:(\d+) serves").group(1))

    def _read(self):
        while piece := os.read(self.p.stderr.fileno(), 65536):
            with self.lock:
                self.log += piece

    def match(self, pattern):
        with self.lock:
            return re.search(pattern, self.log)

    def text(self):
        with self.lock:
            return self.log.decode("utf-8", "replace")

    def line(self, *needles):
        """The one line of the log that holds all of these, once it is there."""
        found = lambda: [l for l in self.text().split("\n")[:-1] if all(n in l for n in needles)]
        wait_until(found, f"a line with {needles}")
        same(len(found()), 1, f"lines with {needles}")
        return found()[0]

    def ask(self, method, path, body=None, headers=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        c.request(method, path, body if isinstance(body, (bytes, type(None))) else json.dumps(body), headers or {})
        r = c.getresponse()
        r.data = r.read()
        c.close()
        return r

    def get(self, path, **headers):
        return self.ask("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})

    def json(self, path, status=200):
        r = self.get(path)
        same(r.status, status, f"status of {path}")
        same(r.headers["Content-Type"], "application/json")
        return json.loads(r.data)

    def complete(self, tokens=4, prompt="hello there", headers=None, **more):
        return self.ask("POST", "/v1/completions", {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, **more}, headers)

    def stream(self, n, **more):
        """A streaming completion: a connection from which nothing has been read but the beginning of the answer."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)
        body = json.dumps({"prompt": "go on", "max_tokens": n, "ignore_eos": True, "stream": True, **more}).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        data = b""
        while data.count(b"data: ") < 2:
            piece = s.recv(65536)
            assert piece, data
            data += piece
        return s

    def metrics(self, **headers):
        return Metrics(self.get("/metrics", **headers).data.decode())

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        return self.p.wait(timeout=LIMIT_S)


class Metrics:
    LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)+\})? (\S+)$')

    def __init__(self, text):
        self.text, self.sample, self.type = text, {}, {}
        for line in text.rstrip("\n").split("\n"):
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                assert name not in self.type, f"{name} is declared twice"
                self.type[name] = kind
            elif not line.startswith("#"):
                m = self.LINE.match(line)
                assert m, f"not a sample: {line!r}"
                key = m.group(1) + (m.group(2) or "")
                assert key not in self.sample, f"{key} comes twice"
                self.sample[key] = float(m.group(3))

    def __getitem__(self, key):
        return self.sample[key]

    def names(self):
        return {k.split("{")[0] for k in self.sample}


def server():
    if not SHARED:
        SHARED["server"] = Server("--metrics-compat", "--log-requests", "json")
    return SHARED["server"]


# ---- state ----

def test_health_and_one_token():
    s = server()
    same(s.json("/health"), {"status": "ok"})
    before = s.metrics()
    same(s.json("/health_generate"), {"status": "ok"})
    ended = 'vitrine:sequences_total{finish="length"}'
    wait_until(lambda: s.metrics()[ended] == before[ended] + 1, "one sequence in the engine")
    after = s.metrics()
    same(after["vitrine:generated_tokens_total"], before["vitrine:generated_tokens_total"])
    same(after['vitrine:requests_total{finish="length"}'], before['vitrine:requests_total{finish="length"}'])
    same(s.ask("HEAD", "/health").status, 200)
    same(s.ask("POST", "/health").status, 405)


def test_an_idle_engine_does_nothing():
    s = server()
    s.complete(2)
    planned = lambda: s.json("/server_info")["stats"]["schedule_s"]
    same_twice = lambda: planned() == (time.sleep(0.05), planned())[1]
    wait_until(same_twice, "an engine that has stopped planning steps")


def test_health_is_stuck_while_a_step_takes_too_long():
    """The limit is 1 ms here, and a step of 400 prompt tokens takes longer; an idle engine is well however long it idles."""
    s = Server("--health-timeout", "0.001", "--token-budget", "512")
    same(s.json("/health"), {"status": "ok"})
    stuck = []

    def ask_often():
        while not stuck or stuck[-1] != "end":
            r = s.get("/health")
            if r.status == 503:
                same(json.loads(r.data), {"status": "stuck"})
                assert r.headers["Retry-After"]
                stuck.append("seen")
                return

    t = threading.Thread(target=ask_often, daemon=True)
    t.start()
    while t.is_alive():
        ids = [(len(stuck) * 7919 + i) % 40000 for i in range(400)]
        same(s.complete(1, prompt=ids, cache_salt=str(time.monotonic())).status, 200)
    assert stuck == ["seen"]
    same(s.json("/health"), {"status": "ok"})
    same(s.stop(), 0)


def test_health_says_draining():
    s = Server()
    slow = s.stream(400)
    with socket.create_connection(("127.0.0.1", s.port), timeout=LIMIT_S) as c:
        c.sendall(b"GET /health HTTP/1.1\r\n")  # a request of which a byte has come is still served
        s.json("/health")  # answered: what came before it has been read, too
        s.p.send_signal(signal.SIGTERM)
        s.line("draining:")
        c.sendall(b"Host: localhost\r\n\r\n")
        data = b""
        while piece := c.recv(65536):
            data += piece
    assert data.startswith(b"HTTP/1.1 503 ") and b'{"status":"draining"}' in data, data
    slow.close()
    same(s.p.wait(timeout=LIMIT_S), 0)


def test_loads_in_both_shapes():
    s = server()
    load = s.json("/get_load")
    same(load, [{"dp_rank": 0, "num_reqs": 0, "num_waiting_reqs": 0, "num_tokens": 0}])
    c = s.stream(400)
    wait_until(lambda: s.json("/v1/loads")["aggregate"]["total_running_reqs"] == 1, "one running request")
    loads = s.json("/v1/loads")
    rank = loads["loads"][0]
    assert rank["num_used_tokens"] > 0 and 0 < rank["token_usage"] <= 1 and rank["num_waiting_reqs"] == 0, rank
    assert s.json("/get_load")[0]["num_reqs"] == 1
    c.close()
    wait_until(lambda: s.json("/get_load")[0] == load[0], "an idle engine after the client has left")


def test_model_info_and_version():
    s = server()
    info = s.json("/model_info")
    same(info, s.json("/get_model_info"))
    same((info["is_generation"], info["vocab_size"], info["max_model_len"]), (True, 49152, 512))
    same(info["model_path"], s.json("/v1/models")["data"][0]["id"])
    same(s.json("/version"), {"version": ok("--version").text.split()[-1]})


def test_server_info_tells_options_and_no_secrets():
    with tempfile.TemporaryDirectory() as d:
        keys, admin = os.path.join(d, "keys-of-users"), os.path.join(d, "keys-of-admins")
        for path, key in ((keys, "sk-user-secret"), (admin, "sk-admin-secret")):
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(key + "\n")
        s = Server("--api-key-file", keys, "--admin-key-file", admin, "--otlp-endpoint", "http://localhost:9/secret-path",
                   "--served-model-name", "mine", env={"VITRINE_API_KEY": "sk-env-secret", "VITRINE_ADMIN_KEY": "sk-env-admin"})
        for key in ("sk-user-secret", "sk-admin-secret", "sk-env-secret", "sk-env-admin"):
            for path in ("/server_info", "/get_server_info"):
                r = s.get(path, Authorization="Bearer " + key)
                same(r.status, 200)
                assert b"secret" not in r.data and b"sk-" not in r.data and d.encode() not in r.data, r.data
        info = json.loads(r.data)
        same(info["options"]["api-key-file"], "(set)")
        same(info["options"]["tls-key"], None)
        same((info["served_model_name"], info["needs_key"], info["needs_admin_key"]), ("mine", True, True))
        same((info["max_running_requests"], info["context_length"], info["tp_size"]), (64, 512, 1))
        same(info["max_total_num_tokens"], info["num_pages"] * info["page_size"])
        assert b"sk-" not in s.get("/metrics", X_API_Key="sk-user-secret").data
        assert "sk-" not in s.text(), s.text()
        same(s.stop(), 0)


# ---- who may ask ----

ADMIN = [("GET", "/story"), ("GET", "/story/1"), ("GET", "/story/0"), ("GET", "/live"), ("POST", "/flush_cache"),
         ("POST", "/start_profile"), ("POST", "/stop_profile")]
USER = ["/metrics", "/server_info", "/get_server_info", "/model_info", "/get_model_info", "/v1/loads", "/get_load", "/version",
        "/health_generate", "/v1/models"]


def test_keys_open_what_is_theirs():
    s = Server(env={"VITRINE_API_KEY": "user-key", "VITRINE_ADMIN_KEY": "admin-key"})
    with_key = lambda method, path, key: s.ask(method, path, headers={"Authorization": "Bearer " + key} if key else {}).status
    same(with_key("GET", "/health", None), 200)
    for path in USER:
        same([with_key("GET", path, k) for k in (None, "", "wrong", "user-ke", "user-keyy", "user-key", "admin-key")],
             [401, 401, 401, 401, 401, 200, 200], path)
    for method, path in ADMIN:
        same([with_key(method, path, k) for k in (None, "", "wrong", "user-key", "admin-ke", "admin-key\0")][:5], [401] * 5, path)
        assert path == "/live" or with_key(method, path, "admin-key") not in (401, 403), path
    ends = lambda key, body: s.ask("POST", "/abort_request", body=body, headers={"X-API-Key": key}).status
    same([ends(k, {"abort_all": True}) for k in ("wrong", "user-key", "admin-key")], [401, 401, 200])
    same([ends(k, {"rid": "none"}) for k in ("wrong", "user-key", "admin-key")], [401, 200, 200])
    same(s.get("/story", X_API_Key="admin-key").status, 200)
    same(s.get("/story", Authorization="Basic admin-key").status, 401)
    same(s.get("/story?key=admin-key").status, 401)
    same(s.get("/story", Host="admin-key").status, 401)
    same(s.get("//story").status, 404)
    same(s.get("/STORY").status, 404)
    same(s.get("/%73tory").status, 401)  # the same path, spelt otherwise: the same key
    same(s.get("/story%2f1").status, 401)
    same(s.stop(), 0)


def test_admin_paths_without_any_keys_are_open_and_with_users_keys_alone_take_those():
    same(server().get("/story").status, 200)
    s = Server(env={"VITRINE_API_KEY": "user-key"})
    same([s.get("/story").status, s.get("/story", X_API_Key="user-key").status], [401, 200])
    same(s.stop(), 0)


# ---- stories ----

def test_story_list_and_one_story():
    s = server()
    r = s.complete(5, headers={"X-Request-Id": "tell-me"})
    answer = json.loads(r.data)
    same(r.headers["X-Request-Id"], "tell-me")
    told = s.json("/story")["ended"][0]
    same([told[k] for k in ("request_id", "path", "finish", "output_tokens", "prompt_tokens")],
         ["tell-me", "/v1/completions", "length", 5, answer["usage"]["prompt_tokens"]])
    same(told["story"], answer["timings"]["story"])
    assert "cmpl-" + told["id"] == answer["id"] and told["ttft_ms"] <= told["total_ms"], told
    for name in (str(told["story"]), "tell-me", told["id"], answer["id"]):
        story = s.json("/story/" + name)
        same((story["schema"], story["request"]["id"], story["request"]["completion_tokens"]), ("vitrine.story", told["story"], 5))
    same(s.json("/story/tell-me?format=json")["request"]["id"], told["story"])
    text = s.get("/story/tell-me?format=text")
    same(text.headers["Content-Type"], "text/plain; charset=utf-8")
    assert text.data.decode().startswith(f"REQUEST {told['story']}  ") and "\x1b" not in text.data.decode()
    # the text is what `story show` makes of the JSON
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        f.write(s.get("/story/tell-me").data)
        f.flush()
        same(ok("story", "show", f.name).text.split("\n")[0], text.data.decode().split("\n")[0])


def test_story_tells_what_writing_took():
    s = server()
    for stream in (False, True):
        name = f"written-{stream}"
        r = s.complete(5, headers={"X-Request-Id": name}, stream=stream)
        story = s.json("/story/" + name)
        at = {e["event"]: e for e in story["timeline"]}
        assert set(at) >= {"parse", "tokenise", "detokenise", "publish", "write"}, at
        same(int(at["write"]["text"].split()[0]), len(r.data))
        assert 0 < at["write"]["ms"]["value"] < story["request"]["total_ms"]["value"] + 1000, at["write"]
        assert not [e for e in story["not_measured"] if e["what"] == "writing the text"]


def test_story_of_an_open_request_is_listed():
    s = server()
    c = s.stream(400)
    wait_until(lambda: s.json("/story")["open"], "an open request")
    story = s.json("/story")["open"][0]
    same((story["finish"], story["path"]), (None, "/v1/completions"))
    c.close()
    wait_until(lambda: any(e["story"] == story["story"] and e["finish"] == "abort" for e in s.json("/story")["ended"]),
               "the end of the request whose client has left")


def test_story_holds_no_text():
    s = server()
    s.complete(3, prompt="zebra crossing", headers={"X-Request-Id": "no-text"})
    for path in ("/story", "/story/no-text", "/story/no-text?format=text"):
        assert b"zebra" not in s.get(path).data, path
    assert "zebra" not in s.text()
    fails(2, ["record-text", "not there yet"], "serve", "--record-text")


def test_story_paths_that_are_none():
    s = server()
    for path in ("/story/999999", "/story/-1", "/story/1.0", "/story/0x1", "/story/1/2", "/story/%20", "/story/nothing",
                 "/story/99999999999999999999", "/story/18446744073709551617", "/story/1%00", "/story/etc%2fpasswd",
                 "/story/" + "a" * 4000):
        r = s.get(path)
        assert r.status in (400, 404), (path, r.status)
        assert b"/work" not in r.data and b"passwd" not in r.data, r.data
    same(s.get("/story/").status, 404)
    for path in ("/story/../health", "/story/%2e%2e/health", "/story/./1"):
        same(s.get(path).status, 400, path)
    for query in ("format=pdf", "format=", "format=text&x=1", "x"):
        same(s.get("/story/1?" + query).status, 400, query)


# ---- administration ----

def test_flush_cache_forgets_prefixes():
    s = server()
    prompt = [i % 1000 for i in range(100)]
    cached = lambda: json.loads(s.complete(1, prompt=prompt).data)["usage"]["prompt_tokens_details"]["cached_tokens"]
    cached()
    assert cached() > 64
    r = s.ask("POST", "/flush_cache")
    same((r.status, json.loads(r.data)["success"]), (200, True))
    same(cached(), 0)
    same(s.ask("GET", "/flush_cache").status, 405)  # a link must not empty it


def test_abort_request_by_id_and_all():
    s = server()
    abort = lambda body: s.ask("POST", "/abort_request", body)
    c = s.stream(450)
    named = s.json("/story")["open"][0]
    same(json.loads(abort({"rid": "none such"}).data), {"aborted": 0})
    same(json.loads(abort({"rid": named["request_id"]}).data), {"aborted": 1})
    while c.recv(65536).find(b"[DONE]") < 0:
        pass
    wait_until(lambda: s.json("/get_load")[0]["num_reqs"] == 0, "an idle engine")
    same([e["finish"] for e in s.json("/story")["ended"] if e["story"] == named["story"]], ["abort"])
    streams = [s.stream(450) for _ in range(3)]
    same(json.loads(abort({"abort_all": True}).data), {"aborted": 3})
    wait_until(lambda: s.json("/get_load")[0]["num_reqs"] == 0, "an idle engine")
    for c in streams:
        c.close()


def test_abort_request_refuses_what_it_does_not_know():
    s = server()
    for body in ({}, {"rid": ""}, {"rid": None}, {"rid": 5}, {"abort_all": "yes"}, {"abort_all": False}, {"x": 1},
                 {"rid": "a", "x": 1}, [], b"", b"{", b"null"):
        r = s.ask("POST", "/abort_request", body)
        same(r.status, 400, f"status of {body!r}")
        assert json.loads(r.data)["error"]["message"]


# ---- metrics ----

def test_metrics_count_what_happened():
    s = server()
    a = s.metrics()
    answers = [json.loads(s.complete(6).data) for _ in range(3)]
    same(s.complete(0, temperature="hot").status, 400)
    b = s.metrics()
    more = lambda key: b[key] - a.sample.get(key, 0)
    same(more('vitrine:requests_total{finish="length"}'), 3)
    same(more('vitrine:requests_total{finish="refused"}'), 1)
    same(more("vitrine:generated_tokens_total"), 18)
    same(more("vitrine:prompt_tokens_total"), sum(x["usage"]["prompt_tokens"] for x in answers))
    same(more("vitrine:cached_tokens_total"), sum(x["usage"]["prompt_tokens_details"]["cached_tokens"] for x in answers))
    same([more(f"vitrine:{n}_count") for n in ("time_to_first_token_seconds", "inter_token_latency_seconds",
                                               "e2e_latency_seconds", "queue_seconds", "read_seconds",
                                               "request_generated_tokens")], [3, 15, 3, 3, 3, 3])
    same(more('vitrine:request_generated_tokens_bucket{le="4.0"}'), 0)
    same(more('vitrine:request_generated_tokens_bucket{le="8.0"}'), 3)
    same(more("vitrine:request_generated_tokens_sum"), 18)
    same(more('vitrine:http_requests_total{path="/v1/completions",status="200"}'), 3)
    same(more('vitrine:http_requests_total{path="/v1/completions",status="400"}'), 1)
    same(more('vitrine:http_requests_total{path="/metrics",status="200"}'), 1)
    # what the histograms say and what the answers said
    ttft = sum(x["timings"]["ttft_ms"] for x in answers) / 1e3
    assert abs(more("vitrine:time_to_first_token_seconds_sum") - ttft) < 1e-4 * len(answers), (ttft, b.text)
    itl = sum(x["timings"]["predicted_ms"] for x in answers) / 1e3
    assert abs(more("vitrine:inter_token_latency_seconds_sum") - itl) < 1e-4 * len(answers)
    pages = sum(b[f'vitrine:kv_pages{{state="{x}"}}'] for x in ("used", "cached", "free"))
    same(pages, s.json("/server_info")["num_pages"])
    assert b['vitrine:http_bytes_total{direction="out"}'] > a['vitrine:http_bytes_total{direction="out"}']
    # what the process holds: the rings have filled, a CPU has no graphs
    assert b["vitrine:recorder_bytes"] > a["vitrine:recorder_bytes"] > 0
    same([b["vitrine:gpu_" + n] for n in ("graphs", "graphs_captured_total", "graph_host_bytes", "kernels", "library_shapes")], [0] * 5)
    assert SANITIZED or b['vitrine:malloc_bytes{state="used"}'] > 1e5, b.text


def test_metrics_count_aborts_and_unknown_paths_once():
    s = server()
    a = s.metrics()
    c = s.stream(400)
    c.close()
    for path in ("/a", "/b", "/" + "x" * 500):
        same(s.get(path).status, 404)
    with socket.create_connection(("127.0.0.1", s.port), timeout=LIMIT_S) as bad:
        bad.sendall(b"BAD\r\n\r\n")
        bad.recv(65536)
    wait_until(lambda: s.metrics()['vitrine:requests_total{finish="abort"}'] > a['vitrine:requests_total{finish="abort"}'], "abort")
    b = s.metrics()
    more = lambda key: b[key] - a.sample.get(key, 0)
    same(more('vitrine:requests_total{finish="abort"}'), 1)
    same(more('vitrine:http_requests_total{path="other",status="404"}'), 3)
    same(more('vitrine:http_requests_total{path="none",status="400"}'), 1)
    assert not any("xxx" in k for k in b.sample)


def test_metrics_of_several_completions():
    """TTFT once a request; the time between tokens within each completion."""
    s = server()
    a = s.metrics()
    same(s.complete(5, n=3, temperature=1).status, 200)
    same(s.complete(5, prompt=["one", "two"]).status, 200)
    b = s.metrics()
    same(b["vitrine:time_to_first_token_seconds_count"] - a["vitrine:time_to_first_token_seconds_count"], 2)
    same(b["vitrine:inter_token_latency_seconds_count"] - a["vitrine:inter_token_latency_seconds_count"], 5 * 4)


COMPAT = """vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc vllm:cache_config_info
vllm:num_preemptions_total vllm:prompt_tokens_total vllm:generation_tokens_total vllm:time_to_first_token_seconds_bucket
vllm:inter_token_latency_seconds_bucket vllm:e2e_request_latency_seconds_bucket vllm:request_success_total
sglang:num_running_reqs sglang:num_queue_reqs sglang:token_usage sglang:cache_config_info sglang:prompt_tokens_total
sglang:time_to_first_token_seconds_bucket""".split()


def test_metrics_under_others_names_if_asked():
    s = server()
    m = s.metrics()
    same(set(COMPAT) - m.names(), set())
    label = '{model_name="dummy:smollm2-135m"}'
    same(m["vllm:generation_tokens_total" + label], m["vitrine:generated_tokens_total"])
    same(m["sglang:time_to_first_token_seconds_count" + label], m["vitrine:time_to_first_token_seconds_count"])
    plain = Server()
    same({n for n in plain.metrics().names() if not n.startswith("vitrine:")}, set())
    same(plain.stop(), 0)


def prometheus_client():
    sys.path.append("/usr/lib/python3/dist-packages")  # where Debian's package is, for other Pythons too
    try:
        import prometheus_client
        return prometheus_client
    except ImportError:
        skip("prometheus_client is not installed (Debian: python3-prometheus-client)")
    finally:
        sys.path.pop()


def test_metrics_are_read_by_prometheus_client():
    prometheus_client()
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
    from prometheus_client.parser import text_string_to_metric_families as read_text
    s = server()
    s.complete(3)
    text, opened = s.get("/metrics"), s.get("/metrics", Accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    same(text.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
    same(opened.headers["Content-Type"], "application/openmetrics-text; version=1.0.0; charset=utf-8")
    by_text = {f.name: f for f in read_text(text.data.decode())}
    by_open = {f.name: f for f in read_open(opened.data.decode())}
    same(sorted(by_text), sorted(by_open))
    for name, f in by_open.items():
        same(f.type, by_text[name].type, name)
        same({(x.name, str(x.labels)) for x in f.samples},
             {(x.name, str(x.labels)) for x in by_text[name].samples} | {(x.name, str(x.labels)) for x in f.samples if "http" in name}, name)
    assert len(by_open["vitrine:inter_token_latency_seconds"].samples) > 10


def docs(pattern):
    return sorted(glob.glob(os.path.join(os.path.dirname(__file__), "..", "..", "docs", pattern)))


def expressions():
    for path in docs("grafana*.json"):
        with open(path) as f:
            board = json.load(f)
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield f"{os.path.basename(path)}: {panel['title']}", target["expr"].replace("$__rate_interval", "5m")


def promtool(*args):
    try:
        return subprocess.run(["promtool", *args], capture_output=True, text=True, timeout=LIMIT_S)
    except FileNotFoundError:
        skip("promtool is not installed (Debian: prometheus)")


def test_dashboard_and_rules_name_metrics_that_exist():
    s = server()
    names = s.metrics().names()
    texts = [e for _, e in expressions()]
    for path in docs("prometheus-rules.yml"):
        with open(path) as f:
            texts.append("\n".join(l for l in f if "record:" not in l))
    assert len(texts) > 8
    own = set(re.findall(r"record: *(\S+)", "".join(open(p).read() for p in docs("prometheus-rules.yml"))))
    used = {n for t in texts for n in re.findall(r"vitrine:[a-z0-9_:]+", t)}
    same(used - names - own, set(), "metrics that nothing exports")
    same([n for n in own if n in names], [])


def test_metrics_page_lists_every_metric():
    with open(docs("metrics.md")[0]) as f:
        page = f.read()
    s = server()
    m = s.metrics()
    missing = [n for n in m.type if n.startswith("vitrine:") and n not in page]
    same(missing, [])
    known = {n for n in m.type} | {n for n in m.names()} | {"vitrine:otlp_spans_total", "vitrine:slo_missed_total",
                                                               "vitrine:rank_weight_bytes", "vitrine:rank_kv_bytes",
                                                               "vitrine:rank_wait_seconds_total", "vitrine:rank_stamped_wait_seconds_total",
                                                               "vitrine:rank_stamped_steps_total"}  # test_server_ranks.py, test_story_cuda.py
    gone = [n for n in re.findall(r"`(vitrine:[a-z0-9_]+)", page) if n not in known]
    same(gone, [])


def test_rules_are_taken_by_promtool():
    r = promtool("check", "rules", *docs("prometheus-rules.yml"))
    assert r.returncode == 0, r.stdout + r.stderr
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "dashboard.yml")
        with open(path, "w") as f:
            json.dump({"groups": [{"name": "dashboard", "rules": [
                {"record": f"panel:{i}", "expr": e} for i, (_, e) in enumerate(expressions())]}]}, f)
        r = promtool("check", "rules", path)
        assert r.returncode == 0, r.stdout + r.stderr


def test_alerts_fire_when_they_should():
    series = lambda name, values: {"series": name, "values": values}
    alert = lambda name, labels, notes: {"eval_time": "20m", "alertname": name, "exp_alerts": [
        {"exp_labels": labels, "exp_annotations": notes}] if labels is not None else []}
    rules = docs("prometheus-rules.yml")[0]
    notes = {}
    with open(rules) as f:
        for name, text in re.findall(r"alert: (\w+).*?summary: ([^\n]*)", f.read(), re.S):
            notes[name] = {"summary": text.strip().strip("'\"")}
    test = {"rule_files": [os.path.abspath(rules)], "evaluation_interval": "1m", "tests": [{
        "interval": "1m",
        "input_series": [series('up{job="vitrine",instance="a"}', "1x30"),
                         series('vitrine:sequences_waiting{job="vitrine",instance="a"}', "5x30"),
                         series('vitrine:step_failures_total{job="vitrine",instance="a"}', "0+0x10 1+1x20"),
                         series('vitrine:kv_usage_ratio{job="vitrine",instance="a"}', "0.5x30")],
        "alert_rule_test": [
            alert("VitrineQueueDoesNotEmpty", {"severity": "warning", "job": "vitrine", "instance": "a"},
                  notes.get("VitrineQueueDoesNotEmpty")),
            alert("VitrineStepsFail", {"severity": "critical", "job": "vitrine", "instance": "a"}, notes.get("VitrineStepsFail")),
            alert("VitrineKvFull", None, None)]}]}
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "test.yml")
        with open(path, "w") as f:
            json.dump(test, f)
        r = promtool("test", "rules", path)
        assert r.returncode == 0, r.stdout + r.stderr


# ---- logs ----

def test_log_in_json_has_counts_and_no_text():
    s = server()
    answer = json.loads(s.complete(4, prompt="unicorn", headers={"X-Request-Id": "log-me"}).data)
    line = json.loads(s.line('"id":"log-me"'))
    same([line[k] for k in ("peer", "method", "path", "status", "finish", "output_tokens")],
         ["127.0.0.1", "POST", "/v1/completions", 200, "length", 4])
    same([line[k] for k in ("prompt_tokens", "story")], [answer["usage"]["prompt_tokens"], answer["timings"]["story"]])
    assert 0 <= line["queue_ms"] <= line["ttft_ms"] <= line["total_ms"], line
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert "unicorn" not in s.text()


def test_log_has_refusals_and_probes_only_when_they_fail():
    s = server()
    s.get("/nowhere/é%C2%9B%1b".replace("é", "%C3%A9"))
    s.get("/health")
    s.ask("POST", "/metrics", headers={"X-Request-Id": "wrong-method"})
    same(json.loads(s.line('"id":"wrong-method"'))["status"], 405)
    s.complete(1, headers={"X-Request-Id": "refused-1"}, n=0)
    line = json.loads(s.line('"id":"refused-1"'))
    same((line["status"], line["finish"], line["output_tokens"]), (400, "refused", 0))
    assert not re.search(r'"path":"/health","status":200', s.text())


def test_log_as_text_is_one_line_a_request_whatever_clients_send():
    s = Server()
    same(s.get("/a%20b%22%0A").status, 400)
    r = s.ask("GET", "/x%C2%9B31m%E2%80%AE%22y", headers={"X-Request-Id": "evil id"})
    assert re.fullmatch(r"req-[0-9a-f]{16}", r.headers["X-Request-Id"])
    line = s.line(f"id={r.headers['X-Request-Id']}")
    assert 'path="/x\ufffd31m\ufffd\\"y" status=404' in line, line
    s.complete(3, headers={"X-Request-Id": "good/id+1="})
    line = s.line('id="good/id+1="')
    assert re.search(r" status=200 .* prompt_tokens=\d+ cached_tokens=0 output_tokens=3 queue_ms=[\d.]+ ttft_ms=[\d.]+ "
                     r"total_ms=[\d.]+ finish=length", line), line
    c = s.stream(450)
    c.close()
    assert "client=gone" in s.line("finish=abort")
    assert "\x1b" not in s.text() and "\u009b" not in s.text()
    same(s.stop(), 0)


def test_log_text_only_if_asked_and_none_when_quiet():
    s = Server("--log-text")
    text = json.loads(s.complete(3, prompt='line one\nline "two"', headers={"X-Request-Id": "with-text"}).data)["choices"][0]["text"]
    line = s.line("id=with-text")
    assert 'prompt="line one\\nline \\"two\\""' in line and f'output="{text}"' in line, line
    same(s.stop(), 0)
    for args in (["--log-requests", "off"], ["--quiet"]):
        fails(2, "--log-text: no requests are logged", "serve", "--log-text", *args)
    s = Server("--log-requests", "off")
    s.complete(2)
    same(s.stop(), 0)
    assert "path=" not in s.text(), s.text()


def test_first_lines_say_memory_and_what_fits():
    s = server()
    lines = s.text().split("\n")
    assert re.search(r"ready after [\d.]+ s: http://\S+ serves dummy:smollm2-135m: \d+ tokens of KV", lines[0]), lines[0]
    assert re.search(r"memory: 269 MB of weights, 67.1 MB of KV, which [\d.]+ sequences of full context fill; up to 64 run",
                     lines[1]), lines[1]


def first_steps(*args, env=None):
    """The page's address and what curl answers to the line that the server says to try."""
    p = start("serve", *SMALL, "--port", "0", *args, env=env)
    try:
        said = b""
        while not (m := re.search(r"^try: (curl .*)\n", said.decode(), re.M)):
            piece = os.read(p.stderr.fileno(), 4096)
            assert piece, said
            said += piece
        page = re.search(r"^page: (\S+)$", said.decode(), re.M)
        command = m[1].replace("Bearer KEY'", "Bearer secret'").replace("curl ", "curl -sS ", 1)
        run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=clean_env())
        assert run.returncode == 0, (command, run.stderr)
        if page:
            assert b"<html" in subprocess.run(["curl", "-sS", page[1]], capture_output=True, env=clean_env()).stdout, page[1]
        return page and page[1], m[1], json.loads(run.stdout)
    finally:
        p.terminate()
        p.communicate()


def test_a_line_to_paste_and_the_pages_address_are_said_at_the_start():
    golden = os.path.join(os.path.dirname(__file__), "..", "golden")
    made = tempfile.mkdtemp()  # tiny models: an answer without max_tokens fills the context
    atexit.register(shutil.rmtree, made)
    chats, plain = tiny_model.make(os.path.join(made, "chats")), tiny_model.make(os.path.join(made, "plain"), None)
    page, line, answer = first_steps("-m", chats)
    assert page and answer["choices"][0]["message"]["content"] is not None and "/v1/chat/" in line, (page, line, answer)
    page, line, answer = first_steps("-m", chats, "--host", "0.0.0.0", env={"VITRINE_API_KEY": "secret"})
    assert page.startswith("http://localhost:") and "secret" not in line and "choices" in answer, (page, line, answer)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "a socket")
        p = start("serve", *SMALL, "-m", chats, "--uds", path)
        said = b""
        while b"\ntry: " not in said or not said.endswith(b"\n"):
            said += os.read(p.stderr.fileno(), 4096)
        line = re.search(rb"^try: (.*)$", said, re.M)[1].decode()
        assert b"page: " not in said and f"--unix-socket '{path}'" in line, said
        assert "choices" in json.loads(subprocess.run(["sh", "-c", line], capture_output=True, env=clean_env()).stdout)
        p.terminate()
        p.communicate()
    _, line, answer = first_steps("-m", os.path.join(golden, "embedding", "qwen3"), "--pooling", "mean", "--kv-dtype", "f32",
                                  "--max-context", "128", "--kv-memory", "4M")
    assert "/v1/embeddings" in line and len(answer["data"]) == 1, (line, answer)
    _, line, answer = first_steps("-m", plain)
    assert "/v1/completions" in line and "choices" in answer, (line, answer)


# ---- traces ----

class Collector:
    """A collector of spans that answers with one status."""

    def __init__(self, status=200):
        outer = self
        self.posts = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(status)
                self.end_headers()
                outer.posts.append((self.path, self.headers["Content-Type"], json.loads(body)))

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def spans(self):
        return [s for _, _, p in self.posts for r in p["resourceSpans"] for c in r["scopeSpans"] for s in c["spans"]]


TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_spans_continue_the_callers_trace():
    c = Collector()
    s = Server("--otlp-endpoint", c.url)
    same(s.complete(4, headers={"traceparent": f"00-{TRACE}-{PARENT}-01"}).status, 200)
    assert f"trace={TRACE}" in s.line("finish=length")
    same(s.complete(4, headers={"traceparent": f"00-{TRACE}-{PARENT}-00"}).status, 200)  # not sampled
    same(s.complete(1, temperature=-5).status, 400)
    same(s.stop(), 0)  # what waits is sent at the end
    path, kind, post = c.posts[0]
    same((path, kind), ("/v1/traces", "application/json"))
    spans = c.spans()
    same(len(spans), 2)
    span = spans[0]
    same((span["traceId"], span["parentSpanId"], span["kind"]), (TRACE, PARENT, 2))
    assert re.fullmatch("[0-9a-f]{16}", span["spanId"]) and span["spanId"] != PARENT
    value = {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}
    same([value[k] for k in ("gen_ai.operation.name", "gen_ai.usage.output_tokens", "gen_ai.request.model",
                             "http.response.status_code", "gen_ai.request.max_tokens")],
         ["text_completion", "4", "dummy:smollm2-135m", "200", "4"])
    same(value["gen_ai.response.finish_reasons"], {"values": [{"stringValue": "length"}]})
    assert 0 < value["gen_ai.response.time_to_first_chunk"] <= (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) / 1e9
    same([e["name"] for e in span["events"]], ["admitted", "first_token"])
    same(abs(int(span["startTimeUnixNano"]) / 1e9 - time.time()) < 3600, True)
    assert "parentSpanId" not in spans[1] and spans[1]["traceId"] != TRACE
    service = {a["key"]: a["value"]["stringValue"] for a in post["resourceSpans"][0]["resource"]["attributes"]}
    same(service["service.name"], "vitrine")


def test_spans_that_cannot_be_sent_are_counted_and_said_once():
    broken = Collector(500)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        for url, why in ((broken.url, "it answers 500"), (f"http://127.0.0.1:{nobody.getsockname()[1]}", "refused")):
            s = Server("--otlp-endpoint", url)
            for _ in range(2):
                same(s.complete(1).status, 200)
                before = s.metrics()['vitrine:otlp_spans_total{result="failed"}']
                wait_until(lambda: s.metrics()['vitrine:otlp_spans_total{result="failed"}'] > before, "a failure")
            same(s.metrics()['vitrine:otlp_spans_total{result="sent"}'], 0)
            assert why in s.line("could not be sent"), s.text()
            same(s.stop(), 0)


def test_a_collector_that_never_answers_holds_nothing_up():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        s = Server("--otlp-endpoint", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        for _ in range(3):
            same(s.complete(1).status, 200)
        same(s.json("/health"), {"status": "ok"})
        same(s.stop(), 0)
        s.line("could not be sent")


def test_endpoints_that_are_wrong_are_refused_at_the_start():
    start_args = ["serve", "-m", "/nowhere", "--otlp-endpoint"]  # before the model is opened
    for url, needle in (("https://localhost:4318", "https is not there yet"), ("localhost:4318", "expected http://HOST:PORT"),
                        ("http://a:b@localhost", "'@'"), ("http://localhost:70000", "1 to 65535")):
        r = run(*start_args, url)
        assert r.code != 0 and "otlp-endpoint" in r.log and needle in r.log, (url, r.log)


main(globals())
