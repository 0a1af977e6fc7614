"""`tfdeploy tensorboard` over real SSH: what is fetched, what is served, and how it ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from support import events
from support.browser import Chromium
from support.events import NAME, scalar, version
from support.waiting import until

from tfdeploy import run as runs
from tfdeploy.commands.collect import collect_events
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.results import fetch as fetching

LOOPBACK = ("0100007F", "00000000000000000000000001000000")
STEP = scalar(1, 0.5, at=2.0)
TRAINER = """
import events, os, time
os.makedirs("checkpoints/train", exist_ok=True)
with open(f"checkpoints/train/{events.NAME}", "ab", buffering=0) as file:
    file.write(events.version(time.time()))
    for step in range(1, 31):
        while step == 11 and not os.path.exists("more"):
            time.sleep(0.1)
        record = events.scalar(step, 1 / step, at=time.time())
        file.write(record[:9])
        time.sleep(0.05)
        file.write(record[9:])
"""


@pytest.fixture
def project(by_ssh):
    return by_ssh.started("--hold", "--steps=1")


def write(project, task, path, *parts):
    file = project.work(task) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(parts))
    return file


def append(file, data):
    with file.open("ab") as opened:
        opened.write(data)


def copies(project):
    """Return the content of each copy by its path below runs/<run>/events/."""
    folder = project.run_folder / "events"
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob(f"*{NAME}")}


def served(command):
    """Wait for the address, and return it."""
    command.wait_for_output("TensorBoard is at")
    return re.search(r"TensorBoard is at (\S+)", command.output)[1]


def runs_of(url):
    """Return the runs that TensorBoard serves."""
    with urllib.request.urlopen(f"{url}data/runs") as answer:
        return json.load(answer)


def children(pid):
    """Return all processes below a process."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, below) for each in (child, *children(child))]


def is_alive(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def addresses(pid):
    """Return the addresses on which a process listens, as the kernel writes them."""
    links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in links:
                found.append(fields[1].partition(":")[0])
    return found


@pytest.mark.slow
def test_what_tasks_append_is_appended_to_the_copies(project):
    first = write(project, "worker:0", f"checkpoints/{NAME}", version(), STEP[:11])
    second = write(project, "worker:0", f"logs/train/{NAME}", version())
    write(project, "worker:1", f"checkpoints/{NAME}", version())  # repeats the chief's
    with project.start_command("tensorboard") as command:
        url = served(command)
        assert copies(project) == {NAME: version() + STEP[:11], f"logs/train/{NAME}": version()}
        assert re.search(r": [2-9] event files", command.output)  # the stub has one, too

        inode = (project.run_folder / "events" / NAME).stat().st_ino
        append(first, STEP[11:] + STEP[:-1])
        append(second, STEP * 3)
        names = {NAME: version() + STEP + STEP[:-1], f"logs/train/{NAME}": version() + STEP * 3}
        until(lambda: copies(project) == names, "what was appended")
        append(first, STEP[-1:])
        until(lambda: copies(project)[NAME] == version() + STEP * 2, "the rest")
        assert (project.run_folder / "events" / NAME).stat().st_ino == inode

        label = project.runs[-1]
        expected = {label, f"{label}/logs/train"}
        until(lambda: set(runs_of(url)) == expected, "the runs")
        before, below = project.processes(), children(command.process.pid)
        listening = [address for pid in below for address in addresses(pid)]
        assert {*listening} <= {*LOOPBACK}
        assert listening
        assert command.interrupt() == 0
    until(lambda: not any(map(is_alive, below)), "the end of TensorBoard")
    assert project.processes().keys() >= before.keys()  # the run goes on


def test_the_host_sends_only_what_was_appended(project, monkeypatch):
    noise = b"".join(scalar(step, 1.0) for step in range(20_000))
    file = write(project, "worker:0", f"checkpoints/{NAME}", version(), noise)
    run = runs.load(project.folder / "hosts.toml")
    pieces, unpack = [], fetching.FileFetch._unpack

    def count(fetch, piece):
        pieces.append(len(piece.data))
        return unpack(fetch, piece)

    monkeypatch.setattr(fetching.FileFetch, "_unpack", count)

    def fetch():
        """Return how many bytes of base64 came."""
        before = sum(pieces)
        with Fleet(run.inventory, version=run.agent) as fleet:
            assert collect_events(fleet, run) == []
        assert copies(project)[NAME] == file.read_bytes()
        return sum(pieces) - before

    first = fetch()
    append(file, STEP)
    second = fetch()
    assert 0 < second < 200 < first / 20


@pytest.mark.slow
def test_events_are_served_without_hosts(project):
    write(project, "worker:0", f"checkpoints/{NAME}", version(), STEP)
    project.ok("collect")
    project.ok("stop")
    for host in project.hosts:
        shutil.rmtree(project.on(host))
    with project.start_command("tensorboard", "--offline") as command:
        url = served(command)
        assert copies(project) == {NAME: version() + STEP}
        until(lambda: runs_of(url) == [project.runs[-1]], "the run")
        of_a_page = urllib.request.Request(f"{url}data/runs")
        of_a_page.add_header("Host", "evil.example:6006")  # which resolves to 127.0.0.1
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(of_a_page)
        assert command.interrupt() == 0


def point_to_nobody(project):
    """Change the run's record, so that no sshd answers for its hosts."""
    config = project.folder.parent / "nobody"
    config.write_text("Host *\n  HostName 127.0.0.1\n  Port 1\n")
    file = project.run_folder / "hosts.toml"
    lines = [
        f'ssh_config = "{config}"' if line.startswith("ssh_config") else line
        for line in file.read_text().splitlines()
    ]
    file.write_text("\n".join(lines) + "\n")
    project.tf("trust", "--run", project.run_folder.name)


@pytest.mark.slow
def test_a_host_that_is_away_is_one_sentence(project):
    write(project, "worker:0", f"checkpoints/{NAME}", version())
    with project.start_command("tensorboard") as command:
        served(command)
        command.interrupt()
    point_to_nobody(project)
    with project.start_command("tensorboard") as command:
        url = served(command)
        assert runs_of(url) is not None
        assert "what was fetched before is shown until it answers" in command.output
        assert command.interrupt() == 0


@pytest.mark.slow
def test_events_continue_when_a_host_answers_again(project, sshds):
    chief = write(project, "worker:0", f"checkpoints/{NAME}", version())
    with project.start_command("tensorboard") as command:
        served(command)
        sshds["two"].stop()
        command.wait_for_output("what was fetched before is shown until it answers")
        append(chief, STEP)
        sshds["two"].start()
        until(lambda: copies(project) == {NAME: version() + STEP}, "what was written meanwhile")
        command.wait_for_output("two answers again")
        assert command.interrupt() == 0


@pytest.mark.slow
def test_two_commands_and_a_collect_fetch_the_same_run(project):
    chief = write(project, "worker:0", f"checkpoints/{NAME}", version())
    with project.start_command("tensorboard") as first:
        first.wait_for_output("TensorBoard is at")
        with project.start_command("tensorboard") as second:
            url = served(second)
            assert url not in first.output
            append(chief, STEP)
            project.ok("collect")
            assert copies(project) == {NAME: version() + STEP}
            assert first.interrupt() == 0
            append(chief, STEP)
            expected = {NAME: version() + STEP * 2}
            until(lambda: copies(project) == expected, "events by the second")
            assert second.interrupt() == 0


@pytest.mark.slow
def test_the_events_of_a_run_that_is_resumed_are_fetched(project):
    chief = write(project, "worker:0", f"checkpoints/{NAME}", version())
    with project.start_command("tensorboard") as command:
        served(command)
        project.ok("stop")
        project.ok("resume")
        append(chief, STEP)
        expected = {NAME: version() + STEP}
        until(lambda: copies(project) == expected, "events of the second start")
        append(chief, STEP)
        expected = {NAME: version() + STEP * 2}
        until(lambda: copies(project) == expected, "what the resumed task appends")
        assert command.interrupt() == 0


@pytest.mark.slow
def test_a_run_without_events_says_what_writes_them(project):
    stub = project.work("worker:0") / "checkpoints" / "events.out.tfevents.1.host"
    until(stub.is_file, "the stub's events")
    stub.unlink()
    with project.start_command("tensorboard") as command:
        command.wait_for_output("TensorBoard is at")
        assert "no events yet; keras.callbacks.TensorBoard and tf.summary" in command.output
        assert command.interrupt() == 0


def test_wrong_arguments_start_nothing(project):
    assert project.tf("tensorboard", "nothing").returncode == 2
    assert project.tf("tensorboard", "--host", "0.0.0.0").returncode == 2
    assert not (project.run_folder / "events").exists()


def test_a_port_that_is_taken_is_named(project):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = project.tf("tensorboard", "--port", port)
    assert f"could not bind to port {port}, it was already in use" in refused.stderr
    assert refused.returncode == 2


@pytest.mark.slow
def test_tensorboard_does_not_outlive_a_command_that_is_killed(project):
    write(project, "worker:0", f"checkpoints/{NAME}", version())
    with project.start_command("tensorboard") as command:
        served(command)
        below = children(command.process.pid)
        os.kill(command.process.pid, signal.SIGKILL)
        command.process.wait()
        until(lambda: not any(map(is_alive, below)), "the end of TensorBoard")


@pytest.mark.slow
def test_a_browser_shows_the_loss_while_the_run_trains(by_ssh, tmp_path):
    project = by_ssh.project(
        training={"command": ["python", "trainer.py"], "ready": "process", "role": "environment"}
    )
    (project.folder / "trainer.py").write_text(TRAINER)
    shutil.copy(events.__file__, project.folder)
    project.ok("push")
    project.ok("start", "--name", "wide")
    with (
        project.start_command("tensorboard") as command,
        Chromium(tmp_path / "profile") as browser,
    ):
        url = served(command)

        def wait_for(last):
            """Wait until the page shows this loss, as a row of the chart's table. The page is
            opened when TensorBoard has read it: it does not load again by itself."""
            until(lambda: list(map(steps, copies(project).values())) == [last], f"{last} steps")
            until(lambda: steps_served(url, "wide/train") == last, "TensorBoard has read it")
            browser.open("about:blank", width=1400, scheme="light")
            browser.open(f"{url}#timeseries", width=1400, scheme="light")
            row = ("wide/train", f"{1 / last:.4f}".rstrip("0"), str(last))
            until(lambda: rows(browser) == [row], f"the loss of {last}", every_s=0.3)

        wait_for(10)
        for task in ("ps:0", "worker:0", "worker:1"):
            (project.work(task) / "more").touch()
        wait_for(30)
        if os.environ.get("TFDEPLOY_PICTURE"):
            time.sleep(3)
            browser.screenshot(Path(os.environ["TFDEPLOY_PICTURE"]))
        assert command.interrupt() == 0


def steps(content):
    return content.count(b"loss")


def steps_served(url, run):
    """Return the last step of a run that TensorBoard has read."""
    form = json.dumps([{"plugin": "scalars", "tag": "loss"}])
    body = urllib.parse.urlencode({"requests": form}).encode()
    with urllib.request.urlopen(
        f"{url}experiment/defaultExperimentId/data/plugin/timeseries/timeSeries", body
    ) as answer:
        (found,) = json.load(answer)
    series = found.get("runToSeries", {}).get(run)
    return series[-1]["step"] if series else 0


def rows(browser):
    """Return run, loss and step of each row in the table below the chart of the loss."""
    cells = json.loads(browser.evaluate(CELLS))
    return [(run.replace("\n", ""), value, step) for _, run, _, value, step, *_ in cells]


CELLS = """JSON.stringify(
    [...document.querySelectorAll('scalar-card-data-table tb-data-table-content-row')].map(row =>
    [...row.querySelectorAll('tb-data-table-content-cell')].map(cell => cell.innerText.trim())))"""
