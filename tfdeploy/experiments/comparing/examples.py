"""How many examples a run has trained with: the axis on which different batches compare. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdeploy.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.experiments.comparing.comparison import Group, RunSeries

OPTION = "--examples-per-step"


@dataclass(frozen=True)
class Examples:
    """The examples of a step: by the label of a line, and "" for all other lines. If `synchronous`,
    a step takes that many from each worker."""

    per_step: Mapping[str, int]
    synchronous: bool = False

    def count(self, groups: Sequence[Group]) -> tuple[Group, ...]:
        """Return the groups with the examples of a step of each run. Raises RunError if those of a
        line are missing, or a label is none of theirs."""
        labels = [group.label for group in groups]
        for label in self.per_step:
            if label and label not in labels:
                expected = ", ".join(labels)
                raise RunError(f'{OPTION}: found label "{label}"; expected one of {expected}')
        return tuple(
            replace(group, runs=tuple(self._count_run(group.label, each) for each in group.runs))
            for group in groups
        )

    def _count_run(self, label: str, run: RunSeries) -> RunSeries:
        per_step = self.per_step.get(label, self.per_step.get(""))
        if per_step is None:
            raise RunError(f"{OPTION}: {label} has no number", f"add {OPTION} N for all lines")
        if not self.synchronous:
            return replace(run, examples_per_step=per_step)
        if not run.tasks:
            raise RunError(
                f"run {run.run} has no record that says how many workers it had",
                f"leave out --synchronous, and multiply: {OPTION} {label}=N",
            )
        return replace(run, examples_per_step=per_step * _training_tasks(run.tasks))


def parse_examples(texts: Sequence[str], synchronous: bool) -> Examples | None:
    """Parse `N` and `LABEL=N`; None for no text. Raises RunError if one is invalid."""
    if not texts and synchronous:
        raise RunError("--synchronous says what --examples-per-step means", f"add {OPTION} N")
    per_step: dict[str, int] = {}
    for text in texts:
        label, _, number = text.rpartition("=")
        if not (number.isascii() and number.isdigit() and 0 < int(number) < 10**12):
            raise RunError(f"{OPTION}: found {text}; expected N or LABEL=N, N from 1 to 10^12 - 1")
        if label in per_step:
            name = f'label "{label}"' if label else "a number for all lines"
            raise RunError(f"{OPTION}: {name} occurs twice; expected it once")
        per_step[label] = int(number)
    return Examples(per_step, synchronous) if texts else None


def _training_tasks(tasks: Mapping[str, int]) -> int:
    """Return how many tasks train: a chief of its own does if there are no ps."""
    chiefs = 0 if tasks.get("ps") else tasks.get("chief", 0)
    return max(1, tasks.get("worker", 0) + chiefs)
