"""Two controllers, one project, commands and faults in any order: what must hold after each step.

docs/results.md and docs/failures.md state the invariants (a), (b) and (c). The hosts are simulated
(support/simulated_hosts.py); test_any_order_processes.py has fewer sequences with real processes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.projects import toml
from support.releases import write_manifest
from support.simulated_hosts import SUPERVISOR, Done, Simulation, simulated
from support.trusting import trust

from tfdeploy.formatting.humanize import escape_line, quote_word

STEPS = 14  # of a sequence
HOSTS = ("a", "b", "c")
LIMIT_MB = 1
TABLES = {
    "a": {"ps": 1, "workers": 1}, "b": {"workers": 1, "chief": True}, "c": {"spare": True},
}  # fmt: skip
NAMES = (
    *["best.bin"] * 8, *["out/result.csv"] * 4, "peak_temp", "two words", "-rf",
    "worker-0/best.bin", "events.out.tfevents.1.host", "checkpoints/events.out.tfevents.1.host",
    "line\nbreak", os.fsdecode(b"esc\x1b[2J-\xff"),
)  # fmt: skip
SIZES = (*[12] * 7, 1_200_000)  # bytes; the last one is above outputs_limit_mb
KILLS = st.one_of(st.none(), st.none(), st.integers(0, 40))
CONTROLLERS = st.sampled_from(("A", "B"))


class AnyOrder(RuleBasedStateMachine):
    """`written` has the SHA-256 of each file that a task wrote last, by its path on its host."""

    release = ""  # the same in each sequence

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.top = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.hosts = self.top / "hosts"
        self.simulation: Simulation = self.stack.enter_context(simulated(self.hosts))
        self.controllers = {name: self.top / name for name in ("A", "B")}
        self.written: dict[Path, str] = {}
        self.checkpoints: dict[Path, list[Path]] = {}
        self.numbers = itertools.count(1)
        self.hashes: dict[tuple[str, int, int], str] = {}
        for folder in self.controllers.values():
            folder.mkdir()
            (folder / "hosts.toml").write_text(toml(self._inventory()))
            (folder / "train.py").write_text("import tensorflow\n")
            write_manifest(folder)
            trust(folder / "hosts.toml")
        if not AnyOrder.release:
            AnyOrder.release = json.loads(self.tf("A", "plan", "--json").out)["release"]["id"]
        self._push()

    def teardown(self) -> None:
        try:
            self._end()
        finally:
            self.stack.close()

    # Commands

    @precondition(lambda self: len(self.runs) < 2)
    @rule(controller=CONTROLLERS, kill=KILLS)
    def start(self, controller: str, kill: int | None) -> None:
        before = set(self.runs)
        self._push()
        done = self.tf(controller, "start", kill=kill)
        for run in set(self.runs) - before:
            self._check_started(controller, run, done, {})

    @precondition(lambda self: self.runs)
    @rule(controller=CONTROLLERS, kill=KILLS, without=st.sampled_from(("", "", "a", "b")))
    def resume(self, controller: str, kill: int | None, without: str) -> None:
        words = ["--without", without] if without else []
        self._start_again(controller, kill, "resume", *words)

    @precondition(lambda self: self.runs)
    @rule(controller=CONTROLLERS, kill=KILLS, workers=st.integers(1, 3))
    def scale(self, controller: str, kill: int | None, workers: int) -> None:
        self._start_again(controller, kill, "scale", f"workers={workers}")

    @precondition(lambda self: self.runs)
    @rule(controller=CONTROLLERS, kill=KILLS)
    def stop(self, controller: str, kill: int | None) -> None:
        self._stop(controller, kill)

    @precondition(lambda self: self.runs)
    @rule(controller=CONTROLLERS, kill=KILLS)
    def collect(self, controller: str, kill: int | None) -> None:
        done = self.tf(controller, "collect", "--run", self.runs[-1], kill=kill)
        if done.code == 0:
            self._check_collected(controller, self.runs[-1], done)

    @precondition(lambda self: self.runs)
    @rule(controller=CONTROLLERS, kill=KILLS)
    def end_collect_and_prune(self, controller: str, kill: int | None) -> None:
        for folder in self.live:
            self.simulation.end(str(folder), "SUCCEEDED")
        self.collect(controller, None)
        self.prune(controller, kill, yes=False)

    @rule(controller=CONTROLLERS, kill=KILLS, yes=st.booleans())
    def prune(self, controller: str, kill: int | None, yes: bool) -> None:
        there = [path for path in self.written if path.exists()]
        before = {path: self._is_on_controller(path) for path in there}
        done = self.tf(controller, "prune", "--keep", "0", *["--yes"] * yes, kill=kill)
        gone = [path for path in there if not path.exists()]
        if done.code == 2:
            assert not gone, f"it refused, and deleted {gone}"
        if yes:
            for path in gone:
                named = before[path] or _is_named(path, done.text) or done.code is None
                assert named, f"{path} was deleted and not named\n{done.text}"
                del self.written[path]

    @precondition(lambda self: self.runs)
    @rule(controller=CONTROLLERS)
    def status(self, controller: str) -> None:
        self._check_status(controller, self.runs[-1])

    @rule(controller=CONTROLLERS)
    def list_runs(self, controller: str) -> None:
        done = self.tf(controller, "runs", "--json")
        for run in json.loads(done.out).get("runs", ()) if done.code == 0 else ():
            live = self.simulation.live_tasks(run["id"])
            assert (run["result"] == "running") == bool(live), (run, live)

    # Tasks

    @precondition(lambda self: self.live)
    @rule(data=st.data(), name=st.sampled_from(NAMES), size=st.sampled_from(SIZES))
    def write(self, data: st.DataObject, name: str, size: int) -> None:
        work = data.draw(st.sampled_from(self.live)) / "work"
        self._write(work / name, f"{next(self.numbers):012}".encode() * (size // 12))

    @precondition(lambda self: self.rewritable)
    @rule(data=st.data(), how=st.sampled_from(("other", "equal", "other, older time")))
    def write_again(self, data: st.DataObject, how: str) -> None:
        """An older time is what a program leaves that copies a file with its time."""
        file = data.draw(st.sampled_from(self.rewritable))
        before_ns = file.stat().st_mtime_ns
        if how != "equal":
            self._write(file, f"{next(self.numbers):012}".encode())
        changed_ns = before_ns - 5 * 10**9 if "older" in how else before_ns + 5 * 10**9
        os.utime(file, ns=(changed_ns, changed_ns))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), step=st.integers(1, 4))
    def save(self, data: st.DataObject, step: int) -> None:
        folder = data.draw(st.sampled_from(self.live)) / "work" / "checkpoints"
        self.write_checkpoint(folder, step)

    def write_checkpoint(self, folder: Path, step: int) -> None:
        """Only the newest checkpoint is wanted: the one before is forgotten."""
        for old in self.checkpoints.pop(folder, []):
            self.written.pop(old, None)
        names = [f"model.ckpt-{step}.{part}" for part in ("data-00000-of-00001", "index")]
        content = f"{next(self.numbers):012}".encode()
        self.checkpoints[folder] = [self._write(folder / name, content) for name in names]
        (folder / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def succeed(self, data: st.DataObject) -> None:
        self.simulation.end(str(data.draw(st.sampled_from(self.live))), "SUCCEEDED")

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def kill_supervisor(self, data: st.DataObject) -> None:
        (data.draw(st.sampled_from(self.live)) / SUPERVISOR).unlink()

    # Faults

    @rule(host=st.sampled_from(HOSTS), fault=st.sampled_from(("cut", "read-only", "full")))
    def break_host(self, host: str, fault: str) -> None:
        faults = self.simulation.faults
        {"cut": faults.cut, "read-only": faults.read_only, "full": faults.full}[fault].add(
            host if fault == "cut" else str(self.hosts / host)
        )

    @rule()
    def heal(self) -> None:
        faults = self.simulation.faults
        for broken in (faults.cut, faults.read_only, faults.full):
            broken.clear()

    @rule(controller=CONTROLLERS)
    def back_up(self, controller: str) -> None:
        self._copy(self.controllers[controller], self.top / f"backup-{controller}")

    @precondition(lambda self: any(self.top.glob("backup-*")))
    @rule(data=st.data(), controller=CONTROLLERS)
    def restore(self, data: st.DataObject, controller: str) -> None:
        """What was collected since is the loss of the one who restores."""
        backup = data.draw(st.sampled_from(sorted(self.top.glob("backup-*"))))
        self._copy(backup, self.controllers[controller])
        for path in [*self.written]:
            if not self._is_stored(path):
                del self.written[path]

    # What must hold

    @invariant()
    def every_file_is_somewhere(self) -> None:
        """(a) What is not on a controller is on its host, unless somebody agreed."""
        lost = [path for path in self.written if not self._is_stored(path)]
        assert not lost, f"nowhere any more: {lost}"

    def _end(self) -> None:
        """(c) Both controllers show the state in which the hosts are, and either stops all."""
        self.heal()
        for run in self.runs:
            codes = [self._stop(name, None, run).code for name in self.controllers]
            assert not self.simulation.live_tasks(run), codes
            for name in self.controllers:
                self._check_status(name, run)

    def _check_status(self, controller: str, run: str) -> None:
        done = self.tf(controller, "status", "--run", run, "--json")
        document = json.loads(done.out)
        tasks = {each["task"]: each["state"] for each in document.get("tasks", ())}
        live = self.simulation.live_tasks(run, document.get("left_out", ()))
        ready = {task for task, state in tasks.items() if state == "READY"}
        assert ready <= set(live), (tasks, live)
        # A newer record that too few hosts have is named, not used.
        names_newer = "note: not used: " in done.err
        assert done.code or names_newer or ready == set(live), (tasks, live, done)

    def _check_started(
        self, controller: str, run: str, done: Done, before: dict[Path, str]
    ) -> None:
        """(b) for what starts tasks: all are READY, or what may run is named."""
        live = self.simulation.live_tasks(run)
        if done.code == 0:
            self._check_status(controller, run)
            assert live
        elif done.code is not None and self._supervisors(run) != before:
            unnamed = [task for task in live if task not in done.text]
            assert not unnamed, f"{unnamed} run\n{done.text}"

    def _start_again(self, controller: str, kill: int | None, *words: str) -> None:
        self._push()
        run = self.runs[-1]
        before = self._supervisors(run)
        done = self.tf(controller, *words, "--run", run, kill=kill)
        self._check_started(controller, run, done, before)

    def _stop(self, controller: str, kill: int | None, run: str = "") -> Done:
        """(b) for `stop`: what it says of the tasks is so."""
        run = run or self.runs[-1]
        done = self.tf(controller, "stop", "--run", run, kill=kill)
        live = self.simulation.live_tasks(run)
        if done.code == 0 or "have exited" in done.out:
            unnamed = [task for task, host in live.items() if f"{host} gave no" not in done.out]
            assert not unnamed, f"{live} run\n{done.text}"
        return done

    def _check_collected(self, controller: str, run: str, done: Done) -> None:
        for path, digest in self.written.items():
            if run in path.parts and path.exists() and self._is_planned(controller, path):
                stored = digest in self._stored(self.controllers[controller] / "runs" / run)
                assert stored or _is_named(path, done.text), f"{path} is missing\n{done.text}"

    # Helpers

    def tf(self, controller: str, *words: str, kill: int | None = None) -> Done:
        self.simulation.faults.kill_after = kill
        done = self.simulation.tfdeploy(self.controllers[controller], *words)
        assert "Traceback" not in done.text, done.text
        return done

    @property
    def runs(self) -> list[str]:
        on_hosts = self.hosts.glob("*/p/runs/[0-9]*")
        on_controllers = self.top.glob("[AB]/runs/[0-9]*")
        return sorted({path.name for path in (*on_hosts, *on_controllers)})

    @property
    def live(self) -> list[Path]:
        return sorted(file.parent for file in self.hosts.glob(f"*/p/runs/*/*/{SUPERVISOR}"))

    def _supervisors(self, run: str) -> dict[Path, str]:
        files = self.hosts.glob(f"*/p/runs/{run}/*/{SUPERVISOR}")
        return {file: file.read_text() for file in files}

    @property
    def rewritable(self) -> list[Path]:
        """The small files of tasks that run."""
        live = self.live
        files = [file for file in sorted(self.written) if live and file.exists()]
        return [file for file in files if any(folder in file.parents for folder in live)]

    def _is_planned(self, controller: str, path: Path) -> bool:
        host, _, _, run, task = path.relative_to(self.hosts).parts[:5]
        done = self.tf(controller, "status", "--run", run, "--json")
        tasks = {(t["task"], t["host"]) for t in json.loads(done.out).get("tasks", ())}
        return (task.replace("-", ":"), host) in tasks

    def _is_stored(self, path: Path) -> bool:
        digest = self.written[path]
        return self._hash(path) == digest or self._is_on_controller(path)

    def _is_on_controller(self, path: Path) -> bool:
        run = path.relative_to(self.hosts).parts[3]
        folders = [folder / "runs" / run for folder in self.controllers.values()]
        return any(self.written[path] in self._stored(folder) for folder in folders)

    def _stored(self, folder: Path) -> set[str]:
        parts = ("checkpoints", "outputs", "events", "fetched")
        files = [file for part in parts for file in (folder / part).rglob("*")]
        return {self._hash(file) for file in files}

    def _hash(self, file: Path) -> str:
        try:
            info = file.lstat()
            key = (os.fspath(file), info.st_ino, info.st_ctime_ns)
            if key not in self.hashes:
                self.hashes[key] = hashlib.sha256(file.read_bytes()).hexdigest()
            return self.hashes[key]
        except OSError:
            return ""

    def _write(self, file: Path, content: bytes) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        self.written[file] = hashlib.sha256(content).hexdigest()
        return file

    def _push(self) -> None:
        for host in HOSTS:
            folder = self.hosts / host / "p" / "releases" / self.release
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "train.py").write_text("import tensorflow\n")
            write_manifest(folder)

    def _copy(self, source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, symlinks=True)

    def _inventory(self) -> dict[str, object]:
        common = {"python": "python3", "ports": [10000, 10001, 10002, 10003, 10004]}
        hosts = {
            name: {**common, "address": f"10.0.0.{number}", "directory": str(self.hosts / name),
                   **TABLES[name]}
            for number, name in enumerate(HOSTS, 1)
        }  # fmt: skip
        training = {
            "command": ["python3", "train.py"], "role": "tf_config", "ready": "process",
            "outputs_limit_mb": LIMIT_MB,
        }  # fmt: skip
        return {"project": "p", "network": "open", "training": training, "hosts": hosts}


def _is_named(path: Path, text: str) -> bool:
    """Return whether a message names a file, or its checkpoint, perhaps as a word for the shell."""
    name = str(Path(*path.parts[path.parts.index("work") + 1 :]))
    if name.startswith("checkpoints/model.ckpt-"):
        name = path.name.partition(".data-")[0].removesuffix(".index")
    return escape_line(name) in text or quote_word(name) in text
