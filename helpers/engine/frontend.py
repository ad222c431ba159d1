"""Asks the front end of Triton's compiler, before a launch in the interpreter, whether it takes the kernel.

The front end (triton/compiler/code_generator.py) reads a kernel's text with the types and constants of a launch. It
refuses `break`, lists that grow, types that change in a loop and sizes that are not constexpr; this module passes its
words on. The front end needs no GPU and takes some milliseconds. Later stages of the compiler refuse other kernels, for
example for too much shared memory; they are not asked here.

In a process that interprets, triton.jit makes interpreted functions, also of Triton's own library. So the front end's
code runs here in a namespace of its own, and finds a function to compile in place of each interpreted one. This is the
one file that uses private parts of Triton's front end (tested with 3.6 to 3.9).
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import re
import sys
import tokenize
import types
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from helpers.engine.runtime import moved

_TARGET = "cuda", 90, 32


@dataclass(frozen=True)
class Objection:
    """Why the compiler refuses a kernel: its sentence, the kernel's line, the type of its error, the error itself."""

    sentence: str
    line: str
    cause: type[BaseException]
    error: BaseException


class TextLost(ValueError):
    """A kernel has no text that the compiler could read."""


def objection(kernel: Any, args: tuple, kwargs: Mapping[str, Any]) -> Objection | None:
    """Why the compiler would refuse this launch of an interpreted kernel; None if its front end takes the kernel.

    Also None if the arguments do not fit the parameters, because the launch itself explains that better, and if this
    Triton has no compiler for NVIDIA's GPUs. Raises RuntimeError if Triton has moved its front end.
    """
    ask = _front_end()
    if ask is None or not _fits(kernel, args, kwargs):
        return None
    try:
        with warnings.catch_warnings(action="ignore"):
            ask(kernel, args, kwargs)
    except Exception as error:
        return told(error)
    return None


def builtin_names() -> frozenset[str]:
    """The names of Python's builtins that the compiler understands. Raises RuntimeError where it has moved them."""
    try:
        from triton.compiler.code_generator import CodeGenerator

        return frozenset(CodeGenerator.builtin_namespace)
    except (ImportError, AttributeError) as error:
        raise _moved(str(error)) from None


def _fits(kernel: Any, args: tuple, kwargs: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(kernel.fn).bind(*args, **{name: kwargs[name] for name in kwargs if name in kernel.arg_names})
    except TypeError:
        return False
    return True


def told(error: BaseException) -> Objection:
    """What the innermost of the compiler's errors says. There is one error for each function that it is inside of.

    The line is the innermost one that is not Triton's own.
    """
    line, raised = "", error
    while True:
        source = getattr(error, "src", None) or ""
        lines = source.splitlines()
        # Of a call that is refused, Triton gives the caller's line with the text of the called function.
        if 0 < getattr(getattr(error, "node", None), "lineno", 0) <= len(lines) and not is_of_triton(source):
            line = lines[error.node.lineno - 1].strip()
        if error.__cause__ is None:
            break
        error = error.__cause__
    cause = type(error)
    said = error.error_message if hasattr(error, "error_message") else next(iter(error.args), None)
    text = str(said or cause.__name__)
    if wrapped := re.fullmatch(r"(\w+)\((['\"].*['\"])\)", text.strip(), re.DOTALL):  # an error of Python, as its repr
        with suppress(SyntaxError, ValueError):  # a sentence that only looks like one
            text, cause = str(ast.literal_eval(wrapped[2])), getattr(builtins, wrapped[1], cause)
    if assembler := re.search(r"^ptxas.*(?:error|fatal)\s*:\s*(.+)", text, re.MULTILINE):
        text = f"ptxas says: {assembler[1]}"
    sentence = re.sub(r"(?: object)? at 0x[0-9a-f]+", "", next(iter(text.strip().splitlines()), cause.__name__))
    if "`_semantic` argument must be provided" in sentence:  # its advice, to add @triton.jit, is false in a kernel
        sentence = "it does not take this operation"
    return Objection(sentence, line, cause, raised)


@functools.cache
def is_of_triton(source: str) -> bool:
    """True for the text of a function of triton.language, such as tl.max: a learner needs the line that calls it."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("triton.language.")]
    return any(source in inspect.getsource(module) for module in modules if getattr(module, "__file__", None))


@functools.cache
def _front_end() -> Callable[[Any, tuple, Mapping[str, Any]], None] | None:
    """What raises the compiler's errors about a launch; None without a compiler for NVIDIA's GPUs.

    A kernel that must be taken is tried first, so that a Triton with another front end does not refuse everything.
    """
    try:
        ask = _assembled()
    except (ImportError, AttributeError, TypeError) as error:
        raise _moved(str(error)) from None
    if ask is not None:
        try:
            x = torch.zeros(1, dtype=torch.float32)
            ask(_largest_kernel, (x, x, 1), {"BLOCK": 16})
        except Exception as error:
            raise _moved(told(error).sentence) from None
    return ask


@triton.jit
def _largest_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    """Stores the largest of N numbers, of which it loads BLOCK at a time."""
    m = -float("inf")
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        m = tl.maximum(m, tl.load(x_ptr + cols, mask=cols < N, other=-float("inf")).max(axis=0))
    tl.store(y_ptr, m)


def _moved(part: str) -> RuntimeError:
    return moved([part], "its compiler's front end", "the interpreter cannot ask the compiler about a kernel")


def _assembled() -> Callable[[Any, tuple, Mapping[str, Any]], None] | None:
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, code_generator, make_backend
    from triton.runtime import jit
    from triton.runtime.interpreter import InterpretedFunction

    try:
        backend = make_backend(GPUTarget(*_TARGET))
    except RuntimeError:
        return None

    class Compilable(jit.JITFunction):
        """A function to compile: what it names is to be compiled too."""

        __hash__ = object.__hash__

        @property
        def cache_key(self) -> str:
            """Triton looks at all names that a function uses to know it again, and refuses some of them there."""
            if self.hash is None:
                self.hash = f"{self.__module__}.{self.__qualname__} {id(self):x}"
                nonlocals = inspect.getclosurevars(self.fn).nonlocals
                try:
                    Names(self.hash, self.__globals__, nonlocals, self.src).visit(self.parse())
                except Exception:
                    self.hash = None
                    raise
            return self.hash

    class Names(jit.DependenciesFinder):
        def __init__(self, name: str, globals: dict, nonlocals: dict, src: str) -> None:
            super().__init__(name, globals, nonlocals, src)
            self.src = src

        def record_reference(self, value: Any, *where: Any) -> None:
            super().record_reference(compilable(value), *where)

        def visit(self, node: ast.AST) -> Any:
            try:
                return super().visit(node)
            except code_generator.CompilationError:
                raise
            except Exception as error:
                raise code_generator.CompilationError(self.src, node, repr(error)) from None

    twins: weakref.WeakKeyDictionary[Any, Compilable] = weakref.WeakKeyDictionary()

    def compilable(value: Any) -> Any:
        if not isinstance(value, InterpretedFunction):
            return value
        if value not in twins:
            twins[value] = with_text(value)
        return twins[value]

    def with_text(value: InterpretedFunction) -> Compilable:
        """The function to compile. Raises TextLost where Triton finds no text of it, or another's."""
        name = value.fn.__name__
        try:
            made = Compilable(value.fn, **value.kwargs)
            found = made.parse().body[0].name
        except (OSError, TypeError, ValueError, AttributeError, SyntaxError, tokenize.TokenError):
            found = ""
        if found != name:
            said = "define it by `def`, in a cell or in a file that has not changed since"
            raise TextLost(f"no text of {name} is found; {said}")
        return made

    class Scope(dict):
        """Globals. A kernel among them is made one to compile when it is asked for: others may have lost their text."""

        def __getitem__(self, name: str) -> Any:
            return compilable(super().__getitem__(name))

        def get(self, name: str, absent: Any = None) -> Any:
            return compilable(super().get(name, absent))

    class Generator(code_generator.CodeGenerator):
        statically_implemented_functions = {
            **code_generator.CodeGenerator.statically_implemented_functions,
            tl.core.static_print: lambda self, node: tl.constexpr(None),  # the interpreter prints
        }

        def _define_name_lookup(self) -> Callable[[str], Any]:
            self.gscope = Scope(self.gscope)
            return super()._define_name_lookup()

        def get_Attribute(self, owner: Any, name: str) -> Any:
            found = inspect.getattr_static(owner, name, None)
            for cell in isinstance(found, types.FunctionType) and found.__closure__ or ():
                if isinstance(cell.cell_contents, InterpretedFunction):  # a method, such as x.max(axis=0)
                    found = cell.cell_contents
            if not isinstance(found, InterpretedFunction):
                return super().get_Attribute(owner, name)
            if isinstance(owner, tl.core.base_value):
                return code_generator.BoundJITMethod(owner, compilable(found))
            return compilable(found)

    names = {**vars(code_generator), "CodeGenerator": Generator, "print": lambda *args: None}

    def with_generator(function: types.FunctionType) -> types.FunctionType:
        """The function as it is, save that the generators it makes are of the class above."""
        made = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__)
        made.__kwdefaults__ = function.__kwdefaults__
        return made

    Generator.call_JitFunction = with_generator(code_generator.CodeGenerator.call_JitFunction)
    ast_to_ttir = with_generator(code_generator.ast_to_ttir)
    taken: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()

    def ask(kernel: Any, args: tuple, kwargs: Mapping[str, Any]) -> None:
        function = compilable(kernel)
        given = {name: compilable(value) for name, value in kwargs.items()}
        bind = jit.create_function_from_signature(function.signature, function.params, backend)
        bound, specialization, options = bind(*map(compilable, args), **given)
        launch = str((specialization, options))
        if launch in taken.setdefault(kernel, set()):
            return
        function.cache_key  # noqa: B018
        options, signature, constants, _ = function._pack_args(backend, given, bound, specialization, options)
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        functions = backend.get_codegen_implementation(options)
        source = ASTSource(function, signature, constants)
        ast_to_ttir(function, source, context, options, functions, backend.get_module_map())
        taken[kernel].add(launch)

    return ask
