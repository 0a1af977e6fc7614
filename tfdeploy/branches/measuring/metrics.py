"""What a training reached: the last and the best value of each metric, beside those of its
validation. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.branches.measuring import scalars
from tfdeploy.branches.measuring.scalars import SPEED, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.branches.measuring.scalars import Series

LOSS = "loss"  # the tag of most scripts
FALLS = re.compile(r"loss|error|perplexity|(^|_)r?m[as]e$")
RISES = re.compile(r"acc|auc|precision|recall|(^|_)(f1|iou|score|reward|return)")
# Settings, and Keras's copies of the validation's metrics over batches.
NO_METRIC = re.compile(r"learning_rate|(^|[/_])lr$|^evaluation_.*_vs_iterations$")


@dataclass(frozen=True)
class Reached:
    """The last value and the best one. A training that ended with NaN has no better last value."""

    last: float
    best: float


@dataclass(frozen=True)
class Metric:
    """A metric; higher values are better if it `rises`. None: it was not reported."""

    name: str
    rises: bool
    training: Reached | None
    validation: Reached | None


def metrics(found: Mapping[str, Series]) -> tuple[Metric, ...]:
    """Return the metrics of a run's scalars: its loss first, then other losses, then the others."""
    pairs: dict[str, dict[bool, str]] = {}
    for name in sorted(found, key=_rank):
        metric = scalars.metric_name(name)
        if name != SPEED and not NO_METRIC.search(metric):
            pairs.setdefault(metric, {}).setdefault(scalars.is_validation(name), name)
    made = [_metric(metric, found, names) for metric, names in pairs.items()]
    return tuple(each for each in made if each.training or each.validation)


def is_rising(tag: str, curves: Sequence[Sequence[float]]) -> bool:
    """Return whether higher values are better: by the metric's name, or else because most curves
    end higher than they started."""
    if FALLS.search(tag.lower()) or RISES.search(tag.lower()):
        return not FALLS.search(tag.lower())
    return 2 * sum(values[-1] > values[0] for values in curves) > len(curves)


def main_loss(names: Sequence[str]) -> str:
    """Return which of the scalars is the loss of the training: "loss", or Keras's `epoch_loss`, or
    the first one with such a name, or ""."""
    losses = [name for name in names if LOSS in name.lower() and not NO_METRIC.search(name)]
    return min(losses, key=_rank, default="")


def _rank(name: str) -> tuple[bool, bool, bool, bool, str]:
    metric = scalars.metric_name(name)
    is_loss = LOSS in name.lower()
    return scalars.is_validation(name), metric != LOSS, metric != f"epoch_{LOSS}", not is_loss, name


def _metric(metric: str, found: Mapping[str, Series], names: Mapping[bool, str]) -> Metric:
    curves = {is_validation: values_of(found[name]) for is_validation, name in names.items()}
    finite = [[v for v in values if math.isfinite(v)] for values in curves.values()]
    rises = is_rising(metric, [values for values in finite if values])
    training, validation = (_reached(curves.get(each, ()), rises) for each in (False, True))
    return Metric(metric, rises, training, validation)


def _reached(values: Sequence[float], rises: bool) -> Reached | None:
    finite = [value for value in values if math.isfinite(value)]
    return Reached(values[-1], (max if rises else min)(finite)) if finite else None
