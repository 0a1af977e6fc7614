"""Images of handwritten digits: the 1,797 small ones in this folder, or MNIST's files."""

from __future__ import annotations

import gzip
import struct
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

# One row per image: 64 pixels from 0 to 16, then the digit.
DIGITS = Path(__file__).with_name("digits.csv.gz")
SPLIT_SEED = 20  # Every task, and eval.py, must split train and test in the same way.
TEST_SHARE = 0.2
MNIST = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


FLAG_HELP = "a folder with mnist.npz or MNIST's idx files; default: the small digits"


class DataError(SystemExit):
    """The data is missing or invalid; the message says in one sentence what to do.

    If nothing catches it, it ends the script with that sentence, not with a traceback.
    """


class Examples(NamedTuple):
    images: np.ndarray  # float32, [count, side, side], from 0 to 1
    labels: np.ndarray  # int64, [count]

    @property
    def side(self) -> int:
        return int(self.images.shape[1])


def load(part: str, data_dir: Path | None = None) -> Examples:
    """Return the "train" or "test" part of MNIST in `data_dir`, or else of the small digits."""
    return _digits(part) if data_dir is None else _mnist(part, data_dir)


def batches(examples: Examples, size: int, seed: int) -> Iterator[Examples]:
    """Yield random batches without end; another seed gives another order."""
    draw = np.random.default_rng(seed)
    while True:
        chosen = draw.integers(len(examples.labels), size=size)
        yield Examples(examples.images[chosen], examples.labels[chosen])


def in_order(examples: Examples, size: int) -> Iterator[Examples]:
    """Yield every example once, at most `size` at a time."""
    for start in range(0, len(examples.labels), size):
        part = slice(start, start + size)
        yield Examples(examples.images[part], examples.labels[part])


def split(count: int) -> dict[str, np.ndarray]:
    """Return the shuffled indices of each part, the same in every version of NumPy."""
    # RandomState guarantees that; default_rng may change, and hosts may have different versions.
    order = np.random.RandomState(SPLIT_SEED).permutation(count)
    tests = round(count * TEST_SHARE)
    return {"test": order[:tests], "train": order[tests:]}


def _digits(part: str) -> Examples:
    rows = np.loadtxt(DIGITS, np.uint8, delimiter=",")
    chosen = rows[split(len(rows))[part]]
    images = chosen[:, :64].reshape(-1, 8, 8).astype(np.float32) / 16
    return Examples(images, chosen[:, 64].astype(np.int64))


def _mnist(part: str, data_dir: Path) -> Examples:
    archive = data_dir / "mnist.npz"
    if archive.is_file():
        images, labels = _read_npz(archive, part)
    else:
        images, labels = (read_idx(_find(data_dir, name)) for name in MNIST[part])
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(f"{data_dir}: MNIST's {part} images and labels do not match")
    return Examples(images.astype(np.float32) / 255, labels.astype(np.int64))


def _read_npz(file: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Read the archive that Keras publishes: x_train, y_train, x_test and y_test."""
    try:
        with np.load(file) as arrays:
            return arrays[f"x_{part}"], arrays[f"y_{part}"]
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error):
        raise DataError(f"{file} is not Keras's complete mnist.npz: download it again") from None


def _find(data_dir: Path, name: str) -> Path:
    for file in (data_dir / name, data_dir / f"{name}.gz"):
        if file.is_file():
            return file
    raise DataError(
        f"{data_dir} holds neither {name} nor {name}.gz: "
        "--data-dir must be a directory with mnist.npz or MNIST's four idx files"
    )


def read_idx(file: Path) -> np.ndarray:
    """Read an idx file: two zeros, type 8, the number of dimensions, their sizes, the values."""
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        zeros, kind, sizes = struct.unpack_from(">HBB", content)
        shape = struct.unpack_from(f">{sizes}I", content, 4)
        if (zeros, kind) != (0, 8):
            raise ValueError
        return np.frombuffer(content, np.uint8, offset=4 + 4 * sizes).reshape(shape)
    except (OSError, EOFError, ValueError, struct.error, zlib.error):
        raise DataError(f"{file} is not a complete idx file of bytes: download it again") from None
