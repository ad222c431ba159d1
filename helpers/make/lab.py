"""Start JupyterLab at the first lesson of the working copy: its address first, after checking that its port is free."""

import argparse
import os
import secrets
import socket
import sys
from itertools import chain
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
LAB_SETTINGS = CHECKOUT / "helpers" / "make" / "lab_settings"
"""What JupyterLab's settings are until a learner changes them: it neither asks about news nor looks for updates, and
shows none of nbgrader's tools, which are an instructor's."""

FIRST_LESSON = "01_eager_softmax.ipynb"
LAST_PORT = 65535


def port_number(text: str) -> int:
    """The port that `text` names; ValueError when it names none."""
    port = int(text)
    if not 1 <= port <= LAST_PORT:
        raise ValueError(text)
    return port


def obstacle(port: int) -> str | None:
    """Why a server cannot listen on 127.0.0.1:port, or None when it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return (error.strerror or str(error)).lower()
    return None


def first_lesson(checkout: Path) -> str:
    """Where the first lesson lies: in the working copy, or where that could not be made, in lessons/."""
    mine = Path("my-lessons", FIRST_LESSON)
    return (mine if (checkout / mine).exists() else Path("lessons", FIRST_LESSON)).as_posix()


def command(address: str, port: int, browser: bool) -> list[str]:
    """The command that serves the checkout with JupyterLab."""
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.ip={address}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={CHECKOUT}",
        f"--LabApp.default_url=/lab/tree/{first_lesson(CHECKOUT)}",
        f"--LabApp.app_settings_dir={LAB_SETTINGS}",
        "--log-level=WARN",  # what JupyterLab says of each step would push the address off the screen
        *([] if browser else ["--no-browser"]),
        *(["--allow-root"] if os.geteuid() == 0 else []),
    ]


def main() -> int:
    """Check the port, say at which address JupyterLab is going to be, and become JupyterLab.

    The address has the token that lets a browser in. No list of processes shows it to other users of the machine.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", default="8888", help="where to listen on this machine")
    parser.add_argument("--remote", action="store_true", help="open no browser; say how to reach it over ssh")
    parser.add_argument("--container", action="store_true", help="open no browser; listen on all of its addresses")
    options = parser.parse_args()

    try:
        port = port_number(options.port)
    except ValueError:
        print(f"PORT must be a number from 1 to {LAST_PORT}, not {options.port!r}.", file=sys.stderr)
        return 1
    if reason := obstacle(port):
        free = next(other for other in chain(range(port + 1, LAST_PORT + 1), range(1024, port)) if not obstacle(other))
        again = f"make lab PORT={free}" + (" REMOTE=1" if options.remote else "")
        print(f"Port {port} cannot be used ({reason}), but this one can: {again}", file=sys.stderr)
        return 1
    browser = not (options.remote or options.container)
    if options.remote:
        print("On your own computer run this, and leave it running:\n")
        print(f"    ssh -N -L {port}:localhost:{port} you@this-machine\n")
    token = os.environ.get("JUPYTER_TOKEN") or secrets.token_hex(24)
    print("JupyterLab opens in your browser. If it does not, open this address:" if browser else "Open this address:")
    seen_at = os.environ.get("PUBLISHED_PORT", port) if options.container else port
    print(f"\n    http://127.0.0.1:{seen_at}/lab/tree/{first_lesson(CHECKOUT)}?token={token}\n")
    print("Ctrl-C, twice, ends JupyterLab.", flush=True)
    arguments = command("0.0.0.0" if options.container else "127.0.0.1", port, browser)
    os.execve(sys.executable, arguments, os.environ | {"JUPYTER_TOKEN": token})


if __name__ == "__main__":
    sys.exit(main())
