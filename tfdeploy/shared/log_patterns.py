"""How Keras and TensorFlow write progress into a log.

Keras prints `Epoch 3/10` and then `157/157 ━━━━ 2s 12ms/step - accuracy: 0.97 - loss: 0.12`
(source: keras/src/utils/progbar.py); sessions of tf.compat.v1 print what the LoggingTensorHook
gets, such as `step = 120, loss = 0.5`.
"""

from __future__ import annotations

import re

ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
EPOCH = re.compile(r"^Epoch (\d{1,9})/(\d{1,9})\s*$")
BATCH = re.compile(r"^\s*(\d{1,9})/(?:(\d{1,9}) [━╸ \[-]|Unknown )")
# Not TensorFlow's own "Step 92257989966918359 cancelled": it numbers the calls of a session, too.
STEP = re.compile(r"\b(?:global_?)?step[ =:]{1,3}(\d{1,15})\b(?! (?:was )?cancel)", re.I)
LOSS = re.compile(r"(?<![\w/])loss[ =:]{1,3}([-+]?\d[\d.]*(?:e[-+]?\d+)?|nan|-?inf)(?![\w.])", re.I)
