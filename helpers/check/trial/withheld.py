"""What an answer may not do outside its kernels: compute with x, change x, forget the device. A call shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from helpers.check.trial.starter import plain_function
from helpers.engine import interpreter
from helpers.engine.modes import Mode
from helpers.engine.torch_parts import has_default_device

_BITS = {2: torch.int16, 4: torch.int32}


def decoy(x: torch.Tensor) -> torch.Tensor:
    """Other numbers of the shape of x, the same whenever they are asked for."""
    return torch.rand(x.shape, generator=torch.Generator().manual_seed(0)).to(x.dtype)


class _Hidden:
    """The memory of a tensor, which holds its own numbers or its decoy's. `changed`: something was stored."""

    def __init__(self, x: torch.Tensor) -> None:
        bits = _BITS[x.element_size()]
        self._memory, self._other = x.view(bits).numpy(), decoy(x).view(bits).numpy()
        self._own, self.changed = self._memory.copy(), False

    def hide(self) -> None:
        """Notes whether something was stored while it was shown."""
        if (self._memory != self._own).any():
            self.changed, self._own = True, self._memory.copy()
        self._memory[...] = self._other

    def show(self) -> None:
        """Notes whether something was stored while it was hidden."""
        self.changed |= bool((self._memory != self._other).any())
        self._memory[...] = self._own


class Withheld(Mode):
    """Shows the numbers of tensors to kernels and to PyTorch's operations alone, which are counted; all else sees their
    decoys.

    NumPy, Python or another thread then computes from the numbers of the decoys. After the block the tensors hold their
    own again, or what kernels and operations have stored there; `changed` says whether anything has stored there.
    """

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__()
        self._hidden = [_Hidden(one) for one in tensors]
        self._shown = True

    @property
    def changed(self) -> bool:
        """Whether anything has been stored in one of them."""
        return any(one.changed for one in self._hidden)

    def __enter__(self) -> Withheld:
        self._launches = interpreter.instead(self._launch)
        self._launches.__enter__()
        self._hide()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for one in self._hidden:
            one.show()
        self._launches.__exit__(*error)

    def _hide(self) -> None:
        for one in self._hidden:
            one.hide()
        self._shown = False

    @contextmanager
    def _show(self) -> Iterator[None]:
        if self._shown:
            yield
            return
        for one in self._hidden:
            one.show()
        self._shown = True
        try:
            yield
        finally:
            self._hide()

    def _launch(self, kernel: Any, args: tuple, grid: Any, kwargs: dict[str, Any]) -> None:
        with self._show(), interpreter.instead(None):
            kernel.run(*args, grid=grid, warmup=False, **kwargs)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.is_view:  # it looks at no number
            return func(*args, **(kwargs or {}))
        with self._show():
            return func(*args, **(kwargs or {}))


class OwnChanges(Mode):
    """`changed` says whether an operation of PyTorch has stored something in the memory of one of `tensors`, restored
    since or not."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__()
        self.changed = False
        self._storages = {one.untyped_storage().data_ptr() for one in tensors if one.numel()}  # all empty ones are at 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func._schema.is_mutable and not interpreter.in_launch():
            given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | (kwargs or {})
            written = (given.get(a.name) for a in func._schema.arguments if a.alias_info and a.alias_info.is_write)
            self.changed |= any(
                isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() in self._storages for t in written
            )
        return func(*args, **(kwargs or {}))


_FACTORIES = {
    torch.empty, torch.zeros, torch.ones, torch.full, torch.empty_strided, torch.tensor, torch.arange, torch.linspace,
    torch.rand, torch.randn, torch.eye,
}  # fmt: skip
_ASKS = {torch.Tensor.device.__get__, torch.Tensor.is_cuda.__get__, torch.Tensor.get_device}
_MOVES_TO = {torch.Tensor.to, torch.Tensor.type_as, torch.Tensor.cuda}


class WrongDevice(ValueError):
    """A kernel is given a tensor that would not lie on the GPU, or one is returned."""


def _constants(fn: Any) -> Iterator[Any]:
    """The constants in a function of Python, and in the functions that it defines."""
    waiting = [getattr(plain_function(fn), "__code__", None)]
    while waiting:
        code = waiting.pop()
        if isinstance(code, CodeType):
            waiting += code.co_consts
            yield from (constant for constant in code.co_consts if isinstance(constant, str))


class Devices(TorchFunctionMode):
    """Tensors that were made without a device, or on the CPU by name: elsewhere than x, on a GPU.

    A name may have been asked of x, as in `"cuda" if x.is_cuda else "cpu"`, or of torch: it is not believed where `fn`
    says "cpu" and never "cuda", and has asked no tensor where it lies.

    A launch in the block that is interpreted and given one raises WrongDevice, where a GPU's raises ValueError.
    """

    sees_launches = True

    def __init__(self, fn: Callable) -> None:
        super().__init__()
        self._made: list[torch.Tensor] = []
        self._says_cpu = {"cpu"} == {"cpu", "cuda"} & set(_constants(fn))
        self._asked = False
        self._looking = interpreter.before_each_interpreted(self.look)

    def __enter__(self) -> Devices:
        self._looking.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._looking.__exit__(*error)

    def look(self, kernel: Any, args: tuple, grid: Any, kwargs: dict[str, Any]) -> None:
        """Raises WrongDevice where such a tensor is an argument of the launch."""
        for name, tensor in interpreter.tensors_of(interpreter.bind(kernel, args, kwargs)):
            if self._forgotten(tensor):
                said = f"{kernel.fn.__name__} is given {name}, a tensor made without x's device"
                raise WrongDevice(f"{said}: on a GPU it would lie on the CPU, out of the kernel's reach")

    def require(self, result: Any) -> None:
        """Raises WrongDevice where the result is such a tensor, or has one in it."""
        if any(map(self._forgotten, result if isinstance(result, tuple | list) else (result,))):
            raise WrongDevice("on a GPU the result would lie on the CPU: it is made without x's device")

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _ASKS:
            self._asked = True
        elif func in _FACTORIES and self._is_elsewhere(**(kwargs or {})):
            self._made.append(result)
        elif func in _MOVES_TO:
            self._made = [tensor for tensor in self._made if tensor is not args[0]]
        return result

    def _is_elsewhere(self, device: Any = None, out: Any = None, **_: Any) -> bool:
        """Whether these options of a factory leave the device to torch, or name the CPU."""
        if device is None:
            return out is None and not has_default_device()
        return device == "cpu" and isinstance(device, str) and self._says_cpu and not self._asked

    def _forgotten(self, y: Any) -> bool:
        """Whether y is one of these tensors, or a view of one."""
        if not isinstance(y, torch.Tensor) or not self._made:
            return False
        return y.untyped_storage().data_ptr() in {tensor.untyped_storage().data_ptr() for tensor in self._made}
