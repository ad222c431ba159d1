"""What a test may not leave behind: `state()` before and after it, and `left_behind` for the difference in words."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from helpers.check import kept
from helpers.engine import child, interpreter, notes

STORES = {
    "helpers.check.kept._passed": lambda: dict(kept._passed),
    "helpers.engine.notes._unwritten": lambda: dict(notes._unwritten),
    "helpers.engine.interpreter._receivers": lambda: list(interpreter._receivers),
}
"""Module-level stores that decide what happens next. Others are caches: what is in them changes the time alone."""

WATCHED = ("helpers", "triton.runtime.interpreter", "triton.runtime.jit")
"""What the names of modules begin with."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM, signal.SIGPIPE)
OF_TORCH = ("__compiled_fn_", "__resume_at_")
"""What the names begin with that torch.compile puts into a module; they go when their function is collected."""
FREE = {"PYTEST_CURRENT_TEST", "COLUMNS", "LINES", "TORCHINDUCTOR_CACHE_DIR"}
"""Set by pytest, by terminals, and by torch when it first needs its compiler."""


@dataclass
class State:
    """A process as a test finds it."""

    folder: str
    environment: dict[str, str]
    handlers: dict[int, Any]
    stores: dict[str, Any]
    attributes: dict[str, dict[str, Any]]
    children: dict[int, str] = field(default_factory=dict)


def state() -> State:
    """The state of this process now."""
    return State(
        os.getcwd(),
        {name: value for name, value in os.environ.items() if name not in FREE},
        {number: signal.getsignal(number) for number in SIGNALS},
        {name: look() for name, look in STORES.items()},
        dict(_attributes()),
        _children(),
    )


def left_behind(before: State, after: State) -> list[str]:
    """Each difference in a sentence."""
    found = []
    if before.folder != after.folder:
        found.append(f"the working directory is {after.folder}")
    for name in {*before.environment, *after.environment}:
        was, now = before.environment.get(name), after.environment.get(name)
        if was != now:
            found.append(f"the environment variable {name} was {was!r} and is {now!r}")
    for number, handler in before.handlers.items():
        if after.handlers[number] != handler:
            found.append(f"{signal.Signals(number).name} is handled by {after.handlers[number]!r}")
    found += [f"the store {name} has changed" for name, was in before.stores.items() if after.stores[name] != was]
    found += [f"{owner}.{name} is another object" for owner, name, _ in _replaced(before, after)]
    found += [f"the process {pid} ({what})" for pid, what in after.children.items() if pid not in before.children]
    return found


def found_after(before: State, patience_s: float = 5) -> list[str]:
    """`left_behind` now, or a little later: a process that was told to end, or is not yet listed, takes a moment."""
    until = time.monotonic() + patience_s
    while (found := left_behind(before, state())) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def restore(before: State) -> None:
    """Puts right what can be, so that one test that leaves something behind fails alone."""
    os.chdir(before.folder)
    for name in set(os.environ) - set(before.environment) - FREE:
        del os.environ[name]
    os.environ.update(before.environment)
    for number, handler in before.handlers.items():
        signal.signal(number, handler)
    for owner, name, was in _replaced(before, state()):
        module, _, inner = owner.partition(":")
        setattr(getattr(sys.modules[module], inner) if inner else sys.modules[module], name, was)


def _attributes() -> Iterator[tuple[str, dict[str, Any]]]:
    """What the watched modules and their classes hold now, by the owner's name."""
    for name in [name for name in sys.modules if name.startswith(WATCHED)]:
        for owner, holds in _owners(sys.modules[name]):
            yield owner, dict(vars(holds))


@cache
def _owners(module: ModuleType) -> list[tuple[str, Any]]:
    """A module and its own classes. They are looked for once: this takes longer than most tests."""
    name = module.__name__
    own = [(key, value) for key, value in vars(module).items() if isinstance(value, type) and value.__module__ == name]
    return [(name, module), *((f"{name}:{key}", value) for key, value in own)]


def _replaced(before: State, after: State) -> Iterator[tuple[str, str, Any]]:
    """Functions and classes that are bound to another object than before, or to none: owner, name, what it was."""
    for owner, names in before.attributes.items():
        now = after.attributes.get(owner, {})
        for name, was in names.items():
            if now.get(name) is not was and callable(was) and not name.startswith(OF_TORCH):
                yield owner, name, was


def _children() -> dict[int, str]:
    """Living children by their command, but for those that child.call keeps for the next call."""
    expected = {waits.process.pid for waits in child._children.values()}
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            pids = map(int, (task / "children").read_text().split())
        except OSError:
            continue
        for pid in pids:
            try:
                status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if status not in "ZX" and pid not in expected and "resource_tracker" not in command:
                found[pid] = command[:200].strip()
    return found
