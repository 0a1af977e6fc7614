"""Real leases of GPUs and ports: one holder at a time, named to others, released when it ends."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from support.builders import NOBODY_UID, eventually, start_python

from tfdeploy.agent.machine import leases

PACKAGE = Path(__file__).parents[4]
IMPORT = f"import sys, time; sys.path.insert(0, {os.fspath(PACKAGE)!r})\n"
IMPORT += "from tfdeploy.agent.machine import leases\n"
# Other users may not be able to read the interpreter: change the user after all imports.
BECOME = "import os; os.setgid({0}); os.setuid({0})\n"
HOLD = IMPORT + "leases.acquire(sys.argv[1:]); print('held', flush=True); time.sleep(60)"
QUERY = IMPORT + "found = leases.holder(sys.argv[1]); print(found and [found.pid, found.user])"
# Adopts the descriptors after a line of input, and starts a child that keeps what it inherits.
SUPERVISE = IMPORT + (
    "import subprocess; task_dir, *held = sys.argv[2:]; held = [int(number) for number in held]\n"
    "print('ready', flush=True); sys.stdin.readline()\n"
    "leases.adopt(held); child = subprocess.Popen(['sleep', '600'], close_fds=False)\n"
    "print(child.pid, flush=True); time.sleep(60)"
)
# Waits for a line of input, tries to acquire all, prints the result, and waits for another line.
# Tries for long, because the winner may lose its processor between bind() and listen().
RACE = IMPORT + (
    "leases.TRIES = 1000; print('ready', flush=True); sys.stdin.readline()\n"
    "try:\n leases.acquire(sys.argv[1:]); print('all', flush=True)\n"
    "except leases.ResourceTaken as taken: print(taken.holder.pid, flush=True)\n"
    "sys.stdin.readline()"
)

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")


@pytest.fixture
def resource():
    """A name that no other process of the machine uses."""
    return f"gpu/{secrets.token_hex(12)}"


@pytest.fixture
def start():
    """Start processes. Those that still run at the end are killed."""
    started = []

    def start_process(code, *arguments, **options):
        started.append(start_python(code, *arguments, stdin=subprocess.PIPE, **options))
        return started[-1]

    yield start_process
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def hold():
    """Hold leases in this process until the end of the test."""
    held = []

    def acquire(*resources):
        held.extend(leases.acquire(resources))
        return held

    yield acquire
    leases.release(held)


def end(process):
    process.kill()
    process.wait()


def as_user(user, code):
    return code.replace(IMPORT, IMPORT + BECOME.format(user))


# Holding a lease


def test_a_lease_without_holder_is_free(resource):
    assert leases.holder(resource) is None


def test_the_holder_is_described(resource, start):
    one = start(HOLD, resource)
    found = leases.holder(resource)
    assert found.pid == one.pid
    assert found.user == pwd.getpwuid(os.geteuid()).pw_name
    assert found.age_s >= 0


def test_a_held_lease_is_refused_with_its_holder(resource, start):
    one = start(HOLD, resource)
    with pytest.raises(leases.ResourceTaken) as taken:
        leases.acquire([resource])
    assert taken.value.resource == resource
    assert taken.value.holder.pid == one.pid
    assert str(taken.value).startswith(f"{resource} is taken by pid {one.pid}, started by ")


def test_all_leases_are_acquired_or_none(resource, start):
    start(HOLD, resource + "/2")
    with pytest.raises(leases.ResourceTaken) as taken:
        leases.acquire([resource + "/3", resource + "/2", resource + "/1"])
    assert taken.value.resource == resource + "/2"
    assert leases.holder(resource + "/1") is None
    assert leases.holder(resource + "/3") is None


def test_leases_are_acquired_in_one_order_whatever_order_is_given(resource, hold):
    """Otherwise two processes that want the same could refuse each other."""
    hold(resource + "/2", resource + "/1")
    for wanted in ([resource + "/1", resource + "/2"], [resource + "/2", resource + "/1"]):
        with pytest.raises(leases.ResourceTaken) as taken:
            leases.acquire(wanted)
        assert taken.value.resource == resource + "/1"


def test_a_name_that_is_too_long_leaves_no_lease_behind(resource):
    with pytest.raises(OSError, match="path too long"):
        leases.acquire([resource, "z" * 99])
    assert leases.holder(resource) is None


def test_descriptors_are_in_the_order_of_the_resources(resource, hold):
    first, second = hold(resource + "/2", resource + "/1")
    with socket.socket(fileno=os.dup(first)) as lease:
        assert lease.getsockname() == f"\0tfdeploy/{resource}/2".encode()
    with socket.socket(fileno=os.dup(second)) as lease:
        assert lease.getsockname() == f"\0tfdeploy/{resource}/1".encode()


def test_the_same_resource_twice_is_refused(resource):
    with pytest.raises(leases.ResourceTaken) as taken:
        leases.acquire([resource, resource])
    assert taken.value.holder.pid == os.getpid()


@pytest.mark.parametrize(
    "odd", ["ü ñ 漢", "a\nb", "a\0b", "../..", "-x", "a'b\"c", "%s{}", "", "x" * 60]
)
def test_any_name_is_its_own_lease(resource, odd, hold):
    name = f"{resource[-30:]}/{odd}"
    hold(name)
    assert leases.holder(name).pid == os.getpid()
    assert leases.holder(name + " ") is None
    assert leases.holder(name[:-1]) is None


# Releasing a lease


def test_a_killed_holder_holds_nothing(resource, start):
    one = start(HOLD, resource)
    one.send_signal(signal.SIGKILL)
    one.wait()
    leases.release(leases.acquire([resource]))


def test_a_released_lease_is_free(resource):
    leases.release(leases.acquire([resource]))
    assert leases.holder(resource) is None
    leases.release(leases.acquire([resource]))


def test_a_stopped_holder_keeps_its_lease(resource, start):
    one = start(HOLD, resource)
    one.send_signal(signal.SIGSTOP)
    assert leases.holder(resource).pid == one.pid


# Handing leases over


@pytest.fixture
def supervisor(resource, start, tmp_path):
    """A supervisor of worker:1 that has inherited two leases and not adopted them yet."""
    held = leases.acquire([resource, resource + "/2"])
    task_dir = tmp_path / "digits" / "runs" / "r-1" / "worker-1"
    arguments = ("supervise", os.fspath(task_dir), *map(str, held))
    process = start(SUPERVISE, *arguments, pass_fds=held, bufsize=1)
    leases.release(held)
    return process


def adopt(supervisor):
    """Make it adopt the leases, and return the pid of its child, which the test must end."""
    supervisor.stdin.write("\n")
    return int(supervisor.stdout.readline())


def test_a_lease_inherited_but_not_adopted_names_the_former_holder(resource, supervisor):
    assert leases.holder(resource).pid == os.getpid()
    with pytest.raises(leases.ResourceTaken):
        leases.acquire([resource + "/2"])


def test_an_adopted_lease_names_the_supervisors_task(resource, supervisor):
    child = adopt(supervisor)
    try:
        found = leases.holder(resource)
        assert (found.pid, found.project, found.run, found.task) == (
            supervisor.pid, "digits", "r-1", "worker:1",
        )  # fmt: skip
        assert found.description.startswith("worker:1 of run r-1 of digits, started by ")
        assert leases.holder(resource + "/2").pid == supervisor.pid
    finally:
        os.kill(child, signal.SIGKILL)


def test_children_of_the_adopting_process_hold_nothing(resource, supervisor):
    child = adopt(supervisor)
    try:
        end(supervisor)
        # exec() may still be closing the child's copies when the parent has learned that it worked.
        assert eventually(lambda: leases.holder(resource) is None)
    finally:
        os.kill(child, signal.SIGKILL)


# Many queries


def open_queries(resource, count):
    """Return connections to a lease that have not been accepted."""
    waiting = []
    for _ in range(count):
        waiting.append(socket.socket(socket.AF_UNIX))
        waiting[-1].setblocking(False)
        try:
            waiting[-1].connect(b"\0tfdeploy/" + resource.encode())
        except BlockingIOError:
            break
    return waiting


def close(sockets):
    for connection in sockets:
        connection.close()


def test_a_holder_with_too_many_queries_is_unnamed(resource, start):
    start(HOLD, resource)
    waiting = open_queries(resource, leases.BACKLOG + 2)
    try:
        assert leases.holder(resource) == leases.Holder()
        with pytest.raises(leases.ResourceTaken, match="taken by a hidden process"):
            leases.acquire([resource])
    finally:
        close(waiting)


def test_closed_queries_count_until_the_holder_drops_them(resource, hold):
    held = hold(resource)
    close(open_queries(resource, leases.BACKLOG + 2))
    assert leases.holder(resource) == leases.Holder()
    leases.drop_queries(held)
    assert leases.holder(resource).pid == os.getpid()


def test_dropped_queries_are_closed(resource, hold):
    held = hold(resource)
    waiting = open_queries(resource, 3)
    leases.drop_queries(held)
    for connection in waiting:
        assert connection.recv(1) == b""
    close(waiting)


def test_dropping_queries_never_blocks(resource, hold):
    held = hold(resource, resource + "/2")
    started_at = time.monotonic()
    for _ in range(100):
        leases.drop_queries(held)
    assert time.monotonic() - started_at < 5


# Races


def test_of_many_processes_exactly_one_gets_all_leases(resource, start):
    wanted = [f"{resource}/{number}" for number in range(8)]
    racers = [start(RACE, *(wanted if n % 2 else wanted[::-1]), bufsize=1) for n in range(8)]
    for racer in racers:
        racer.stdin.write("\n")
    results = [racer.stdout.readline().strip() for racer in racers]
    assert results.count("all") == 1
    winner = racers[results.index("all")]
    assert {result for result in results if result != "all"} == {str(winner.pid)}
    assert {leases.holder(name).pid for name in wanted} == {winner.pid}


def test_a_name_that_is_bound_but_not_listening_counts_as_taken(resource):
    with socket.socket(socket.AF_UNIX) as half:
        half.bind(b"\0tfdeploy/" + resource.encode())
        assert leases.holder(resource) is None
        with pytest.raises(leases.ResourceTaken) as taken:
            leases.acquire([resource])
    assert taken.value.holder == leases.Holder()


def test_a_lease_whose_holder_ends_during_the_attempt_is_acquired(resource, monkeypatch):
    """bind() fails, then the holder ends, then the query finds no holder."""
    ending = leases.acquire([resource])
    query = leases.holder

    def query_after_release(name):
        leases.release(ending)
        return query(name)

    monkeypatch.setattr(leases, "holder", query_after_release)
    leases.release(leases.acquire([resource]))


# Two users


@root_only
def test_a_lease_of_another_user_is_refused_with_its_name(resource, start):
    start(as_user(NOBODY_UID, HOLD), resource)
    with pytest.raises(leases.ResourceTaken, match="started by nobody "):
        leases.acquire([resource])


@root_only
def test_another_user_sees_the_holder(resource, hold):
    hold(resource)
    output = start_and_read(as_user(NOBODY_UID, QUERY), resource)
    assert output == str([os.getpid(), "root"])


@root_only
def test_a_user_without_a_name_is_shown_by_number(resource, start):
    start(as_user(54321, HOLD), resource)
    assert leases.holder(resource).user == "54321"


@root_only
@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_a_hidden_holder_is_described_by_its_user(resource, hold):
    hold(resource)
    code = QUERY.replace("[found.pid, found.user]", "[found.pid, found.description]")
    unshared = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"])
    if unshared.returncode:
        pytest.skip("this user may not create a pid namespace")
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "python3", "-S", "-c", code, resource]
    output = subprocess.run(inside, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    assert output == str([0, "a hidden process, started by root"])


def start_and_read(code, *arguments):
    process = start_python(code, *arguments)
    process.wait()
    process.stdout.close()
    return process.first_line


# Descriptions


@pytest.mark.parametrize(
    ("holder", "description"),
    [
        (leases.Holder(), "a hidden process"),
        (leases.Holder(7, "ada"), "pid 7, started by ada"),
        (leases.Holder(7, "ada", 59.9), "pid 7, started by ada 59s ago"),
        (leases.Holder(7, "ada", 60.0), "pid 7, started by ada 1m ago"),
        (leases.Holder(7, "ada", 7300.0, "p", "r", "ps:0"),
         "ps:0 of run r of p, started by ada 2h ago"),
        (leases.Holder(7, "ada", 200000.0), "pid 7, started by ada 2d ago"),
    ],
)  # fmt: skip
def test_the_description_of_a_holder(holder, description):
    assert holder.description == description


@pytest.mark.parametrize(
    "arguments",
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
def test_only_plain_names_are_read_from_a_command_line(resource, start, arguments):
    one = start(HOLD.replace("sys.argv[1:]", "sys.argv[1:2]"), resource, *arguments)
    found = leases.holder(resource)
    assert (found.pid, found.project, found.run, found.task) == (one.pid, "", "", "")


def test_the_age_of_a_holder_grows(resource, start):
    start(HOLD, resource)
    first = leases.holder(resource).age_s
    assert eventually(lambda: leases.holder(resource).age_s > first)


@pytest.mark.parametrize("name", ["a", "a b) c"])
def test_the_age_of_a_holder_is_read_correctly_whatever_its_name(resource, start, name):
    started_at = time.monotonic()
    start(HOLD.replace("print(", f"open('/proc/self/comm', 'w').write({name!r}); print("), resource)
    found = leases.holder(resource)
    one_tick = 1 / os.sysconf("SC_CLK_TCK")
    assert 0 <= found.age_s <= time.monotonic() - started_at + one_tick
