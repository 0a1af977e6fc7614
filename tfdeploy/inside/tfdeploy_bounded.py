"""Bound the memory that the chief needs to save and restore: values pass through it in pieces.

Only for checkpoints that tfdeploy_checkpoints makes the chief write. A program that chooses its own
device, or its own way to divide a checkpoint into files, gets what it chose.
"""

import threading
from typing import Any, Callable, List, Optional, Tuple

from tensorflow.core.protobuf.saver_pb2 import SaverDef
from tensorflow.python.checkpoint import functional_saver
from tensorflow.python.checkpoint.checkpoint_options import CheckpointOptions
from tensorflow.python.checkpoint.sharding.sharding_policies import ShardByTaskPolicy
from tensorflow.python.checkpoint.sharding.sharding_util import ShardingCallback
from tensorflow.python.framework.ops import device
from tensorflow.python.framework.tensor_shape import TensorShape
from tensorflow.python.ops.control_flow_ops import with_dependencies
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable
from tensorflow.python.ops.variables import Variable
from tensorflow.python.training.saver import BaseSaverBuilder, BulkSaverBuilder
from tensorflow.python.training.saving.saveable_object_util import SaveableCompatibilityConverter
from tfdeploy_checkpoints import OWN_CPU, device_is_default, saves_on_own_cpu
from tfdeploy_pieces import Part, divide, fit_at_once
from tfdeploy_turns import Turns, read, send, write

_call = threading.local()  # the turns of the save or restore of TF2 whose ops are being built


def bound_memory() -> None:
    """Patch both of TensorFlow's ways to save and restore, or raise and patch none."""
    saver = functional_saver.MultiDeviceSaver
    patches: List[Tuple[Any, str, Callable[[Any], Any]]] = [
        (BaseSaverBuilder, "_AddSaveOps", _add_save_ops),
        (BulkSaverBuilder, "bulk_restore", _bulk_restore),
        (saver, "save", _in_turns),
        (saver, "restore", _in_turns),
        (functional_saver, "_single_shard_save", _single_shard_save),
        (functional_saver, "_single_shard_restore", _single_shard_restore),
        (CheckpointOptions, "experimental_sharding_callback", _sharding_callback),
    ]
    patched = [(owner, name, patch(getattr(owner, name))) for owner, name, patch in patches]
    for owner, name, value in patched:
        setattr(owner, name, value)


# compat.v1


class _Piece:
    """What is passed in place of the objects to save, to the method that saves a shard of them."""

    def __init__(self, parts: List[Part], turns: Turns) -> None:
        self.parts = parts
        self.turns = turns


def _add_save_ops(original: Callable[..., Any]) -> Callable[..., Any]:
    def add_save_ops(self: Any, prefix: Any, saveables: Any) -> Any:
        if isinstance(saveables, _Piece):
            return with_dependencies([write(prefix, saveables.parts, saveables.turns)], prefix)
        if not (saves_on_own_cpu() and _is_tensorflows(self)):
            return original(self, prefix, saveables)
        values = _values(saveables)
        if fit_at_once(values):
            return original(self, prefix, saveables)
        turns = Turns()
        tensors = [value._replace(value=value.value.tensor) for value in values]
        shards = [(OWN_CPU, _Piece(piece, turns)) for piece in divide(tensors)]
        return self._AddShardedSaveOpsForV2(prefix, shards)

    return add_save_ops


def _is_tensorflows(builder: Any) -> bool:
    """Return whether the builder writes TensorFlow's current format with TensorFlow's own ops."""
    own_op = type(builder).save_op is BaseSaverBuilder.save_op
    return own_op and builder._write_version == SaverDef.V2


def _bulk_restore(original: Callable[..., Any]) -> Callable[..., Any]:
    def bulk_restore(self: Any, prefix: Any, saveables: Any, *more: Any) -> Any:
        if not saves_on_own_cpu():
            return original(self, prefix, saveables, *more)
        values = _values(saveables)
        if fit_at_once(values):
            return original(self, prefix, saveables, *more)
        with device(OWN_CPU):
            return read(prefix, divide(values), Turns())

    return bulk_restore


def _values(saveables: Any) -> List[Part]:
    return [
        Part(spec, spec.name, spec.slice_spec, _shape_of_saved(saveable))
        for saveable in saveables
        for spec in saveable.specs
    ]


def _shape_of_saved(saveable: Any) -> TensorShape:
    variables = (BaseSaverBuilder.VariableSaveable, BaseSaverBuilder.ResourceVariableSaveable)
    return TensorShape(saveable.op.shape if isinstance(saveable, variables) else None)


# TF2


class InPieces(ShardingCallback):  # type: ignore[misc]  # TensorFlow has no types
    """Divide the values of each machine into files of one piece.

    The shards have Parts instead of tensors, so that each slice is cut when it is its turn.
    TensorFlow's MaxShardSizePolicy cuts all of them at once, and raises on values of unknown shape.
    """

    @property
    def description(self) -> str:
        return "Divide tensors into pieces that pass through the chief one after the other."

    def __call__(self, shardable_tensors: Any) -> Any:
        tensors = list(shardable_tensors)
        if getattr(_call, "turns", None) is None:
            return ShardByTaskPolicy()(tensors)
        whole = [Part(t.tensor, t.checkpoint_key, t.slice_spec, t.shape) for t in tensors]
        shards: List[Any] = []
        for piece in divide(whole):
            shards.append({})
            for part in piece:
                shards[-1].setdefault(part.name, {})[part.slice_spec] = part
        return shards


def _sharding_callback(slot: Any) -> property:
    def read_option(options: Any) -> Any:
        chosen = slot.__get__(options)
        return InPieces() if chosen is None and device_is_default(options) else chosen

    return property(read_option, slot.__set__)


def _in_turns(original: Callable[..., Any]) -> Callable[..., Any]:
    def build(self: Any, *args: Any, **kwargs: Any) -> Any:
        outer = getattr(_call, "turns", None)
        every = [t for tensors in self._shardable_tensors_by_task.values() for t in tensors]
        _call.turns = None if fit_at_once([_part(tensor) for tensor in every]) else Turns()
        try:
            return original(self, *args, **kwargs)
        finally:
            _call.turns = outer

    return build


def _turns(options: Any) -> Optional[Turns]:
    bounded = isinstance(getattr(options, "experimental_sharding_callback", None), InPieces)
    return getattr(_call, "turns", None) if bounded else None


def _single_shard_save(original: Callable[..., Any]) -> Callable[..., Any]:
    def single_shard_save(prefix: Any, shard: Any, task: Any, options: Any = None) -> Any:
        turns = _turns(options)
        if turns is None:
            return original(prefix, shard, task, options)
        sent = {
            key: {spec: send(part, turns) for spec, part in slices.items()}
            for key, slices in shard.items()
        }
        save = original(prefix, sent, task, options)
        turns.end(save)
        return save

    return single_shard_save


def _single_shard_restore(original: Callable[..., Any]) -> Callable[..., Any]:
    def single_shard_restore(prefix: Any, tensors: Any, options: Any = None) -> Any:
        turns = _turns(options)
        names = [tensor._tensor_save_spec.name for tensor in tensors]
        if turns is None or not all(isinstance(name, str) for name in names):
            return original(prefix, tensors, options)
        with device(options.experimental_io_device):
            values = read(prefix, divide([_part(tensor) for tensor in tensors]), turns)
        restored: Any = {}
        for tensor, value in zip(tensors, values):  # noqa: B905 - Python 3.8 has no strict
            restored.setdefault(tensor.checkpoint_key, {})[tensor.slice_spec] = value
        return restored

    return single_shard_restore


def _part(tensor: Any) -> Part:
    spec = tensor._tensor_save_spec
    return Part(tensor, spec.name, spec.slice_spec, _shape(tensor))


def _shape(tensor: Any) -> TensorShape:
    """Return the shape, or an unknown one: only variables say it before they are read."""
    if tensor.slice_spec:
        return TensorShape(Variable.SaveSliceInfo.from_spec(tensor.slice_spec).var_shape)
    saved = tensor.trackable
    if isinstance(saved, SaveableCompatibilityConverter) and len(saved._saveables) == 1:
        return _shape_of_saved(saved._saveables[0])
    return TensorShape(saved.shape if isinstance(saved, BaseResourceVariable) else None)
