"""Event files that TensorFlow itself writes are read on the hosts and on the controller."""

import os
import time

import pytest
from support import warm

from tfdeploy.agent.outputs import event_files
from tfdeploy.agent.reports import progress
from tfdeploy.branches.measuring import scalars

pytestmark = pytest.mark.slow

# With the metadata that tf.summary.scalar writes, which itself needs TensorBoard.
TENSORFLOW_2 = """
import shutil, tensorflow as tf

described = tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "scalars"})
with tf.summary.create_file_writer("scalars").as_default():
    for step in (0, 5, 300):
        tf.summary.write("loss", 1.0 / (step + 1), step=step, metadata=described)
        tf.summary.write("count", tf.constant(-step, tf.int64), step=step)
        tf.summary.write("small", tf.constant(step, tf.int32), step=step)
        tf.summary.write("exact", tf.constant(0.1, tf.float64), step=step)
        tf.summary.write("weights", tf.zeros([3]), step=step)
        tf.summary.write("words", "text", step=step)
writer = tf.summary.create_file_writer("many")
with writer.as_default():
    for step in range(0, 3000, 3):
        tf.summary.write("loss", 1.0, step=step)
    writer.flush()
    shutil.copytree("many", "unfinished")
    tf.summary.write("weights", tf.zeros([60_000]), step=3000)
    writer.flush()
"""

MONITORED_SESSION = """
import tensorflow as tf

tf1 = tf.compat.v1
for last in (10, 20):
    with tf1.Graph().as_default():
        step_op = tf1.train.get_or_create_global_step().assign_add(1)
        tf1.summary.scalar("half", tf1.cast(step_op, tf1.float32) / 2)
        with tf1.train.MonitoredTrainingSession(
            checkpoint_dir=".", save_summaries_steps=1,
            hooks=[tf1.train.StopAtStepHook(last_step=last)], log_step_count_steps=5,
        ) as session:
            while not session.should_stop():
                session.run(step_op)
"""


def write(code, folder):
    """Run code with TensorFlow, which writes event files into the folder."""
    done = warm.run("-c", code, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]


def last_step(folder):
    return progress.last_step(event_files.in_folder(os.fspath(folder)))


def steps_and_values(series):
    return [(point.step, point.value) for point in series]


def test_event_files_of_tensorflow_2_are_read(tmp_path):
    before_s = time.time()
    write(TENSORFLOW_2, tmp_path)
    assert last_step(tmp_path / "unfinished").step == 2997
    assert last_step(tmp_path / "many").step == 3000
    assert last_step(tmp_path / "many").age_s <= time.time() - before_s
    found = scalars.read_events(tmp_path / "scalars")
    assert sorted(found) == ["count", "exact", "loss", "small"]
    assert steps_and_values(found["loss"]) == [
        (s, pytest.approx(1 / (s + 1), rel=1e-6)) for s in (0, 5, 300)
    ]
    assert steps_and_values(found["count"]) == [(0, 0.0), (5, -5.0), (300, -300.0)]
    assert steps_and_values(found["small"]) == [(0, 0.0), (5, 5.0), (300, 300.0)]
    assert steps_and_values(found["exact"]) == [(0, 0.1), (5, 0.1), (300, 0.1)]


def test_event_files_of_a_monitored_session_are_read_across_a_restart(tmp_path):
    before_s = time.time()
    write(MONITORED_SESSION, tmp_path)
    assert last_step(tmp_path).step in (20, 21)
    found = scalars.read_events(tmp_path)
    assert sorted(found) == ["global_step/sec", "half"]
    assert {s for s, _ in steps_and_values(found["half"])} >= {*range(2, 20)}
    assert all(value in (s / 2, (s - 1) / 2) for s, value in steps_and_values(found["half"]))
    times = [point.time_s for point in scalars.step_times(found)]
    assert times == sorted(times)
    assert before_s <= times[0] <= times[-1] <= time.time()
