"""Answer for the agents of many hosts, in one process: `server.py SOCKET`.

It speaks the agent's protocol and starts nothing: a run's tasks are only recorded, and READY at
once. So a thousand hosts fit on one machine, and only the controller is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import zlib
from typing import Any

MARK = b"tfdeploy-answer:"
COMPRESSED = "compressed"
Body = dict[str, Any]


class Host:
    """One host: its releases, and the state of each task of each run."""

    def __init__(self) -> None:
        self.releases: set[str] = set()
        self.runs: dict[str, dict[str, str]] = {}

    def offer(self, body: Body) -> Body:
        present = body["release"] in self.releases
        return {"tag": "release_state", "present": present, "here": "standin"}

    def lacks(self, body: Body) -> Body:
        files = {"wanted": [*range(len(body["manifest"]))], "incoming": "/standin", "base": None}
        return {**self.offer(body), "tag": "missing_files", **files}

    def take(self, body: Body) -> Body:
        self.releases.add(body["release"])
        return {"tag": "files_received", "wrong": []}

    def start(self, body: Body) -> list[Body]:
        """Its answer is the stream of what follows; see agent/runs/start_and_follow.py."""
        run = body["launches"][0]["run"]
        for launch in body["launches"]:
            task = f"{launch['job']}:{launch['index']}"
            self.runs.setdefault(run, {})[task] = "READY"
        return [{"tag": "started", "gpus": 0}, *map(_change, self.runs[run].items())]

    def status(self, body: Body) -> Body:
        tasks = self.runs.get(body["run"], {}).items()
        return {"tag": "task_reports", "tasks": [_report(*task) for task in tasks]}

    def follow(self, body: Body) -> list[Body]:
        return [*map(_change, self.runs.get(body["run"], {}).items())]

    def peers(self, body: Body) -> Body:
        answers = [(peer["task"], "READY", "") for peer in body["peers_asked"]]
        keys = ("task", "verdict", "detail")
        found = [dict(zip(keys, answer)) for answer in answers]  # noqa: B905
        return {"tag": "peers_asked", "peers": found, "chief": ""}

    def stop(self, body: Body) -> Body:
        self.runs[body["run"]].update(dict.fromkeys(body["tasks"], "STOPPED"))
        each = {"state": "STOPPED", "survivors": [], "saved": None, "left": True}
        return {"tag": "stopped", "tasks": [{"task": task, **each} for task in body["tasks"]]}

    def logs(self, body: Body) -> Body:
        return {"tag": "log_files", "folder": "/standin", "names": []}

    def unfinished_tasks(self, body: Body) -> Body:
        """Every task that was not asked learns of the stop from the chief's supervisor."""
        return {"tag": "still_running", "tasks": []}


def _change(task: tuple[str, str]) -> Body:
    return {"tag": "state_change", "state": _report(*task)}


def _report(task: str, state: str) -> Body:
    return {
        "task": task, "state": state, "age_s": 1.0, "pid": 4242, "exit": None, "restarts": 0,
        "reason": "", "health": "READY" if state == "READY" else "-",
    }  # fmt: skip


HOSTS: dict[str, Host] = {}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one agent's requests until the connection ends."""
    agent = (await reader.readline()).decode().strip()
    host = HOSTS.setdefault(agent, Host())
    line = await reader.readline()
    while line:
        line = await _answer(host, line, reader, writer) if line.strip() else b""
        line = line or await reader.readline()
    writer.close()


async def _answer(
    host: Host, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bytes:
    """Answer a request. Return the next one if it has ended the stream that was the answer."""
    verb, body = json.loads(line)
    if verb == COMPRESSED:
        verb, body = json.loads(zlib.decompress(await reader.readexactly(body["size"])))
    if verb == "take":
        await reader.readexactly(body["size"])
    answer = getattr(host, verb)(body)
    if not isinstance(answer, list):
        _send(writer, answer)
        return b""
    _send(writer, *answer)
    following = await reader.readline()  # until the controller has seen enough
    _send(writer, {"end": True})
    return following


def _send(writer: asyncio.StreamWriter, *answers: Body) -> None:
    writer.writelines(MARK + json.dumps(answer).encode() + b"\n" for answer in answers)


async def main() -> None:
    await asyncio.start_unix_server(serve, sys.argv[1], limit=1 << 26, backlog=1024)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
