"""Send the summary of a run's end, or what is slow in it, to a command or a URL, with a time limit.

On a host a process of its own does it, which holds neither the task's lock nor its leases: the
supervisor ends, the GPUs are free, and `stop` and `resume` wait for nobody.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.client import HTTPException, responses
from typing import IO, Any, Dict, Iterator, List, Mapping
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ...shared import records
from ...shared.filesystem import memory_file
from ...shared.records import Launch, TaskState, is_url
from .. import children, paths
from ..machine import process
from . import run_summary

LIMIT_S = 30.0
OUTPUT_BYTES = 2000  # of a command's output, the end of which is reported
DRAIN_S = 1.0
FIELD = re.compile(r"\{(\w+)\}")  # in a URL: the name of one of training.secrets


class NotSent(Exception):
    """The summary was not accepted. `reason` says why; `output` is the end of what the command
    printed, in one line."""

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__("{}: {}".format(reason, output) if output else reason)
        self.reason = reason
        self.output = output


def start_sending(
    launch: Launch, task_dir: str, states: Mapping[str, TaskState], started: float
) -> None:
    """Start the process that sends the run's summary; return at once. Raises OSError.

    `launch` and `task_dir` are the chief's, `states` has every task, and the run `started` at this
    time of this host's clock.
    """
    summary = run_summary.summarize(launch, states, started, time.time(), task_dir)
    keys = ("on_end", "on_failure") if summary.result == "failed" else ("on_end",)
    document = run_summary.to_document(summary, launch.process.secrets.values())
    _start_process(launch, task_dir, launch.notify.targets(*keys), document)


def start_sending_slow(launch: Launch, task_dir: str, host: str, reason: str) -> None:
    """Start the process that says what is slow on a host of a run; as `start_sending`."""
    document = run_summary.slow_document(launch, host, reason)
    process.adopt_orphans(False)  # or else it would end with the task's processes
    try:
        _start_process(launch, task_dir, launch.notify.targets("on_slow"), document)
    finally:
        process.adopt_orphans(True)


def _start_process(
    launch: Launch, task_dir: str, targets: Dict[str, List[str]], document: Dict[str, Any]
) -> None:
    if not targets:
        return
    env = {**os.environ, **launch.process.secrets}
    env.update(
        TFDEPLOY_RUN=launch.run,
        TFDEPLOY_RELEASE=launch.directory.release,
        TFDEPLOY_NAME=launch.notify.name or launch.run,
    )
    order = memory_file(json.dumps({"targets": targets, "summary": document}).encode())
    words = [sys.executable, "-S", "-E", paths.agent(), "notify", task_dir]

    def become_sender() -> None:
        os.dup2(order, 0)
        os.execve(words[0], words, env)

    title = "tfdeploy notify {}".format(task_dir)
    try:
        children.run_detached(become_sender, title, paths.supervisor_log(task_dir), [order])
    finally:
        os.close(order)


def send_all(task_dir: str) -> None:
    """Send the summary on standard input to its targets; print how that went, and store what
    failed for `tfdeploy status`."""
    order = json.load(sys.stdin)
    document = json.dumps(order["summary"], ensure_ascii=False).encode(errors="replace")
    failed = []
    for key, target in order["targets"].items():
        try:
            answer = send(target, document, dict(os.environ), paths.work(task_dir))
            print("notify.{}: {}".format(key, answer))
        except NotSent as error:
            print("notify.{} failed: {}".format(key, error))
            failed.append("notify.{} failed: {}".format(key, error.reason))
    sys.stdout.flush()
    if failed:
        records.write(paths.notice(task_dir), {"failed": failed}, 0o600)


def send(
    target: List[str], document: bytes, env: Dict[str, str], folder: str, limit_s: float = LIMIT_S
) -> str:
    """Run the command in `folder` with `env`, or post to the URL; return what was printed, or the
    status of the answer. Raises NotSent, also after `limit_s`."""
    if not is_url(target):
        return _run(target, document, env, folder, limit_s)
    with _limited(limit_s):
        return _post(FIELD.sub(lambda match: env.get(match[1], match[0]), target[0]), document)


def _post(url: str, document: bytes) -> str:
    """Nothing else of an answer is returned: what a server says may have the URL's path, which is a
    secret, in it. A redirect is not followed: it could lead anywhere, and the summary would not
    arrive there, because urllib asks again with GET.
    """

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            """Return None: the redirect is raised as an HTTPError."""

    headers = {"Content-Type": "application/json", "User-Agent": "tfdeploy"}
    try:
        with build_opener(NoRedirect).open(Request(url, document, headers)) as response:
            return "HTTP {}".format(response.status)
    except HTTPError as error:
        reason = "HTTP {} {}".format(error.code, responses.get(error.code, "")).strip()
        if 300 <= error.code < 400:
            reason += " (a redirect, which is not followed: write the URL that it leads to)"
    except OSError as error:  # among them URLError
        cause = getattr(error, "reason", error)
        reason = str(getattr(cause, "strerror", None) or cause)
    except (ValueError, HTTPException) as error:  # their messages may have the URL
        reason = "not a valid URL, or no valid answer ({})".format(type(error).__name__)
    raise NotSent(reason)


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """Raise NotSent after `limit_s`: the time limit of urllib is for each part of an answer."""

    def end(*_: object) -> None:
        raise NotSent("no answer within {:g} s".format(limit_s))

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _run(argv: List[str], document: bytes, env: Dict[str, str], folder: str, limit_s: float) -> str:
    source = memory_file(document)
    try:
        child = subprocess.Popen(
            argv, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=env, cwd=folder, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise NotSent("cannot run {}: {}".format(argv[0], error.strerror)) from None
    finally:
        os.close(source)
    output = _Output(child)
    try:
        code = child.wait(limit_s)
    except subprocess.TimeoutExpired:
        _kill_group(child)
        raise NotSent("killed after {:g} s".format(limit_s), output.end()) from None
    finally:
        _kill_group(child)
    if code:
        reason = "exit {}".format(code) if code > 0 else "killed by signal {}".format(-code)
        raise NotSent(reason, output.end())
    return output.end() or "exit 0"


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """End the command, unless it has ended: what it then left running is its own affair."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


class _Output:
    """What a command prints, read in a thread: a process that it leaves behind may keep the pipe
    open."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._tail = b""
        self._reader = threading.Thread(target=self._read, args=(child.stdout,), daemon=True)
        self._reader.start()

    def end(self) -> str:
        """Return the end of it, in one line."""
        self._reader.join(DRAIN_S)
        return " ".join(self._tail.decode(errors="replace").split())

    def _read(self, pipe: IO[bytes]) -> None:
        for chunk in iter(lambda: os.read(pipe.fileno(), 1 << 16), b""):
            self._tail = (self._tail + chunk)[-OUTPUT_BYTES:]
