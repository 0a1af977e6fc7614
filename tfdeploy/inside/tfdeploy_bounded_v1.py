"""compat.v1: save and restore in pieces what the ops of a Saver name."""

from typing import Any, Callable, List

from tensorflow.core.protobuf.saver_pb2 import SaverDef
from tensorflow.python.framework.ops import device
from tensorflow.python.framework.tensor_shape import TensorShape
from tensorflow.python.ops.control_flow_ops import with_dependencies
from tensorflow.python.training.saver import BaseSaverBuilder
from tfdeploy_checkpoints import OWN_CPU, saves_on_own_cpu
from tfdeploy_pieces import Part, divide, fit_at_once
from tfdeploy_turns import Turns, build_or_report, read, write


class _Piece:
    """What is passed in place of the objects to save, to the method that saves a shard of them."""

    def __init__(self, parts: List[Part], turns: Turns) -> None:
        self.parts = parts
        self.turns = turns


def add_save_ops(original: Callable[..., Any]) -> Callable[..., Any]:
    def patched(self: Any, filename_tensor: Any, saveables: Any) -> Any:
        if isinstance(saveables, _Piece):
            saved = write(filename_tensor, saveables.parts, saveables.turns)
            return with_dependencies([saved], filename_tensor)
        saved = None
        if saves_on_own_cpu() and _is_tensorflows(self):
            saved = build_or_report(lambda: _save_in_pieces(self, filename_tensor, saveables))
        return original(self, filename_tensor, saveables) if saved is None else saved

    return patched


def _save_in_pieces(builder: Any, prefix: Any, saveables: Any) -> Any:
    """Return the saved prefix, or None if the values fit at once."""
    values = _values(saveables)
    if fit_at_once(values):
        return None
    turns = Turns()
    tensors = [value._replace(value=value.value.tensor) for value in values]
    shards = [(OWN_CPU, _Piece(piece, turns)) for piece in divide(tensors)]
    return builder._AddShardedSaveOpsForV2(prefix, shards)


def _is_tensorflows(builder: Any) -> bool:
    """Return whether the builder writes TensorFlow's current format with TensorFlow's own ops."""
    own_op = type(builder).save_op is BaseSaverBuilder.save_op
    return own_op and builder._write_version == SaverDef.V2


def bulk_restore(original: Callable[..., Any]) -> Callable[..., Any]:
    def patched(self: Any, filename_tensor: Any, saveables: Any, *more: Any, **named: Any) -> Any:
        restored = None
        if saves_on_own_cpu():
            restored = build_or_report(lambda: _restore_in_pieces(filename_tensor, saveables))
        if restored is None:
            return original(self, filename_tensor, saveables, *more, **named)
        return restored

    return patched


def _restore_in_pieces(prefix: Any, saveables: Any) -> Any:
    """Return the values, or None if they fit at once."""
    values = _values(saveables)
    if fit_at_once(values):
        return None
    with device(OWN_CPU):
        return read(prefix, divide(values), Turns())


def _values(saveables: Any) -> List[Part]:
    return [
        Part(spec, spec.name, spec.slice_spec, shape_of_saved(saveable))
        for saveable in saveables
        for spec in saveable.specs
    ]


def shape_of_saved(saveable: Any) -> TensorShape:
    variables = (BaseSaverBuilder.VariableSaveable, BaseSaverBuilder.ResourceVariableSaveable)
    return TensorShape(saveable.op.shape if isinstance(saveable, variables) else None)
