"""The table [env] that init proposes."""

from __future__ import annotations

import pytest

from tfdeploy.init import requirements
from tfdeploy.init.program import find
from tfdeploy.init.requirements import FoundRequirements
from unit.init.machines import machine


@pytest.mark.parametrize(
    ("listed", "setup"),
    [
        ("tensorflow\n", ("pip install --no-deps tf_keras",)),
        ("tensorflow-cpu==2.17.1", ("pip install --no-deps 'tf_keras==2.17.*'",)),
        ("tensorflow-cpu >=2.17, <2.19", ("pip install --no-deps 'tf_keras>=2.17,<2.19'",)),
        ("tensorflow~=2.17", ("pip install --no-deps 'tf_keras~=2.17'",)),
        ("# tensorflow==2.9\nnot-tensorflow==2.8", ("pip install --no-deps tf_keras",)),
        ("tensorflow[and-cuda]~=2.15.0", ()),  # it has Keras 2
        ("tensorflow\ntf-keras==2.21.0", ()),
    ],
)
def test_keras_2_is_installed_beside_the_projects_own_requirements(tmp_path, listed, setup):
    (tmp_path / "train.py").write_text("import tensorflow")
    (tmp_path / "requirements.txt").write_text(listed)
    found = requirements.choose(
        find(tmp_path, None), [machine("a", missing=("tf_keras",))], tmp_path, keras_2=True
    )
    assert found == FoundRequirements("requirements.txt", setup=setup)


@pytest.mark.parametrize(
    ("machines", "named"), [([machine("a"), machine("b", 1)], "a"), ([machine("b", 1)], "")]
)
def test_hosts_without_gpus_would_get_pytorch_with_cuda(tmp_path, machines, named):
    (tmp_path / "train.py").write_text("import lightning")
    notes = [*requirements.with_cuda(find(tmp_path, None), machines)]
    text = f"{named}: no GPU, but PyTorch comes with CUDA, about 5 GB"
    assert [note.message for note in notes] == ([text] if named else [])


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", '[project]\ndependencies = ["numpy", "tensorflow-cpu==2.17.1"]'),
        ("uv.lock", '[[package]]\nname = "tensorflow-cpu"\nversion = "2.17.1"\n'),
    ],
)
def test_keras_2_has_the_version_of_tensorflow_in_any_file(tmp_path, file, text):
    (tmp_path / "train.py").write_text("import tensorflow")
    (tmp_path / file).write_text(text)
    found = requirements.choose(
        find(tmp_path, None), [machine("a", missing=("tf_keras",))], tmp_path, keras_2=True
    )
    setup = ("pip install --no-deps 'tf_keras==2.17.*'",)
    assert found == FoundRequirements(file, setup=setup)
