"""Cells run in a sandbox, for tests of what is behind its walls."""

import textwrap


def ran(sandbox, source, seconds=30):
    """What the cell leaves in the name `answer`."""
    request = {"do": "define", "sources": [textwrap.dedent(source)], "answer": "answer", "every_cell": True}
    made = sandbox.ask(request, seconds)
    assert made["failed"] == []
    return made["value"]
