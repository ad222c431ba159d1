"""`python -m helpers.make.licences`: the licence of every package that is installed here, as its metadata has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from email.message import Message
from importlib import metadata

_LONGEST = 60
"""Letters of a licence's name; more than that is its text."""


def licence_of(package: Message) -> str:
    """The licence that a package's metadata names: its expression, its classifiers, or its free text; "" for none."""
    expression = package.get("License-Expression")
    classifiers = [line for line in package.get_all("Classifier", []) if line.startswith("License :: ")]
    named = sorted({line.rpartition(" :: ")[2] for line in classifiers} - {"OSI Approved"})
    lines = (package.get("License") or "").strip().splitlines()
    text = lines[0].strip() if lines and len(lines[0]) <= _LONGEST else ""
    return expression or " AND ".join(named) or text


def by_licence(packages: Iterable[Message]) -> dict[str, list[str]]:
    """Packages with their versions by licence; the ones that name none under ""."""
    found = defaultdict(set)
    for package in packages:
        found[licence_of(package)].add(f"{package['Name']} {package['Version']}")
    return {licence: sorted(names, key=str.lower) for licence, names in sorted(found.items())}


def main() -> None:
    """Prints a line for each licence."""
    for licence, names in by_licence(one.metadata for one in metadata.distributions()).items():
        print(f"{licence or 'not named'} ({len(names)}): {', '.join(names)}")


if __name__ == "__main__":
    main()
