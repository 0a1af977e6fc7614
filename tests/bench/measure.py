"""Do the same work with each tool in turn; measure and check each command."""

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

# Run in this order up to the last selected step: each step needs the previous ones.
FLEET = ("plan_cold", "push_cold", "push_same", "push_one", "start", "status", "plan", "stop")
CHIEF = ("help", "push_cold", "start", "collect", "collect_more", "stop")
INHERITED = ("PATH", "LANG", "LC_ALL", "TZ")


def main() -> int:
    options = arguments(sys.argv[1:])
    with tempfile.TemporaryDirectory(
        prefix="tfb-"
    ) as folder:  # short: a socket's path is at most 108
        tree = Path(folder) / "code"
        workload.make_tree(tree)
        found = Results(results.machine(), {tool.name: tool.version() for tool in tools.ALL})
        for run in range(options.runs):
            for n, sequence in _rounds(options):
                for tool in options.tools[:: -1 if run % 2 else 1]:
                    turn = Turn(tool, n, sequence, run, tree, Path(folder) / "job", options)
                    for sample in turn.samples():
                        found.samples.append(sample)
                        _print(sample)
                    found.save(options.out)
    return 0 if all(sample.ok for sample in found.samples) else 1


@dataclass
class Turn:
    """All steps of one tool with one number of hosts. Before and after, the hosts are empty."""

    tool: Tool
    n: int
    sequence: tuple[str, ...]
    run: int
    tree: Path
    folder: Path
    options: argparse.Namespace

    def samples(self) -> Iterator[Sample]:
        job = self._job()
        group = meter.group(f"tfdeploy-bench-{os.getpid()}")
        try:
            for step in self._steps():
                argv = self.tool.argv(job, step)
                if argv:
                    self._before(job, group, step)
                    sample = self._measured(job, group, step, argv)
                    if self._is_selected(step) or not sample.ok:
                        yield sample
                    if not sample.ok:
                        return
        finally:
            drop_warm(self.tool, job, group)
            group.remove()
            self._clean(job)

    def _steps(self) -> list[str]:
        """Return the steps up to the last selected one, and `stop` if tasks were started."""
        last = max(
            (self.sequence.index(s) for s in self.sequence if self._is_selected(s)), default=-1
        )
        steps = list(self.sequence[: last + 1])
        return [*steps, "stop"] if "start" in steps and "stop" not in steps else steps

    def _is_selected(self, step: str) -> bool:
        """With one host, push and start are not measured: they only prepare the collect."""
        return step in self.options.steps and (self.sequence is FLEET or step in ALONE)

    def _job(self) -> Job:
        host_folder = f"/data/{type(self.tool).__name__.lower()}"
        job = workload.Job(machines.hosts(self.n), self.tree, self.folder, host_folder)
        self.folder.mkdir()
        machines.run_on_all(job.hosts, f"mkdir {host_folder}")
        self.tool.prepare(job)
        return job

    def _clean(self, job: Job) -> None:
        path = job.host_folder
        delete = f"! [ -e {path} ] || {{ chmod -R u+w {path}; rm -rf {path}; }}"
        machines.run_on_all(job.hosts, f"pkill -KILL python3; {delete}")
        shutil.rmtree(self.folder)

    def _before(self, job: Job, group: meter.Group, step: str) -> None:
        """Create the conditions that the name of the step describes."""
        if step.endswith("_cold"):
            drop_warm(self.tool, job, group)
        if step == "push_one":
            workload.change(self.tree)
        if step == "collect":
            workload.delete_later_checkpoints(job.hosts[0])
        if step == "collect_more":
            workload.make_checkpoint(job.hosts[0], 2)

    def _measured(self, job: Job, group: meter.Group, step: str, argv: list[str]) -> Sample:
        log = self.folder / f"{step}.log"
        before = job.hosts[0].transferred()
        with log.open("wb") as output:
            environment = _environment(self.tool, job)
            cost = meter.run(group, argv, environment, output, self.options.timeout, self.folder)
        moved_mb = (job.hosts[0].transferred() - before) / 1e6
        text = log.read_text(errors="replace")
        problem = f"exit {cost.exit}" if cost.exit else self._problem(job, step, text)
        if problem:
            print(f"{self.tool.name}, {step}: {problem}\n{text[-2000:]}", file=sys.stderr)
        figures = (cost.wall_s, cost.cpu_s, cost.peak_mb, moved_mb, cost.others)
        rounded = (round(figure, 4) for figure in figures)
        return Sample(self.tool.name, self.n, step, self.run, *rounded, ok=not problem)

    def _problem(self, job: Job, step: str, output: str) -> str:
        """Check the work of a step that exited with 0. Return what is wrong, or an empty text."""
        if step in tools.PUSHES:
            arrived = workload.digest_on(job.hosts[-1], self.tool.code(job))
            return arrived if arrived != workload.digest(self.tree) else ""
        if step in ("start", "stop"):
            ready = workload.count_ready(job)
            expected = self.n if step == "start" else 0
            return f"{ready} tasks answer" if ready != expected else ""
        if step == "status":
            return "" if self.tool.reports_ready(job, output) else "status: not all tasks are ready"
        if step in tools.COLLECTS:
            written = workload.checksums(job.hosts[0], 1 if step == "collect" else 2)
            arrived = workload.checksums_below(self.folder)
            return "" if written <= arrived else "not all data arrived"
        return ""


def drop_warm(tool: Tool, job: Job, group: meter.Group) -> None:
    """Make the next command start cold."""
    tool.drop_warm(job)
    meter.end(group)


def _environment(tool: Tool, job: Job) -> dict[str, str]:
    """Return an environment without ssh-agent and user settings, and with an empty home."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {"LC_ALL": "C.UTF-8", **inherited, "HOME": str(job.folder), **tool.environment(job)}


def _rounds(options: argparse.Namespace) -> list[tuple[int, tuple[str, ...]]]:
    """Return each number of hosts with its steps."""
    alone = [(1, CHIEF)] if set(ALONE) & set(options.steps) else []
    return alone + ([(n, FLEET) for n in options.n] if set(FLEET) & set(options.steps) else [])


def arguments(words: list[str]) -> argparse.Namespace:
    """Parse what to measure. Exit with 2 if the arguments are invalid."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", default="4,16,48", help="numbers of hosts: 4,16,48")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tools", default="", help="parts of tool names: tfdeploy,rsync,ansible")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one command")
    parser.add_argument("--out", type=Path, default=machines.HERE / "results" / "peers.json")
    options = parser.parse_args(words)
    options.n = [int(size) for size in options.n.split(",")]
    options.steps = options.steps.split(",")
    parts = options.tools.lower().split(",")
    options.tools = [t for t in tools.ALL if any(part in t.name.lower() for part in parts)]
    if unknown := set(options.steps) - set(STEPS):
        parser.error(f"unknown steps {unknown}; expected any of {', '.join(STEPS)}")
    return options


def _print(sample: Sample) -> None:
    figures = f"{sample.wall_s:8.2f} s {sample.cpu_s:8.3f} CPU s {sample.peak_mb:7.0f} MB"
    network = f"{sample.moved_mb:8.2f} MB transferred, others {sample.others:4.0%}"
    result = "" if sample.ok else "  FAILED"
    print(
        f"{sample.run} {sample.n:4} {sample.tool:28} {sample.step:13}{figures} {network}{result}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
