"""Is a checkpoint good? TensorFlow reads every tensor of it, in a process of its own.

Torn data passes tf.train.load_checkpoint; only reading it all finds it (inside/tfdeploy_verify.py).
"""

from __future__ import annotations

import json
import os
import signal
import sys

from . import TYPE_CHECKING, paths, records

if TYPE_CHECKING:
    import subprocess
    from typing import Any, Dict, Generator, Iterator, List, Set, Tuple

READ = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import tfdeploy_verify;"
    " sys.exit(tfdeploy_verify.main(sys.argv[1:]))"
)
MEMORY = ".tfdeploy-read"


def verdicts(prefixes: List[str]) -> Generator[Tuple[str, str], None, None]:
    """For each prefix what is wrong with it, "" where all of it was read, as soon as it is known.

    What can't be judged is left out: the host's Python has no TensorFlow, or too little memory is
    free. Closed, it ends the reading.
    """
    if not prefixes:
        return
    import subprocess  # costs 4 ms; `follow` comes by this file, too, and needs none of it

    inside = os.path.join(paths.agent(), "inside")
    reader = subprocess.Popen(
        [sys.executable, "-c", READ, inside, *prefixes],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield from (found for found in _lines(reader) if found[0] in prefixes)
    finally:
        os.killpg(reader.pid, signal.SIGKILL)  # it has children; while we don't wait it is there
        reader.communicate()


def remembered(folder: str, held: List[Dict[str, Any]]) -> Set[str]:
    """The names of those of `held` (with hashes) that were read to their end before."""
    try:
        known = records.read(os.path.join(folder, MEMORY))
        return {found["name"] for found in held if known.get(found["name"]) == found["files"]}
    except (OSError, ValueError, AttributeError):
        return set()


def remember(folder: str, good: List[Dict[str, Any]]) -> None:
    """That these were read to their end: to read them again costs a start of TensorFlow."""
    if not good:
        return
    try:
        records.write(os.path.join(folder, MEMORY), {f["name"]: f["files"] for f in good})
    except OSError:
        pass  # a full disk: then they are read again


def _lines(reader: "subprocess.Popen[bytes]") -> Iterator[Tuple[str, str]]:
    """Its JSON lines; a library may print as well."""
    for line in reader.stdout or ():
        try:
            data: Any = json.loads(line.decode(errors="replace"))
        except ValueError:
            continue
        if isinstance(data, dict) and "prefix" in data:
            yield data["prefix"], data.get("error", "")
