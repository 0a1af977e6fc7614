"""The serial baseline: one process, one copy of the weights, one batch after the other."""

from __future__ import annotations

import argparse
from pathlib import Path

import tensorflow as tf
from digits import data, model

v1 = tf.compat.v1
OPTIMIZERS = {"adam": v1.train.AdamOptimizer, "sgd": v1.train.GradientDescentOptimizer}


def main() -> None:
    flags = parse_flags()
    examples = data.load("train", flags.data_dir)
    with tf.Graph().as_default():
        images, labels = model.placeholders(examples.side)
        loss = model.loss(model.logits(images), labels)
        step = v1.train.get_or_create_global_step()
        update = OPTIMIZERS[flags.optimizer](flags.learning_rate).minimize(loss, step)
        v1.summary.scalar("loss", loss)
        batches = data.batches(examples, flags.batch_size, seed=0)
        with open_session(flags) as session:
            while not session.should_stop():
                batch = next(batches)
                feed = {images: batch.images, labels: batch.labels}
                _, now, value = session.run([update, step, loss], feed)
                if now % 100 == 0:
                    print(f"step {now} loss {value:.3f}", flush=True)
    print(f"ended after {now + 1} steps", flush=True)


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--checkpoint_dir", default="checkpoints")
    add("--data-dir", type=Path, help=data.FLAG_HELP)
    add("--steps", type=int, default=600)
    add("--batch_size", type=int, default=64)
    add("--optimizer", choices=OPTIMIZERS, default="adam")
    add("--learning_rate", type=float, default=0.003, help="sgd wants a larger one: 0.1")
    return parser.parse_args()


def open_session(flags: argparse.Namespace) -> v1.train.MonitoredSession:
    """Open a session that initializes or restores the weights, and saves them regularly."""
    return v1.train.MonitoredTrainingSession(
        checkpoint_dir=flags.checkpoint_dir,
        hooks=[v1.train.StopAtStepHook(last_step=flags.steps)],
        save_checkpoint_steps=200,
        save_summaries_steps=10,
    )


if __name__ == "__main__":
    main()
