"""Read a checkpoint with TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support import warm

READ = """
import json, sys
import tensorflow as tf
reader = tf.train.load_checkpoint(sys.argv[1])
values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
values = {name: getattr(value, "tolist", lambda: value)() for name, value in values.items()}
print(json.dumps(values, default=str))
"""


def read(checkpoint: Path) -> dict[str, Any]:
    """Return all tensors of a checkpoint, or of the newest one in a folder, as lists by name."""
    done = warm.run("-c", READ, checkpoint, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
