"""Images of handwritten digits: scikit-learn's 1,797 small ones, or MNIST where its files lie."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPLIT_SEED = 20  # Every task, and eval.py, must draw the same border between train and test.
TEST_SHARE = 0.2
MNIST = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


class DataError(SystemExit):
    """The data can't be had; the message says in one sentence what to do about it.

    Where nobody catches it, it ends the script with that sentence, not with a traceback.
    """


class Examples(NamedTuple):
    images: np.ndarray  # float32, [count, side, side], from 0 to 1
    labels: np.ndarray  # int64, [count]

    @property
    def side(self) -> int:
        return int(self.images.shape[1])


def load(part: str, data_dir: Path | None = None) -> Examples:
    """The "train" or the "test" part: of MNIST in `data_dir`, else of scikit-learn's digits."""
    return _digits(part) if data_dir is None else _mnist(part, data_dir)


def batches(examples: Examples, size: int, seed: int) -> Iterator[Examples]:
    """Random batches without end; another seed gives another order."""
    draw = np.random.default_rng(seed)
    while True:
        chosen = draw.integers(len(examples.labels), size=size)
        yield Examples(examples.images[chosen], examples.labels[chosen])


def in_order(examples: Examples, size: int) -> Iterator[Examples]:
    """Every example once, at most `size` at a time."""
    for start in range(0, len(examples.labels), size):
        part = slice(start, start + size)
        yield Examples(examples.images[part], examples.labels[part])


def split(count: int) -> dict[str, np.ndarray]:
    """The indices of each part: shuffled, and alike under every version of NumPy."""
    # RandomState promises that; default_rng may change, and hosts may have different versions.
    order = np.random.RandomState(SPLIT_SEED).permutation(count)
    tests = round(count * TEST_SHARE)
    return {"test": order[:tests], "train": order[tests:]}


def _digits(part: str) -> Examples:
    try:
        from sklearn.datasets import load_digits  # Not needed where MNIST is given.
    except ImportError:
        raise DataError(
            "the digits come with scikit-learn, which this Python lacks: "
            "pip install scikit-learn, or give MNIST's files with --data-dir to digits/train.py"
        ) from None
    digits = load_digits()
    chosen = split(len(digits.target))[part]
    images = digits.images[chosen].astype(np.float32) / 16
    return Examples(images, digits.target[chosen].astype(np.int64))


def _mnist(part: str, data_dir: Path) -> Examples:
    images, labels = (read_idx(_find(data_dir, name)) for name in MNIST[part])
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(f"{data_dir}: MNIST's {part} images and labels don't fit each other")
    return Examples(images.astype(np.float32) / 255, labels.astype(np.int64))


def _find(data_dir: Path, name: str) -> Path:
    for file in (data_dir / name, data_dir / f"{name}.gz"):
        if file.is_file():
            return file
    raise DataError(
        f"{data_dir} holds neither {name} nor {name}.gz: "
        "--data-dir must be a directory with MNIST's four idx files"
    )


def read_idx(file: Path) -> np.ndarray:
    """An idx file of bytes: two zeros, the type 8, how many sizes follow, the sizes, the values."""
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        zeros, kind, sizes = struct.unpack_from(">HBB", content)
        shape = struct.unpack_from(f">{sizes}I", content, 4)
        if (zeros, kind) != (0, 8):
            raise ValueError
        return np.frombuffer(content, np.uint8, offset=4 + 4 * sizes).reshape(shape)
    except (OSError, EOFError, ValueError, struct.error, zlib.error):
        raise DataError(f"{file} is not a whole idx file of bytes: get it again") from None
