"""Verify checkpoints by reading every tensor: truncated data can be opened like good data.

A host runs it as `python -c "…; import tfdeploy_verify; sys.exit(tfdeploy_verify.main(…))" PREFIX…`
and reads one JSON line for each prefix: {"prefix": …, "tensors": n} or {"prefix": …, "error": …}.
"""

import importlib.util
import json
import os
import signal
import sys
import types
from typing import Any, Dict, List, NoReturn

VERIFIED, NOT_VERIFIED, NO_TENSORFLOW = 0, 1, 3
# A task may train on this host: use neither its GPUs nor its CPU time.
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",  # without it, TensorFlow writes a line about it to stderr
}


def main(prefixes: List[str]) -> int:
    """Print a line for each prefix; return one of the three exit codes above.

    NOT_VERIFIED: at least one prefix has no line, because there was not enough memory to read it.
    """
    os.environ.update(ENVIRONMENT)
    os.nice(5)
    try:
        load = _import_reader() or _import_tensorflow()
    except Exception as error:
        print("TensorFlow can't be imported: " + _one_line(error), file=sys.stderr)
        return NO_TENSORFLOW
    verified = [_verify_in_child(load, prefix) for prefix in prefixes]
    return VERIFIED if all(verified) else NOT_VERIFIED


def _import_reader() -> Any:
    """Import TensorFlow's checkpoint reader without the rest of TensorFlow; None if that fails.

    On a busy machine `import tensorflow` takes about eight times the CPU time (5.7 s instead of
    0.65 s, TensorFlow 2.21). An empty package in its place lets the reader's own modules be
    imported. They are not public API, so another version may need the whole package.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        return None
    package: Any = types.ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["tensorflow"] = package
    try:
        from tensorflow.python.training.py_checkpoint_reader import NewCheckpointReader
    except Exception:
        for name in [name for name in sys.modules if name.partition(".")[0] == "tensorflow"]:
            del sys.modules[name]
        return None
    return NewCheckpointReader


def _import_tensorflow() -> Any:
    from tensorflow.train import load_checkpoint

    return load_checkpoint


def _verify_in_child(load: Any, prefix: str) -> bool:
    """Print the line of a prefix; return whether that was possible.

    Works in a child process: a flipped bit in an iterator's saved state makes TensorFlow crash.
    """
    child = os.fork()
    if child == 0:
        _verify_and_exit(load, prefix)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status) == VERIFIED
    number = os.WTERMSIG(status)
    if number == signal.SIGKILL:  # from the kernel, if memory runs out: the files may be good
        print("{}: killed while it was read: out of memory?".format(prefix), file=sys.stderr)
        return False
    why = "TensorFlow crashed with {} while it read it".format(signal.Signals(number).name)
    _print({"prefix": prefix, "error": why})
    return True


def _verify_and_exit(load: Any, prefix: str) -> NoReturn:
    status = NOT_VERIFIED
    try:
        _print(_verify(load, prefix))
        status = VERIFIED
    except MemoryError:
        print("{}: its largest tensor does not fit into memory".format(prefix), file=sys.stderr)
    finally:
        os._exit(status)


def _verify(load: Any, prefix: str) -> Dict[str, Any]:
    try:
        return {"prefix": prefix, "tensors": _read_all(load(prefix))}
    except MemoryError:
        raise
    except Exception as error:
        return {"prefix": prefix, "error": _one_line(error)}


def _read_all(reader: Any) -> int:
    """Read the tensors one after the other; return their number."""
    dtypes = reader.get_variable_to_dtype_map()
    for name, dtype in dtypes.items():
        try:
            reader.get_tensor(name)
        except Exception as error:
            # Iterators are saved as variants. TensorFlow reads them and compares their checksums
            # before it finds that numpy has no such type.
            if dtype.name != "variant" or "convertible to numpy" not in str(error):
                raise
    return len(dtypes)


def _one_line(error: Exception) -> str:
    return " ".join("{}: {}".format(type(error).__name__, error).split())[:500]


def _print(result: Dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)
