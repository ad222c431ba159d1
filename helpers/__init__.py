"""What the lessons import. Import it before triton: it decides whether kernels are compiled or interpreted.

A name at the top of this folder is a name that a lesson imports:

    kernels.py, softmax/         the course's kernels in lesson order, and the softmax that they lead to
    attention/                   the kernels of lessons 11 and 12, and the attention that they lead to
    traffic, timing, xray, peers what a function loads and stores, how long it takes, what the compiler made of it
    microseconds                 what lesson 06 explains times with
    draw, table, predict, recall, progress   what a lesson asks, shows and keeps
    check/                       exercises, one file a lesson, and the judging of answers
    ranks/                       a function on several ranks, and what it sends between them
    choosing/, lies/             the rooms of lesson 07 (launches, pick, the picker) and of lesson 08
    recorded/                    measurements, a folder for each GPU, with their origin

Below them lie the wings, of which lessons see `gpu.waiting` alone:

    engine/                      where and how a kernel runs: interpreter, child processes, kernels as text; and notes
    gpu/                         GPUs on paper: occupancy, programs that wait, a GPU that misleads
    measure/                     what `make record` times
    make/, instructor/           what `make` calls; publishing, collecting, grading and reporting
"""

import sys

__all__ = ["DEVICE", "ON_GPU", "banner"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'helpers' has no attribute {name!r}")
    _begin()
    return globals()[name]


def _begin() -> None:
    """Chooses between the GPU and the interpreter, and guards the interpreter: takes seconds, because torch does."""
    global DEVICE, ON_GPU, banner
    from helpers.engine.runtime import DEVICE, ON_GPU, banner

    if not ON_GPU:
        from helpers.engine import interpreter

        interpreter.guard()


if sys.argv[:1] != ["-m"] or "helpers.instructor" not in sys.orig_argv:
    _begin()  # the instructor's command line begins later, when it has read its arguments and said what it does
