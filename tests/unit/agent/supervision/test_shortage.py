"""What a host lacks is said in one sentence, with what to do about it."""

from __future__ import annotations

import errno
import re

import pytest

from tfdeploy.agent.supervision import shortage


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (OSError(errno.EROFS, "", "new", None, "/r/.id"), "can't write /r/.id: Read", "remount"),
        (OSError(errno.ENOSPC, ""), "can't write a file: No space left on device", "prune"),
        (OSError(errno.EIO, "", "/r/log"), "can't use /r/log: Input/output error", "dmesg"),
        (BlockingIOError(errno.EAGAIN, ""), "can't start another process or thread: ", "ulimit -u"),
        (RuntimeError("can't start new thread"), "can't start another process", "pids.max"),
        (MemoryError(), "can't start another process or thread: Cannot allocate", "memory"),
    ],
)  # fmt: skip
def test_what_a_host_lacks_is_named_with_what_helps(error, message, hint):
    found = shortage.find(error)
    assert found.message.startswith(message)
    assert hint in found.hint


@pytest.mark.parametrize("error", [FileNotFoundError(2, "", "/r"), ValueError(), RuntimeError("x")])
def test_another_error_is_none_of_these(error):
    assert shortage.find(error) is None
    assert not shortage.is_temporary(error)


def test_a_limit_of_processes_may_be_over_a_moment_later():
    assert shortage.is_temporary(BlockingIOError(errno.EAGAIN, ""))
    assert not shortage.is_temporary(OSError(errno.EROFS, ""))


def test_a_death_by_sigkill_is_explained_if_the_kernel_killed_for_memory():
    assert shortage.describe_oom_kill(0) == ""
    assert shortage.describe_oom_kill(2).startswith(": the kernel killed 2 processes for lack of ")
    assert re.search(r"; the task had used up to \d+ MiB\b", shortage.describe_oom_kill(1))


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"": b"max\n", "/user/me": b"2147483648\n"}, "the 2048 MiB that its control group allows"),
        ({"/user": b"1073741824\n", "/user/me": b"2147483648\n"},
         "the 1024 MiB that its control group allows"),
        ({"": b"max\n"}, "the host's 8192 MiB"),
        ({}, "the host's 8192 MiB"),
    ],
)  # fmt: skip
def test_a_kill_for_memory_says_how_much_there_was(monkeypatch, files, limit):
    contents = {"/proc/self/cgroup": b"0::/user/me\n", "/proc/meminfo": b"MemTotal:  8388608 kB\n"}
    contents |= {f"/sys/fs/cgroup{name}/memory.max": text for name, text in files.items()}
    monkeypatch.setattr(shortage, "read_if_possible", lambda path: contents.get(path, b""))
    assert shortage.describe_oom_kill(1).endswith(f" MiB of {limit}")


@pytest.mark.parametrize(("counters", "kills"), [(b"a 1\noom_kill 7\nb 2\n", 7), (b"a 1\n", 0)])
def test_the_kills_for_memory_are_counted(monkeypatch, counters, kills):
    monkeypatch.setattr(shortage, "read_if_possible", lambda path: counters)
    assert shortage.oom_kills() == kills
