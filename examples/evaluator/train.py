"""Continuous evaluation: a separate task measures each new checkpoint while training continues.

The workers train asynchronously. The evaluator is in no cluster: it has no connection to other
tasks. It knows only the folder in which the chief saves.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import cluster
import tensorflow as tf
from digits import data, model

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1
POLL_S = 0.5


def main() -> None:
    parser = cluster.flags(__doc__)
    add = parser.add_argument
    add("--data-dir", type=Path, help=data.FLAG_HELP)
    add("--learning_rate", type=float, default=0.003)
    add("--eval_dir", default="evaluation", help="for the evaluator's events")
    parser.set_defaults(save_steps=100)
    given = parser.parse_args()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    with tf.Graph().as_default():
        if role.job == "evaluator":
            evaluate(given, data.load("test", given.data_dir))
        else:
            train(role, given, data.load("train", given.data_dir))


def train(role: cluster.Role, given: argparse.Namespace, examples: data.Examples) -> None:
    server = cluster.server(role)
    with cluster.on_ps(role):
        images, labels = model.placeholders(examples.side)
        loss = model.loss(model.logits(images), labels)
        step = v1.train.get_or_create_global_step()
        update = v1.train.AdamOptimizer(given.learning_rate).minimize(loss, global_step=step)
    v1.summary.scalar("loss", loss)
    if role.is_chief:
        print("weights on", cluster.places(v1.trainable_variables()), flush=True)
    hooks = [cluster.Progress(loss)]
    with cluster.open_session(server.target, role, given, hooks) as session:
        batches = cluster.batches(examples, role, given)
        while not session.should_stop():
            batch = next(batches)
            session.run(update, {images: batch.images, labels: batch.labels})


def evaluate(given: argparse.Namespace, tests: data.Examples) -> None:
    """Measure checkpoints until one of the last step was measured: there will be no more."""
    images, labels = model.placeholders(tests.side)
    outputs = model.logits(images)
    step = v1.train.get_or_create_global_step()
    measured = [step, model.loss(outputs, labels), model.accuracy(outputs, labels)]
    saver = v1.train.Saver()
    # checkpoint_dir is the chief's folder or a copy of it, so this task only reads it.
    events = v1.summary.FileWriter(given.eval_dir)
    reached, done = -1, None
    with v1.Session() as session, events:
        while reached < given.steps:
            checkpoint = newest(given.checkpoint_dir)
            if checkpoint == done or not restored(saver, session, checkpoint):
                time.sleep(POLL_S)
                continue
            done = checkpoint
            reached, loss, accuracy = session.run(
                measured, {images: tests.images, labels: tests.labels}
            )
            print(f"evaluated step {reached} accuracy {accuracy:.3f}", flush=True)
            write(events, reached, {"loss": loss, "accuracy": accuracy})
    print(f"ended: step {reached} is the last one", flush=True)


def newest(directory: str) -> str | None:
    """Return the checkpoint that the file `checkpoint` names, in its folder; None if there is none.

    tf.train.latest_checkpoint would follow the path that the chief wrote there, which does not
    exist on another machine.
    """
    state = tf.train.get_checkpoint_state(directory)
    return str(Path(directory) / Path(state.model_checkpoint_path).name) if state else None


def restored(saver: v1.train.Saver, session: v1.Session, checkpoint: str) -> bool:
    """Restore a checkpoint. The chief may delete it meanwhile; then there is a newer one."""
    try:
        saver.restore(session, checkpoint)
    except (ValueError, tf.errors.NotFoundError, tf.errors.DataLossError) as error:
        print(f"{checkpoint} cannot be read ({type(error).__name__}): trying again", flush=True)
        return False
    return True


def write(events: v1.summary.FileWriter, step: int, scalars: dict[str, float]) -> None:
    values = [v1.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
    events.add_summary(v1.Summary(value=values), step)
    events.flush()


if __name__ == "__main__":
    main()
