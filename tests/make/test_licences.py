"""helpers/make/licences.py: what metadata say of a package's licence, and what CONTRIBUTING.md says of all."""

import re
import sysconfig
from email import message_from_string
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helpers.make import install
from helpers.make.licences import by_licence, licence_of

ROOT = Path(__file__).resolve().parents[2]
PERMISSIVE = re.compile(
    r"0BSD|Apache([ -]2\.0| License, Version 2\.0| Software License)|BSD([ -]\d-Clause)?( License)?|BSL-1\.0|"
    r"CC0-1\.0|ISC( License \(ISCL\))?|MIT(-0|-CMU| License)?|PSF-2\.0|Python Software Foundation License|Zlib"
)
"""What permissive licences are called in metadata. LLVM's exception to Apache 2.0 permits more still."""

EXPRESSION = "License-Expression: MIT AND BSD-3-Clause\n"
CLASSIFIED = "Classifier: License :: OSI Approved\nClassifier: License :: OSI Approved :: MIT License\n"
TEXT = "License: BSD 3-Clause License\n"


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        (EXPRESSION + CLASSIFIED + TEXT, "MIT AND BSD-3-Clause"),
        (CLASSIFIED + TEXT, "MIT License"),
        ("Classifier: License :: B\nClassifier: License :: A\n", "A AND B"),
        (TEXT + "Classifier: Topic :: Education\n", "BSD 3-Clause License"),
        (f"License: {'Redistribution and use ' * 9}\n", ""),
        ("License:\n", ""),
        ("", ""),
    ],
    ids=["expression", "classifier", "two classifiers", "text", "a whole text", "empty", "none"],
)
def test_the_licence_is_what_the_metadata_says_most_exactly(metadata, licence):
    assert licence_of(message_from_string(f"Name: a\n{metadata}")) == licence


def test_packages_are_listed_once_under_their_licence():
    packages = [message_from_string(f"Name: {name}\nVersion: 1\n{TEXT}") for name in ("b", "A", "b")]
    assert by_licence(packages) == {"BSD 3-Clause License": ["A 1", "b 1"]}


def not_permissive(licence: str) -> bool:
    """Whether one of the licences that hold together is not permissive; "" is none."""
    together = licence.replace(" WITH LLVM-exception", "").split(" AND ")
    return not all(any(PERMISSIVE.fullmatch(one) for one in each.split(" OR ")) for each in together)


@pytest.mark.parametrize(
    "licence", ["MIT AND BSD-3-Clause", "MPL-2.0 OR MIT", "Apache-2.0 WITH LLVM-exception AND ISC"]
)
def test_licences_that_are_permissive_together_or_by_choice(licence):
    assert not not_permissive(licence)


@pytest.mark.parametrize("licence", ["", "GPL-3.0-only", "MIT AND MPL-2.0", "Other/Proprietary License"])
def test_licences_that_are_not(licence):
    assert not_permissive(licence)


def test_contributing_names_every_locked_package_whose_licence_is_not_permissive():
    lock = (ROOT / install.LOCKED).read_text(encoding="utf-8")
    locked = {Requirement(line.partition("\\")[0]).name for line in re.findall(r"^\w.*", lock, flags=re.MULTILINE)}
    here = metadata.distributions(path=[sysconfig.get_path("purelib")])
    licences = {canonicalize_name(one.metadata["Name"]): licence_of(one.metadata) for one in here}
    if not locked & set(licences):
        pytest.skip("the locked packages are not installed here: this machine brings its own")
    others = {name for name in locked & set(licences) if not_permissive(licences[name])}
    text = (ROOT / ".github/CONTRIBUTING.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"Of the locked packages ([^.]*) are under the MPL 2\.0, all others under perm", text)
    named = set(re.findall(r"[\w-]+", sentence)) - {"and", "parts", "of"}
    assert named <= locked and named & set(licences) == others  # a machine may bring some of them
