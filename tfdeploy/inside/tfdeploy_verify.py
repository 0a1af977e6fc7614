"""Is a checkpoint whole? Only reading every tensor tells: torn data opens like good data.

A host runs it as `python -c "…; import tfdeploy_verify; sys.exit(tfdeploy_verify.main(…))" PREFIX…`
and reads one JSON line for each prefix: {"prefix": …, "tensors": n} or {"prefix": …, "error": …}.
"""

import json
import os
import signal
import sys
from typing import Any, Dict, List, NoReturn

JUDGED, NOT_JUDGED, NO_TENSORFLOW = 0, 1, 3
# A training may run here: we take neither its GPUs nor its CPU time.
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",  # without it, TensorFlow writes a line about it to stderr
}


def main(prefixes: List[str]) -> int:
    """Print a line for each prefix; the exit status is one of the three above.

    NOT_JUDGED: at least one prefix has no line, for the memory did not suffice to read it.
    """
    os.environ.update(ENVIRONMENT)
    os.nice(5)
    try:
        from tensorflow.train import load_checkpoint
    except Exception as error:
        print("TensorFlow can't be imported: " + _one_line(error), file=sys.stderr)
        return NO_TENSORFLOW
    verdicts = [_judge_apart(load_checkpoint, prefix) for prefix in prefixes]
    return JUDGED if all(verdicts) else NOT_JUDGED


def _judge_apart(load: Any, prefix: str) -> bool:
    """Judge in a child: a flipped bit in an iterator's saved state makes TensorFlow crash."""
    child = os.fork()
    if child == 0:
        _judge_and_exit(load, prefix)
    ended = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(ended):
        return os.WEXITSTATUS(ended) == JUDGED
    number = os.WTERMSIG(ended)
    if number == signal.SIGKILL:  # the kernel's choice when memory runs out: no word on the files
        print("{}: killed as it was read: out of memory?".format(prefix), file=sys.stderr)
        return False
    why = "TensorFlow crashed as it read it, with {}".format(signal.Signals(number).name)
    _print({"prefix": prefix, "error": why})
    return True


def _judge_and_exit(load: Any, prefix: str) -> NoReturn:
    status = NOT_JUDGED
    try:
        _print(_judge(load, prefix))
        status = JUDGED
    except MemoryError:
        print("{}: its largest tensor does not fit into memory".format(prefix), file=sys.stderr)
    finally:
        os._exit(status)


def _judge(load: Any, prefix: str) -> Dict[str, Any]:
    try:
        return {"prefix": prefix, "tensors": _read_all(load(prefix))}
    except MemoryError:
        raise
    except Exception as error:
        return {"prefix": prefix, "error": _one_line(error)}


def _read_all(reader: Any) -> int:
    """How many tensors there are; each is let go before the next is read."""
    dtypes = reader.get_variable_to_dtype_map()
    for name, dtype in dtypes.items():
        try:
            reader.get_tensor(name)
        except Exception as error:
            # Iterators are saved as variants. They are read and their checksums compared before
            # TensorFlow finds that numpy has no such type.
            if dtype.name != "variant" or "convertible to numpy" not in str(error):
                raise
    return len(dtypes)


def _one_line(error: Exception) -> str:
    return " ".join("{}: {}".format(type(error).__name__, error).split())[:500]


def _print(verdict: Dict[str, Any]) -> None:
    print(json.dumps(verdict), flush=True)
