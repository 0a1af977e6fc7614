"""Which versions of a framework, and of what it uses, a Python process has imported."""

import json
import os
import platform
import sys
from contextlib import suppress
from importlib import metadata
from typing import Any, Callable, Dict


def of_module(module: Any) -> Dict[str, Any]:
    """Return the version of an imported package, of Python, and of its libraries, by name, as far
    as they can be read."""
    found: Dict[str, str] = {}
    name = module.__name__

    def add(library: str, find: Callable[[], object]) -> None:
        with suppress(Exception):
            found[library] = str(find())

    add("numpy", lambda: sys.modules["numpy"].__version__)
    if name == "tensorflow":
        add("Keras", lambda: metadata.version("keras"))
        add("CUDA", lambda: module.sysconfig.get_build_info()["cuda_version"])
        add("cuDNN", lambda: module.sysconfig.get_build_info()["cudnn_version"])
    version = str(getattr(module, "__version__", "unknown"))
    return {"version": version, "python": platform.python_version(), "libraries": found}


def report(module: Any, file: str) -> None:
    """Add a line to the task's file, for the first process of the task that imports the module."""
    found = of_module(module)
    versions = {module.__name__: found["version"], "Python": found["python"], **found["libraries"]}
    line = json.dumps({"versions": versions}) + "\n"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(file, flags | os.O_NONBLOCK, 0o600)  # a FIFO there must not block
    try:
        if json.dumps(module.__name__).encode() not in os.read(descriptor, 1 << 16):
            os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
