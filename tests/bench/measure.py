"""The same work by every tool, in turns, each command measured and checked."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench import machines, meter, results, tools, workload
from bench.results import ALONE, STEPS, Results, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.tools import Tool
    from bench.workload import Job

# In this order, as far as the last one that is wanted: each needs those before it.
FLEET = ("plan_cold", "push_cold", "push_same", "push_one", "start", "status", "plan", "stop")
CHIEF = ("help", "push_cold", "start", "collect", "collect_more", "stop")
KEPT = ("PATH", "LANG", "LC_ALL", "TZ")


def main() -> int:
    wanted = arguments(sys.argv[1:])
    with tempfile.TemporaryDirectory(
        prefix="tfb-"
    ) as folder:  # short: a socket's path is at most 108
        tree = Path(folder) / "code"
        workload.make_tree(tree)
        found = Results(results.machine(), {tool.name: tool.version() for tool in tools.ALL})
        for run in range(wanted.runs):
            for n, sequence in _rounds(wanted):
                for tool in wanted.tools[:: -1 if run % 2 else 1]:
                    turn = Turn(tool, n, sequence, run, tree, Path(folder) / "job", wanted)
                    for sample in turn.samples():
                        found.samples.append(sample)
                        _tell(sample)
                    found.save(wanted.out)
    return 0 if all(sample.ok for sample in found.samples) else 1


@dataclass
class Turn:
    """One tool at one number of hosts, from a bare host to a bare host."""

    tool: Tool
    n: int
    sequence: tuple[str, ...]
    run: int
    tree: Path
    folder: Path
    wanted: argparse.Namespace

    def samples(self) -> Iterator[Sample]:
        job = self._job()
        group = meter.group(f"tfdeploy-bench-{os.getpid()}")
        try:
            for step in self._steps():
                argv = self.tool.argv(job, step)
                if argv:
                    self._before(job, group, step)
                    sample = self._measured(job, group, step, argv)
                    if self._is_wanted(step) or not sample.ok:
                        yield sample
                    if not sample.ok:
                        return
        finally:
            drop_warm(self.tool, job, group)
            group.remove()
            self._clean(job)

    def _steps(self) -> list[str]:
        """Up to the last wanted one, and `stop` where something was started."""
        last = max(
            (self.sequence.index(s) for s in self.sequence if self._is_wanted(s)), default=-1
        )
        steps = list(self.sequence[: last + 1])
        return [*steps, "stop"] if "start" in steps and "stop" not in steps else steps

    def _is_wanted(self, step: str) -> bool:
        """On one host the pushes and the start only lead to what can be collected."""
        return step in self.wanted.steps and (self.sequence is FLEET or step in ALONE)

    def _job(self) -> Job:
        there = f"/data/{type(self.tool).__name__.lower()}"
        job = workload.Job(machines.hosts(self.n), self.tree, self.folder, there)
        self.folder.mkdir()
        machines.everywhere(job.hosts, f"mkdir {there}")
        self.tool.prepare(job)
        return job

    def _clean(self, job: Job) -> None:
        left = f"! [ -e {job.there} ] || {{ chmod -R u+w {job.there}; rm -rf {job.there}; }}"
        machines.everywhere(job.hosts, f"pkill -KILL python3; {left}")
        shutil.rmtree(self.folder)

    def _before(self, job: Job, group: meter.Group, step: str) -> None:
        """What makes a step the one that its name says."""
        if step.endswith("_cold"):
            drop_warm(self.tool, job, group)
        if step == "push_one":
            workload.change(self.tree)
        if step == "collect":
            workload.forget_later_checkpoints(job.hosts[0])
        if step == "collect_more":
            workload.make_checkpoint(job.hosts[0], 2)

    def _measured(self, job: Job, group: meter.Group, step: str, argv: list[str]) -> Sample:
        said = self.folder / f"{step}.said"
        moved = job.hosts[0].moved()
        with said.open("wb") as output:
            environment = _environment(self.tool, job)
            cost = meter.run(group, argv, environment, output, self.wanted.timeout, self.folder)
        moved_mb = (job.hosts[0].moved() - moved) / 1e6
        text = said.read_text(errors="replace")
        complaint = f"exit {cost.exit}" if cost.exit else self._complaint(job, step, text)
        if complaint:
            print(f"{self.tool.name}, {step}: {complaint}\n{text[-2000:]}", file=sys.stderr)
        figures = (cost.wall_s, cost.cpu_s, cost.peak_mb, moved_mb, cost.others)
        rounded = (round(figure, 4) for figure in figures)
        return Sample(self.tool.name, self.n, step, self.run, *rounded, ok=not complaint)

    def _complaint(self, job: Job, step: str, said: str) -> str:
        """What is wrong with the work that was said to be done; nothing where it was done."""
        if step in tools.PUSHES:
            arrived = workload.landed(job.hosts[-1], self.tool.code(job))
            return arrived if arrived != workload.digest(self.tree) else ""
        if step in ("start", "stop"):
            answering = workload.answering(job)
            expected = self.n if step == "start" else 0
            return f"{answering} tasks answer" if answering != expected else ""
        if step == "status":
            return "" if self.tool.says_so(job, said) else "not every task is said to be well"
        if step in tools.COLLECTS:
            there = workload.sums(job.hosts[0], 1 if step == "collect" else 2)
            return "" if there <= workload.sums_at_home(self.folder) else "not all data arrived"
        return ""


def drop_warm(tool: Tool, job: Job, group: meter.Group) -> None:
    """What comes next begins cold."""
    tool.drop_warm(job)
    meter.end(group)


def _environment(tool: Tool, job: Job) -> dict[str, str]:
    """No agent's keys, no settings of whoever calls, and a home that is new."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {"LC_ALL": "C.UTF-8", **kept, "HOME": str(job.folder), **tool.environment(job)}


def _rounds(wanted: argparse.Namespace) -> list[tuple[int, tuple[str, ...]]]:
    """How many hosts, and what is done with them."""
    alone = [(1, CHIEF)] if set(ALONE) & set(wanted.steps) else []
    return alone + ([(n, FLEET) for n in wanted.n] if set(FLEET) & set(wanted.steps) else [])


def arguments(words: list[str]) -> argparse.Namespace:
    """What is to be measured. Exits with 2 where it is no such thing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", default="4,16,48", help="how many hosts: 4,16,48")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tools", default="", help="parts of names: tfdeploy,rsync,ansible")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one command")
    parser.add_argument("--out", type=Path, default=machines.HERE / "results" / "peers.json")
    wanted = parser.parse_args(words)
    wanted.n = [int(size) for size in wanted.n.split(",")]
    wanted.steps = wanted.steps.split(",")
    parts = wanted.tools.lower().split(",")
    wanted.tools = [t for t in tools.ALL if any(part in t.name.lower() for part in parts)]
    if unknown := set(wanted.steps) - set(STEPS):
        parser.error(f"unknown steps {unknown}; there are {', '.join(STEPS)}")
    return wanted


def _tell(sample: Sample) -> None:
    figures = f"{sample.wall_s:8.2f} s {sample.cpu_s:8.3f} CPU s {sample.peak_mb:7.0f} MB"
    moved = f"{sample.moved_mb:8.2f} MB moved, others {sample.others:4.0%}"
    verdict = "" if sample.ok else "  FAILED"
    print(
        f"{sample.run} {sample.n:4} {sample.tool:28} {sample.step:13}{figures} {moved}{verdict}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
