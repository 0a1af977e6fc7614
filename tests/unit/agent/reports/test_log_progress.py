"""What the end of a log says about training: Keras's bars, steps, the loss, and who is missing."""

from __future__ import annotations

import os

import pytest

from tfdeploy.agent.reports import progress
from tfdeploy.shared.records import LogProgress

# As Keras 3 writes it into a pipe.
BAR = (
    "Epoch 1/2\n\r\x1b[1m 1/80\x1b[0m \x1b[37m━━━━━━━━━━\x1b[0m \x1b[1m1:59\x1b[0m 2s/step - "
    "loss: 2.5000e+00 - mae: 0.1\r\x1b[1m80/80\x1b[0m \x1b[32m━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m "
    "\x1b[1m2s\x1b[0m 4ms/step - loss: 0.4217 - mae: 0.2 - val_loss: 9.0 - val_mae: 0.3\n"
)
WAITING = (
    "2026-11-22 20:00:00.1: I tensorflow/core/distributed_runtime/master.cc:229] CreateSession "
    "still waiting for response from worker: /job:{}/replica:0/task:{}\n"
)


def test_a_bar_of_keras_gives_epoch_batch_and_loss():
    assert progress.parse_log(BAR) == LogProgress(1, 2, 80, 80, None, "0.4217")


def test_a_new_epoch_has_no_batch_yet():
    said = progress.parse_log(BAR + "Epoch 2/2\n")
    assert (said.epoch, said.batch, said.loss) == (2, None, "0.4217")


@pytest.mark.parametrize(
    ("line", "epoch_and_batch"),
    [
        ("Epoch 2/2\n20/20 - 0s - 8ms/step - loss: 0.5\n", (2, 2, 20, 20)),
        ("Epoch 2/9\n 157/Unknown \x1b[1m2s\x1b[0m 12ms/step", (2, 9, 157, None)),
        ("Epoch 1/5\n60000/60000 [==============================] - 4s", (1, 5, 60000, 60000)),
        ("accuracy 12/20 of the classes\n", (None, None, None, None)),
    ],
)
def test_other_forms_of_keras(line, epoch_and_batch):
    said = progress.parse_log(line)
    assert (said.epoch, said.epochs, said.batch, said.batches) == epoch_and_batch


@pytest.mark.parametrize(
    ("line", "step", "loss"),
    [
        ("INFO:tensorflow:loss = 0.25, step = 120 (1.2 sec)", 120, "0.25"),
        ("step 7 loss 2.312", 7, "2.312"),
        ("global_step: 3", 3, ""),
        ("Step=4, Loss=1e-05", 4, "1e-05"),
        ("step 5 loss nan", 5, "nan"),
        ("12ms/step - val_loss: 0.3", None, ""),
        ("stepped 3 times, lossless 4", None, ""),
        ("Step 92257989966918359 cancelled", None, ""),
        ("Step 3 was cancelled by an explicit call to `Session::Close()`.", None, ""),
    ],
)
def test_a_line_with_a_step_and_a_loss(line, step, loss):
    said = progress.parse_log(line)
    assert (said.step, said.loss) == (step, loss)


def test_the_last_lines_count():
    assert progress.parse_log("step 1 loss 3\nstep 2\nhello\n") == LogProgress(step=2, loss="3")


def test_the_tasks_that_tensorflow_waits_for_are_found():
    text = "starting\n" + WAITING.format("worker", 1) + WAITING.format("ps", 0) * 2
    assert progress.parse_log(text).waits_for == ["ps:0", "worker:1"]


def test_a_line_after_the_waiting_ends_it():
    assert progress.parse_log(WAITING.format("worker", 1) + "step 1\n").waits_for == []


def test_only_the_end_of_a_log_is_read(tmp_path):
    log = tmp_path / "worker-0.log"
    log.write_bytes(b"step 1\n" + b"x" * progress.LOG_BYTES + b"\nstep 2\xff\n")
    assert progress.read_log(os.fspath(log)).step == 2
    assert progress.read_log("/missing") == LogProgress()
