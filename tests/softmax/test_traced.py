"""softmax as torch traces it: for torch.compile one operator, which torch finds proper; for torch.export torch's."""

import os

import pytest
import torch
from torch.overrides import TorchFunctionMode

import needs
from helpers import DEVICE
from helpers.softmax import function, softmax
from helpers.softmax.launches import mailbox

MODES = ["default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"]


@pytest.fixture(autouse=True)
def traced_anew():
    torch.manual_seed(0)
    torch.compiler.reset()


@pytest.fixture
def inductor():
    """torch's compiler in this process, which leaves neither workers nor environment variables behind."""
    from torch._inductor import config

    before = dict(os.environ)
    with config.patch(compile_threads=1):
        yield
    os.environ.clear()
    os.environ.update(before)


def random(*shape):
    return torch.randn(shape, device=DEVICE)


SHAPES = [((3, 5), 1), ((3, 5), 0), ((2, 3, 4), -2), ((5,), 0), ((), 0), ((2, 9000), 1), ((0, 4), 1)]


@pytest.mark.thinned(1)
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_both_directions_are_proper_operators_of_torch(shape, dim):
    x = random(*shape).requires_grad_()
    torch.library.opcheck(torch.ops.softmax_in_triton.softmax, (x, dim))
    y = torch.softmax(x.detach(), dim)
    torch.library.opcheck(torch.ops.softmax_in_triton.softmax_backward, (torch.randn_like(y), y, dim))


@pytest.mark.thinned(1)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dim", [0, -1])
def test_compiled_it_is_one_operator_with_its_gradient(dim, dynamic):
    compiled = torch.compile(lambda x: 2 * softmax(x, dim), backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for shape in ((3, 40), (4, 50)):
        x = random(*shape).requires_grad_()
        y, want = compiled(x), 2 * torch.softmax(x, dim)
        torch.testing.assert_close(y, want)
        dy = torch.randn_like(y)
        torch.testing.assert_close(torch.autograd.grad(y, x, dy), torch.autograd.grad(want, x, dy))


TRANSFORMS = {
    "vmap": lambda fn: torch.vmap(fn),
    "grad": lambda fn: torch.func.grad(lambda x: (fn(x) ** 2).sum()),
    "jvp": lambda fn: lambda x: torch.func.jvp(fn, (x,), (x,))[1],
    "jacrev": lambda fn: torch.func.jacrev(fn),
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_functions_are_transformed_within_what_is_compiled(name):
    x = random(3, 4)
    mine = torch.compile(TRANSFORMS[name](lambda x: softmax(x, -1)), backend="aot_eager")(x)
    torch.testing.assert_close(mine, TRANSFORMS[name](lambda x: torch.softmax(x, -1))(x))


class Model(torch.nn.Module):
    def forward(self, x):
        return softmax(x, -1)


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non-strict"])
def test_exported_it_is_torch_s_operator_which_all_tools_and_transforms_know(strict):
    dims = {0: torch.export.Dim("rows"), 1: torch.export.Dim("columns")}
    exported = torch.export.export(Model(), (random(3, 5),), strict=strict, dynamic_shapes=(dims,))
    assert [node.target.namespace for node in exported.graph.nodes if node.op == "call_function"] == ["aten"]
    fn, x = exported.module(), random(7, 9)
    torch.testing.assert_close(fn(x), torch.softmax(x, -1))
    _, change = torch.func.jvp(fn, (x,), (x,))
    torch.testing.assert_close(change, torch.func.jvp(lambda x: torch.softmax(x, -1), (x,), (x,))[1])


class Watching(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_compiled_it_is_seen_by_a_mode_that_watches_functions():
    graphs = []
    compiled = torch.compile(lambda x: softmax(x, -1), backend=lambda graph, _: graphs.append(graph) or graph)
    with Watching():
        compiled(random(3, 5))
    with torch.device(DEVICE.type):
        compiled(random(3, 5))
    watched, free = ([node.target for node in graph.graph.nodes] for graph in graphs)
    ours = torch.ops.softmax_in_triton.softmax.default
    assert torch.softmax in watched and ours not in watched and ours in free


def test_compiled_a_dimension_that_x_lacks_is_an_error_of_torch_s_class():
    with pytest.raises(IndexError):
        torch.compile(lambda x: softmax(x, 2), backend="eager", fullgraph=True)(random(3, 5))


def test_an_operator_keeps_no_words_from_call_to_call(monkeypatch):
    """torch.compile refuses memory of a CUDA graph that something still holds after a call."""
    given = []
    launch = lambda tensors, stream, words: given.append(words)  # noqa: E731
    known = function._Known(launch, (1, 9000), (9000, 1), torch.float32)
    monkeypatch.setattr(function, "_known_of", lambda x, dim, device: known)
    x = random(1, 9000)
    torch.ops.softmax_in_triton.softmax(x, 1)
    softmax(x)
    assert given == [mailbox.fresh, mailbox.zeros]


@pytest.mark.thinned
@needs.gpu
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_cols", [781, 131072])
def test_every_mode_of_the_compiler_takes_it(n_cols, mode, inductor):
    compiled = torch.compile(lambda x: 2 * softmax(x), fullgraph=True, mode=mode)
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        x = random(16, n_cols).requires_grad_()
        y = compiled(x)
        assert torch.equal(y, 2 * softmax(x.detach()))
        (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
        assert dx.abs().max() < 1e-4
