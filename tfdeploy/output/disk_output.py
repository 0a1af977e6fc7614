"""What hosts store, and who waits for them: the tables of `runs`, `queue` and `prune`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import (
    escape_line,
    format_count,
    format_duration,
    format_size,
    quote_word,
    shorten_names,
)
from tfdeploy.output.results_output import how_to_fetch
from tfdeploy.output.terminal import STATE_STYLES, Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.commands.prune import PruneResult, Removal
    from tfdeploy.commands.queue import QueueResult
    from tfdeploy.commands.runs import ProjectRuns, RunSummary
    from tfdeploy.errors import TfdeployError
    from tfdeploy.output.stream import Cell

MAX_ELSEWHERE = 10  # lines
RUN_COLUMNS = ("RUN", "RESULT", "AGE", "TASKS", "HOSTS", "DISK", "COLLECTED")
QUEUE_COLUMNS = ("RUN", "PROJECT", "USER", "PRIORITY", "WAITED", "HOSTS")
PRUNE_COLUMNS = ("HOST", "RUNS", "RELEASES", "ENVIRONMENTS", "LEFTOVERS", "TOTAL")


class DiskOutput(Terminal):
    def print_runs(self, runs: ProjectRuns) -> None:
        if runs.runs:
            self._print_run_table(runs.runs)
            self._print_labels(runs.runs)
        else:
            self.print_text(f"no run of {runs.project} is on its hosts")
        has_environments = any(disk.environments for disk in runs.disks.values())
        own = ["ENVIRONMENTS"] if has_environments else []
        rows = [
            {
                "HOST": host,
                "USED": format_size(disk.used_bytes),
                "RELEASES": f"{len(disk.releases)}, {format_size(disk.releases_bytes)}",
                "ENVIRONMENTS": _count_and_size([each.bytes for each in disk.environments]),
                "FREE": f"{format_size(disk.free_bytes)} of {format_size(disk.total_bytes)}",
            }
            for host, disk in runs.disks.items()
        ]
        if rows:
            self.print_text("")
            self._out.print_table(["HOST", "USED", "RELEASES", *own, "FREE"], rows)

    def print_queue(self, found: QueueResult) -> None:
        rows: list[dict[str, Cell]] = [
            {
                "RUN": run.run,
                "PROJECT": run.project or "-",
                "USER": run.user or "-",
                "PRIORITY": str(run.priority),
                "WAITED": "-" if run.age_s is None else format_duration(run.age_s),
                "HOSTS": fold_names(run.hosts),
            }
            for run in found.waiting
        ]
        if not rows:
            self.print_text("no run waits" + (" on the hosts that answer" if found.errors else ""))
            return
        self._out.print_table(QUEUE_COLUMNS, rows)
        self.print_text("")
        for run in found.waiting:
            self.print_text(f"{run.run} waits:")
            by_reason: dict[str, list[str]] = {}
            for host, reason in run.hosts.items():
                by_reason.setdefault(reason, []).append(host)
            for reason, hosts in by_reason.items():
                self.print_text(escape_line(f"  {fold_names(hosts)}: {reason}"))

    def print_prune_plan(self, runs: ProjectRuns, plan: Mapping[str, Removal]) -> None:
        """Print what is about to be deleted from each host."""
        ids = {run.run for removal in plan.values() for run in removal.runs}
        if ids:
            self._print_run_table([run for run in runs.runs if run.id in ids])
        rows = [
            {
                "HOST": host,
                "RUNS": _count_and_size([run.bytes for run in removal.runs]),
                "RELEASES": _count_and_size([release.bytes for release in removal.releases]),
                "ENVIRONMENTS": _count_and_size([each.bytes for each in removal.environments]),
                "LEFTOVERS": format_size(removal.left_bytes),
                "TOTAL": format_size(removal.bytes),
            }
            for host, removal in plan.items()
        ]
        if rows:
            self.print_text("" if ids else "no run to delete")
            self._out.print_table(PRUNE_COLUMNS, rows)

    def print_prune_result(
        self,
        plan: Mapping[str, Removal],
        pruned: PruneResult | None,
        unanswered: Sequence[TfdeployError],
    ) -> None:
        """Print what was freed; without `pruned` it was a dry run. `unanswered` are the errors of
        hosts because of which all runs stay."""
        if unanswered:
            hosts = format_count(len(unanswered), "host")
            self.print_text(f"all runs stay: {hosts} did not answer, where any of them may be live")
        if not plan:
            self.print_text("nothing to delete" if not unanswered else "nothing was deleted")
        elif pruned is None:
            total = format_size(sum(removal.bytes for removal in plan.values()))
            self.print_text("", f"dry run: nothing was deleted; it would free about {total}")
        else:
            freed = format_size(sum(pruned.freed.values()))
            self.print_text("", f"freed {freed}; results on the controller were not touched")

    def _print_run_table(self, runs: Sequence[RunSummary]) -> None:
        rows: list[dict[str, Cell]] = [
            {
                "RUN": run.id,
                "RESULT": (run.result, STATE_STYLES.get(run.result.upper(), "default")),
                "AGE": format_duration(run.age_s),
                "TASKS": str(len(run.tasks)),
                "HOSTS": shorten_names(run.hosts),
                "DISK": format_size(run.bytes),
                "COLLECTED": _collected_text(run),
            }
            for run in runs
        ]
        self._out.print_table(RUN_COLUMNS, rows)
        self._print_elsewhere(runs)

    def _print_elsewhere(self, runs: Sequence[RunSummary]) -> None:
        """Print what runs have written outside of their folders, and how it is fetched."""
        saved = [(run.id, each) for run in runs for each in run.elsewhere]
        for run_id, each in saved[:MAX_ELSEWHERE]:
            fetch = how_to_fetch(each, f"--run {quote_word(run_id)}")
            self.print_text(f"{each.task} on {each.host} saved in {each.path}: {fetch}")
        more = len(saved) - MAX_ELSEWHERE
        if more > 0:
            lists = "tfdeploy runs --json"
            self.print_text(f"and {format_count(more, 'more file')} outside of runs: {lists}")

    def _print_labels(self, runs: Sequence[RunSummary]) -> None:
        """Print the names of runs, and the words of the command line as a shell takes them."""
        rows = [
            {"RUN": run.id, "NAME": run.name, "WORDS": shlex.join(run.words)}
            for run in runs
            if run.name or run.words
        ]
        if rows:
            self.print_text("")
            self._out.print_table(("RUN", "NAME", "WORDS"), rows)


def _count_and_size(sizes: Sequence[int]) -> str:
    return f"{len(sizes)}, {format_size(sum(sizes))}"


def _collected_text(run: RunSummary) -> str:
    """Return how many of the results that a run wrote are on the controller."""
    if run.results:
        return f"{run.results_collected} of {run.results}"
    return "record" if run.recorded else "-"
