"""Which hosts are named when a command waits."""

from __future__ import annotations

import time

from tfdeploy.hosts import silence
from tfdeploy.hosts.silence import Silence


def test_a_host_that_has_answered_and_prints_more_does_not_hide_one_that_is_silent(caplog):
    waiting = Silence(["a", "b"])
    waiting.end("a")
    waiting._since = time.monotonic() - silence.SILENT_S
    waiting.end("a")
    waiting.check()
    assert caplog.messages == ["waiting for host b"]
