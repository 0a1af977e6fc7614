"""The command line: flags become objects, objects go through a step, a step gives an exit code.

Everything heavy is imported inside the commands, so that --help answers at once.
"""

from __future__ import annotations

import sys

# In the order in which --help shows the commands.
from tfdeploy.cli import training, watching, keeping, measuring  # isort: skip
from tfdeploy.cli.options import INTERRUPTED, app
from tfdeploy.errors import TfdeployError

__all__ = ["app", "keeping", "main", "measuring", "training", "watching"]


def main() -> None:
    """Run the command line; every refusal is one clear sentence and an exit code."""
    try:
        app()
    except TfdeployError as error:
        from tfdeploy.console import Console, document

        Console().error(error)
        if "--json" in sys.argv[1:]:  # whoever parses the output finds one document in any case
            document({"error": str(error)})
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(_interrupted())
    except SystemExit as ended:
        # Typer ends with the same code at a Ctrl-C that no command knew, but without a word.
        if isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):
            _interrupted()
        raise


def _interrupted() -> int:
    sys.stderr.write("\ninterrupted\n")
    return INTERRUPTED
