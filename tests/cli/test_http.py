#!/usr/bin/env python3
"""HTTP as `vitrine serve` speaks it, tried with Python's clients and with raw requests that are wrong."""
import atexit, http.client, json, os, queue, re, socket, ssl, subprocess, tempfile, threading

from tap import *

SERVER = {}


def serve(*args):
    """Starts a server and returns (process, what its line says it listens on)."""
    p = start("serve", *FAST, "-m", DUMMY, *args)
    atexit.register(p.kill)
    text = b""
    while not (m := re.search(rb"(https?://\S+:\d+|unix:\S+) serves", text)):
        piece = os.read(p.stderr.fileno(), 4096)
        assert piece, "the server ended: " + text.decode("utf-8", "replace")
        text += piece
    p.log = queue.Queue()  # lines, as they come: the server never waits for us
    threading.Thread(target=lambda: [p.log.put(line.decode("utf-8", "replace")) for line in p.stderr], daemon=True).start()
    return p, m.group(1).decode()


def logged(p, needle):
    """The next line of the server's log that holds `needle`."""
    while needle not in (line := p.log.get(timeout=LIMIT_S)):
        pass
    return line


def port():
    if not SERVER:
        if run("serve", "--help").code != 0:
            skip("this program has no verb `serve`")
        SERVER["process"], url = serve("--port", "0")
        SERVER["port"] = int(url.rsplit(":", 1)[1])
    return SERVER["port"]


def connect():
    return socket.create_connection(("127.0.0.1", port()), timeout=LIMIT_S)


def answers(raw):
    """The statuses of all answers to these bytes, and the last body. Our side stays open until the server's is shut."""
    with connect() as s:
        s.sendall(raw)
        data = b""
        while piece := s.recv(65536):
            data += piece
    statuses, body = [], b""
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        statuses.append(int(head[9:12]))
        length = re.search(rb"content-length: (\d+)", head, re.I)
        n = int(length.group(1)) if length else 0
        body, data = data[:n], data[n:]
    return statuses, body


H = b"Host: localhost\r\n"
CLOSE = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def post(headers, body=b"", host=H):
    return b"POST /none HTTP/1.1\r\n" + host + headers + b"\r\n" + body


REFUSED = {
    "two equal lengths": (400, post(b"Content-Length: 3\r\nContent-Length: 3\r\n", b"abc")),
    "two different lengths": (400, post(b"Content-Length: 0\r\nContent-Length: 60\r\n", CLOSE)),
    "length and chunked": (400, post(b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n")),
    "gzip, chunked and length": (400, post(b"Content-Length: 3\r\nTransfer-Encoding: gzip, chunked\r\n")),
    "xchunked": (501, post(b"Transfer-Encoding: xchunked\r\n", CLOSE)),
    "length +3": (400, post(b"Content-Length: +3\r\n", b"abc")),
    "length -1": (400, post(b"Content-Length: -1\r\n")),
    "length 0x3": (400, post(b"Content-Length: 0x3\r\n", b"abc")),
    "length 3, 3": (400, post(b"Content-Length: 3, 3\r\n", b"abc")),
    "huge length": (413, post(b"Content-Length: 99999999999999999999\r\n")),
    "body above the limit": (413, post(b"Content-Length: 9999999999\r\n")),
    "space before the colon": (400, post(b"Content-Length : 3\r\n", b"abc")),
    "folded line": (400, post(b"X: y\r\n z\r\n")),
    "bare LF": (400, b"GET /v1/models HTTP/1.1\nHost: a\n\n"),
    "NUL in a value": (400, post(b"X: a\0b\r\n")),
    "no Host": (400, post(b"", host=b"")),
    "two Hosts": (400, post(b"Host: b\r\n")),
    "dots": (400, b"GET /../.. HTTP/1.1\r\n" + H + b"\r\n"),
    "NUL in the path": (400, b"GET /%00 HTTP/1.1\r\n" + H + b"\r\n"),
    "chunk size 0x3": (400, post(b"Transfer-Encoding: chunked\r\n", b"0x3\r\nabc\r\n0\r\n\r\n")),
    "chunk size -1": (400, post(b"Transfer-Encoding: chunked\r\n", b"-1\r\n")),
    "chunk without CR LF": (400, post(b"Transfer-Encoding: chunked\r\n", b"3\r\nabcd\r\n0\r\n\r\n")),
    "chunk extension": (400, post(b"Transfer-Encoding: chunked\r\n", b"3;x\r\nabc\r\n0\r\n\r\n")),
    "1,000 headers": (431, post(b"A: b\r\n" * 1000)),
    "long line": (414, b"GET /" + b"x" * 20000),
    "long header": (431, post(b"A: " + b"b" * 100000)),
    "HTTP/9.9": (505, b"GET / HTTP/9.9\r\n" + H + b"\r\n"),
    "HTTP/2 preface": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "no version": (400, b"GET /\r\n\r\n"),
    "unknown method": (501, b"BREW / HTTP/1.1\r\n" + H + b"\r\n"),
    "other expectation": (417, post(b"Expect: 200-maybe\r\n")),
    "TLS hello": (400, b"\x16\x03\x01\x02\x00\x01"),
}


def test_wrong_requests_get_one_json_error_and_the_end():
    """Each is refused with its status, in JSON, and nothing behind it is taken for a request."""
    for name, (status, raw) in REFUSED.items():
        got, body = answers(raw)
        same(got, [status], name)
        assert json.loads(body)["error"]["message"], name
    same(answers(CLOSE)[0], [200], "the server afterwards")


def test_accepted_forms():
    """What a strict reader must still take: absolute targets, trailers, a POST without a length, pipelining."""
    same(answers(b"GET http://localhost/v1/models HTTP/1.1\r\n" + H + b"Connection: close\r\n\r\n")[0], [200])
    same(answers(post(b"Transfer-Encoding: chunked\r\n", b"1\r\n{\r\n0\r\nX: y\r\n\r\n") + CLOSE)[0], [404, 200])
    same(answers(post(b"") + CLOSE)[0], [404, 200])
    same(answers(b"GET /v1/models HTTP/1.1\r\n" + H + b"\r\n" + CLOSE)[0], [200, 200])


def test_client_that_shut_its_side_gets_its_answer():
    """`printf ... | nc -N`: the request, the end of sending, and the answer all the same."""
    with connect() as s:
        s.sendall(CLOSE)
        s.shutdown(socket.SHUT_WR)
        data = b""
        while piece := s.recv(65536):
            data += piece
    assert b" 200 " in data.split(b"\r\n")[0], data


def test_http_client_keeps_its_connection():
    """Python's http.client: several requests on one socket, a body in chunks."""
    c = http.client.HTTPConnection("127.0.0.1", port(), timeout=LIMIT_S)
    c.connect()
    first = c.sock
    for _ in range(3):
        c.request("GET", "/v1/models")
        r = c.getresponse()
        r.read()
        same(r.status, 200)
    c.request("POST", "/tokenize", body=iter([b"a", b"bc"]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
    r = c.getresponse()
    r.read()
    same(r.status, 400)
    assert c.sock is first, "the connection was made anew"
    c.close()


def test_unix_socket():
    """--uds: a socket file that is removed at the end."""
    port()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "s")
        p, where = serve("--uds", path)
        same(where, "unix:" + path)
        s = socket.socket(socket.AF_UNIX)
        s.connect(path)
        s.sendall(CLOSE)
        assert s.makefile("rb").readline().startswith(b"HTTP/1.1 200 ")
        s.close()
        p.terminate()
        same(p.wait(LIMIT_S), 0, "exit status")
        assert not os.path.exists(path)


def test_tls_to_a_port_of_plain_http_ends_and_the_log_says_so():
    with connect() as s:
        try:
            ssl._create_unverified_context().wrap_socket(s, server_hostname="localhost")
            assert False, "there is TLS"
        except (ssl.SSLError, ConnectionError):
            pass
    line = logged(SERVER["process"], "TLS")
    assert ' status=400 ' in line and ' error="The client speaks TLS, but this port plain HTTP: ask by http://." bytes=' in line, line


def test_tls():
    """--tls-cert and --tls-key: Python's ssl with the certificate as its only root."""
    port()
    with tempfile.TemporaryDirectory() as folder:
        cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                               "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
                               "-addext", "subjectAltName=DNS:localhost"], capture_output=True)
        if made.returncode != 0:
            skip("openssl made no certificate")
        p, where = serve("--port", "0", "--tls-cert", cert, "--tls-key", key)
        context = ssl.create_default_context(cafile=cert)
        c = http.client.HTTPSConnection("localhost", int(where.rsplit(":", 1)[1]), context=context, timeout=LIMIT_S)
        c.request("GET", "/v1/models")
        same(c.getresponse().status, 200)
        c.close()
        with socket.create_connection(("localhost", int(where.rsplit(":", 1)[1])), timeout=LIMIT_S) as s:
            s.sendall(CLOSE)
            answer = b""
            while piece := s.recv(65536):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 400 ") and b"\r\n\r\nThe client speaks plain HTTP, but this port TLS" in answer, answer
        assert 'status=400 total_ms=0.000 error="The client speaks plain HTTP, but this port TLS: ask by https://." bytes=' in re.sub(
            r"total_ms=\S+", "total_ms=0.000", logged(p, "status=400"))
        p.terminate()
        same(p.wait(LIMIT_S), 0, "exit status")
        fails(1, [key, "certificate"], "serve", *FAST, "-m", DUMMY, "--port", "0", "--tls-cert", key, "--tls-key", key)


main(globals())
