"""`make audit`, with a service on this machine."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from support import audit

LOCK = "a==1.0 \\\n    --hash=sha256:00\nb-c==2.0 ; python_full_version < '3.12' \\\n"


@pytest.fixture
def asked(tmp_path):
    """Return a function that audits a lock; its service gives an answer and keeps the question."""

    class Service(BaseHTTPRequestHandler):
        def do_POST(self):
            given.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(given["answer"].encode())

        def log_message(self, *_):
            pass

    given = {}
    server = HTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "lock.txt").write_text(LOCK)
    url = f"http://127.0.0.1:{server.server_port}/"

    def ask(answer):
        given["answer"] = answer
        return audit.main([str(tmp_path / "lock.txt"), "--service", url]), given["queries"]

    yield ask
    server.shutdown()
    server.server_close()


def test_every_package_of_the_lock_is_audited(asked, capsys):
    code, queries = asked('{"results": [{}, {"vulns": [{"id": "X-2"}, {"id": "X-1"}]}]}')
    assert [(each["package"]["name"], each["version"]) for each in queries] == [
        ("a", "1.0"),
        ("b-c", "2.0"),
    ]
    assert code == 1
    assert capsys.readouterr().out == (
        "b-c 2.0: X-1, X-2\n2 packages were audited, 1 have known weaknesses\n"
    )
    assert asked('{"results": [{}, {}]}')[0] == 0


@pytest.mark.parametrize("answer", ['{"results": [{}]}', "[]", "x", '{"results": [1, 2]}'])
def test_an_answer_that_leaves_a_package_out_is_no_audit(asked, capsys, answer):
    assert asked(answer)[0] == 2
    assert "were not audited" in capsys.readouterr().out


def test_a_missing_network_is_said_in_one_sentence(tmp_path, capsys):
    lock = Path(tmp_path / "lock.txt")
    lock.write_text(LOCK)
    assert audit.main([str(lock), "--service", "http://127.0.0.1:1/"]) == 2
    assert capsys.readouterr().out.count("\n") == 1
