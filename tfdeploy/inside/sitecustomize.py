"""Python runs this before the training script: await its framework, then run the hidden
sitecustomize.

PYTHONPATH puts this directory first, often as a path within a zip file. Every Python of the task
passes here, so nothing slow is imported, and TensorFlow is patched only if the script imports it.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Dict, NamedTuple, Optional, Set


class Patch(NamedTuple):
    """What is done after the import of a framework, when the environment says so:
    module.function(its value), for a report of versions module.function(framework, its value)."""

    variable: str
    module: str
    function: str
    otherwise: str


FRAMEWORKS = ("tensorflow", "jax", "torch")
VERSIONS = Patch(
    "TFDEPLOY_VERSIONS",
    "tfdeploy_versions",
    "report",
    "its versions are not compared with those of other tasks",
)
PATCHES = (
    VERSIONS,
    Patch(
        "TFDEPLOY_CHECKPOINT_DEVICE",
        "tfdeploy_checkpoints",
        "save_on_own_disk",
        "checkpoints stay where TensorFlow puts them",
    ),
    Patch(
        "TFDEPLOY_SAVE_ON_STOP",
        "tfdeploy_stop",
        "save_on_stop",
        "a stop saves no last checkpoint",
    ),
    Patch(
        "TFDEPLOY_END_AT_EXIT",
        "tfdeploy_exit",
        "end_at_exit",
        "a coordinator may hang when it exits",
    ),
    Patch(
        "TFDEPLOY_END_AT_EXIT",
        "tfdeploy_exit",
        "report_failures",
        "a coordinator may wait forever if a worker and a ps are lost at the same time",
    ),
)


class FrameworkHook:
    """A finder that finds a framework where the other finders do, reports its version after it has
    run, and patches it if it is TensorFlow."""

    def __init__(self, wanted: Dict[Patch, str]) -> None:
        self.wanted = wanted

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        if name not in FRAMEWORKS:
            return None
        spec = self._find_spec(name, path, target)
        if spec is not None:
            self._patch_after(spec)
        return spec

    def _find_spec(self, name: str, path: Any, target: Any) -> Optional[ModuleSpec]:
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: Optional[ModuleSpec] = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None

    def _patch_after(self, spec: ModuleSpec) -> None:
        # Replace one method of this loader object, until it is called. Another loader would be
        # visible as tensorflow.__loader__, and would lack methods that packages use.
        loader: Any = spec.loader

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            loader.exec_module(module)
            for patch, value in self.wanted.items():
                _apply(patch, module, value)

        try:
            loader.exec_module = exec_module
        except Exception as error:
            for patch in self.wanted:
                _report(patch, error)


def _apply(patch: Patch, framework: ModuleType, value: str) -> None:
    try:
        act = getattr(import_module(patch.module), patch.function)
        if patch is VERSIONS:
            act(framework, value)
        elif framework.__name__ == "tensorflow":
            act(value)
    except Exception as error:
        _report(patch, error)


def _report(patch: Patch, error: Exception) -> None:
    why = " ".join(("%s: %s" % (type(error).__name__, error)).split())
    print("tfdeploy: %s: %s" % (patch.otherwise, why), file=sys.stderr)


def _run_hidden(folders: Set[str]) -> None:
    """Run the next sitecustomize on sys.path that is in none of `folders`.

    Debian and conda ship a sitecustomize. It replaces this module in sys.modules, and an error that
    it raises reaches Python, as without this module.
    """
    spec = PathFinder.find_spec(
        "sitecustomize", [entry for entry in sys.path if os.path.realpath(entry) not in folders]
    )
    if spec is None or spec.origin is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    hidden = module_from_spec(spec)
    sys.modules["sitecustomize"] = hidden
    spec.loader.exec_module(hidden)


def _start() -> None:
    # The hidden sitecustomize may belong to another version of tfdeploy, which would run this one
    # again. So the folders are stored in `sys`, and only the first one installs the hook.
    folders: Set[str] = vars(sys).setdefault("_tfdeploy_sitecustomize", set())
    values = {patch: os.environ.get(patch.variable, "") for patch in PATCHES}
    wanted = {patch: value for patch, value in values.items() if value}
    if wanted and not folders:
        sys.meta_path.insert(0, FrameworkHook(wanted))
    folders.add(os.path.realpath(os.path.dirname(__file__)))
    _run_hidden(folders)


_start()
