"""Modes of torch that note the operations, by name, or the functions that they see."""

from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):
    """Notes operations."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.seen.append(func._schema.name)
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    """Notes functions."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))
