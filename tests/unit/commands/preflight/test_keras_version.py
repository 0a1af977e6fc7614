"""`check` refuses a program that fails with the Keras of its hosts."""

from __future__ import annotations

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.commands.intent import Intent
from tfdeploy.commands.preflight.host_facts import HostFacts
from tfdeploy.commands.preflight.keras_version import problem
from tfdeploy.release import snapshot

TWO = "[hosts.w]\nworkers = 2"
BODY = (
    "s = tf.distribute.MultiWorkerMirroredStrategy()\nwith s.scope(): m = f()\nm.fit(x, epochs=1)"
)
BY_IMPORT, BY_TF = f"import keras\n{BODY}", f"from tensorflow import keras\n{BODY}"
LEGACY = {"TF_USE_LEGACY_KERAS": "1"}


def found(folder, text, env=(), hosts=TWO, keras="3.15.1"):
    """Return the numbers of errors and of notes."""
    (folder / "train.py").write_text(text)
    intent = Intent(make_inventory(hosts), make_plan(hosts), snapshot.take(folder), {}, {})
    libraries = {"Keras": keras} if keras else {}
    facts = HostFacts("w", "3.11.2", {}, {}, None, "", 0, 0.0, (), libraries)
    return tuple(map(len, problem(intent, facts, dict(env))))


@pytest.mark.parametrize("env", [{}, LEGACY])
def test_import_keras_is_refused_with_and_without_the_variable(tmp_path, env):
    assert found(tmp_path, BY_IMPORT, env) == (1, 0)


@pytest.mark.parametrize(("env", "errors"), [({}, 1), (LEGACY, 0)])
def test_tf_keras_is_refused_only_without_the_variable(tmp_path, env, errors):
    assert found(tmp_path, BY_TF, env) == (errors, 0)


@pytest.mark.parametrize(
    ("text", "more", "expected"),
    [
        (BY_IMPORT, {"keras": "2.15.0"}, (0, 0)),
        (BY_IMPORT, {"keras": ""}, (0, 1)),  # its environment is not built
        (BY_IMPORT, {"hosts": "[hosts.w]\nworkers = 1"}, (0, 0)),  # one worker can fit
        (BY_IMPORT, {"env": {"KERAS_BACKEND": "jax"}}, (0, 0)),
        (BY_IMPORT.replace("epochs=1", ""), {}, (0, 1)),
        (f"os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')\n{BY_TF}", {}, (0, 0)),
        (BY_IMPORT, {"hosts": "[hosts.w]\nps = 1\nworkers = 1\nchief = true"}, (1, 0)),
    ],
)
def test_it_is_an_error_only_if_the_program_certainly_fails(tmp_path, text, more, expected):
    assert found(tmp_path, text, **more) == expected
