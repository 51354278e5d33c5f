"""A page in headless Chromium, driven by its DevTools protocol over two pipes: keys as a person presses them, and what
the page then holds. https://chromedevtools.github.io/devtools-protocol/"""
import json, os, shutil, subprocess, tempfile

from tap import skip, wait_until

KEYS = {"Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13}
MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}


def find_browser():
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        skip("no chromium")
    return browser


class Browser:
    """A browser with one page, of `size` (width, height) pixels; a context manager."""

    def __init__(self, url, size=(1280, 900), dark=False):
        browser = find_browser()
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        here_read, there_write = os.pipe()
        there_read, here_write = os.pipe()

        def pipes():  # the browser reads commands from descriptor 3 and writes to 4
            read, write = os.dup(there_read), os.dup(there_write)  # neither is 3 or 4 below
            high = [os.dup2(fd, at) for fd, at in ((read, 1000), (write, 1001))]
            for fd, at in zip(high, (3, 4)):
                os.dup2(fd, at, inheritable=True)

        self.log = open(os.path.join(self.home.name, "log"), "w+b")
        self.process = subprocess.Popen(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={self.home.name}/profile",
             f"--window-size={size[0]},{size[1]}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, close_fds=False, preexec_fn=pipes)
        os.close(there_read)
        os.close(there_write)
        self.to, self.of = os.fdopen(here_write, "wb", buffering=0), os.fdopen(here_read, "rb", buffering=0)
        self.n, self.session, self.rest, self.said = 0, None, b"", []
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        self.ask("Runtime.enable")
        self.ask("Log.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.ask("Page.navigate", url=url)
        wait_until(lambda: self.value("document.readyState === 'complete' && location.href !== 'about:blank'"), "the page to load")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for f in (self.to, self.of):
            f.close()
        self.process.terminate()
        self.process.wait()
        self.log.close()
        self.home.cleanup()

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.of.fileno(), 1 << 16)
            if not more:
                self.log.seek(0)
                raise AssertionError("the browser ended: " + self.log.read().decode("utf-8", "replace")[-2000:])
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, **params):
        """The result of a command. Complaints that come before it are kept in `said`."""
        self.n += 1
        command = {"id": self.n, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        self.to.write(json.dumps(command).encode() + b"\0")
        while True:
            m = self.message()
            if m.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.said.append(json.dumps(m["params"]))
            if m.get("id") == self.n:
                assert "result" in m, m
                return m["result"]

    def value(self, expression):
        """What an expression of JavaScript gives in the page, by way of JSON."""
        r = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in r, r
        return r["result"].get("value")

    def press(self, key, *held):
        """Presses and lets go of a key, while the named modifiers are held."""
        what = {"key": key, "modifiers": sum(MODIFIERS[h] for h in held), "windowsVirtualKeyCode": KEYS.get(key) or ord(key.upper())}
        if len(key) == 1 and not set(held) & {"Alt", "Control", "Meta"}:
            what["text"] = key
        self.ask("Input.dispatchKeyEvent", type="keyDown", **what)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **what)
