"""softmax does what torch.softmax does with everything that torch takes."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx import symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx

from helpers import DEVICE
from helpers.softmax import log_softmax, softmax
from helpers.softmax.torch_side import is_plain
from watching import Functions, Operations


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def assert_same(y, want):
    assert type(y) is type(want) and y.dtype == want.dtype and y.shape == want.shape and y.stride() == want.stride()
    torch.testing.assert_close(y, want, equal_nan=True)


REFUSED = {
    "no tensor": (lambda: [1.0], 0, {}),
    "integers": (lambda: torch.ones(2, 3, dtype=torch.int64, device=DEVICE), 1, {}),
    "no such dimension": (lambda: torch.ones(2, 3, device=DEVICE), 2, {}),
    "no such dimension of integers": (lambda: torch.ones(2, 3, dtype=torch.int64, device=DEVICE), 2, {}),
    "half a dimension of integers": (lambda: torch.ones(2, 3, dtype=torch.int64, device=DEVICE), 1.0, {}),
    "no such dimension of float64": (lambda: torch.ones(2, 3, dtype=torch.float64, device=DEVICE), -3, {}),
    "half a dimension": (lambda: torch.ones(2, 3, device=DEVICE), 1.0, {}),
    "a text": (lambda: torch.ones(2, 3, device=DEVICE), "0", {}),
    "a scalar's second dimension": (lambda: torch.ones((), device=DEVICE), 1, {}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_of_torch_s_class(name):
    make, dim, options = REFUSED[name]
    with pytest.raises(Exception) as theirs:
        torch.softmax(make(), dim, **options)
    with pytest.raises(Exception) as mine:
        softmax(make(), dim, **options)
    assert issubclass(mine.type, theirs.type)


def random(*shape):
    return torch.randn(*shape, device=DEVICE)


class Marked(torch.Tensor):
    pass


ELSEWHERE = {
    "a negative bit": lambda: torch.randn(4, 5, dtype=torch.cfloat, device=DEVICE).conj().imag,
    "a subclass": lambda: random(4, 5).as_subclass(Marked),
    "meta": lambda: torch.empty(4, 5, device="meta"),
    "float64": lambda: random(4, 5).double(),
    "nested": lambda: torch.nested.nested_tensor([random(3, 5), random(2, 5)]),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_has_no_plain_address_is_torch_s(name):
    x = ELSEWHERE[name]()
    assert not is_plain(x)
    y, want = softmax(x, -1), torch.softmax(x, -1)
    assert type(y) is type(want) and y.dtype == want.dtype and y.device == want.device
    if name == "nested":
        y, want = y.to_padded_tensor(0.0), want.to_padded_tensor(0.0)
    if name != "meta":
        torch.testing.assert_close(y, want)


def test_a_parameter_and_a_tensor_of_inference_mode_are_plain():
    assert is_plain(random(2, 3)) and is_plain(torch.nn.Parameter(random(2, 3)))
    with torch.inference_mode():
        assert is_plain(random(2, 3))


def test_a_default_device_changes_nothing():
    with torch.device("cpu"):
        assert is_plain(random(2, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_autocast_gives_torch_s_dtype(dtype):
    x = random(3, 5).to(dtype)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        assert_same(softmax(x), torch.softmax(x, -1))


def test_another_dtype_is_asked_for():
    x = random(3, 5).half()
    assert_same(softmax(x, -1, torch.float32), torch.softmax(x, -1, torch.float32))
    assert_same(softmax(input=x, dim=0, dtype=torch.float16), torch.softmax(input=x, dim=0, dtype=torch.float16))


OUTS = {
    "of the result's shape": lambda: (random(3, 5), random(3, 5)),
    "of other strides": lambda: (random(3, 5), random(5, 3).t()),
    "empty": lambda: (random(3, 5), random(0)),
    "the tensor itself": lambda: (random(3, 5),) * 2,
    "for float64": lambda: (random(3, 5).double(), random(3, 5).double()),
}


@pytest.mark.parametrize("name", OUTS)
def test_a_given_result_is_filled_and_returned(name):
    x, out = OUTS[name]()
    want = torch.softmax(x, -1)
    assert softmax(x, -1, out=out) is out
    torch.testing.assert_close(out, want)


def test_a_given_result_of_another_dtype_is_refused_as_torch_does():
    x, out = random(3, 5), random(3, 5).half()
    for fn in (torch.softmax, softmax):
        with pytest.raises(RuntimeError, match="dtype"):
            fn(x, -1, out=out)


def test_tangents_are_carried_forward():
    x, tangent = random(3, 5), random(3, 5)
    with forward_ad.dual_level():
        mine, theirs = (
            forward_ad.unpack_dual(fn(forward_ad.make_dual(x, tangent), -1)) for fn in (softmax, torch.softmax)
        )
        torch.testing.assert_close(mine.tangent, theirs.tangent)


TRANSFORMS = {
    "vmap": lambda fn: torch.vmap(fn, in_dims=1),
    "grad": lambda fn: torch.func.grad(lambda x: (fn(x) ** 2).sum()),
    "jacrev": torch.func.jacrev,
    "jacfwd": torch.func.jacfwd,
    "hessian": lambda fn: torch.func.hessian(lambda x: (fn(x) ** 2).sum()),
    "vmap of grad": lambda fn: torch.vmap(torch.func.grad(lambda x: (fn(x) ** 2).sum())),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_functions_are_transformed(name):
    x = random(3, 4)
    mine, theirs = (TRANSFORMS[name](partial(fn, dim=-1))(x) for fn in (softmax, torch.softmax))
    torch.testing.assert_close(mine, theirs)


def test_within_a_transform_no_tensor_is_plain():
    x, found = random(3, 4), []
    torch.vmap(lambda row: found.append(is_plain(x)) or row)(x)
    assert is_plain(x) and found == [False]


def test_a_fake_tensor_stays_fake():
    softmax(random(3, 4))
    with FakeTensorMode() as mode:
        assert type(softmax(random(3, 4))).__name__ == "FakeTensor"
        assert type(softmax(mode.from_tensor(torch.ones(3, 4)))).__name__ == "FakeTensor"


def test_traces_have_one_operation():
    traced = symbolic_trace(lambda x: softmax(x, -1))
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [torch.softmax]
    made = make_fx(lambda x: softmax(x, -1))(random(3, 4))
    x = random(3, 4)
    torch.testing.assert_close(made(x), torch.softmax(x, -1))


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated")
def test_torch_jit_traces_the_operation_and_not_its_result():
    traced = torch.jit.trace(lambda x: softmax(x, -1), random(3, 4))
    x = random(3, 4)
    torch.testing.assert_close(traced(x), torch.softmax(x, -1))


def test_a_mode_that_watches_sees_the_operation():
    with Operations() as watches:
        softmax(random(3, 4))
    assert "aten::_softmax" in watches.seen


@pytest.mark.parametrize(("fn", "of_torch"), [(softmax, torch.softmax), (log_softmax, F.log_softmax)])
def test_a_mode_that_watches_functions_sees_one_and_no_question_about_x(fn, of_torch):
    x = random(3, 4)
    with Functions() as watches:
        fn(x, 1)
    assert watches.seen == [of_torch]


def test_gradients_are_batched():
    x = random(3, 4).requires_grad_()
    batch = random(2, 3, 4)
    mine, theirs = (
        torch.autograd.grad(fn(x, -1), x, batch, is_grads_batched=True)[0] for fn in (softmax, torch.softmax)
    )
    torch.testing.assert_close(mine, theirs)


def test_a_gradient_that_is_a_subclass_stays_one():
    x = random(3, 4).requires_grad_()
    (dx,) = torch.autograd.grad(softmax(x), x, random(3, 4).as_subclass(Marked))
    assert type(dx) is Marked


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_double_precision_has_exact_gradients(mode):
    x = random(2, 3).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: softmax(x, 1), x, check_forward_ad=mode == "forward")
    assert torch.autograd.gradgradcheck(lambda x: softmax(x, 1), x)


class Refusing:
    """An object whose softmax is its own, and not there."""

    given = None

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.given = kwargs
        raise NotImplementedError("no softmax here")


def test_an_object_that_has_no_softmax_says_so_itself():
    with pytest.raises(NotImplementedError, match="no softmax here"):
        softmax(Refusing(), 0)
    assert not Refusing.given, "an argument that nobody gave"


def test_what_torch_lacks_for_sparse_integers_is_not_laid_on_their_dtype():
    x = torch.ones(2, 3, dtype=torch.int64, device=DEVICE).to_sparse_csr()
    with pytest.raises(NotImplementedError, match="aten::_softmax"):
        softmax(x, 1, dtype=torch.float32)
