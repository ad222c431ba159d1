"""What an answer does beside its kernels: what it sees of x there, and what is noticed of it."""

import numpy as np
import pytest
import torch

import needs
from helpers import kernels, traffic
from helpers.check.problems import cases
from helpers.check.problems.problem import changed
from helpers.check.trial import call, withheld
from looking import each_look
from posed import posed

pytestmark = needs.interpreter

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
CHOSEN = "cuda" if torch.cuda.is_available() else "cpu"


def tried(fn, x=X, **options):
    """The trial of fn on a copy of x, which has its numbers only for kernels and operations."""
    traffic.self_test()  # as where answers are checked: the first count would test itself while programs are left out
    return call.of_tensors(fn, posed(x.clone(), **options), withhold=True)


def softmax(x):
    return kernels.single_tile_softmax(x)


def test_bits_that_torch_looks_at_as_integers_few_at_a_time_are_loaded_all_the_same():
    def by_bits(x):
        for row in x.view(torch.int32):
            for few in row.split(len(x)):
                few.max()
        return softmax(x)

    x = torch.rand(2, 500)
    assert tried(by_bits, x).copied == x.numel() and tried(softmax, x).copied == 0


def test_kernels_and_operations_load_the_numbers_of_x():
    assert cases.is_right(X, tried(softmax).y)
    assert cases.is_right(X, tried(lambda x: softmax(x.clone())).y)


@each_look
def test_others_see_other_numbers(look):
    seen = tried(lambda x: kernels.copy(torch.softmax(look(x), dim=1)))
    assert not cases.is_right(X, seen.y) and cases.is_right(withheld.decoy(X), seen.y)


def test_x_has_its_own_numbers_again_afterwards():
    x = X.clone()
    with withheld.Withheld(x) as hidden:
        assert not np.array_equal(x.numpy(), X.numpy())
    assert torch.equal(x, X) and not hidden.changed


def test_what_a_kernel_stores_in_x_stays_there_and_is_noticed():
    def in_place(x):
        kernels.single_tile_kernel[(3,)](x, x, 8, 8, 1, 8, BLOCK=8)
        return x.clone()

    assert tried(in_place).input_changed


def test_what_a_kernel_stores_in_x_and_another_restores_is_noticed():
    def restoring(x):
        kept = kernels.copy(x)
        y = softmax(x)
        kernels.copy_kernel[(3,)](x, y, 8, 8, 1, 8, BLOCK=8)
        kernels.copy_kernel[(3,)](x, kept, 8, 8, 1, 8, BLOCK=8)
        return y

    assert tried(restoring).input_changed


@pytest.mark.parametrize("kernel", [True, False])
def test_x_changed_and_restored_is_noticed(kernel):
    def restoring(x):
        kept = x.clone()
        x.zero_()
        x.copy_(kept)
        return softmax(x)

    assert call.of_tensors(restoring, posed(X.clone()), withhold=kernel).input_changed


@pytest.mark.parametrize(
    ("make", "forgotten"),
    [
        (lambda x: torch.empty(3, 8), True),
        (lambda x: torch.empty(3, 8, device=CHOSEN), False),
        (lambda x: torch.empty(3, 8, device=x.device.type), False),
        (lambda x: torch.empty(3, 8, device=x.device), False),
        (lambda x: torch.empty(3, 8).to(x.device), False),
        (torch.empty_like, False),
    ],
    ids=["none", "chosen by name", "x's name", "x's", "moved", "like x"],
)
def test_a_result_without_x_s_device_is_noticed(make, forgotten):
    assert (tried(lambda x: make(x).copy_(softmax(x))).error == "WrongDevice") is forgotten


@pytest.mark.parametrize(
    ("make", "forgotten"),
    [
        (lambda x: torch.empty(3), True),
        (lambda x: torch.tensor([8.0]), True),
        (lambda x: torch.zeros(2, 3)[1], True),
        (lambda x: torch.empty(3, device=x.device), False),
        (lambda x: torch.arange(3.0).to(x.device), False),
        (lambda x: x.new_empty(3), False),
        (lambda x: torch.zeros(3).type_as(x), False),
    ],
    ids=["none", "numbers", "a view", "x's", "moved", "like x", "of x's type"],
)
def test_a_kernel_that_is_given_a_tensor_without_x_s_device_is_noticed(make, forgotten):
    def driver(x):
        kernels.copy(make(x)[None])
        return softmax(x)

    seen = tried(driver)
    assert (seen.error == "WrongDevice") is forgotten
    assert not forgotten or "copy_kernel is given x_ptr, a tensor made without x's device" in seen.raised


def test_a_default_device_of_the_notebook_s_own_is_believed():
    def driver(x):
        torch.set_default_device(x.device)
        try:
            return torch.empty(3, 8).copy_(softmax(x))
        finally:
            torch.set_default_device(None)

    assert tried(driver).error == ""


@pytest.mark.parametrize(
    ("driver", "forgotten"),
    [
        (lambda x: torch.empty(3, 8, device="cpu").copy_(softmax(x)), True),
        (lambda x: (lambda: torch.empty(3, 8, device="cpu"))().copy_(softmax(x)), True),
        (lambda x: torch.empty(3, 8, device="cuda" if x.is_cuda else "cpu").copy_(softmax(x)), False),
        (lambda x: torch.empty(3, 8, device="cuda" if torch.cuda.is_available() else "cpu").copy_(softmax(x)), False),
        (lambda x: torch.empty(3, 8, device=x.get_device() if x.is_cuda else "cpu").copy_(softmax(x)), False),
        (lambda x: torch.empty(3, 8, device=str(x.device)).copy_(softmax(x)), False),
    ],
    ids=["cpu", "cpu, in a function of its own", "chosen by x", "chosen by torch", "x's number", "x's name"],
)
def test_the_cpu_by_name_is_elsewhere_unless_somebody_was_asked(driver, forgotten):
    assert (tried(driver).error == "WrongDevice") is forgotten


# The second call


def test_a_result_kept_by_address_is_that_of_the_first_call():
    kept = {}
    seen = tried(lambda x: kept.setdefault(x.data_ptr(), softmax(x)))
    assert cases.is_right(X, seen.y) and not cases.is_right(changed(X), seen.again[0])


def test_one_result_for_all_calls_is_overwritten():
    y = torch.empty_like(X)
    seen = tried(lambda x: y.copy_(softmax(x)))
    assert seen.overwritten and cases.is_right(X, seen.y)


def test_a_second_call_that_fails_says_why():
    calls = []

    def once(x):
        calls.append(x)
        return softmax(x) if len(calls) == 1 else calls[9]

    assert tried(once).again_raised == "IndexError: list index out of range"


def test_a_large_tensor_is_given_to_an_answer_once():
    assert tried(softmax, torch.randn(1, 1025)).again == []


# A BLOCK, and a sample


@pytest.mark.parametrize("options", [{}, {"BLOCK": 4}, {"BLOCK": 4, "S": 3}])
def test_a_driver_is_given_those_options_of_the_case_that_it_takes(options):
    given = []

    def driver(x, BLOCK=8):
        given.append(BLOCK)
        return kernels.online_softmax(x, BLOCK=BLOCK)

    BLOCK = options.get("BLOCK", 8)
    assert tried(driver, **options).tile == BLOCK and set(given) == {BLOCK}
    assert cases.is_right(X, tried(softmax, **options).y)


def tall(rows):
    """The input of a case of so many rows."""
    return torch.randn(rows, 2, generator=torch.Generator().manual_seed(1))


def test_of_very_many_rows_some_are_computed_and_said():
    x = tall(70000)
    seen = tried(softmax, x)
    assert cases.is_right(x[seen.rows], seen.y) and not seen.missing and seen.sampled and seen.programs == 70000
    assert {0, 1, 2, 3, 69999} < set(seen.rows) and len(seen.rows) < 20
    assert seen.stored.shape == (len(seen.rows), 2) and (seen.stored == 1).all()


def test_a_result_of_2_to_the_31_elements_takes_up_no_memory():
    x = cases.overlapping(2**21 + 4, 1024)(torch.Generator().manual_seed(1))
    seen = call.of_tensors(softmax, posed(x), withhold=True)
    assert cases.is_right(x[seen.rows], seen.y) and max(seen.rows) * 1024 >= 2**31 and not seen.skipped


def test_the_loads_of_an_expanded_row_are_those_of_each_of_its_copies():
    x = torch.randn(1, 300).expand(5, 300)
    seen = call.of_tensors(lambda x: kernels.online_softmax(x, BLOCK=128), posed(x), withhold=True)
    assert cases.is_right(x, seen.y) and (seen.loaded == 2).all()


@pytest.mark.parametrize("most", [1024, 65535])
def test_rows_left_out_at_the_end_are_noticed(most):
    def some(x):
        y = torch.empty_like(x)
        kernels.single_tile_kernel[(min(len(x), most),)](y, x, 2, 2, 1, 2, BLOCK=2)
        return y

    assert tried(some, tall(most + 5)).missing == (
        f"{most:,} programs, of which none that was run stores more than 1 row, for {most + 5:,} rows"
    )


@pytest.mark.parametrize("programs", [3, 700])
def test_rows_that_a_program_takes_in_turn_are_among_the_sample(programs):
    x = tall(1100)
    seen = tried(lambda x: kernels.persistent_softmax(x, programs=programs), x)
    assert cases.is_right(x[seen.rows], seen.y) and 1099 in seen.rows and not seen.missing


@pytest.mark.thinned(0)
def test_few_programs_for_very_many_rows_are_not_run_to_their_end():
    seen = tried(lambda x: kernels.persistent_softmax(x, programs=4), tall(70000))
    assert seen.skipped and seen.sampled and seen.y is None
