"""What hosts store: the tables of `runs` and `prune`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import (
    format_count,
    format_duration,
    format_size,
    shorten_names,
)
from tfdeploy.output.stream import Table
from tfdeploy.output.terminal import STATE_STYLES, Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.commands.prune import PruneResult, Removal
    from tfdeploy.commands.runs import ProjectRuns, RunSummary
    from tfdeploy.errors import TfdeployError


class DiskOutput(Terminal):
    def print_runs(self, runs: ProjectRuns) -> None:
        if runs.runs:
            self._print_run_table(runs.runs)
            self._print_labels(runs.runs)
        else:
            self.print_text(f"no run of {runs.project} is on its hosts")
        has_environments = any(disk.environments for disk in runs.disks.values())
        own = ["ENVIRONMENTS"] if has_environments else []
        table = Table("HOST", "USED", "RELEASES", *own, "FREE")
        for host, disk in runs.disks.items():
            releases = f"{len(disk.releases)}, {format_size(disk.releases_bytes)}"
            free = f"{format_size(disk.free_bytes)} of {format_size(disk.total_bytes)}"
            environments = _count_and_size([each.bytes for each in disk.environments])
            cells = [environments] if has_environments else []
            table.add_row(host, format_size(disk.used_bytes), releases, *cells, free)
        if runs.disks:
            self.print_text("")
            self._out.print_table(table)

    def print_prune_plan(self, runs: ProjectRuns, plan: Mapping[str, Removal]) -> None:
        """Print what is about to be deleted from each host."""
        ids = {run.run for removal in plan.values() for run in removal.runs}
        if ids:
            self._print_run_table([run for run in runs.runs if run.id in ids])
        table = Table("HOST", "RUNS", "RELEASES", "ENVIRONMENTS", "LEFTOVERS", "TOTAL")
        for host, removal in plan.items():
            table.add_row(
                host,
                _count_and_size([run.bytes for run in removal.runs]),
                _count_and_size([release.bytes for release in removal.releases]),
                _count_and_size([each.bytes for each in removal.environments]),
                format_size(removal.left_bytes),
                format_size(removal.bytes),
            )
        if plan:
            self.print_text("" if ids else "no run to delete")
            self._out.print_table(table)

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
            self.print_text(f"\ndry run: nothing was deleted; it would free {total}")
        else:
            freed = format_size(sum(pruned.freed.values()))
            self.print_text(f"\nfreed {freed}; results on the controller were not touched")

    def _print_run_table(self, runs: Sequence[RunSummary]) -> None:
        table = Table("RUN", "RESULT", "AGE", "TASKS", "HOSTS", "DISK", "COLLECTED")
        for run in runs:
            style = STATE_STYLES.get(run.result.upper(), "default")
            table.add_row(
                run.id,
                (run.result, style),
                format_duration(run.age_s),
                str(len(run.tasks)),
                shorten_names(run.hosts),
                format_size(run.bytes),
                _collected_text(run),
            )
        self._out.print_table(table)

    def _print_labels(self, runs: Sequence[RunSummary]) -> None:
        """Print the names of runs, and the words of the command line as a shell takes them."""
        table = Table("RUN", "NAME", "WORDS")
        for run in runs:
            if run.name or run.words:
                table.add_row(run.id, run.name, shlex.join(run.words))
        if table.rows:
            self.print_text("")
            self._out.print_table(table)


def _count_and_size(sizes: Sequence[int]) -> str:
    return f"{len(sizes)}, {format_size(sum(sizes))}"


def _collected_text(run: RunSummary) -> str:
    """Return how many of the results that a run wrote are on the controller."""
    if run.results:
        return f"{run.results_collected} of {run.results}"
    return "record" if run.recorded else "-"
