"""Recipes train on MNIST from Keras's archive, whose images are larger than the small digits."""

from __future__ import annotations

import pytest
from support import warm
from support.recipes import EXAMPLES

pytestmark = pytest.mark.slow

FLAGS = {"towers": ["--own_input"]}  # the recipe's own test trains with a shared one


def train(recipe, data_dir, checkpoint_dir, *more):
    flags = [f"--data-dir={data_dir}", f"--checkpoint_dir={checkpoint_dir}"]
    words = ["-m", f"{recipe}.train", *flags, "--steps=2", "--batch_size=4", *more]
    return warm.run(*words, cwd=EXAMPLES)


@pytest.mark.parametrize("recipe", ["serial", "towers", "mirrored"])
def test_a_recipe_trains_on_an_archive_in_a_folder(recipe, tmp_path):
    import numpy as np

    images, labels = np.zeros((10, 28, 28), np.uint8), np.arange(10, dtype=np.uint8)
    parts = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    np.savez(tmp_path / "mnist.npz", **parts)
    done = train(recipe, tmp_path, tmp_path / "checkpoints", *FLAGS.get(recipe, []))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "checkpoints" / "checkpoint").exists()


def test_a_broken_archive_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "mnist.npz").write_bytes(b"PK, cut off")
    done = train("serial", tmp_path, tmp_path / "checkpoints")
    assert done.returncode == 1
    expected = f"{tmp_path}/mnist.npz is not Keras's complete mnist.npz: download it again\n"
    assert done.stderr.endswith(expected)
    assert "Traceback" not in done.stderr
