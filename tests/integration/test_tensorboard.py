"""`tfdeploy tensorboard` over real SSH: what is fetched, what is served, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from support import events, json_documents
from support.browser import Chromium
from support.events import NAME, scalar, version
from support.waiting import until

from tfdeploy import run as runs
from tfdeploy.commands.following.tensorboard.fetching import EventCopies
from tfdeploy.config import inventory
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.results import fetch as fetching
from tfdeploy.trust import store

LOOPBACK = ("0100007F", "00000000000000000000000001000000")
STEP = scalar(1, 0.5, at=2.0)
TRAINER = """
import events, os, time
folder = "checkpoints" if os.environ["TFDEPLOY_TASK"].endswith("worker:0") else "logs/train"
os.makedirs(folder, exist_ok=True)
with open(f"{folder}/{events.NAME}", "ab", buffering=0) as file:
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
    """Return the content of each copy by its path below runs/<run>/tensorboard/."""
    folder = project.run_folder / "tensorboard"
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob(f"*{NAME}")}


def documents_of(command):
    with suppress(ValueError, IndexError):
        text = command.output
        return json.JSONDecoder().raw_decode(text[text.index("\n{\n") + 1 :])[0]
    return None


def served(command):
    """Wait for the address, and return the document of --json."""
    ready = until(
        lambda: documents_of(command) or command.process.poll() is not None, "the address"
    )
    assert ready is not True, command.output
    json_documents.validator("tensorboard").validate(ready)
    return ready


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
    chief = write(project, "worker:0", f"checkpoints/{NAME}", version(), STEP[:11])
    other = write(project, "worker:1", f"logs/train/{NAME}", version())
    with project.start_command("tensorboard", "--json") as command:
        document = served(command)
        names = {f"worker-0/{NAME}": version() + STEP[:11],
                 f"worker-1/logs/train/{NAME}": version()}  # fmt: skip
        assert copies(project) == names
        assert [task["task"] for task in document["runs"][0]["tasks"]] == ["worker:0", "worker:1"]

        inode = (project.run_folder / "tensorboard" / "worker-0" / NAME).stat().st_ino
        append(chief, STEP[11:] + STEP[:-1])
        append(other, STEP * 3)
        names = {f"worker-0/{NAME}": version() + STEP + STEP[:-1],
                 f"worker-1/logs/train/{NAME}": version() + STEP * 3}  # fmt: skip
        until(lambda: copies(project) == names, "what was appended")
        append(chief, STEP[-1:])
        until(lambda: copies(project)[f"worker-0/{NAME}"] == version() + STEP * 2, "the rest")
        assert (project.run_folder / "tensorboard" / "worker-0" / NAME).stat().st_ino == inode

        label = project.runs[-1]
        expected = {f"{label}/worker-0", f"{label}/worker-1/logs/train"}
        until(lambda: set(runs_of(document["url"])) == expected, "the runs")
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

    def fetch(enough):
        """Return how many bytes of base64 came until the copy has this size."""
        own, before = EventCopies(run), sum(pieces)
        asked = {"chief": "", "events": True, "on_event": own.update}
        with (
            Fleet(run.inventory, version=run.agent) as fleet,
            fleet.follow(run, run.plan.placements, **asked) as following,
        ):
            for _ in following.events():
                if len(copies(project).get(f"worker-0/{NAME}", b"")) == enough:
                    return sum(pieces) - before

    first = fetch(file.stat().st_size)
    append(file, STEP)
    second = fetch(file.stat().st_size)
    assert 0 < second < 200 < first / 20


@pytest.mark.slow
def test_events_are_served_without_hosts(project):
    write(project, "worker:0", f"checkpoints/{NAME}", version(), STEP)
    project.ok("collect")
    project.ok("stop")
    for host in project.hosts:
        shutil.rmtree(project.on(host))
    with project.start_command("tensorboard", "--json", "--offline") as command:
        document = served(command)
        assert copies(project) == {f"worker-0/{NAME}": version() + STEP}
        until(lambda: runs_of(document["url"]) == [f"{project.runs[-1]}/worker-0"], "the run")
        assert not document["runs"][0]["live"]
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
    store.remember(inventory.load(file))


@pytest.mark.slow
def test_a_host_that_is_away_is_one_sentence(project):
    write(project, "worker:0", f"checkpoints/{NAME}", version())
    with project.start_command("tensorboard", "--json") as command:
        served(command)
        command.interrupt()
    point_to_nobody(project)
    with project.start_command("tensorboard", "--json") as command:
        document = served(command)
        assert len(document["runs"][0]["errors"]) == 2
        assert runs_of(document["url"]) is not None
        assert "what was fetched before is shown until it answers" in command.output
        assert command.interrupt() == 0


@pytest.mark.slow
def test_two_commands_show_the_same_run_and_the_second_takes_over(project):
    chief = write(project, "worker:0", f"checkpoints/{NAME}", version())
    with project.start_command("tensorboard") as first:
        first.wait_for_output("TensorBoard is at")
        with project.start_command("tensorboard", "--json") as second:
            url = served(second)["url"]
            assert "another command fetches them" in second.output
            assert url not in first.output
            assert first.interrupt() == 0
            append(chief, STEP)
            expected = {f"worker-0/{NAME}": version() + STEP}
            until(lambda: copies(project) == expected, "events by the second")
            assert second.interrupt() == 0


@pytest.mark.slow
def test_the_events_of_a_run_that_is_resumed_are_fetched(project):
    chief = write(project, "worker:0", f"checkpoints/{NAME}", version())
    with project.start_command("tensorboard", "--json") as command:
        served(command)
        project.ok("stop")
        project.ok("resume")
        append(chief, STEP)
        expected = {f"worker-0/{NAME}": version() + STEP}
        until(lambda: copies(project) == expected, "events of the second start")
        append(chief, STEP)
        expected = {f"worker-0/{NAME}": version() + STEP * 2}
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
    project.ok("stop")
    refused = project.tf("tensorboard")
    assert refused.returncode == 2
    assert f"no task of run {project.runs[-1]} has written events" in refused.stderr
    assert "keras.callbacks.TensorBoard" in refused.stderr


def test_wrong_arguments_start_nothing(project):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = project.tf("tensorboard", "--port", port)
    assert (
        f"port {port} of the controller can't be opened: Address already in use" in refused.stderr
    )
    assert refused.returncode == 2
    assert project.tf("tensorboard", "nothing").returncode == 2
    assert project.tf("tensorboard", "--host", "0.0.0.0").returncode == 2
    assert not (project.run_folder / "tensorboard").exists()


@pytest.mark.slow
def test_tensorboard_does_not_outlive_a_command_that_is_killed(project):
    write(project, "worker:0", f"checkpoints/{NAME}", version())
    with project.start_command("tensorboard") as command:
        command.wait_for_output("TensorBoard is at")
        below = children(command.process.pid)
        os.kill(command.process.pid, signal.SIGKILL)
        command.process.wait()
        until(lambda: not any(map(is_alive, below)), "the end of TensorBoard")


@pytest.mark.slow
def test_a_browser_shows_the_loss_of_each_task_while_it_trains(by_ssh, tmp_path):
    project = by_ssh.project(
        training={"command": ["python", "trainer.py"], "ready": "process", "role": "environment"}
    )
    (project.folder / "trainer.py").write_text(TRAINER)
    shutil.copy(events.__file__, project.folder)
    project.ok("push")
    project.ok("start", "--name", "wide")
    with (
        project.start_command("tensorboard", "--json") as command,
        Chromium(tmp_path / "profile") as browser,
    ):
        url = served(command)["url"]

        tasks = ("ps-0/logs/train", "worker-0", "worker-1/logs/train")

        def wait_for(last):
            """Wait until the page shows this loss for every task, as rows of the chart's table. The
            page is opened when TensorBoard has read it: it does not load again by itself."""
            for task in tasks:
                until(lambda task=task: steps_served(url, f"wide/{task}") == last, f"{task} read")
            browser.open("about:blank", width=1400, scheme="light")
            browser.open(f"{url}#timeseries", width=1400, scheme="light")
            until(lambda: rows(browser) == expected(last), f"{last} of every task", every_s=0.3)

        def expected(last):
            return [(f"wide/{task}", f"{1 / last:.4f}".rstrip("0"), str(last)) for task in tasks]

        until(lambda: len(copies(project)) == 3, "three files")
        until(lambda: all(steps(content) == 10 for content in copies(project).values()), "10 steps")
        wait_for(10)
        for task in ("ps:0", "worker:0", "worker:1"):
            (project.work(task) / "more").touch()
        until(lambda: all(steps(content) == 30 for content in copies(project).values()), "30 steps")
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
