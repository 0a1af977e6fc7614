"""Invented ratings of films, such as MovieLens has: a fixed seed gives each process the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 7
USERS, FILMS = 4000, 1000  # that have ratings
TRAINING, TESTS = 100_000, 10_000
MEAN = 3.0  # stars
TASTES = 3  # The hidden numbers by which a user and a film fit or do not.


class Ratings(NamedTuple):
    users: np.ndarray  # int64, [count]
    films: np.ndarray  # int64, [count]
    stars: np.ndarray  # float32, [count]


def load(rows: int) -> tuple[Ratings, Ratings]:
    """Return ratings to train with, and others to test with.

    Ids of users are spread over 0 to `rows` - 1: most of these ids rated nothing yet.
    """
    # RandomState gives the same numbers in every version of NumPy.
    draw = np.random.RandomState(SEED)
    tastes, kinds = draw.randn(USERS, TASTES), draw.randn(FILMS, TASTES)
    # Few films have most of the ratings, as in reality.
    films = (FILMS * draw.rand(TRAINING + TESTS) ** 2).astype(np.int64)
    users = draw.randint(USERS, size=len(films))
    fit = (tastes[users] * kinds[films]).sum(1) / np.sqrt(TASTES)
    stars = MEAN + fit + 0.3 * draw.randn(len(films))
    ids = users.astype(np.int64) * (rows // USERS)
    ratings = Ratings(ids, films, stars.astype(np.float32))
    return _part(ratings, slice(TRAINING)), _part(ratings, slice(TRAINING, None))


def batches(ratings: Ratings, size: int, seed: int) -> Iterator[Ratings]:
    """Yield random batches without end; another seed gives another order."""
    draw = np.random.default_rng(seed)
    while True:
        yield _part(ratings, draw.integers(len(ratings.stars), size=size))


def _part(ratings: Ratings, chosen: slice | np.ndarray) -> Ratings:
    return Ratings(*(column[chosen] for column in ratings))
