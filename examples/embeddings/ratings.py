"""Invented ratings of films, like MovieLens: the same ones in every process, by a fixed seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 7
TASTES = 3  # The hidden numbers by which a user and a film fit or do not.


class Ratings(NamedTuple):
    users: np.ndarray  # int64, [count]
    films: np.ndarray  # int64, [count]
    stars: np.ndarray  # float32, [count]


def load(users: int, films: int, count: int) -> tuple[Ratings, Ratings]:
    """Return `count` ratings to train with, and a tenth of that number to test with."""
    # RandomState gives the same numbers in every version of NumPy.
    draw = np.random.RandomState(SEED)
    total = count + count // 10
    tastes, kinds = draw.randn(users, TASTES), draw.randn(films, TASTES)
    # Few films have most of the ratings, as in reality.
    chosen = (films * draw.rand(total) ** 2).astype(np.int64)
    by = draw.randint(users, size=total)
    fit = (tastes[by] * kinds[chosen]).sum(1) / np.sqrt(TASTES)
    stars = 3 + fit + 0.3 * draw.randn(total)
    ratings = Ratings(by.astype(np.int64), chosen, stars.astype(np.float32))
    return _part(ratings, slice(count)), _part(ratings, slice(count, None))


def batches(ratings: Ratings, size: int, seed: int) -> Iterator[Ratings]:
    """Yield random batches without end; another seed gives another order."""
    draw = np.random.default_rng(seed)
    while True:
        yield _part(ratings, draw.integers(len(ratings.stars), size=size))


def _part(ratings: Ratings, chosen: slice | np.ndarray) -> Ratings:
    return Ratings(*(column[chosen] for column in ratings))
