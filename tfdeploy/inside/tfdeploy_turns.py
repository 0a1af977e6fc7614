"""Build ops that send the pieces of a checkpoint one after the other."""

import sys
from typing import Any, Callable, List

from tensorflow.python.framework.constant_op import constant
from tensorflow.python.framework.dtypes import int64
from tensorflow.python.framework.errors_impl import OpError
from tensorflow.python.framework.ops import control_dependencies, device
from tensorflow.python.ops.array_ops import concat, identity
from tensorflow.python.ops.array_ops import slice as slice_of
from tensorflow.python.ops.control_flow_ops import group
from tensorflow.python.ops.io_ops import restore_v2, save_v2
from tensorflow.python.training.saving.saveable_object_util import set_cpu0
from tfdeploy_pieces import IN_FLIGHT, Part

AT_ONCE = "tfdeploy: a checkpoint passes through the chief at once: %s"


class Turns:
    """The order of pieces: each waits until the one that is IN_FLIGHT before it is done."""

    def __init__(self) -> None:
        self._done: List[Any] = []

    def next(self) -> Any:
        """Return a scope for ops that belong to the next piece."""
        waits = len(self._done) >= IN_FLIGHT
        return control_dependencies([self._done[-IN_FLIGHT]] if waits else [])

    def end(self, op: Any) -> None:
        """Say which op runs at the end of the piece."""
        self._done.append(op)


def build_or_report(build: Callable[[], Any]) -> Any:
    """Return what `build` returns; print why it fails and return None, unless an op fails."""
    try:
        return build()
    except OpError:
        raise
    except Exception as error:  # this TensorFlow differs: the training must not notice
        # Within a tf.function the last line is the message; the others are a traceback.
        *_, why = ("%s: %s" % (type(error).__name__, error)).strip().splitlines()
        print(AT_ONCE % why.strip(), file=sys.stderr)
        return None


def send(part: Part, turns: Turns) -> Any:
    """Return the value, sent from the machine that has it when it is its turn."""
    with turns.next(), device(part.value.device):
        if part.slice is None:
            return identity(part.value)
        return slice_of(
            part.value, constant(part.slice.begin, int64), constant(part.slice.size, int64)
        )


def write(prefix: Any, piece: List[Part], turns: Turns) -> Any:
    """Return the op that writes a piece to its own file, on the current device."""
    values = [send(part, turns) for part in piece]
    save = save_v2(prefix, [p.name for p in piece], [p.slice_spec for p in piece], values)
    turns.end(save)
    return save


def read(prefix: Any, pieces: List[List[Part]], turns: Turns) -> List[Any]:
    """Return the values in their order, each on its device: read on the current one, and sent."""
    values: List[Any] = []
    slices: List[Any] = []
    for piece in pieces:
        with turns.next():
            names, specs = [p.name for p in piece], [p.slice_spec for p in piece]
            tensors = restore_v2(prefix, names, specs, [p.value.dtype for p in piece])
        arrived = []
        for part, tensor in zip(piece, tensors):  # noqa: B905 - Python 3.8 has no strict
            with device(_cpu_of(part.value)):
                arrived.append(identity(tensor))
                slices.append(arrived[-1])
                if _is_last(part):
                    values.append(_joined(part, slices))
                    slices = []
        turns.end(group(*arrived))
    return values


def _cpu_of(value: Any) -> str:
    """Return the CPU of the machine that gets a value, which is on a GPU's memory later."""
    place = value.device
    return str(set_cpu0(place if isinstance(place, str) else place.to_string()))


def _is_last(part: Part) -> bool:
    if part.slice is None:
        return True
    axis = part.slice.axis
    return bool(part.slice.begin[axis] + part.slice.size[axis] == part.shape[axis])


def _joined(part: Part, slices: List[Any]) -> Any:
    return slices[0] if part.slice is None else concat(slices, part.slice.axis)
