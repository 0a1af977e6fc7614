"""Measure a checkpoint on the test images, which were not used for training. No cluster needed."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

# Both are read when TensorFlow is imported, and hide its own messages.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import data
import model
import tensorflow as tf

v1 = tf.compat.v1
v1.logging.set_verbosity(v1.logging.ERROR)


class CheckpointError(Exception):
    """There is no checkpoint to measure; the message says why in one sentence."""


class Result(NamedTuple):
    accuracy: float
    step: int
    checkpoint: str


def main() -> int:
    flags = parse_flags()
    try:
        checkpoint = latest_checkpoint(flags.checkpoint_dir)
        result = measure(checkpoint, data.load("test", flags.data_dir), flags.net)
    except (CheckpointError, data.DataError) as error:
        print(f"eval.py: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result._asdict()) if flags.json else sentence(result))
    if result.accuracy < flags.min_accuracy:
        print(f"eval.py: that is below {flags.min_accuracy}", file=sys.stderr)
        return 1
    return 0


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("checkpoint_dir", type=Path)
    add("--data-dir", type=Path, help="as for the training; default: the small digits")
    add("--net", choices=model.NETS, default="convolutions", help="if it was trained with --net")
    add("--min-accuracy", type=float, default=0.0, help="exit with 1 below it")
    add("--json", action="store_true")
    return parser.parse_args()


def sentence(result: Result) -> str:
    return f"test accuracy {result.accuracy:.3f} at step {result.step} (from {result.checkpoint})"


def latest_checkpoint(directory: Path) -> str:
    """Return the checkpoint that the file `checkpoint` names, in the folder of that file.

    tf.train.latest_checkpoint would follow the absolute paths that a trainer writes there. In a
    copied folder those lead to the original folder.
    """
    state = tf.train.get_checkpoint_state(str(directory))
    if state is None:
        raise CheckpointError(f"{directory} holds no checkpoint: train first")
    prefix = str(directory / Path(state.model_checkpoint_path).name)
    if not Path(f"{prefix}.index").is_file():
        raise CheckpointError(f"{directory}/checkpoint names {prefix}, which does not exist")
    return prefix


def measure(checkpoint: str, tests: data.Examples, net: str = "convolutions") -> Result:
    try:
        return _measure(checkpoint, tests, net)
    # Variables of another shape are restored silently, and fail only when they are used.
    except (tf.errors.OpError, ValueError) as error:
        raise CheckpointError(
            f"{checkpoint} does not fit this net ({type(error).__name__}): "
            "it is damaged, or of other data or another net, see --data-dir and --net"
        ) from None


def _measure(checkpoint: str, tests: data.Examples, net: str) -> Result:
    with tf.Graph().as_default(), v1.Session() as session:
        images, labels = model.placeholders(tests.side)
        outputs = model.outputs(images, model.weights(tests.side, net))
        accuracy = model.accuracy(outputs, labels)
        step = v1.train.get_or_create_global_step()
        v1.train.Saver().restore(session, checkpoint)
        right = 0.0
        for part in data.in_order(tests, size=1000):  # All of MNIST at once would need gigabytes.
            share = session.run(accuracy, {images: part.images, labels: part.labels})
            right += float(share) * len(part.labels)
        return Result(round(right / len(tests.labels), 4), int(session.run(step)), checkpoint)


if __name__ == "__main__":
    sys.exit(main())
