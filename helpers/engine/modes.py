"""Modes that see PyTorch's operations and this course's launches, without loading torch's compiler."""

from __future__ import annotations

import functools
import sys
from typing import Any

from helpers.engine.torch_parts import COMPILER, TorchDispatchMode, disable_dynamo


class Mode(TorchDispatchMode):
    """A TorchDispatchMode whose first operation does not import torch's compiler, which takes a second.

    torch keeps its compiler out of every mode. For that it imports the compiler at a mode's first operation
    (`_disable_dynamo`), also in a program that compiles nothing. This mode keeps the compiler out once the program has
    imported it.
    """

    sees_launches = True
    """So that `helpers.softmax` takes its fast way in this mode (softmax/torch_side.py)."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__torch_dispatch__
        kept_out = disable_dynamo(own)

        @functools.wraps(own)
        def dispatched(self: Mode, *args: Any) -> Any:
            return (kept_out if COMPILER in sys.modules else own)(self, *args)

        cls.__torch_dispatch__ = dispatched
