"""The packages that a program needs. Pure."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.release.imports import Import
    from tfdeploy.release.modules import Module

# By module, if the name of its package is another one.
PACKAGES = {
    "absl": "absl-py",
    "attr": "attrs",
    "Bio": "biopython",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "distutils": "setuptools",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "gflags": "python-gflags",
    "gin": "gin-config",
    "git": "gitpython",
    "google.protobuf": "protobuf",
    "googleapiclient": "google-api-python-client",
    "grpc": "grpcio",
    "hydra": "hydra-core",
    "imblearn": "imbalanced-learn",
    "mpl_toolkits": "matplotlib",
    "official": "tf-models-official",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "pylab": "matplotlib",
    "pywt": "pywavelets",
    "ruamel": "ruamel.yaml",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "slugify": "python-slugify",
    "snappy": "python-snappy",
    "sonnet": "dm-sonnet",
    "tree": "dm-tree",
    "umap": "umap-learn",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
GOOGLE_CLOUD = "google.cloud."


def find(program: Mapping[str, Module]) -> dict[str, tuple[str, Import]]:
    """Return the packages that the modules of a program can't go on without, except Python's own,
    each with the file and the import that needs it first."""
    found: dict[str, tuple[str, Import]] = {}
    for path, module in program.items():
        for each in module.foreign:
            if not each.is_optional and each.top not in sys.stdlib_module_names:
                found.setdefault(package_of(each.full_name), (path, each))
    return found


def missing(program: Mapping[str, Module], file: str, line: int, module: str) -> str:
    """Return the package to install if an import in a line of a program does not find a module.

    The module may be only the start of what the line names: `google` of google.cloud.storage.
    """
    written = program[file].foreign if file in program else ()
    names = [each.full_name for each in written if each.line == line]
    return package_of(next((n for n in names if f"{n}.".startswith(f"{module}.")), module))


def package_of(module: str) -> str:
    """Return the name of the package that has a module."""
    words = module.split(".")
    for count in range(len(words), 0, -1):
        if name := PACKAGES.get(".".join(words[:count])):
            return name
    if module.startswith(GOOGLE_CLOUD):
        return "-".join(words[:3])
    return words[0]
