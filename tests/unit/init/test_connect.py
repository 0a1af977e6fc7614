"""What a host must have before it can be asked anything."""

from __future__ import annotations

import pytest

from tfdeploy.errors import CommandFailed
from tfdeploy.init.connect import MARK, agent_python

KERNEL, RSYNC, PYTHON = f"{MARK}kernel Linux\n", f"{MARK}rsync yes\n", f"{MARK}python python3\n"


def test_what_a_profile_prints_is_ignored():
    output = f"Welcome!\n{KERNEL}{RSYNC}{PYTHON}".encode()
    assert agent_python("a", output, needs_rsync=True) == "python3"


def test_this_machine_needs_no_rsync():
    assert agent_python("a", f"{KERNEL}{PYTHON}".encode(), needs_rsync=False) == "python3"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "it runs no Unix shell; expected Linux"),
        (f"{MARK}kernel FreeBSD\n{RSYNC}{PYTHON}", "it runs FreeBSD; expected Linux"),
        (KERNEL + RSYNC, "it has no Python 3.8 or newer"),
        (f"{KERNEL}{RSYNC}{MARK}python -c\n", "it has no Python 3.8 or newer"),
        (KERNEL + PYTHON, "rsync is not installed"),
    ],
)
def test_what_a_host_lacks_is_named(output, message):
    with pytest.raises(CommandFailed) as failed:
        agent_python("a", output.encode(), needs_rsync=True)
    assert failed.value.message == message
