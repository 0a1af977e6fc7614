"""JAX, which is installed once for all tests.

It is not in .venv: Keras would import it in each process with TensorFlow, which takes half a
second.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

JAX, FOLDER = "jax>=0.10,<0.11", Path(__file__).parents[2] / "build/jax"


def folder() -> Path:
    """Return a folder with JAX."""
    if not FOLDER.exists():
        FOLDER.parent.mkdir(exist_ok=True)
        unfinished = FOLDER.with_name(f"jax-{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "--target", unfinished, JAX], check=True)
        try:
            unfinished.rename(FOLDER)
        except OSError:  # another process of the tests was faster
            shutil.rmtree(unfinished)
    return FOLDER
