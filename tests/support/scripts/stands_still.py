"""train_stub.py that stalls after the first step of its first attempt while its server answers."""

import sys
from pathlib import Path

if not Path("attempted").exists():
    Path("attempted").touch()
    sys.argv.append("--pace=600")

import train_stub  # noqa: F401  (it trains when it is imported)
