"""Which programs need Keras 2, and what makes their Keras Keras 2."""

from __future__ import annotations

import pytest

from tfdeploy.init.strategy import keras_2_of
from tfdeploy.release import syntax

WORKERS = "s = tf.distribute.MultiWorkerMirroredStrategy()\nwith s.scope(): m = build()\n"
SERVERS = "s = tf.distribute.ParameterServerStrategy(r)\nwith s.scope(): m = build()\n"
FIT = "m.fit(x, epochs=3)"


def need(text, **modules):
    files = {"train.py": text, **{f"{name}.py": module for name, module in modules.items()}}
    return keras_2_of({name: syntax.read(each) for name, each in files.items()})


@pytest.mark.parametrize("strategy", [WORKERS, SERVERS])
@pytest.mark.parametrize(
    ("use", "by_variable"),
    [
        ("m = tf.keras.Model()", True),
        ("from tensorflow import keras", True),
        ("from tensorflow.keras.layers import Dense", True),
        ("import tensorflow.compat.v2.keras as k", True),
        ("import keras", False),
        ("from keras import layers", False),
        ("import keras.layers as kl", False),
    ],
)
def test_only_tf_keras_becomes_keras_2_by_the_variable(strategy, use, by_variable):
    found = need(f"{use}\n{strategy}{FIT}")
    assert (found.by_variable, found.by_import) == (by_variable, not by_variable)
    assert found.is_certain
    assert found.place == "train.py, line 4"


@pytest.mark.parametrize(
    "text",
    [
        f"import tf_keras as keras\n{WORKERS}{FIT}",
        f"{WORKERS}{FIT}",  # no Keras
        f"import keras\n{WORKERS}loop()",
        f"import keras\ns = MirroredStrategy()\n{FIT}",
        f"import keras\n{FIT}",
        f"try:\n  import tf_keras as keras\nexcept ImportError:\n  import keras\n{WORKERS}{FIT}",
    ],
)
def test_a_program_that_works_needs_no_keras_2(text):
    assert need(text) is None


@pytest.mark.parametrize(
    "text",
    [
        f"import keras\n{WORKERS}scaler.fit(x)",
        f"import keras\ntf.keras.x\n{WORKERS}{FIT}",
        f"import keras\n{WORKERS}{FIT}\nMirroredStrategy()",
        f"import keras\nos.environ['KERAS_BACKEND'] = backend\n{WORKERS}{FIT}",
        f"import keras\ns = MultiWorkerMirroredStrategy()\n{FIT}",  # out of its scope
    ],
)
def test_a_program_that_may_work_certainly_needs_nothing(text):
    assert not need(text).is_certain


def test_the_modules_of_a_program_count_together():
    found = need(f"import model\n{WORKERS}", model=f"import keras\n\n{FIT}")
    assert (found.place, found.by_import) == ("model.py, line 3", True)


def test_the_user_reads_what_fails_and_the_two_ways_out():
    found = need(f"import keras\n{WORKERS}{FIT}")
    assert found.message == (
        "train.py, line 4: fit of Keras 3 fails under MultiWorkerMirroredStrategy (keras#20585); "
        "TF_USE_LEGACY_KERAS does not change `import keras`"
    )
    assert found.hint == (
        "replace `import keras` by `import tf_keras as keras`, which is Keras 2; or distribute "
        "with keras.distribution, which needs KERAS_BACKEND=jax"
    )
    assert "(keras#18624)" in need(f"import keras\n{SERVERS}{FIT}").message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tf.keras.metrics.Mean().reset_states()", "Keras 3 has no reset_states"),
        ("from keras import Model\nModel().fit_generator(x)", "Keras 3 has no fit_generator"),
        ("tf.keras.layers.LSTM(3).reset_states()", None),  # has it in Keras 3, too
        ("tf.keras.metrics.Mean().reset_state()", None),
        ("model.reset_states()", None),
    ],
)
def test_what_keras_3_lacks_needs_keras_2(text, reason):
    found = need(text)
    assert (found.reason if found else None) == reason
