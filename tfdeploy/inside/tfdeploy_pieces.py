"""Divide the values of a checkpoint into pieces, so that the chief never has all of them in memory.

TensorFlow's ops that save and restore name all values of a device at once. All are sent before the
first byte is written, so the chief would need memory for the whole model. And a save of a value
larger than one gRPC message, 2 GB, never ends (tensorflow/tensorflow#6117).
"""

from typing import Any, List, NamedTuple, Optional, Sequence

from tensorflow.python.framework import dtypes
from tensorflow.python.framework.tensor_shape import TensorShape
from tensorflow.python.ops.variables import Variable

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
