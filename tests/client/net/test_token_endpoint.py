"""Tokens by client credentials (KIP-768): what is asked, what is kept, and what is wrong with an answer."""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ottla.base.secret import Secret
from ottla.client.config.oidc import TokenEndpoint
from ottla.client.net.token_endpoint import TokenError, Tokens
from tests.client.certificates import Authority


class _Asked:
    """What a server was asked, and what it will answer: status and body, the last one again and again."""

    def __init__(self, *answers: tuple[int, object]) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, dict[str, str], str]] = []


@contextmanager
def _server(*answers: tuple[int, object], tls: ssl.SSLContext | None = None) -> Iterator[tuple[_Asked, str]]:
    asked = _Asked(*answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.requests.append((self.path, dict(self.headers), body))
            status, said = asked.answers.pop(0) if len(asked.answers) > 1 else asked.answers[0]
            answer = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield asked, f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}/token?tenant=1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Time:
    """Seconds that pass when somebody waits."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.waits.append(seconds)

    def tokens(self) -> Tokens:
        return Tokens(lambda: self.now_s, self.wait)


def _endpoint(url: str, **more: object) -> TokenEndpoint:
    return TokenEndpoint(url, "me+", Secret("p:w"), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("url_encode", "header"), [(False, "me+:p:w"), (True, "me%2B:p%3Aw")])
def test_x1_a_token_is_asked_for_as_java_asks(url_encode: bool, header: str) -> None:
    with _server((200, {"access_token": " a.b.c ", "expires_in": 100})) as (asked, url):
        assert Tokens().token(_endpoint(url, scope="a b", url_encode=url_encode)) == Secret("a.b.c")
    ((path, headers, body),) = asked.requests
    assert (path, body) == ("/token?tenant=1", "grant_type=client_credentials&scope=a+b")
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == header
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert headers["Accept"] == "application/json"


def _jwt(**claims: object) -> str:
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in ({}, claims, {})
    )


@pytest.mark.parametrize(
    ("answer", "kept_s"),
    [
        ({"access_token": "t", "expires_in": 100}, 80.0),
        ({"id_token": _jwt(iat=1_000, exp=1_050)}, 40.0),
        ({"access_token": "t"}, 0.0),
        ({"access_token": _jwt(iat=2, exp="x")}, 0.0),
    ],
)
def test_x1_a_token_is_kept_for_four_fifths_of_its_life(answer: object, kept_s: float) -> None:
    time = _Time()
    tokens = time.tokens()
    with _server((200, answer)) as (asked, url):
        for passed_s, questions in ((0.0, 1), (kept_s - 0.5, 1 if kept_s else 2), (1.0, 2 if kept_s else 3)):
            time.now_s += max(passed_s, 0.0)
            tokens.token(_endpoint(url))
            assert len(asked.requests) == questions
        tokens.token(_endpoint(url, scope="another"))
        assert len(asked.requests) == questions + 1


def test_x1_a_server_that_is_away_is_asked_again_until_the_time_is_over() -> None:
    time = _Time()
    with _server((503, b"busy"), (500, {"error": "oops"}), (200, {"access_token": "t"})) as (asked, url):
        assert time.tokens().token(_endpoint(url)) == Secret("t")
    assert (len(asked.requests), time.waits) == (3, [0.1, 0.2])
    with pytest.raises(TokenError, match=r"^http://127.0.0.1:\d+/token cannot be asked for a token: .*refused"):
        time.tokens().token(_endpoint(url, backoff_ms=400, backoff_max_ms=3_000))
    assert time.waits[2:] == [0.4, 0.8, 1.6]


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (401, {"error": "invalid_client", "error_description": "no\nsuch"}, r"status 401, invalid_client: no\\nsuch$"),
        (400, b"<html>", "status 400, and no reason"),
        (302, b"", "status 302"),
        (200, b"<html>", "something that is not JSON"),
        (200, [1], "answers without access_token"),
        (200, {"access_token": ""}, "answers without access_token"),
        (200, b" " * 1_048_577, "more than 1048576 bytes"),
    ],
)
def test_x1_an_answer_that_is_wrong_is_not_asked_for_again(status: int, answer: object, why: str) -> None:
    time = _Time()
    with _server((status, answer)) as (asked, url), pytest.raises(TokenError, match=why) as refused:
        time.tokens().token(_endpoint(url))
    assert (len(asked.requests), time.waits) == (1, [])
    assert "p:w" not in repr(refused.value)


def test_x1_a_token_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "the token"
    endpoint = TokenEndpoint(file.as_uri())
    for content, why in ((None, "cannot be read"), ("\n", "is empty"), ("ü", "cannot be read")):
        if content is not None:
            file.write_text(content, encoding="utf-8")
        with pytest.raises(TokenError, match=why):
            Tokens().token(endpoint)
    file.write_text("a.b.c\n")
    assert Tokens().token(endpoint) == Secret("a.b.c")


def _trusting(url: str, **trust: str) -> str:
    """What is wrong, at once: nothing here is worth another attempt."""
    time = _Time()
    with pytest.raises(TokenError) as refused:
        time.tokens().token(_endpoint(url.replace("http:", "https:"), **trust))
    assert time.waits == []
    return str(refused.value)


def test_x1_authorities_that_cannot_be_read_are_said_at_once(tmp_path: Path) -> None:
    with _server((200, {})) as (_, url):
        missing = _trusting(url, ca_file=str(tmp_path / "missing.pem"))
        assert missing.endswith(
            f"the authorities to trust cannot be read ({tmp_path / 'missing.pem'}): there is no such file"
        )
        assert "the authorities to trust cannot be read (ssl.ca.pem)" in _trusting(url, ca_pem="no PEM")


@pytest.mark.parametrize("one_line", [False, True], ids=["as it is", "in one line"])
def test_x1_only_the_given_authorities_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_line: bool
) -> None:
    for name in ("ours", "theirs"):
        Authority(tmp_path, name).certificate(f"of-{name}", host="127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "theirs.pem"))  # the system's
    ours = (tmp_path / "ours.pem").read_text()
    ours = ours.replace("\n", " ") if one_line else ours
    for name in ("ours", "theirs"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / f"of-{name}.pem")
        with _server((200, {"access_token": "a.b.c"}), tls=context) as (_, url):
            if name == "ours":
                assert Tokens().token(_endpoint(url, ca_pem=ours)) == Secret("a.b.c")
            else:
                assert "certificate verify failed" in _trusting(url, ca_pem=ours)
                assert Tokens().token(_endpoint(url)) == Secret("a.b.c")
