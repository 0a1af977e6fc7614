"""How many connections the daemon keeps: a thousand, unless few files may be open."""

from __future__ import annotations

import resource

import pytest

from tfdeploy.transport.daemon import server


@pytest.mark.parametrize(
    ("files", "kept"), [(resource.RLIM_INFINITY, 1137), (1 << 20, 1137), (1024, 256)]
)
def test_the_daemon_keeps_as_many_connections_as_memory_and_open_files_allow(
    monkeypatch, files, kept
):
    monkeypatch.setattr(server.resource, "getrlimit", lambda which: (files, files))
    assert server.max_connections() == kept
