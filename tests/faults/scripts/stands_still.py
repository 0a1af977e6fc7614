"""train_async.py whose first life stands still, while its server answers on."""

import sys
from pathlib import Path

if not Path("lived").exists():
    Path("lived").touch()
    sys.argv.append("--pace=600")

import train_async  # noqa: F401  (it trains when it is imported)
