"""PREFECT_API_URL names a Prefect server, or is refused before anything is recorded."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from flows import local
from serving.errors import BadInput


class Answering(BaseHTTPRequestHandler):
    """`true` under /api, as Prefect does, and a page elsewhere, as its UI does."""

    def do_GET(self) -> None:
        content = b"true" if self.path == "/api/health" else b"<html></html>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as found:
        threading.Thread(target=found.serve_forever).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


def ask(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_settings", lambda: None)  # they would outlive the test
    monkeypatch.setenv("PREFECT_API_URL", url)
    local.start_prefect()


@pytest.mark.parametrize("url", ["garbage", "ftp://127.0.0.1/api", "http:///api", "http://[::1/api"])
def test_what_is_no_url_is_refused_by_name(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="is no URL") as refused:
        ask(url, monkeypatch)
    assert f"`{url}`" in refused.value.message


def test_a_server_that_is_not_prefects_is_no_defect_of_ours(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="is no Prefect server"):
        ask(server, monkeypatch)


def test_a_server_that_answers_as_prefect_does_is_taken(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(f"{server}/api", monkeypatch)
