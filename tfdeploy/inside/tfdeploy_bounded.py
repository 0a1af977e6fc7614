"""Bound the memory that the chief needs to save and restore: values pass through it in pieces.

Only for checkpoints that tfdeploy_checkpoints makes the chief write. A program that chooses its own
device, or its own way to divide a checkpoint into files, gets what it chose. Another version of
TensorFlow, whose internals differ from those patched here, sends all values at once.
"""

import inspect
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
from tfdeploy_pieces import Part, Turns, build_or_report, divide, fit_at_once, read, send, write

RESTORED = "self filename_tensor saveables preferred_shard restore_sequentially"
SAVED_SHARD = "file_prefix shard task options"
RESTORED_SHARD = "file_prefix shardable_tensors options"
_call = threading.local()  # the turns of the save or restore whose ops are being built


def bound_memory() -> None:
    """Patch both of TensorFlow's ways to save and restore, or raise and patch none."""
    saver, option = functional_saver.MultiDeviceSaver, "experimental_sharding_callback"
    patches: List[Tuple[Any, str, str, Callable[[Any], Any]]] = [
        (BaseSaverBuilder, "_AddSaveOps", "self filename_tensor saveables", add_save_ops),
        (BulkSaverBuilder, "bulk_restore", RESTORED, bulk_restore),
        (saver, "save", "self file_prefix options", _in_turns),
        (saver, "restore", "self file_prefix options", _in_turns),
        (functional_saver, "_single_shard_save", SAVED_SHARD, _single_shard_save),
        (functional_saver, "_single_shard_restore", RESTORED_SHARD, _single_shard_restore),
    ]
    patched: List[Tuple[Any, str, Any]] = [
        (owner, name, patch(_with_parameters(getattr(owner, name), parameters)))
        for owner, name, parameters, patch in patches
    ]
    patched.append(
        (CheckpointOptions, option, _sharding_callback(getattr(CheckpointOptions, option)))
    )
    for owner, name, value in patched:
        setattr(owner, name, value)


def _with_parameters(function: Callable[..., Any], parameters: str) -> Callable[..., Any]:
    """Return the function. Raises TypeError if it has other parameters."""
    found = " ".join(inspect.signature(function).parameters)
    if found != parameters:
        raise TypeError("%s has the parameters %s" % (function.__qualname__, found))
    return function


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

        def run(turns: Optional[Turns]) -> Any:
            _call.turns = turns
            try:
                return original(self, *args, **kwargs)
            finally:
                _call.turns = outer

        turns = build_or_report(lambda: _needed_turns(self))
        done = build_or_report(lambda: [run(turns)]) if turns else None
        return done[0] if done else run(None)

    return build


def _needed_turns(saver: Any) -> Optional[Turns]:
    """Return turns if the values do not fit at once, and have names: DTensor's are tensors."""
    every = [_part(t) for tensors in saver._shardable_tensors_by_task.values() for t in tensors]
    named = all(isinstance(text, str) for part in every for text in (part.name, part.slice_spec))
    return Turns() if named and not fit_at_once(every) else None


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
        if turns is None:
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
        return shape_of_saved(saved._saveables[0])
    return TensorShape(saved.shape if isinstance(saved, BaseResourceVariable) else None)


# compat.v1: what the ops of a Saver name


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
