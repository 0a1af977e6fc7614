"""A chief that has written outputs, and how they are held for transfer."""

from __future__ import annotations

import os

from support.builders import make_launch
from support.chief import TASK
from tfdeploy.agent import paths
from tfdeploy.agent.outputs import hold, listing
from tfdeploy.release.gitignore import to_expressions
from tfdeploy.shared import records

# Names that a line, a shell, a terminal or a decoder could change.
ODD_NAMES = [
    *(
        b"new\nline",
        b"end\n",
        b"\n",
        b"tab\there",
        b"\x1b[31mred",
        b"bad\xff\xc3utf-8",
        b"'$(id)`id`",
    ),
    *(
        b"-rf",
        b"back\\slash\\n",
        b"\x01\x7f\r",
        "\u202eö 漢".encode(),
        b" spaces ",
        b"*?[a]",
        b"%s%b",
    ),
]


def start_task(root, *patterns, folders=(), **changes):
    task = root / "p" / "runs" / "r" / "worker-0"
    (task / "work").mkdir(parents=True, exist_ok=True)
    outputs = records.OutputSelection(
        to_expressions("outputs", patterns), [*map(os.fspath, folders)]
    )
    task_launch = records.to_json(make_launch(outputs=outputs, **changes))
    records.write(paths.launch(os.fspath(task)), task_launch)
    return task / "work"


def hold_outputs(*names):
    units = [u for u in listing.outputs(*TASK).outputs if u.path in names or not names]
    return hold.hold(*TASK, units, False)


def errors(answer):
    return {bad.path: bad.error for bad in answer.bad}
