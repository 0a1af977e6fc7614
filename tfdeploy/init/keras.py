"""Recognize from a program's text that it needs Keras 2. Pure.

`fit` of Keras 3 fails under TensorFlow's strategies for several hosts, and Keras 3 lacks some
functions of Keras 2. TF_USE_LEGACY_KERAS=1 makes `tf.keras` the package tf_keras, which is Keras 2;
`import keras` stays Keras 3. Source: tensorflow/python/util/lazy_loader.py, TensorFlow 2.21.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.release.syntax import KERAS, KERAS_2, TF_KERAS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.release.syntax import Syntax

PACKAGE = KERAS_2  # the name of the package is that of the module
VARIABLE = "TF_USE_LEGACY_KERAS"
TRUE = ("1", "true", "True")  # its values that count
BACKEND = "KERAS_BACKEND"
ISSUES = {  # at github.com/keras-team/keras/issues
    "MultiWorkerMirroredStrategy": 20585,
    "CollectiveAllReduceStrategy": 20585,
    "ParameterServerStrategy": 18624,
    "ParameterServerStrategyV2": 18624,
}
NOT_IN_KERAS_3 = {"reset_states", "fit_generator", "evaluate_generator", "predict_generator"}
RECURRENT = {"LSTM", "GRU", "SimpleRNN", "RNN"}  # layers that have reset_states in Keras 3, too
IMPORT_KERAS_2 = "replace `import keras` by `import tf_keras as keras`, which is Keras 2"
BY_VARIABLE = (
    f'in [training]: env = {{ {VARIABLE} = "1" }}, which makes tf.keras the package tf_keras'
)
OTHER_BACKEND = f"; or distribute with keras.distribution, which needs {BACKEND}=jax"


@dataclass(frozen=True)
class NeedOfKeras2:
    """Why a program needs Keras 2, and the file, with the line if it is known, where that shows.

    `uses` are the Kerases of the program: KERAS, TF_KERAS or both. `strategy` is that under which
    `fit` fails, "" if a function is missing. `is_certain` is whether the text leaves no doubt.
    """

    reason: str
    place: str
    uses: frozenset[str]
    strategy: str = ""
    is_certain: bool = False

    @property
    def by_variable(self) -> bool:
        """Return whether TF_USE_LEGACY_KERAS makes a Keras of the program Keras 2."""
        return TF_KERAS in self.uses

    @property
    def by_import(self) -> bool:
        """Return whether the program imports a Keras that stays Keras 3."""
        return KERAS in self.uses

    @property
    def message(self) -> str:
        """Return what fails, as the user reads it."""
        issue = f" (keras#{ISSUES[self.strategy]})" if self.strategy else ""
        stays = f"; {VARIABLE} does not change `import keras`" if self.by_import else ""
        return f"{self.place}: {self.reason}{issue}{stays}"

    @property
    def hint(self) -> str:
        own = IMPORT_KERAS_2 if self.by_import else BY_VARIABLE
        return own + (OTHER_BACKEND if self.strategy else "")


def find_need(files: Mapping[str, Syntax], strategies: Sequence[str]) -> NeedOfKeras2 | None:
    """Return why the program in `files` needs Keras 2, None if it does not; `strategies` are those
    for several hosts, or on one, that it names, the first of which counts."""
    uses = frozenset(each for syntax in files.values() for each in syntax.kerases)
    if not uses or KERAS_2 in uses:
        return None
    file = next((file for file, syntax in files.items() if "fit" in syntax.names), "")
    if file and strategies and strategies[0] in ISSUES:
        lines = {path: syntax.fit_line for path, syntax in files.items() if syntax.fit_line}
        place = next((f"{path}, line {line}" for path, line in lines.items()), file)
        in_scope = any("scope" in syntax.names for syntax in files.values())
        has_backend = any(BACKEND in syntax.strings for syntax in files.values())
        is_sure = bool(lines) and in_scope and not has_backend
        is_certain = is_sure and len(uses) == len(strategies) == 1
        reason = f"fit of Keras 3 fails under {strategies[0]}"
        return NeedOfKeras2(reason, place, uses, strategies[0], is_certain)
    return _missing_function(files, uses)


def _missing_function(files: Mapping[str, Syntax], uses: frozenset[str]) -> NeedOfKeras2 | None:
    names = {name for syntax in files.values() for name in syntax.names}
    removed = names & NOT_IN_KERAS_3 if not names & RECURRENT else ()
    if not removed:
        return None
    first = min(removed)
    file = next(file for file, syntax in files.items() if first in syntax.names)
    return NeedOfKeras2(f"Keras 3 has no {first}", file, uses)
