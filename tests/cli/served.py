"""A server under test: `vitrine serve` with a tiny model of its own (tiny_model.py), and the calls that tests make."""
import atexit, http.client, json, os, re, shutil, socket, tempfile, threading

import tiny_model
from tap import LIMIT_S, run, skip, start, wait_until

FOLDERS = []


def folder():
    d = tempfile.mkdtemp(prefix="vitrine-server-")
    FOLDERS.append(d)
    return d


atexit.register(lambda: [shutil.rmtree(d, ignore_errors=True) for d in FOLDERS])


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def events(self):
        """The values of an SSE stream; the end mark stays text."""
        lines = [l[6:] for l in self.body.decode().split("\n") if l.startswith("data: ")]
        return [l if l == "[DONE]" else json.loads(l) for l in lines]


class Server:
    def __init__(self, *args, template=tiny_model.CHATML, context=tiny_model.CONTEXT, model=None, env=None):
        if run("serve", "--help").code != 0:
            skip("this program has no verb `serve`")
        self.model = model or tiny_model.make(os.path.join(folder(), "tiny"), template, context=context)
        self.process = start("serve", "-m", self.model, "--port", "0", "--kv-memory", "4M", *args, env=env)
        atexit.register(self.process.kill)
        self.log = b""
        while not (m := re.search(rb"http://\S+:(\d+) serves", self.log)):
            piece = os.read(self.process.stderr.fileno(), 4096)
            assert piece, "the server ended: " + self.log.decode("utf-8", "replace")
            self.log += piece
        self.port = int(m.group(1))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        while piece := os.read(self.process.stderr.fileno(), 65536):
            self.log += piece

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)

    def call(self, method, path, body=None, headers=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        c.request(method, path, data, headers or {})
        r = c.getresponse()
        a = Answer(r.status, r.headers, r.read())
        c.close()
        return a

    def get(self, path, **kw):
        return self.call("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.call("POST", path, body, **kw)

    def good(self, path, body, **kw):
        a = self.post(path, body, **kw)
        assert a.status == 200, f"{path} {body}: {a.status} {a.body[:500]}"
        return a

    def stop(self):
        """Ends the server as a user does, and looks at how it ended."""
        self.process.terminate()
        assert self.process.wait(LIMIT_S) == 0, self.log[-2000:]
        self.reader.join(LIMIT_S)
        assert b"Sanitizer" not in self.log and b"runtime error:" not in self.log, self.log.decode("utf-8", "replace")

    def alive(self):
        """It still answers as it should."""
        a = self.good("/v1/completions", {"prompt": "abc", "max_tokens": 2, "ignore_eos": True})
        assert a.json["usage"]["completion_tokens"] == 2, a.json
