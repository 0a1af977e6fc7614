"""How programs write progress into a log.

Keras prints `Epoch 3/10` and then `157/157 ━━━━ 2s 12ms/step - accuracy: 0.97 - loss: 0.12`
(source: keras/src/utils/progbar.py); sessions of tf.compat.v1 print what the LoggingTensorHook
gets, such as `step = 120, loss = 0.5`. Others print `Train Epoch: 2 [5120/60000 (9%)]` (PyTorch's
examples), `Epoch [2/5], Step [100/600]`, or `Epoch 2: 45%|███▌  | 45/100 [00:01<00:01]` (tqdm).
"""

from __future__ import annotations

import re

ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
KERAS_EPOCH = re.compile(r"^Epoch (\d{1,9})/(\d{1,9})\s*$")
KERAS_BATCH = re.compile(r"^\s*(\d{1,9})/(?:(\d{1,9}) [━╸ \[-]|Unknown )")
EPOCH = re.compile(
    r"(?<!best )\bepoch[ :=[]{1,4}(\d{1,9})(?:(?:/| of )(\d{1,9})\b|(?![\w./]))", re.I
)
BATCH = re.compile(
    r"\[ *(\d{1,9})/(\d{1,9})[ \]]"
    r"|(?:batch|step|iter(?:ation)?)[ :=[]{1,4}(\d{1,9})(?:/| of )(\d{1,9})\b"
    r"|(?<!\S)(\d{1,9})/(\d{1,9}) \[?\d+:\d\d"  # tqdm and rich
    r"|(?<!\S)(\d{1,9})it \[\d+:\d\d",
    re.I,
)
OTHER_BAR = re.compile(r"\W*(?:sanity|valid|eval|test|download)", re.I)  # not of the training
# Not TensorFlow's own "Step 92257989966918359 cancelled": it numbers the calls of a session, too.
STEP = re.compile(r"\b(?:global_?)?step[ =:]{1,3}(\d{1,15})\b(?! (?:was )?cancel)", re.I)
LOSS = re.compile(
    r"(?<![\w/])loss'?[ =:]{1,3}([-+]?\d[\d.]*(?:e[-+]?\d+)?|nan|-?inf)(?![\w.])", re.I
)
