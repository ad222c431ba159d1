"""helpers/make/licences.py: what the metadata of a package says of its licence."""

from email import message_from_string

import pytest

from helpers.make.licences import by_licence, licence_of

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
