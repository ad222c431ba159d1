"""The checks of lesson 10: cases, tolerances, what a call shows, and predicted trips."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
import triton
from torch.utils._pytree import tree_map_only

import needs
from corpus import WRONG
from exercises import SOLUTIONS, wrong_findings
from helpers import DEVICE, check, kernels, traffic
from helpers.check import EXERCISES
from helpers.check.exercises.lesson_10 import TRIPS_OF_TRAINING
from helpers.check.problems import losses
from helpers.check.problems.losses import IGNORED, LOGITS, LOSSES, LOSSES_AND_GRADIENT
from helpers.check.problems.problem import Problems, changed
from helpers.check.trial import call, place
from helpers.softmax import cross_entropy
from looking import each_look

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")


def problem_of(case, seed, kind=LOSSES):
    """The problem of a case, on the device."""
    (problem,) = Problems(LOGITS, kind.wants, seed).only([case]).draw().values()
    return replace(problem, inputs=tuple(one.to(DEVICE) for one in problem.inputs))


def called(fn, case, kind=LOSSES, withhold=False):
    """The trial of a driver on the problem of a case."""
    traffic.self_test()  # as where answers are checked
    return call.of_tensors(fn, problem_of(case, 1, kind), withhold=withhold and DEVICE.type == "cpu")


TALL = "2,097,156 rows of 1,024"
SMALL = [case for case in LOGITS if case not in (TALL, "around −10³⁸")]
"""Without rows for which torch needs gigabytes, and without numbers of which m + log(l) has lost log(l)."""
SHORT = "every column of a short row"


@pytest.mark.parametrize("case", [case for case in SMALL if case != "targets of N and more"])  # torch refuses these
def test_what_is_expected_is_torchs_in_float64(case):
    """But for ignored rows that hold NaN, whose gradient torch multiplies by 0."""
    x, target = problem_of(case, 3).inputs
    got, gradient = losses.expected_losses(x, target)
    leaf = x.double().requires_grad_()
    want = F.cross_entropy(leaf, target, reduction="none")
    (slope,) = torch.autograd.grad(want.nan_to_num(posinf=0).sum(), leaf)
    torch.testing.assert_close(got, want.detach(), equal_nan=True)
    ignored = target == IGNORED
    assert not gradient[ignored].any()
    finite = want.isfinite() & ~ignored
    torch.testing.assert_close(gradient[finite], slope[finite])


@pytest.mark.thinned
@pytest.mark.parametrize("case", SMALL)
def test_the_course_s_kernels_and_the_library_are_right_in_every_case(case):
    x, target = problem_of(case, 7).inputs
    want, slope = losses.expected_losses(x, target)
    both, gradient = kernels.losses_and_gradient(x, target)
    asked = losses.is_class(x, target)
    for got in (both, kernels.row_losses(x, target), cross_entropy(x, target, reduction="none").float()):
        rtol = 1e-2 if x.dtype != torch.float32 else 1e-5
        torch.testing.assert_close(got[asked].double(), want[asked], rtol=rtol, atol=1e-4, equal_nan=True)
    atol = 1e-4 if x.dtype != torch.float32 else 1e-6
    torch.testing.assert_close(gradient[asked].double(), slope[asked], rtol=1e-2, atol=atol, equal_nan=True)


def test_a_problem_is_the_same_for_the_same_seed_and_another_for_another():
    one, same, other = (problem_of("bfloat16", seed).x for seed in (5, 5, 6))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_a_call_shows_losses_gradient_and_trips():
    seen = called(kernels.losses_and_gradient, SHORT, LOSSES_AND_GRADIENT)
    assert (seen.kernels, seen.eager, seen.got, seen.input_changed) == (1, [], "", False)
    assert 36 <= seen.loads <= 36 + 12 and seen.stores == 36 + 6
    assert [tuple(y.shape) for y in seen.results] == [(6,), (6, 6)]


@needs.interpreter
def test_a_call_shows_what_a_compiler_is_to_be_asked():
    """Beside a GPU a check calls answers in a process that interprets; there it sees this too."""
    seen = called(kernels.losses_and_gradient, SHORT, LOSSES_AND_GRADIENT)
    assert len(seen.launches) == 1 and "asks" in seen.launches[0]


@pytest.mark.parametrize(
    ("result", "kind", "says", "of"),
    [
        (None, LOSSES, "None", ""),
        (3.0, LOSSES, "a float", "type"),
        (3, LOSSES_AND_GRADIENT, "an int", "pair"),
        (type("A" * 999, (), {"__module__": "torch"})(), LOSSES, f"an {'A' * 50}", "type"),
        ((torch.zeros(6, 6), torch.zeros(6)), LOSSES_AND_GRADIENT, "these in another order", "order"),
        (torch.zeros(6, 1), LOSSES, r"(6, 1) torch.float32", "shape"),
        (torch.zeros(6).double(), LOSSES, "(6,) torch.float64", "dtype"),
        (torch.zeros(6), LOSSES_AND_GRADIENT, "a Tensor", "pair"),
        ((torch.zeros(6), torch.zeros(6)), LOSSES_AND_GRADIENT, "(6,) torch.float32", "shape"),
    ],
    ids=["nothing", "a number", "one for two", "a long name", "swapped", "a column", "float64", "no gradient", "short"],
)
def test_what_comes_back_in_another_shape_is_said(result, kind, says, of):
    result = tree_map_only(torch.Tensor, lambda tensor: tensor.to(DEVICE), result)
    seen = called(lambda x, target: result, SHORT, kind)
    assert (seen.got, seen.got_kind, seen.results) == (says, of, [])


@needs.interpreter
def test_what_was_asked_for_is_said_of_every_result():
    report = check.report_on("loss_and_gradient", lambda x, target: kernels.row_losses(x, target))
    said = "expected (a tensor (6,) torch.float32, a tensor (6, 6) torch.float32), got a Tensor"
    assert wrong_findings(report)[SHORT] == said


@needs.interpreter
@pytest.mark.parametrize("gradient", [False, True])
def test_a_result_that_a_gpu_would_not_have_is_said(gradient):
    def mine(x, target):
        losses, slopes = kernels.losses_and_gradient(x, target)
        elsewhere = torch.empty(x.shape, dtype=x.dtype) if gradient else torch.empty(len(x))
        return (losses, elsewhere.copy_(slopes)) if gradient else elsewhere.copy_(losses)

    report = check.report_on("loss_and_gradient" if gradient else "row_loss", mine)
    said = "on a GPU the result would lie on the CPU: it is made without x's device"
    assert report.diagnosis.id == "wrong_device" and said in wrong_findings(report)["bfloat16"]


@needs.interpreter
def test_a_loss_kernel_that_is_given_a_tensor_of_the_cpu_is_named():
    def mine(x, target):
        losses = torch.empty(x.shape[0])
        kernels.losses_kernel[(len(x),)](losses, x, target, x.stride(0), x.shape[1], BLOCK=2048)
        return losses

    assert check.report_on("row_loss", mine).diagnosis.id == "wrong_device"


@dataclass(frozen=True)
class Beside(place.Forked):
    """A place whose GPU, were there one, would compute `on_it`."""

    on_it: Callable = kernels.row_losses

    def on_gpu(self, problems):
        return place.Forked(self.on_it).drivers(problems, kernel=True)


@pytest.mark.thinned(0)
@needs.interpreter
def test_a_loss_that_is_right_interpreted_is_tried_on_a_gpu_too():
    wrong = EXERCISES["row_loss"].report(Beside(kernels.row_losses, on_it=lambda *xy: kernels.row_losses(*xy) + 1))
    assert wrong_findings(wrong).keys() == {f"on the GPU: {case}" for case in LOSSES.on_gpu} and wrong.points == 0
    assert EXERCISES["row_loss"].report(Beside(kernels.row_losses)).passed


def test_a_small_problem_is_given_to_an_answer_twice_with_other_logits():
    calls = []

    def mine(x, target):
        calls.append(x.clone())
        return kernels.row_losses(x, target)

    seen = called(mine, "small random values")
    assert torch.equal(calls[-1], changed(calls[0])) and len(calls) >= 2
    want, _ = losses.expected_losses(calls[-1].cpu(), problem_of("small random values", 1).inputs[1].cpu())
    torch.testing.assert_close(seen.again[0].double(), want)
    calls.clear()
    called(mine, "a class beyond 32,767")
    assert len(calls) == 1


@needs.interpreter
@each_look
def test_what_is_no_kernel_and_no_operation_sees_other_logits(look):
    def mine(x, target):
        return kernels.row_losses(x, target) * 0 + F.cross_entropy(look(x).float(), target, reduction="none")

    seen = called(mine, "small random values", withhold=True)
    want, _ = losses.expected_losses(*problem_of("small random values", 1).inputs)
    assert not torch.isclose(seen.results[0].double(), want).any()


@pytest.mark.parametrize("fault", ["one y for all calls", "losses kept by x's address"])
def test_what_is_used_again_by_a_second_call_is_named(fault):
    wrong = WRONG["row_loss"][fault]
    assert check.report_on("row_loss", SOLUTIONS["row_loss"].variant(wrong)).diagnosis.id == wrong.named


def test_a_gradient_of_the_first_call_is_noticed_though_the_losses_are_new():
    kept = {}

    def mine(x, target):
        losses, gradient = right(x, target)
        return losses, kept.setdefault(x.data_ptr(), gradient)

    right = SOLUTIONS["loss_and_gradient"].answered()
    report = check.report_on("loss_and_gradient", mine)
    assert (report.passed, report.diagnosis.id) == (False, "result_used_again")


def test_one_of_two_results_that_a_second_call_overwrites_is_noticed():
    kept = {}

    def mine(x, target):
        losses, gradient = kernels.losses_and_gradient(x, target)
        return losses, kept.setdefault(x.shape, torch.empty_like(gradient)).copy_(gradient)

    assert called(mine, "small random values", LOSSES_AND_GRADIENT).overwritten


@needs.interpreter
def test_the_input_as_result_is_named_though_its_rows_overlap():
    def mine(x, target):
        losses = torch.empty(len(x), device=x.device)
        kernels.losses_and_gradient_kernel[(len(x),)](
            losses, x, x, target, x.stride(0), x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1])
        )
        return losses, x

    report = check.report_on("loss_and_gradient", mine)
    assert report.diagnosis.id == "input_overwritten" and wrong_findings(report)[TALL] == "the input was overwritten"


def test_a_second_call_that_fails_says_why():
    calls = []

    def once(x, target):
        calls.append(x)
        return kernels.row_losses(x, target) if len(calls) == 1 else calls[9]

    said = wrong_findings(check.report_on("row_loss", once))["small random values"]
    assert said == "called again with other numbers: IndexError: list index out of range"


def test_a_loss_computed_by_torch_is_named():
    def mine(x, target):
        found = kernels.row_losses(x, target)
        return torch.where(target >= 0, torch.logsumexp(x.float(), 1) * 0 + found, found)

    report = check.report_on("row_loss", mine)
    assert (report.passed, report.points, report.diagnosis.id) == (False, 0, "torch_at_work")


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("name", "fault", "named", "kept"),
    [
        ("row_loss", "softmax by Triton", "triton_s_softmax", 0.0),
        ("loss_and_gradient", "softmax by Triton", "triton_s_softmax", 0.0),
        ("loss_and_gradient", "the target stored again", "stored_twice", 0.5),
        ("row_loss", "rounded to float16", "losses_nearly_right", 0.0),
    ],
)
def test_what_is_right_or_nearly_so_and_not_what_was_asked_for(name, fault, named, kept):
    wrong = check.report_on(name, SOLUTIONS[name].variant(WRONG[name][fault]))
    assert (wrong.passed, wrong.points, wrong.diagnosis.id) == (False, kept * wrong.max_points, named)


@pytest.mark.thinned(0)
@pytest.mark.parametrize(
    "looks",
    [
        lambda x, target: int(target.max()) < x.shape[1],
        lambda x, target: (target < x.shape[1]).all(),
        lambda x, target: not (target >= x.shape[1]).any(),
        lambda x, target: target.amax().item() < x.shape[1] and target.min().item() >= IGNORED,
    ],
)
def test_a_look_at_the_targets_is_none_of_the_kernel_s_work(looks):
    def mine(x, target):
        return right(x, target) if looks(x, target) else right(x, target.clone())

    right = SOLUTIONS["row_loss"].answered()
    assert check.report_on("row_loss", mine).passed


@pytest.mark.thinned(0)
def test_a_onehot_of_integers_made_by_torch_is_the_kernel_s_work():
    def mine(x, target):
        onehot = F.one_hot(target.clamp(0, x.shape[1] - 1), x.shape[1])
        assert onehot.sum() == len(x)
        return right(x, target)

    right = SOLUTIONS["loss_and_gradient"].answered()
    report = check.report_on("loss_and_gradient", mine)  # torch makes gigabytes of 2,097,156 rows
    assert report.points == 0 and report.diagnosis.id in (
        "torch_at_work",
        "endless",
    )  # of 2,097,156 rows torch makes gigabytes


def test_the_case_with_too_many_trips_is_named():
    report = check.report_on("row_loss", lambda x, target: kernels.row_losses(x.contiguous(), target))
    (budget,) = (finding for finding in report.findings if finding.case == "trips to memory")
    assert not budget.ok and "loaded 2.0 times and stored 1.0 times in the case rows with a gap" in budget.seen


@pytest.mark.thinned(0)
def test_rounding_the_gradient_twice_is_too_much_in_16_bits():
    def mine(x, target):
        found, gradient = kernels.losses_and_gradient(x.float(), target)
        return found, (gradient + 1).to(x.dtype) - 1

    assert not check.report_on("loss_and_gradient", mine).passed


# Slopes


def test_slopes_may_be_found_in_any_way_that_is_near_enough():
    def by_formula(loss, x):
        h = 1e-4
        return [(loss([v + h * (i == j) for j, v in enumerate(x)]) - loss(x)) / h for i in range(len(x))]

    assert check.slopes(by_formula).passed


@pytest.mark.parametrize("answer", [lambda loss, x: 3.0, lambda loss, x: [math.nan] * len(x), lambda loss, x: "slopes"])
def test_anything_but_a_list_of_slopes_is_wrong(answer):
    report = check.slopes(answer)
    assert report.attempted and not report.passed


# Trips

WAYS = list(TRIPS_OF_TRAINING)


def test_the_trips_are_those_that_are_counted():
    x = torch.randn(8, 1500, device=DEVICE, requires_grad=True)
    target = torch.randint(0, 1500, (8,), device=DEVICE)
    ways = {
        WAYS[0]: lambda x: torch.autograd.grad(F.cross_entropy(x, target), x),
        WAYS[1]: lambda x: (kernels.row_losses(x.detach(), target), kernels.losses_and_gradient(x.detach(), target)),
        WAYS[2]: lambda x: kernels.losses_and_gradient(x.detach(), target),
        WAYS[3]: lambda x: torch.autograd.grad(2 * cross_entropy(x, target), x),
    }
    for way, run in ways.items():
        counted = traffic.count(run, x)
        assert (round(counted.loads_per_element), round(counted.stores_per_element)) == TRIPS_OF_TRAINING[way]


@pytest.mark.parametrize(
    ("way", "pair", "named"),
    [
        (0, (2, 2), "zeros_forgotten"),
        (0, (2, 3), "gradient_not_read"),
        (0, (3, 2), "zeros_not_stored"),
        (0, (1, 1), "forward_only"),
        (1, (1, 1), "logits_kept"),
        (1, (3, 1), "losses_loaded"),
        (1, (1, 2), "order_swapped"),
        (2, (2, 1), "loaded_again"),
        (1, (2, 2), "losses_as_large"),
        (2, (1, 0), "gradient_not_stored"),
        (3, (1, 1), "backward_for_nothing"),
        (3, (2, 1), "product_not_stored"),
        (3, (1, 2), "factor_not_loaded"),
        (3, (3, 2), "computed_again"),
    ],
)
def test_a_common_miscount_is_named(way, pair, named):
    report = check.trips({**TRIPS_OF_TRAINING, WAYS[way]: pair})
    assert (report.passed, report.diagnosis.id) == (False, named)


@pytest.mark.parametrize("value", [None, 3, (1,), ("a", "b"), (math.nan, 1)], ids=str)
def test_what_is_no_pair_of_counts_is_wrong(value):
    assert not check.trips({**TRIPS_OF_TRAINING, WAYS[0]: value}).passed


def test_pairs_of_any_numbers_count_and_nothing_at_all_is_not_attempted():
    assert check.trips({way: [float(n) for n in pair] for way, pair in TRIPS_OF_TRAINING.items()}).passed
    assert not check.trips(dict.fromkeys(WAYS)).attempted


def test_a_count_as_the_lesson_prints_it_is_right_though_it_has_a_few_numbers_more():
    assert check.trips({**TRIPS_OF_TRAINING, WAYS[0]: (3.002, 3)}).passed


def test_the_exercises_say_what_they_ask():
    for name in ("row_loss", "slopes", "loss_and_gradient", "trips"):
        assert EXERCISES[name].number.startswith("10.") and EXERCISES[name].about.startswith("Checks")
