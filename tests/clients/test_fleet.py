#!/usr/bin/env python3
"""Several servers behind sglang-router, an existing router from PyPI, and the files of docs/deploy that set such a fleet up.

`make test-fleet` and `make test-all` run this with a Python that has the packages of requirements-fleet.txt (build/fleet); a test whose
package is missing is skipped and says so. VITRINE_FLEET=4 starts four workers in place of two.

Nothing here depends on how busy the machine is: each step waits for what it needs, and the router takes no slow worker for a dead one
(its health checks have a minute, and 1,000 may fail). It tries a request 20 times, and leaves a worker out after ten refusals in a row,
so that no request meets the dead one of two each time."""
import concurrent.futures, configparser, glob, importlib.util, os, re, shlex, subprocess, sys, threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../cli"))
from served import *
from tap import *

DEPLOY = os.path.join(HERE, "../../docs/deploy")
WORKERS = int(os.environ.get("VITRINE_FLEET", "2"))
NAME = ("--served-model-name", "tiny")


def need(package):
    if importlib.util.find_spec(package) is None:
        skip(f"the Python package {package} is not installed: `make fleet-python` fetches it, where PyPI can be reached")


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Router:
    def __init__(self, workers, policy):
        for _ in range(3):  # another program may have taken a port meanwhile
            self.start(workers, policy)
            wait_until(lambda: self.ended() or self.answers(), "the router answers")
            if not self.ended():
                return
        raise AssertionError("the router ended: " + self.told())

    def start(self, workers, policy):
        self.port, metrics = free_ports(2)
        self.log = open(os.path.join(folder(), "router.log"), "wb+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(self.port), "--policy", policy,
             "--prometheus-port", str(metrics), "--retry-max-retries", "20", "--retry-max-backoff-ms", "500", "--health-check-timeout-secs", "60",
             "--health-failure-threshold", "1000", "--worker-urls", *(w.url for w in workers)], stdout=self.log, stderr=self.log, env=clean_env())
        atexit.register(self.process.kill)

    def ended(self):
        return self.process.poll() is not None

    def told(self):
        self.log.seek(0)
        return self.log.read()[-3000:].decode("utf-8", "replace")

    def answers(self):
        try:
            a = self.complete(max_tokens=1)
        except OSError:
            return False
        assert a.status in (200, 503), a.body
        return a.status == 200

    def call(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        c.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        a = Answer(r.status, r.headers, r.read())
        c.close()
        return a

    def complete(self, prompt="abc", max_tokens=4, **kw):
        return self.call("POST", "/v1/completions", {"model": "tiny", "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, **kw})

    def workers(self):
        """The workers that it sends requests to -> their ids, by URL."""
        return {w["url"]: w["id"] for w in self.call("GET", "/workers").json["workers"] if w["is_healthy"]}

    def add(self, worker):
        same(self.call("POST", "/workers", {"url": worker.url}).status, 202)
        wait_until(lambda: worker.url in self.workers(), "the router knows the new worker")

    def remove(self, worker):
        same(self.call("DELETE", "/workers/" + self.workers()[worker.url]).status, 202)
        wait_until(lambda: worker.url not in self.workers(), "the router forgot the worker")

    def stop(self):
        self.process.kill()
        self.process.wait(LIMIT_S)


def some_workers(n=WORKERS):
    need("sglang_router")
    return [Server(*NAME) for _ in range(n)]


def served(worker):
    """The completions that a worker has finished."""
    found = re.findall(rb"^vitrine:requests_total\S* (\d+)", worker.get("/metrics").body, re.M)
    assert found, "no vitrine:requests_total in /metrics"
    return sum(map(int, found))


class Load:
    """Clients that send completions, every other one as a stream, until the block ends; none may fail."""

    def __init__(self, router, clients=6, tokens=200):
        self.router, self.tokens, self.stopped = router, tokens, threading.Event()
        self.pool = concurrent.futures.ThreadPoolExecutor(clients)
        self.done, self.clients = 0, clients

    def client(self, k):
        i = 0
        while not self.stopped.is_set():
            i += 1
            if i % 2:
                a = self.router.complete(f"client {k} asks {i}", self.tokens)
                assert a.status == 200, (a.status, a.body[:300])
                same(a.json["usage"]["completion_tokens"], self.tokens)
            else:
                a = self.router.complete(f"client {k} asks {i}", self.tokens, stream=True, stream_options={"include_usage": True})
                same((a.status, a.events[-1]), (200, "[DONE]"))
                same(a.events[-2]["usage"]["completion_tokens"], self.tokens)
            self.done += 1

    def more(self, n):
        """Waits until n further answers have come."""
        before = self.done
        def enough():
            for c in self.running:
                if c.done():
                    c.result()  # raises what the client found wrong
            return self.done >= before + n
        wait_until(enough, f"{n} more answers")

    def __enter__(self):
        self.running = [self.pool.submit(self.client, k) for k in range(self.clients)]
        return self

    def __exit__(self, kind, *_):
        self.stopped.set()
        if kind is None:
            for c in self.running:
                c.result()
        self.pool.shutdown()


# ---- cache-aware routing ----

def hits(policy):
    """Share of the prompt tokens that some worker's cache had: 24 conversations of 8 turns."""
    ws = some_workers()
    router = Router(ws, policy)
    prompt_tokens = cached = 0
    for turn in range(8):
        for k in range(23):  # odd: in turn, a conversation meets another worker each time
            u = router.complete(f"Conversation number {k}. " * 12 + "And more of it. " * turn).json["usage"]
            prompt_tokens += u["prompt_tokens"]
            cached += u["prompt_tokens_details"]["cached_tokens"]
    router.stop()
    for w in ws:
        w.stop()
    return cached / prompt_tokens


def test_cache_aware_routing_raises_the_hit_rate():
    in_turn, aware = hits("round_robin"), hits("cache_aware")
    print(f"# hit rate over {WORKERS} workers: round_robin {in_turn:.3f}, cache_aware {aware:.3f}")
    assert aware > in_turn, (in_turn, aware)


# ---- workers come and go under load ----

def test_a_killed_worker_loses_no_answer():
    ws = some_workers(WORKERS + 1)
    router = Router(ws, "round_robin")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(router.complete, f"request {i}", 1000) for i in range(64)]
        wait_until(lambda: sum(a.done() for a in asked) >= 8, "some answers")
        ws[0].process.kill()
        answers = [a.result() for a in asked]
    same({a.status for a in answers}, {200})
    same({a.json["usage"]["completion_tokens"] for a in answers}, {1000})
    router.stop()
    for w in ws[1:]:
        w.stop()


def test_a_worker_added_under_load_takes_its_share():
    ws = some_workers()
    router = Router(ws, "round_robin")
    new = Server(*NAME)
    with Load(router) as load:
        load.more(8)
        router.add(new)
        wait_until(lambda: load.more(1) or served(new) > 0, "the new worker has finished a request")
    router.stop()
    for w in ws + [new]:
        w.stop()


def test_a_fleet_rolls_with_no_failed_request():
    """Each worker in turn: its successor starts and is added, it is taken from the router, gets SIGTERM, finishes, ends with 0."""
    ws = some_workers()
    router = Router(ws, "cache_aware")
    successors = []
    with Load(router) as load:
        for old in ws:
            load.more(4)
            successors.append(Server(*NAME))
            router.add(successors[-1])
            router.remove(old)
            old.process.terminate()
            same(old.process.wait(LIMIT_S), 0, "status of the drained worker")
        load.more(8)
        print(f"# {WORKERS} workers rolled, {load.done} answers, none failed")
    same(set(router.workers()), {w.url for w in successors})
    router.stop()
    for w in successors:
        w.stop()


def test_a_worker_that_drains_unannounced_loses_no_answer():
    """SIGTERM without a word to the router, as a restart by systemd: connections are refused, so the router tries another."""
    ws = some_workers()
    router = Router(ws, "round_robin")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(router.complete, f"request {i}", 500) for i in range(64)]
        wait_until(lambda: sum(a.done() for a in asked) >= 8, "some answers")
        ws[0].process.terminate()
        answers = [a.result() for a in asked]
    same({a.status for a in answers}, {200})
    same(ws[0].process.wait(LIMIT_S), 0, "status of the drained worker")
    router.stop()
    for w in ws[1:]:
        w.stop()


# ---- the files of docs/deploy ----

def deploy_file(name):
    with open(os.path.join(DEPLOY, name), encoding="utf-8") as f:
        return f.read()


def manifests():
    need("kubernetes_validate")
    import yaml
    return {(d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(deploy_file("kubernetes.yaml"))}


def options_are_known(words, help_text):
    """Every --option of a command line is one that the program's help names."""
    known = set(re.findall(r"--[a-z][a-z-]*", help_text))
    unknown = [w for w in words if w.startswith("--") and w not in known]
    assert not unknown, unknown


def value_of(words, option):
    return words[words.index(option) + 1]


def router_help():
    need("sglang_router")
    return subprocess.run([sys.executable, "-m", "sglang_router.launch_router", "--help"], capture_output=True, text=True).stdout


def test_manifests_hold_to_the_schema_of_kubernetes():
    import copy
    for (kind, name), d in manifests().items():
        import kubernetes_validate
        kubernetes_validate.validate(d, kubernetes_validate.latest_version(), strict=True)
    wrong = copy.deepcopy(manifests()["StatefulSet", "vitrine-worker"])
    wrong["spec"]["template"]["spec"]["containers"][0]["readinessProb"] = {}
    try:
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError:
        return
    assert False, "a misspelt field passed"


def test_the_worker_of_the_manifests_is_one_that_starts_and_drains():
    all_of = manifests()
    pod = all_of["StatefulSet", "vitrine-worker"]["spec"]["template"]["spec"]
    worker = pod["containers"][0]
    same(worker["args"][0], "serve")
    options_are_known(worker["args"], run("serve", "--help").out.decode())
    same(value_of(worker["args"], "--port"), str(worker["ports"][0]["containerPort"]))
    pause = int(worker["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > pause + int(value_of(worker["args"], "--drain-timeout"))
    s = Server(*NAME)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        same(s.get(worker[probe]["httpGet"]["path"]).status, 200, probe)
    annotations = all_of["StatefulSet", "vitrine-worker"]["spec"]["template"]["metadata"]["annotations"]
    same(s.get(annotations["prometheus.io/path"]).status, 200)
    same(annotations["prometheus.io/port"], value_of(worker["args"], "--port"))
    s.stop()


def test_the_router_of_the_manifests_finds_the_workers():
    all_of = manifests()
    labels = all_of["StatefulSet", "vitrine-worker"]["spec"]["template"]["metadata"]["labels"]
    router = all_of["Deployment", "vitrine-router"]["spec"]["template"]["spec"]["containers"][0]
    options_are_known(router["args"], router_help())
    at = router["args"].index("--selector")
    wanted = dict(w.split("=") for w in router["args"][at + 1:at + 3])
    same(wanted, {k: labels[k] for k in wanted})
    same(all_of["Service", "vitrine-workers"]["spec"]["selector"], labels)
    same(all_of["NetworkPolicy", "vitrine-worker"]["spec"]["podSelector"]["matchLabels"], labels)
    same(value_of(router["args"], "--service-discovery-port"), str(all_of["Service", "vitrine-workers"]["spec"]["ports"][0]["port"]))


def unit(name):
    """[Service] of a systemd unit."""
    c = configparser.ConfigParser(interpolation=None, strict=False)
    c.optionxform = str
    c.read_string(deploy_file(name))
    return c["Service"]


def test_units_of_systemd_start_programs_as_they_are():
    worker, router = unit("vitrine@.service"), unit("vitrine-router.service")
    words = shlex.split(worker["ExecStart"])
    options_are_known(words, run("serve", "--help").out.decode())
    assert int(worker["TimeoutStopSec"]) > int(value_of(words, "--drain-timeout"))
    options_are_known(shlex.split(router["ExecStart"].replace("\\\n", " ")), router_help())


def test_commands_of_the_page_name_files_that_exist():
    page = deploy_file("README.md")
    for name in re.findall(r"docs/deploy/([\w@.-]+\w)", page):
        assert os.path.exists(os.path.join(DEPLOY, name)), name
    for name in glob.glob(os.path.join(DEPLOY, "*")):
        assert os.path.basename(name) in page or name.endswith("README.md"), name + " is not told of in docs/deploy/README.md"


main(globals())
