"""Leases of GPUs and ports, real ones: held once by whoever's process, told of, gone with it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tfdeploy.agent import leases
from unit.made import NOBODY, eventually, python

PACKAGE = Path(__file__).parents[2]
BEGIN = f"import sys, time; sys.path.insert(0, {os.fspath(PACKAGE)!r})\n"
BEGIN += "from tfdeploy.agent import leases\n"
# An interpreter may lie where others can't read: it becomes another user once all is imported.
BECOME = "import os; os.setgid({0}); os.setuid({0})\n"
HOLD = BEGIN + "leases.hold(sys.argv[1:]); print('held', flush=True); time.sleep(60)"
TELL = BEGIN + "found = leases.holder(sys.argv[1]); print(found and [found.pid, found.user])"
# Takes the descriptors over when told to, and starts a child that keeps all it inherits.
SUPERVISE = BEGIN + (
    "import subprocess; task_dir, *held = sys.argv[2:]; held = [int(each) for each in held]\n"
    "print('ready', flush=True); sys.stdin.readline()\n"
    "leases.adopt(held); child = subprocess.Popen(['sleep', '60'], close_fds=False)\n"
    "print(child.pid, flush=True); time.sleep(60)"
)
# Waits for a common moment, wants everything, and says whether it got it until it is told to end.
RACE = BEGIN + (
    "print('ready', flush=True); sys.stdin.readline()\n"
    "try:\n leases.hold(sys.argv[1:]); print('all', flush=True)\n"
    "except leases.Taken as no: print(no.holder.pid, flush=True)\n"
    "sys.stdin.readline()"
)

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may be two users")


@pytest.fixture
def resource(tmp_path):
    """A name that no other test has."""
    return f"gpu/{tmp_path.parent.name}-{tmp_path.name}"[-90:]


@pytest.fixture
def start():
    """Start processes; those that still live at the end are killed."""
    started = []

    def one(code, *words, **options):
        started.append(python(code, *words, stdin=subprocess.PIPE, **options))
        return started[-1]

    yield one
    for each in started:
        each.kill()
        each.communicate()


@pytest.fixture
def hold():
    """Hold leases in this process until the end."""
    held = []

    def some(*resources):
        held.extend(leases.hold(resources))
        return held

    yield some
    leases.release(held)


def end(process):
    process.kill()
    process.wait()


def by(user, code):
    return code.replace(BEGIN, BEGIN + BECOME.format(user))


# Held


def test_a_lease_that_nobody_holds_is_free(resource):
    assert leases.holder(resource) is None


def test_the_holder_is_told(resource, start):
    one = start(HOLD, resource)
    found = leases.holder(resource)
    assert found.pid == one.pid
    assert found.user == pwd.getpwuid(os.geteuid()).pw_name
    assert found.since_s >= 0


def test_a_held_lease_is_refused_with_its_holder(resource, start):
    one = start(HOLD, resource)
    with pytest.raises(leases.Taken) as no:
        leases.hold([resource])
    assert no.value.resource == resource
    assert no.value.holder.pid == one.pid
    assert str(no.value).startswith(f"{resource} is taken by pid {one.pid}, started by ")


def test_all_are_taken_or_none(resource, start):
    start(HOLD, resource + "/2")
    with pytest.raises(leases.Taken) as no:
        leases.hold([resource + "/3", resource + "/2", resource + "/1"])
    assert no.value.resource == resource + "/2"
    assert leases.holder(resource + "/1") is None
    assert leases.holder(resource + "/3") is None


def test_whatever_the_order_of_asking_they_are_taken_in_one(resource, hold):
    """Else of two who want the same in different orders both could be refused."""
    hold(resource + "/2", resource + "/1")
    for wanted in ([resource + "/1", resource + "/2"], [resource + "/2", resource + "/1"]):
        with pytest.raises(leases.Taken) as no:
            leases.hold(wanted)
        assert no.value.resource == resource + "/1"


def test_a_name_that_is_too_long_leaves_nothing_held(resource):
    with pytest.raises(OSError, match="path too long"):
        leases.hold([resource, "z" * 99])
    assert leases.holder(resource) is None


def test_descriptors_come_in_the_order_of_the_resources(resource, hold):
    first, second = hold(resource + "/2", resource + "/1")
    with socket.socket(fileno=os.dup(first)) as lease:
        assert lease.getsockname() == f"\0tfdeploy/{resource}/2".encode()
    with socket.socket(fileno=os.dup(second)) as lease:
        assert lease.getsockname() == f"\0tfdeploy/{resource}/1".encode()


def test_the_same_twice_is_refused(resource):
    with pytest.raises(leases.Taken) as no:
        leases.hold([resource, resource])
    assert no.value.holder.pid == os.getpid()


@pytest.mark.parametrize(
    "odd", ["ü ñ 漢", "a\nb", "a\0b", "../..", "-x", "a'b\"c", "%s{}", "", "x" * 60]
)
def test_any_name_is_a_lease_of_its_own(resource, odd, hold):
    name = f"{resource[-30:]}/{odd}"
    hold(name)
    assert leases.holder(name).pid == os.getpid()
    assert leases.holder(name + " ") is None
    assert leases.holder(name[:-1]) is None


# Free again


def test_a_killed_holder_holds_nothing(resource, start):
    one = start(HOLD, resource)
    one.send_signal(signal.SIGKILL)
    one.wait()
    leases.release(leases.hold([resource]))


def test_a_released_lease_is_free(resource):
    leases.release(leases.hold([resource]))
    assert leases.holder(resource) is None
    leases.release(leases.hold([resource]))


def test_a_stopped_holder_still_holds_and_is_told(resource, start):
    one = start(HOLD, resource)
    one.send_signal(signal.SIGSTOP)
    assert leases.holder(resource).pid == one.pid


# Handed on


@pytest.fixture
def handed_on(resource, start, tmp_path):
    """Two leases taken here and inherited by a supervisor of worker:1, which has not adopted."""
    held = leases.hold([resource, resource + "/2"])
    task_dir = tmp_path / "digits" / "runs" / "r-1" / "worker-1"
    words = ("supervise", os.fspath(task_dir), *map(str, held))
    one = start(SUPERVISE, *words, pass_fds=held, bufsize=1)
    leases.release(held)
    return one


def adopt(supervisor):
    """Let it; the pid of its child, which lives on unless the test ends it."""
    supervisor.stdin.write("\n")
    return int(supervisor.stdout.readline())


def test_who_inherits_holds_though_another_answers(resource, handed_on):
    assert leases.holder(resource).pid == os.getpid()
    with pytest.raises(leases.Taken):
        leases.hold([resource + "/2"])


def test_who_adopts_answers_with_its_task(resource, handed_on):
    child = adopt(handed_on)
    try:
        found = leases.holder(resource)
        assert (found.pid, found.project, found.run, found.task) == (
            handed_on.pid, "digits", "r-1", "worker:1",
        )  # fmt: skip
        assert found.described.startswith("worker:1 of run r-1 of digits, started by ")
        assert leases.holder(resource + "/2").pid == handed_on.pid
    finally:
        os.kill(child, signal.SIGKILL)


def test_children_of_who_adopted_hold_nothing(resource, handed_on):
    child = adopt(handed_on)
    try:
        end(handed_on)
        # exec() may still be at closing the child's copies when its parent knows that it worked.
        assert eventually(lambda: leases.holder(resource) is None)
    finally:
        os.kill(child, signal.SIGKILL)


# Asked by many


def asked(resource, times):
    """Connections that nobody has accepted yet."""
    waiting = []
    for _ in range(times):
        waiting.append(socket.socket(socket.AF_UNIX))
        waiting[-1].setblocking(False)
        try:
            waiting[-1].connect(b"\0tfdeploy/" + resource.encode())
        except BlockingIOError:
            break
    return waiting


def close(sockets):
    for each in sockets:
        each.close()


def test_a_holder_whom_too_many_ask_is_there_but_unnamed(resource, start):
    start(HOLD, resource)
    waiting = asked(resource, leases.BACKLOG + 2)
    try:
        assert leases.holder(resource) == leases.Holder()
        with pytest.raises(leases.Taken, match="taken by a process that can't be seen"):
            leases.hold([resource])
    finally:
        close(waiting)


def test_askers_who_left_are_counted_until_the_holder_lets_them_go(resource, hold):
    held = hold(resource)
    close(asked(resource, leases.BACKLOG + 2))
    assert leases.holder(resource) == leases.Holder()
    leases.answer(held)
    assert leases.holder(resource).pid == os.getpid()


def test_an_answer_hangs_up(resource, hold):
    held = hold(resource)
    waiting = asked(resource, 3)
    leases.answer(held)
    for each in waiting:
        assert each.recv(1) == b""
    close(waiting)


def test_an_answer_to_nobody_does_not_block(resource, hold):
    held = hold(resource, resource + "/2")
    began = time.monotonic()
    for _ in range(100):
        leases.answer(held)
    assert time.monotonic() - began < 5


# Races


def test_of_many_at_once_exactly_one_gets_all(resource, start):
    wanted = [f"{resource}/{number}" for number in range(8)]
    racers = [start(RACE, *(wanted if n % 2 else wanted[::-1]), bufsize=1) for n in range(8)]
    for each in racers:
        each.stdin.write("\n")
    said = [each.stdout.readline().strip() for each in racers]
    assert said.count("all") == 1
    winner = racers[said.index("all")]
    assert {each for each in said if each != "all"} == {str(winner.pid)}
    assert {leases.holder(each).pid for each in wanted} == {winner.pid}


def test_one_that_has_the_name_and_does_not_listen_is_never_overtaken(resource):
    with socket.socket(socket.AF_UNIX) as half:
        half.bind(b"\0tfdeploy/" + resource.encode())
        assert leases.holder(resource) is None
        with pytest.raises(leases.Taken) as no:
            leases.hold([resource])
    assert no.value.holder == leases.Holder()


def test_a_holder_who_ends_between_the_looks_is_followed(resource, monkeypatch):
    """bind() fails, the holder ends, and then nobody answers: it is free, so it is taken."""
    gone = leases.hold([resource])
    look = leases.holder

    def too_late(name):
        leases.release(gone)
        return look(name)

    monkeypatch.setattr(leases, "holder", too_late)
    leases.release(leases.hold([resource]))


# Two users


@root_only
def test_another_users_lease_is_respected_and_named(resource, start):
    start(by(NOBODY, HOLD), resource)
    with pytest.raises(leases.Taken, match="started by nobody "):
        leases.hold([resource])


@root_only
def test_another_user_is_refused_and_told(resource, hold):
    hold(resource)
    told = start_and_read(by(NOBODY, TELL), resource)
    assert told == str([os.getpid(), "root"])


@root_only
def test_a_user_without_a_name_is_told_by_number(resource, start):
    start(by(54321, HOLD), resource)
    assert leases.holder(resource).user == "54321"


@root_only
@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_a_holder_out_of_sight_is_told_by_its_user(resource, hold):
    hold(resource)
    code = TELL.replace("[found.pid, found.user]", "[found.pid, found.described]")
    made = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"])
    if made.returncode:
        pytest.skip("no namespace of processes may be made here")
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "python3", "-S", "-c", code, resource]
    told = subprocess.run(inside, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    assert told == str([0, "a process that can't be seen from here, started by root"])


def start_and_read(code, *words):
    one = python(code, *words)
    one.wait()
    one.stdout.close()
    return one.said


# Words


@pytest.mark.parametrize(
    ("holder", "words"),
    [
        (leases.Holder(), "a process that can't be seen from here"),
        (leases.Holder(7, "ada"), "pid 7, started by ada"),
        (leases.Holder(7, "ada", 59.9), "pid 7, started by ada 59s ago"),
        (leases.Holder(7, "ada", 60.0), "pid 7, started by ada 1m ago"),
        (leases.Holder(7, "ada", 7300.0, "p", "r", "ps:0"),
         "ps:0 of run r of p, started by ada 2h ago"),
        (leases.Holder(7, "ada", 200000.0), "pid 7, started by ada 2d ago"),
    ],
)  # fmt: skip
def test_a_holder_in_words(holder, words):
    assert holder.described == words


@pytest.mark.parametrize(
    "words",
    [
        ["supervise"],
        ["supervise", "worker-0"],
        ["supervise", "/r/p/runs/r-1/worker"],
        ["supervise", "/r/p/runs/r-1/worker-0/work"],
        ["supervise", "/r/p\x1b[2J/runs/r-1/worker-0"],
        ["supervise", "/r/p/runs/r 1/worker-0"],
        ["supervise", "/r/p/runs/r-1/worker-0\n"],
        ["supervise", "x", "/r/p/runs/r-1/worker-0"],
        ["/r/p/runs/r-1/worker-0"],
    ],
)
def test_nothing_but_plain_names_is_taken_from_a_command_line(resource, start, words):
    one = start(HOLD.replace("sys.argv[1:]", "sys.argv[1:2]"), resource, *words)
    found = leases.holder(resource)
    assert (found.pid, found.project, found.run, found.task) == (one.pid, "", "", "")


def test_since_when_a_holder_lives_grows(resource, start):
    start(HOLD, resource)
    first = leases.holder(resource).since_s
    assert eventually(lambda: leases.holder(resource).since_s > first)


@pytest.mark.parametrize("name", ["a", "a b) c"])
def test_a_holder_is_as_old_as_its_process_whatever_its_name(resource, start, name):
    began = time.monotonic()
    start(HOLD.replace("print(", f"open('/proc/self/comm', 'w').write({name!r}); print("), resource)
    found = leases.holder(resource)
    one_tick = 1 / os.sysconf("SC_CLK_TCK")
    assert 0 <= found.since_s <= time.monotonic() - began + one_tick


# GPUs


LISTED = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5f1c0e6b-1111-2222-3333-444455556666)
  MIG 1g.10gb     Device  0: (UUID: MIG-77f33c5a-aaaa-5bbb-8ccc-ddddeeeeffff)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-aa11bb22-0000-0000-0000-000000000001)
GPU 10: A card without a name of its own
"""


def test_gpus_are_read_by_id_and_uuid():
    assert leases.parsed_gpus(LISTED) == {
        0: "gpu/GPU-5f1c0e6b-1111-2222-3333-444455556666",
        1: "gpu/GPU-aa11bb22-0000-0000-0000-000000000001",
        10: "gpu/10",
    }


@pytest.mark.parametrize(
    "text", ["", "No devices found.\n", "NVIDIA-SMI has failed because it couldn't communicate\n"]
)
def test_no_gpu_is_no_resource(text):
    assert leases.parsed_gpus(text) == {}


def test_the_machines_own_tool_is_asked(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\n[ "$*" = -L ] && cat <<E\n{LISTED}E\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert len(leases.gpu_uuids()) == 3


def test_a_machine_without_the_tool_has_no_gpus(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    assert leases.gpu_uuids() == {}
