"""A host that got an older release last is asked at once what it lacks, if that is quick."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tfdeploy.errors import CommandTimedOut
from tfdeploy.hosts.agent_session import TIMEOUT_S
from tfdeploy.hosts.byte_progress import Transfer
from tfdeploy.release.snapshot import Release
from tfdeploy.transfer import send
from tfdeploy.transfer.send import GUESS_BYTES, GUESS_FILES


class HangingAgent:
    """An agent that does not answer; it records the requests and their timeouts."""

    host = "one"

    def __init__(self):
        self.asked = []

    def ask_encoded(self, query, timeout_s=TIMEOUT_S, payload=tuple):
        self.asked.append((query.request.VERB, timeout_s))
        raise CommandTimedOut("one", "no answer")


def ask(files, size):
    """Return what a host with a hanging disk is asked of a release."""
    manifest = {str(index): ("f", "0") for index in range(files)}
    sizes = dict.fromkeys(manifest, size // files)
    release = Release("p-1", Path("/source"), manifest, sizes)
    older = SimpleNamespace(is_older=lambda host, release: True)
    agent = HangingAgent()
    with pytest.raises(CommandTimedOut):
        send._ReleaseSender("p", release, None, older).send_to(
            agent, Transfer(), lambda arrived: None
        )
    return agent.asked


def test_a_host_that_hangs_is_given_up_as_early_as_for_the_short_question():
    assert ask(10, 1000) == [("lacks", TIMEOUT_S)]


@pytest.mark.parametrize(
    ("files", "size"), [(1, GUESS_BYTES + 1), (GUESS_FILES + 1, 0)], ids=["bytes", "files"]
)
def test_a_large_release_is_not_compared_before_the_short_question(files, size):
    ((verb, timeout_s),) = ask(files, size)
    assert (verb, timeout_s) == ("offer", TIMEOUT_S)
