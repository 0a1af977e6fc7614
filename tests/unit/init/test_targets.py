"""The hosts that the user types, and the Python for the agent on each."""

from __future__ import annotations

import pytest

from tfdeploy.errors import CommandFailed, InventoryError
from tfdeploy.init.targets import LOCAL, MARK, Target, agent_python, parse_targets


def test_users_patterns_and_names_become_hosts_in_their_order():
    assert parse_targets(["ml@gpu-[01-02]", "cpu", "10.0.0.7", "cpu"], local=False) == (
        Target("gpu-01", "ml"), Target("gpu-02", "ml"), Target("cpu"), Target("10.0.0.7"),
    )  # fmt: skip


def test_this_machine_comes_first():
    assert parse_targets(["gpu-01"], local=True) == (Target(LOCAL), Target("gpu-01"))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("gpu-01:2200", "gpu-01:2200: a port is not part of a host's name"),
        ("ssh://gpu-01", "ssh://gpu-01: expected [USER@]HOST, without scheme and path"),
        ("fd00::1", "fd00::1: expected a name that ssh knows, such as gpu-01, or an IPv4"),
        ("gpu-[01-", 'gpu-[01-: expected a "]" after the "["'),
        ("gpu-[9-1]", "gpu-[9-1]: found [9-1]; expected numbers such as"),
        ("a@b@c", 'a@b@c: found the user "a@b"; expected USER@HOST'),
        ("@gpu", '@gpu: found the user ""; expected USER@HOST'),
        ("-oProxyCommand=x", "-oProxyCommand=x: expected a name that ssh knows"),
        ("a b", "a b: expected a name that ssh knows"),
        ("", 'found the host ""; expected a name or USER@NAME'),
        (LOCAL, f"{LOCAL}: expected a name that ssh knows"),
    ],
)
def test_a_slip_is_refused(word, message):
    with pytest.raises(InventoryError) as refused:
        parse_targets([word], local=False)
    assert refused.value.message.startswith(message)


def test_one_host_with_two_users_is_refused():
    with pytest.raises(InventoryError, match="gpu has two users, a and none; expected one"):
        parse_targets(["a@gpu", "gpu"], local=False)


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
