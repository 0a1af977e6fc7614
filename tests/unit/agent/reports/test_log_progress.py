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


# Each format as its program prints it: PyTorch's examples (mnist, imagenet), tutorials, tqdm,
# Lightning with tqdm and with rich, and Keras' ModelCheckpoint below a bar.
@pytest.mark.parametrize(
    ("text", "epoch_and_batch"),
    [
        ("Train Epoch: 2 [5120/60000 (9%)]\tLoss: 0.3", (2, None, 5120, 60000)),
        ("Epoch: [3][ 10/5005]\tTime 0.1 (0.2)\tLoss 6.9", (3, None, 10, 5005)),
        ("Epoch [2/5], Step [100/600], Loss: 0.2", (2, 5, 100, 600)),
        ("Epoch 3 in 4.20 sec", (3, None, None, None)),
        ("INFO:root:epoch 2/10, loss 0.5", (2, 10, None, None)),
        ("Epoch 2/10\n----------\ntrain Loss: 0.5 Acc: 0.7", (2, 10, None, None)),
        ("epoch: 4 of 9", (4, 9, None, None)),
        (" 45%|████▌     | 45/100 [00:01<00:01, 30.12it/s]", (None, None, 45, 100)),
        ("45it [00:01, 30.12it/s]", (None, None, 45, None)),
        ("Epoch 2:  45%|███▌  | 45/100 [00:01<00:01, 30it/s, loss=0.3]", (2, None, 45, 100)),
        ("Epoch 2/9 ━━━━━━ 45/100 0:00:01 • 0:00:01 30.1it/s", (2, 9, 45, 100)),
        (
            "Epoch 2/9: 45%|███| 45/100 [00:01<00:01]\nValidation: 3/7 [00:01<00:02]",
            (2, 9, 45, 100),
        ),
        (BAR + "\nEpoch 1: val_loss improved from inf to 0.5\n", (1, 2, 80, 80)),
        (BAR + "Restoring model weights from the end of the best epoch: 3.\n", (1, 2, 80, 80)),
        ("Downloading: 45%|████▌     | 45/100 [00:01<00:01, 30MB/s]", (None, None, None, None)),
        ("wrote part 3/7 of epoch.npz; epochs 4", (None, None, None, None)),
    ],
)
def test_other_programs_print_epochs_and_batches(text, epoch_and_batch):
    said = progress.parse_log(text)
    assert (said.epoch, said.epochs, said.batch, said.batches) == epoch_and_batch


@pytest.mark.parametrize(
    ("line", "step", "loss"),
    [
        ("INFO:tensorflow:loss = 0.25, step = 120 (1.2 sec)", 120, "0.25"),
        ("step 7 loss 2.312", 7, "2.312"),
        ("global_step: 3", 3, ""),
        ("Step=4, Loss=1e-05", 4, "1e-05"),
        ("step 5 loss nan", 5, "nan"),
        ("{'loss': 0.5, 'learning_rate': 1e-05, 'epoch': 1.5}", None, "0.5"),
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
