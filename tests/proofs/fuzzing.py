"""Texts that may or may not be kernels, and what those that pass do when they run: no more than Triton's language does.

python tests/proofs/fuzzing.py 2000 --seed 1      # prints how many were tried, how many passed, and which broke out

Texts are drawn from a grammar with a bias to what has led out before: bound builtins, defaults, hints, decorators,
comprehensions, lambdas, f-strings, types as strings, walrus, match, star arguments. Each text that passes is loaded and
launched as the grader does it, under an audit hook and a profiler. It breaks out if
- code of its own calls anything but itself, Triton's language and the builtins that the table names,
- Python opens, imports, executes or reflects at a place where it does not for the honest kernels below,
- an attribute that begins with an underscore, or a name with two, stands in the tree that ran.
"""

import argparse
import ast
import contextlib
import io
import json
import os
import resource
import select
import signal
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from helpers.engine import interpreter, kernel_text
from helpers.instructor.sandbox import language, vocabulary

IMPORTS = "import triton\nimport triton.language as tl\n"
CODE = "open('CANARY')"
TEXTS = [
    f'"tensordesc<fp32[16],{CODE}>"', f'"{CODE}"', "'*fp32'", "'{0.__class__}'", '"%s"', "'inf'",
    "'\\u2028def k(y): pass'", "'a\\x1b[2J'", "''",
]  # fmt: skip
OUT = """
    eval exec open __import__ getattr globals vars type compile input setattr dir breakpoint print super object
    memoryview classmethod help interpreter_semantic __builtins__ __name__ __compiled_meaning __factory tl
    triton math
""".split()
OWN = ["y_ptr", "x_ptr", "N", "row", "cols", "x", "m", "helper", "C", "WORD"]
HIDDEN = """
    __class__ __globals__ __code__ __dict__ __self__ __subclasses__ __init__ _semantic handle data fn run src
    format gi_frame f_back base kind to_ir mangle sys core builtins semantic str_to_ty tensor dtype PropagateNan
    extra knobs runtime language
""".split()
KEYWORDS = """
    axis mask other dtype file sep _semantic _generator sem combine_fn key num_stages
""".split()
FUNCTIONS = """
    tl.load tl.store tl.sum tl.max tl.exp tl.arange tl.zeros tl.full tl.where tl.reduce tl.associative_scan
    tl.static_print tl.static_assert tl.device_print tl.range tl.static_range tl.cast tl.make_block_ptr
    tl.make_tensor_descriptor tl.constexpr tl.math.exp tl.to_tensor tl.str_to_ty tl.tensor tl.dtype
    tl.inline_asm_elementwise tl.map_elementwise tl.core.load tl.extra.libdevice.exp triton.cdiv triton.jit
    triton.Config helper float int len min list print isinstance range tl.dot tl.atomic_add tl.rand tl.sort
    tl.softmax
""".split()


TAME = [name for name in FUNCTIONS if name.removeprefix("tl.") in vocabulary.LANGUAGE] + [
    "helper",
    "triton.cdiv",
    "tl.math.exp",
]


def grammar(words, attributes, functions, keywords):
    """Expressions and statements that name these."""
    names = st.sampled_from(words)
    leaves = st.one_of(
        names,
        names,
        st.sampled_from(["0", "1", "2", "16", "0.5", "-1", "True", "None", "(16,)", "[16]"]),
        st.sampled_from(TEXTS),
    )

    def calls(inner):
        keyword = st.tuples(st.sampled_from(keywords), inner).map("=".join)
        argument = st.one_of(inner, inner, inner, inner, keyword, inner.map("*{}".format))
        arguments = st.lists(argument, max_size=3).map(", ".join)
        called = st.one_of(st.sampled_from(functions), st.sampled_from(functions), inner)
        return st.tuples(called, arguments).map(lambda pair: f"{pair[0]}({pair[1]})")

    def deeper(inner):
        operators = st.sampled_from(["+", "-", "*", "/", "%", "@", "==", "<", "and", "or", "is", "in", "&"])
        forms = [
            calls(inner),
            calls(inner),
            st.tuples(inner, attributes).map(lambda p: f"({p[0]}).{p[1]}"),
            st.tuples(inner, attributes, inner).map(lambda p: f"({p[0]}).{p[1]}({p[2]})"),
            st.tuples(inner, operators, inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
            st.tuples(inner, inner).map(lambda p: f"({p[0]})[{p[1]}]"),
            st.tuples(inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[0]})"),
            st.tuples(inner, names, inner).map(lambda p: f"[{p[0]} for {p[1]} in ({p[2]},)]"),
            st.tuples(names, inner).map(lambda p: f"({p[0]} := {p[1]})"),
            st.tuples(inner, st.sampled_from(["", "!r", ":>{N}", ":%s"])).map(
                lambda p: f'f"{{({p[0]}){p[1]}}}"' if '"' not in p[0] and "\\" not in p[0] else p[0]
            ),
        ]
        wild = [
            st.tuples(names, inner).map(lambda p: f"(lambda {p[0]}={p[1]}: {p[0]})()"),
            st.tuples(inner, inner).map(lambda p: f"{{{p[0]}: {p[1]}}}"),
            inner.map("(await {})".format),
            inner.map("dict(**{})".format),
        ]
        return st.one_of(forms + (wild if "eval" in words else []))

    expressions = st.recursive(leaves, deeper, max_leaves=5)
    usual = [
        st.tuples(names, expressions).map(" = ".join),
        st.tuples(names, expressions).map(" = ".join),
        expressions,
        st.tuples(names, expressions).map(lambda p: f"{p[0]}: tl.constexpr = {p[1]}"),
        st.tuples(names, expressions, expressions).map(lambda p: f"for {p[0]} in {p[1]}:\n        {p[2]}"),
        st.tuples(expressions, expressions).map(lambda p: f"if {p[0]}:\n        {p[1]}"),
        st.tuples(names, expressions).map(" += ".join),
        st.tuples(names, expressions).map(lambda p: f"{p[0]}, m = {p[1]}, 1"),
        expressions.map("assert {}".format),
    ]
    unusual = [
        st.tuples(names, expressions, expressions).map(lambda p: f"{p[0]}: {p[1]} = {p[2]}"),
        st.tuples(expressions, names).map(lambda p: f"with {p[0]} as {p[1]}:\n        pass"),
        st.tuples(names, expressions).map(lambda p: f"match {p[1]}:\n        case {p[0]}: pass"),
        st.tuples(expressions, attributes, expressions).map(lambda p: f"({p[0]}).{p[1]} = {p[2]}"),
        st.tuples(expressions, expressions, expressions).map(lambda p: f"({p[0]})[{p[1]}] = {p[2]}"),
        names.map("global {}".format),
        names.map("import os as {}".format),
        st.tuples(names, expressions).map(lambda p: f"def {p[0]}(a={p[1]}): return a"),
        expressions.map("return {}".format),
    ]
    return expressions, st.one_of(usual + (unusual if "eval" in words else []))


tame_expressions, tame_statements = grammar(OWN, st.sampled_from(sorted(vocabulary.ATTRIBUTES)), TAME, KEYWORDS[:4])
names = st.sampled_from(OWN * 2 + OUT)
attributes = st.sampled_from(sorted(vocabulary.ATTRIBUTES) + HIDDEN)
expressions, statements = grammar(OWN * 2 + OUT, attributes, FUNCTIONS, KEYWORDS)
hints = st.one_of(st.just("tl.constexpr"), st.just("tl.constexpr"), st.sampled_from(TEXTS), expressions)
HELPER = "@triton.jit\ndef helper(a, b):\n    return a + b\n"
HONEST = [
    "row = tl.program_id(0)", "cols = tl.arange(0, 16)", "x = tl.load(x_ptr + cols, mask=cols < N, other=0.0)",
    "m = tl.max(x, axis=0)", "x = tl.exp(x - m)", "x = x / tl.sum(x, axis=0)",
    "tl.store(y_ptr + cols, x, mask=cols < N)",
]  # fmt: skip
parameters = st.one_of(
    st.just("N"), st.just("N"), st.just("N: tl.constexpr"), hints.map("N: {}".format), expressions.map("N={}".format),
    st.tuples(names, expressions).map(lambda p: f"N=16, {p[0]}={p[1]}"), names.map("N=16, *{}".format),
    names.map("N=16, **{}".format), st.tuples(names, expressions).map(lambda p: f"N=16, *, {p[0]}={p[1]}"),
)  # fmt: skip
tops = st.one_of(
    st.just("C = 3"), st.just("WORD = tl.constexpr('a')"), st.tuples(names, expressions).map(" = ".join),
    names.map("import math as {}".format), names.map("from triton.language import load as {}".format),
    names.map("from triton.language.core import {}".format), names.map("from math import floor as {}".format),
    st.tuples(names, hints, expressions).map(lambda p: f"{p[0]}: {p[1]} = {p[2]}"), expressions,
    attributes.map("import triton.{}".format), names.map("def {}(a): return a".format),
    st.tuples(names, expressions).map(lambda p: f"@triton.constexpr_function\ndef {p[0]}(a):\n    return {p[1]}"),
    expressions.map("@{}\ndef other(a): return a".format),
)  # fmt: skip
decorators = st.one_of(
    *[st.just("@triton.jit")] * 8,
    st.just("@triton.jit(noinline=False)"),
    expressions.map("@triton.jit(debug={})".format),
    expressions.map("@triton.jit(repr={})".format),
    expressions.map("@{}\n@triton.jit".format),
    st.just('@triton.jit(debug="""\ndef kernel(y_ptr, x_ptr, N): open("CANARY")\n""")'),
)
returned = st.one_of(*[st.just("")] * 8, expressions.map(" -> {}".format))


@st.composite
def texts(draw):
    """A kernel with some lines of an honest one, others drawn, and sometimes a declaration that is not honest."""
    lines, wild = list(HONEST), draw(st.integers(0, 3)) == 0
    for _ in range(draw(st.integers(1, 2))):
        lines.insert(draw(st.integers(2, len(lines))), draw(statements if wild else tame_statements))
    declares = draw(st.integers(0, 5)) == 0
    parameter = draw(parameters) if declares else "N"
    top = draw(tops) if draw(st.integers(0, 5)) == 0 else "C = 3\nWORD = tl.constexpr('a')"
    decorator = draw(decorators) if declares else "@triton.jit"
    hint = draw(returned) if declares else ""
    body = "\n    ".join(lines)
    return f"{IMPORTS}{top}\n{HELPER}{decorator}\ndef kernel(y_ptr, x_ptr, {parameter}){hint}:\n    {body}\n"


class Seen:
    """What happens while a kernel runs: audit events with their places, and calls that its own code makes."""

    def __init__(self):
        self.baseline = None
        self.found = set()
        self.on = False
        sys.addaudithook(self.audit)

    def audit(self, event, args):
        if not self.on or event in ("sys.setprofile", "object.__setattr__", "object.__delattr__"):
            return
        if event == "open" and args[0] == "<string>":  # Python looks for the line of a SyntaxError in a text of no file
            return
        self.on = False
        try:
            frame = sys._getframe(1)
            place = event, Path(frame.f_code.co_filename).name.partition(" ")[0], frame.f_code.co_name
            if "CANARY" in repr(args)[:2000] and event in ("open", "exec", "import"):
                place = (*place, "CANARY")
            self.found.add(place)
        finally:
            self.on = True

    def profile(self, frame, event, arg):
        if event == "c_call" and _is_own(frame):
            name, module = getattr(arg, "__name__", ""), getattr(arg, "__module__", None)
            of_math = module == "math" or (module in ("builtins", None) and name in ALLOWED)
            if not of_math and not isinstance(getattr(arg, "__self__", None), list | tuple | str | int | float):
                self.found.add(("calls", "own", str(name)))
        elif event == "call" and frame.f_back is not None and _is_own(frame.f_back) and not _is_own(frame):
            where = frame.f_globals.get("__name__", "")
            if not where.startswith(("triton.", "helpers.engine.")) and where != "triton":
                self.found.add(("calls", where, frame.f_code.co_name))

    @contextlib.contextmanager
    def watching(self):
        self.found = set()
        sys.setprofile(self.profile)
        self.on = True
        try:
            yield
        finally:
            self.on = False
            sys.setprofile(None)


ALLOWED = vocabulary.PYTHON_BUILTINS | {"abs", "all", "any", "divmod", "pow", "round", "sorted", "sum"}


def _is_own(frame):
    return frame.f_code.co_filename.startswith("<kernel ")


def _out_of_time(*_):
    raise TimeoutError


def run(kernel):
    """Launches it as the grader's own process does; whatever it raises is an end like any other."""
    x, y = torch.rand(16), torch.empty(16)
    before = signal.signal(signal.SIGPROF, _out_of_time)
    signal.setitimer(signal.ITIMER_PROF, 2)
    try:
        with interpreter.within_tensors(), interpreter.watching(lambda launch: None, addresses=True):
            if hasattr(kernel, "arg_names"):
                kernel[(2,)](y, x, 16)
            else:
                kernel(3)
    except BaseException as error:
        return type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return ""


def hidden_names(text):
    """Attributes with an underscore, and names with two, in the tree of a text."""
    nodes = list(ast.walk(ast.parse(text)))
    found = {node.attr for node in nodes if isinstance(node, ast.Attribute) and node.attr.startswith("_")}
    return found | {node.id for node in nodes if isinstance(node, ast.Name) and node.id.startswith("__")}


class Fuzzer:
    """Tries texts and counts: `tried`, `passed`, `ran` to their end, and those that broke `out`, with how.

    `ended_by` counts signals that have ended the process of a text.
    """

    def __init__(self, load=language.load_checked):
        self.tried = self.passed = self.ran = 0
        self.out, self.ended_by = [], Counter()
        self.seen = Seen()
        self.load = load
        honest = f"{IMPORTS}C = 3\n{HELPER}@triton.jit\ndef kernel(y_ptr, x_ptr, N):\n"
        self.usual = set()
        for extra in ("pass", "m = tl.reduce(x, 0, helper)", "tl.static_print(N)", "tl.device_print('a', x)",
                      "x = (x - m).exp().max(0)", "x = x.floor()", "x = tl.load(3)", "while N > 0:\n        pass",
                      "for i in tl.static_range(0, 3):\n        m += tl.cast(i, tl.float32)", "assert 1 == 2",
                      "tl.static_assert(N == 3)", "x += tl.rand(0, cols)", "x = tl.load(x_ptr + 99999)"):  # fmt: skip
            body = "\n    ".join([*HONEST[:4], extra, *HONEST[4:]])
            self.usual |= self._run(language.load_checked(f"{honest}    {body}\n", "kernel"))

    def _run(self, kernel):
        with self.seen.watching(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            self.ended = run(kernel)
        return self.seen.found

    def count(self, told):
        """Adds what has become of one text in another process."""
        self.tried += 1
        self.passed += told["passed"]
        self.ran += told.get("ran", False)
        self.out += told.get("out", ())
        if "ended" in told:
            self.ended_by[told["ended"]] += 1

    def attempt(self, text):
        """Tries one text; returns whether it passed."""
        self.tried += 1
        try:
            with self.seen.watching():
                kernel = self.load(text, "kernel")
        except language.NotTriton:
            return False
        except Exception as error:
            self.out.append((text, [f"loading it raises {error!r}"]))
            return False
        self.passed += 1
        loading = {one for one in self.seen.found if "CANARY" in one or one[0] in ("open", "import")}
        found = (self._run(kernel) - self.usual) | loading
        found = {one for one in found if not _is_benign(one)}
        self.ran += not self.ended
        if found or hidden_names(text):
            self.out.append((text, sorted(map(str, found)) + sorted(hidden_names(text))))
        return True


def _is_benign(place):
    """What reaches no further than the machinery around a kernel, at a place that no honest kernel has shown."""
    return "CANARY" not in place and place[0] in REFLECTING and place[1] != "<kernel"


REFLECTING = {"sys._getframe", "object.__getattr__", "builtins.id"}
"""Events of Python's own library, wherever it warns, wraps an error or makes a type."""


def drawn(count, number):
    """`count` texts that follow from the seed `number`."""
    found = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(texts())
    def keep(text):
        found.append(text)

    keep()
    return found


def fuzz(count, number):
    """Tries `count` texts that follow from the seed `number`; the Fuzzer with its counts."""
    fuzzer = Fuzzer()
    attempt_each(fuzzer, drawn(count, number))
    return fuzzer


def attempt_each(fuzzer, waiting, limit_s=60):
    """Tries texts in forked processes, and counts in `fuzzer`.

    Triton's compiler, which is asked about a kernel before it is interpreted, ends its process where one of its
    assertions fails: such a text is counted under `ended` by its signal, and the next process goes on behind it.
    """
    torch.set_num_threads(1)
    while waiting:
        told, said = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(told)
            _attempt_and_tell(fuzzer, waiting, said)
        os.close(said)
        done, rest = 0, b""
        while select.select([told], [], [], limit_s)[0] and (part := os.read(told, 1 << 16)):
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                fuzzer.count(json.loads(line))
            done += len(lines)
        os.close(told)
        os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if done < len(waiting):
            fuzzer.count({"passed": True, "ended": signal.Signals(-code).name if code < 0 else f"exit {code}"})
            done += 1
        waiting = waiting[done:]


def _attempt_and_tell(fuzzer, waiting, said):
    status = 1
    try:
        for text in waiting:
            before = len(fuzzer.out)
            passed = fuzzer.attempt(text)
            told = {"passed": passed, "ran": passed and not fuzzer.ended, "out": fuzzer.out[before:]}
            os.write(said, json.dumps(told).encode() + b"\n")
        status = 0
    finally:
        os._exit(status)


LEADS_OUT = [
    ("pass", "b=open('CANARY')"),
    ("pass", "b=tl.str_to_ty('tensordesc<fp32[16],open(chr(67))>', 0)"),
    ("tl.static_assert(f(3) == 3)", "b=1"),
]
"""A line and a parameter each, that lead out where the text is not read before it runs: f opens a file."""


def noticed():
    """How many of LEADS_OUT the fuzzer says to have broken out, where every text passes."""
    fuzzer = Fuzzer(load=kernel_text.load)
    for line, parameter in LEADS_OUT:
        function = "@triton.constexpr_function\ndef f(n):\n    open('CANARY')\n    return n\n"
        fuzzer.attempt(f"{IMPORTS}{function}@triton.jit\ndef kernel(y_ptr, x_ptr, N, {parameter}):\n    {line}\n")
    return len(fuzzer.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--notices", action="store_true", help="count instead the known ways out that it notices")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    if arguments.notices:
        print(json.dumps({"noticed": noticed(), "of": len(LEADS_OUT)}))
        return
    found = fuzz(arguments.count, arguments.seed)
    counts = {"tried": found.tried, "passed": found.passed, "ran": found.ran, "ended by": found.ended_by}
    print(json.dumps(counts | {"out": found.out[:20]}, indent=1))
    sys.exit(bool(found.out))


if __name__ == "__main__":
    main()
