"""What the end-to-end tests share: running the program, and TAP.

A test is a function whose docstring is its name; it fails by an exception. skip() leaves it out. Programs run with a
clean environment (no VITRINE_... of the caller's but the cache, the CPU unless a test names a device, no proxies, no wish
for bare text) and a limit that only something that hangs reaches: a test must pass on a machine that is a hundred times
slower."""
import json, os, signal, subprocess, sys, time, traceback

BIN = os.environ.get("VITRINE_BIN", os.path.abspath("build/vitrine"))
CACHE = os.environ.get("VITRINE_CACHE", os.path.expanduser("~/.cache/vitrine"))
MODEL = os.path.join(CACHE, "models", "SmolLM2-135M-Instruct.Q4_1.gguf")
DUMMY = "dummy:smollm2-135m"
SANITIZED = "/asan/" in BIN or "/tsan/" in BIN
LIMIT_S = 900


class Skip(Exception):
    pass


def skip(why):
    raise Skip(why)


def have_model():
    return os.path.exists(MODEL)


def need_model():
    if not have_model():
        skip("the default model is not in the cache")


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def text(self):
        return self.out.decode("utf-8")

    @property
    def log(self):
        return self.err.decode("utf-8", "replace")

    @property
    def json(self):
        return json.loads(self.out)


# What tools/run-tests sets for the program too: its cache, and what a busy machine costs.
KEPT = ("VITRINE_CACHE", "VITRINE_DISTURBED_LIMIT", "VITRINE_SPIN_US")


def clean_env(extra=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith("VITRINE_") or k in KEPT}
    for name in ("NO_COLOR", "HF_TOKEN", "COLUMNS"):
        env.pop(name, None)
    env.update({"VITRINE_DEVICE": "cpu", "no_proxy": "127.0.0.1,localhost", "NO_PROXY": "127.0.0.1,localhost",
                **(extra or {})})
    return env


def run(*args, stdin=b"", env=None, stdout=subprocess.PIPE):
    if isinstance(stdin, str):
        stdin = stdin.encode()
    p = subprocess.run([BIN, *args], input=stdin, stdout=stdout, stderr=subprocess.PIPE, env=clean_env(env),
                       timeout=LIMIT_S)
    assert p.returncode >= 0, f"died of signal {-p.returncode}: {p.stderr.decode('utf-8', 'replace')[-2000:]}"
    assert b"Sanitizer" not in p.stderr and b"runtime error:" not in p.stderr, p.stderr.decode("utf-8", "replace")
    return Result(p.returncode, p.stdout or b"", p.stderr)


def ok(*args, **kw):
    r = run(*args, **kw)
    assert r.code == 0, f"{args}: exit {r.code}: {r.log}"
    return r


def fails(code, needle, *args, **kw):
    """The command ends with `code` and one line on stderr that holds every one of the needles."""
    r = run(*args, **kw)
    assert r.code == code, f"{args}: exit {r.code}, expected {code}: {r.log}"
    assert r.log.startswith("vitrine: ") and r.log.count("\n") == 1, f"{args}: not one line: {r.log!r}"
    for n in [needle] if isinstance(needle, str) else needle:
        assert n in r.log, f"{args}: {r.log!r} lacks {n!r}"
    return r


# A small cache and context: enough for the tests, and quick to make.
FAST = ["--max-context", "512", "--kv-memory", "64M"]
COUNT = "Count from one to ten."


def model():
    """The real model if it is installed, else random weights of its shape."""
    return ["-m", MODEL] if have_model() else ["-m", DUMMY]


def run_json(*args, **kw):
    return ok("run", "--json", *FAST, *model(), *args, **kw).json


def start(*args, env=None):
    return subprocess.Popen([BIN, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=clean_env(env), bufsize=0)  # communicate() would lose bytes that were read ahead


def wait_until(condition, what):
    """Waits, within a generous limit, until `condition()` is true."""
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, f"{LIMIT_S} s went by without: {what}"
        time.sleep(0.005)


def same(a, b, what="values"):
    assert a == b, f"{what} differ: {a!r} and {b!r}"


def main(namespace):
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background programs ignore it, and so would ours
    tests = [f for name, f in namespace.items() if name.startswith("test_") and callable(f)]
    wanted = sys.argv[1:]
    failed = 0
    for n, f in enumerate(tests, 1):
        name = f.__name__
        if wanted and not any(w in name for w in wanted):
            continue
        try:
            f()
            print(f"ok {n} - {name}", flush=True)
        except Skip as e:
            print(f"ok {n} - {name} # SKIP {e}", flush=True)
        except Exception:
            failed += 1
            for line in traceback.format_exc().strip().split("\n"):
                print("# " + line)
            print(f"not ok {n} - {name}", flush=True)
    print(f"1..{len(tests)}")
    sys.exit(1 if failed else 0)
