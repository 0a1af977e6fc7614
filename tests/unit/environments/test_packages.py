"""Which packages a program needs."""

from __future__ import annotations

import pytest

from tfdeploy.environments import packages
from tfdeploy.release import modules


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("google", "google-cloud-storage"),
        ("google.cloud", "google-cloud-storage"),
        ("yaml", "pyyaml"),
        ("pandas", "pandas"),  # the package yaml imports it, not the program
    ],
)
def test_the_package_of_a_missing_module_is_that_of_the_import(tmp_path, module, package):
    (tmp_path / "train.py").write_text("\nfrom google.cloud import storage; import yaml\n")
    program = modules.read(tmp_path, ["train.py"], {"train.py"}.__contains__)
    assert packages.missing(program, "train.py", 2, module) == package


def test_a_missing_module_in_an_unknown_place_is_its_own_package():
    assert packages.missing({}, "train.py", 1, "sklearn.svm") == "scikit-learn"
