"""Divide the values of a checkpoint into pieces, so that the chief never has all of them in memory.

TensorFlow's ops that save and restore name all values of a device at once. All are sent before the
first byte is written, so the chief would need memory for the whole model. And a save of a value
larger than one gRPC message, 2 GB, never ends (tensorflow/tensorflow#6117). So the values are
divided, and ops are built that send the pieces one after the other.
"""

import sys
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

from tensorflow.python.framework import dtypes
from tensorflow.python.framework.constant_op import constant
from tensorflow.python.framework.dtypes import int64
from tensorflow.python.framework.errors_impl import OpError
from tensorflow.python.framework.ops import control_dependencies, device
from tensorflow.python.framework.tensor_shape import TensorShape
from tensorflow.python.ops.array_ops import concat, identity
from tensorflow.python.ops.array_ops import slice as slice_of
from tensorflow.python.ops.control_flow_ops import group
from tensorflow.python.ops.io_ops import restore_v2, save_v2
from tensorflow.python.ops.variables import Variable
from tensorflow.python.training.saving.saveable_object_util import set_cpu0

PIECE = 256 << 20  # bytes
IN_FLIGHT = 2  # pieces: while one is written, the next one is sent
OPAQUE = (dtypes.string, dtypes.variant, dtypes.resource)


class Slice(NamedTuple):
    """A part of a value along one axis."""

    axis: int
    begin: List[int]
    size: List[int]


class Part(NamedTuple):
    """A value of a checkpoint under its name, or a slice of the value.

    `value` is the tensor, or what describes one that is restored: both have a dtype and a device.
    """

    value: Any
    name: str
    slice_spec: str
    shape: TensorShape
    slice: Optional[Slice] = None

    @property
    def bytes(self) -> int:
        """The size, or 0 if only TensorFlow will know it: such a value is never sliced."""
        shape = self.shape if self.slice is None else TensorShape(self.slice.size)
        elements: Optional[int] = shape.num_elements()
        if elements is None or self.value.dtype.base_dtype in OPAQUE:
            return 0
        return elements * int(self.value.dtype.size)


def fit_at_once(values: Sequence[Part]) -> bool:
    """Return whether all values fit into the pieces that are in flight at the same time."""
    return sum(value.bytes for value in values) <= IN_FLIGHT * PIECE


def divide(values: Sequence[Part]) -> List[List[Part]]:
    """Return pieces, which have the values or slices of them in the same order."""
    pieces: List[List[Part]] = [[]]
    used = 0
    for value in values:
        for part in _slices(value) if value.bytes > PIECE else [value]:
            if pieces[-1] and used + part.bytes > PIECE:
                pieces.append([])
                used = 0
            pieces[-1].append(part)
            used += part.bytes
    return pieces


def _slices(value: Part) -> List[Part]:
    lengths = value.shape.as_list()
    # TensorFlow slices the first axis without a copy, but that axis may be short, as in [1, n].
    axis = 0 if lengths[0] * PIECE >= value.bytes else lengths.index(max(lengths))
    rows = max(1, PIECE // (value.bytes // lengths[axis]))
    parts = []
    for start in range(0, lengths[axis], rows):
        begin, size = [0] * len(lengths), list(lengths)
        begin[axis], size[axis] = start, min(rows, lengths[axis] - start)
        spec = _slice_spec(value.slice_spec, lengths, begin, size)
        parts.append(value._replace(slice_spec=spec, slice=Slice(axis, begin, size)))
    return parts


def _slice_spec(within: str, shape: List[int], begin: List[int], size: List[int]) -> str:
    """Return a checkpoint's name for a slice, which may be within a part of a partitioned value."""
    if within:
        info = Variable.SaveSliceInfo.from_spec(within)
        shape = info.full_shape
        begin = [info.var_offset[axis] + start for axis, start in enumerate(begin)]
    return str(Variable.SaveSliceInfo("", shape, begin, size).spec).strip()


AT_ONCE = "tfdeploy: a checkpoint passes through the chief at once: %s"


# Ops that send them


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
