"""What a driver asks of the GPU, recorded in one place and carried out in another."""

import pytest
import torch

import needs
from corpus import RIGHT
from exercises import SOLUTIONS
from helpers import kernels, traffic
from helpers.check.problems import cases, losses
from helpers.check.problems.problem import Problems, changed, inputs_of
from helpers.check.trial import call
from helpers.instructor.sandbox import language, replay, transcript, wire
from posed import posed

BODY = "import triton\nimport triton.language as tl\n@triton.jit\ndef kernel(x_ptr, N: tl.constexpr):\n    "


def decoy(x):
    size = x.untyped_storage().nbytes() // x.element_size()
    return replay.decoy_of(list(x.shape), list(x.stride()), x.storage_offset(), size, x.dtype)


def recorded(fn, x, *others, kind=cases.SOFTMAX, **options):
    problem = posed(decoy(x), *others, kind=kind, **options)
    plan = wire.decode(wire.encode(transcript.transcript(fn, problem)))
    assert "raised" not in plan, plan
    return plan


def carried_out(fn, x):
    recording = replay.Recording(recorded(fn, x))
    return call.of_tensors(recording, posed(x.clone()), again=recording.again)


each_kernel = pytest.mark.parametrize("name", ["single_tile", "masked", "two_pass", "online"])


@needs.interpreter
@each_kernel
def test_what_is_carried_out_counts_as_what_is_called(name):
    fn = SOLUTIONS[name].answered()
    x = torch.randn(3, 256)
    called, replayed = call.of_tensors(fn, posed(x.clone())), carried_out(fn, x)
    for field in ("kernels", "loads", "stores", "stored_by_kernels", "eager", "programs", "tile"):
        assert getattr(replayed, field) == getattr(called, field)
    assert torch.equal(replayed.y, called.y) and torch.equal(replayed.loaded, called.loaded)


@pytest.mark.thinned
@needs.interpreter
@pytest.mark.parametrize(("name", "way"), [(n, w) for n in ("masked", "two_pass", "online") for w in RIGHT[n]])
def test_a_right_answer_written_differently_can_be_carried_out(name, way):
    x = torch.randn(2, 300)
    assert cases.is_right(x, carried_out(SOLUTIONS[name].variant(RIGHT[name][way]), x).y)


@needs.interpreter
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.softmax(x, dim=1),
        lambda x: (
            torch.exp(x - x.max(1, keepdim=True).values) / torch.exp(x - x.max(1, keepdim=True).values).sum(1, True)
        ),
        lambda x: kernels.single_tile_softmax(x.contiguous().clone()),
        lambda x: kernels.single_tile_softmax(x.t().contiguous().t()),
    ],
    ids=["softmax", "chain", "moved first", "transposed first"],
)
def test_operations_of_torch_are_carried_out_and_counted(fn):
    x = torch.randn(4, 64)
    called, replayed = call.of_tensors(fn, posed(x.clone())), carried_out(fn, x)
    assert cases.is_right(x, replayed.y)
    assert (replayed.eager, replayed.loads, replayed.stores) == (called.eager, called.loads, called.stores)


@needs.interpreter
def test_a_driver_that_reads_numbers_gets_numbers_that_mean_nothing():
    x = torch.randn(2, 16)
    replayed = carried_out(lambda x: torch.tensor(x.tolist(), device=x.device), x)
    assert not torch.isclose(replayed.y, x).any() and replayed.kernels == 0


@pytest.mark.parametrize(
    "step",
    [
        {"op": ["os", "system", ""], "args": [], "kwargs": {}, "out": []},
        {"op": ["aten", "from_file", ""], "args": ["/etc/passwd"], "kwargs": {}, "out": [1]},
        {"op": ["aten", "_unsafe_index", "Tensor"], "args": [], "kwargs": {}, "out": [1]},
        {"kernel": ["import os", "f"], "grid": [1], "args": {}, "options": {}},
        {"kernel": [BODY + "pass", "kernel"], "grid": [1], "args": {"N": {"tensor": 0}}, "options": {}},
        {"kernel": [BODY + "pass", "kernel"], "grid": [1], "args": {"x_ptr": {"list": [{"tensor": 0}]}}, "options": {}},
    ],
)
def test_a_recording_that_no_driver_can_make_is_refused(step):
    with pytest.raises((replay.BadPlan, language.NotTriton)):
        replay.carry_out({"steps": [step], "result": {"tensor": 0}}, torch.zeros(2, 2))


@needs.interpreter
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("row_loss", losses.LOSSES, id="losses"),
        pytest.param("loss_and_gradient", losses.LOSSES_AND_GRADIENT, id="losses and gradient"),
    ],
)
def test_what_is_carried_out_of_losses_counts_as_what_is_called(name, kind):
    traffic.self_test()  # as where answers are checked: the first count would be watched while it tests itself
    fn = SOLUTIONS[name].answered()
    for case in ("rows with a gap between them", "some rows ignored, the first of them", "bfloat16"):
        one, other = (Problems(losses.LOGITS, kind.wants, 5).only([case]).draw()[case] for _ in range(2))
        recording = replay.Recording(recorded(fn, *one.inputs, kind=kind))
        replayed = call.of_tensors(recording, one, again=recording.again)
        called = call.of_tensors(fn, other)
        for one, other in zip(called.results + called.again, replayed.results + replayed.again, strict=True):
            assert torch.equal(one, other)
        for field in ("kernels", "loads", "stores", "stored_by_kernels", "eager", "programs", "tile", "launches"):
            assert getattr(replayed, field) == getattr(called, field)


@needs.interpreter
def test_a_driver_of_losses_may_read_the_targets_and_not_the_logits():
    x, target = inputs_of(losses.LOGITS["small random values"], "", 5)

    def seen(read):
        plan = recorded(
            lambda x, target: torch.tensor(read(x, target), device=x.device), x, target.clone(), kind=losses.LOSSES
        )
        return replay.carry_out(plan, x, target)

    assert torch.equal(seen(lambda x, target: target.tolist()), target)
    assert not torch.isclose(seen(lambda x, target: x[:, 0].tolist()), x[:, 0]).any()


@needs.interpreter
@pytest.mark.parametrize("wrap", [torch.nn.Parameter, lambda y: y.requires_grad_()], ids=["parameter", "leaf"])
def test_a_result_made_a_parameter_is_that_of_the_kernel(wrap):
    assert cases.is_right(X, carried_out(lambda x: wrap(kernels.single_tile_softmax(x)), X).y)


@needs.interpreter
@pytest.mark.parametrize("device", ["meta", torch.device("meta")])
def test_a_tensor_where_no_kernel_is_cannot_be_recorded(device):
    def fn(x):
        y = torch.empty(x.shape, device=device)
        kernels.single_tile_kernel[(len(x),)](y, x, 3, 3, 1, 3, BLOCK=4)
        return y

    assert transcript.transcript(fn, posed(X.clone()))["error"] == "WrongDevice"


# Called again, and with another BLOCK


X = torch.linspace(-2, 2, 6).reshape(2, 3)
KEPT = {}


def keeps_its_result_by_address(x):
    if x.data_ptr() not in KEPT:
        KEPT[x.data_ptr()] = kernels.single_tile_softmax(x)
    return KEPT[x.data_ptr()]


def keeps_the_memory_of_its_result(x):
    y = KEPT.setdefault(tuple(x.shape), torch.empty_like(x))
    return y.copy_(kernels.single_tile_softmax(x))


def fails_when_called_again(x):
    if KEPT.setdefault("calls", []):
        raise ValueError("not again")
    KEPT["calls"].append(1)
    return kernels.single_tile_softmax(x)


@pytest.fixture(autouse=True)
def nothing_kept():
    KEPT.clear()


@needs.interpreter
def test_a_driver_is_recorded_again_with_other_numbers():
    one = carried_out(kernels.single_tile_softmax, X)
    assert cases.is_right(changed(X), one.again[0]) and not (one.overwritten or one.again_raised)


@needs.interpreter
def test_a_result_kept_by_its_address_is_wrong_when_it_is_asked_for_again():
    one = carried_out(keeps_its_result_by_address, X)
    assert cases.is_right(X, one.y) and not cases.is_right(changed(X), one.again[0])


@needs.interpreter
def test_a_result_whose_memory_serves_the_second_call_is_overwritten():
    assert carried_out(keeps_the_memory_of_its_result, X).overwritten


@needs.interpreter
def test_a_driver_that_fails_when_it_is_called_again_says_how():
    assert carried_out(fails_when_called_again, X).again_raised == "AgainFailed: ValueError: not again"


@needs.interpreter
def test_a_recording_without_its_second_call_has_failed_there():
    plan = recorded(kernels.single_tile_softmax, X)
    del plan["again"]
    with pytest.raises(replay.AgainFailed, match="it was not recorded"):
        replay.Recording(plan).again(X)


@needs.interpreter
def test_a_large_matrix_is_recorded_once():
    assert "again" not in recorded(kernels.single_tile_softmax, torch.zeros(2, 1024))


@needs.interpreter
def test_a_driver_is_recorded_with_the_block_that_is_asked_for():
    x = torch.zeros(1, 600)
    blocks = [recorded(kernels.two_pass_softmax, x, BLOCK=BLOCK)["steps"][-1]["args"]["BLOCK"] for BLOCK in (64, 128)]
    assert blocks == [64, 128]


@needs.interpreter
@pytest.mark.parametrize(("device", "forgotten"), [("x", False), ("cpu", True)])
def test_a_result_that_a_gpu_would_not_have_is_not_recorded(device, forgotten):
    def fn(x):
        y = torch.empty(x.shape, device=x.device if device == "x" else None)
        return y.copy_(kernels.single_tile_softmax(x))

    assert (transcript.transcript(fn, posed(X.clone())).get("error") == "WrongDevice") is forgotten


@needs.interpreter
def test_a_kernel_that_is_given_a_tensor_without_x_s_device_is_not_recorded():
    def fn(x):
        y = torch.empty(x.shape)
        kernels.single_tile_kernel[(len(x),)](y, x, x.shape[1], x.stride(0), 1, y.stride(0), BLOCK=8)
        return y

    assert "WrongDevice: single_tile_kernel is given y_ptr" in transcript.transcript(fn, posed(X.clone()))["raised"]
