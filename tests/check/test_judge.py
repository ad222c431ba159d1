"""From trials to a report: what makes an answer right, what costs half of its points, and what costs all."""

from dataclasses import dataclass, field, replace

import pytest
import torch

from helpers.check import EXERCISES
from helpers.check.exercise import TensorExercise
from helpers.check.judge import (
    ANOTHER_EXERCISE,
    OVER_BUDGET,
    TORCH_AT_WORK,
    TRITON_S_SOFTMAX,
)
from helpers.check.problems import cases
from helpers.check.problems.problem import changed
from helpers.check.trial.trial import Trial
from helpers.check.trial.withheld import decoy
from helpers.engine.compiler.refusal import Refusal
from helpers.engine.compiler.verdict import Verdict
from helpers.engine.isolate import End
from posed import posed

X = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
KERNEL = TensorExercise(
    name="kernel",
    number="0.1",
    points=4,
    about="",
    kind=cases.SOFTMAX,
    makers={},
    loads=2.0,
    known=EXERCISES["masked"].known,
)
EAGER = replace(KERNEL, name="torch", loads=None)


def right(**changed):
    """The trial of a kernel that is right on X: 2 loads and 1 store per element."""
    every = torch.ones_like(X, dtype=torch.int64)
    seen = Trial(
        results=[torch.softmax(X, 1)], kernels=1, loads=12, stores=6, stored_by_kernels=6, programs=2, tile=4,
        loaded=2 * every, stored=every,
    )  # fmt: skip
    return replace(seen, **changed)


@dataclass
class Told:
    """A place whose trials are known beforehand."""

    trials: dict[str, Trial]
    gpu: dict[str, Trial] = field(default_factory=dict)
    verdict: Verdict = Verdict()
    asked_for_gpu: bool = False
    launches: list | None = None
    seed: int | None = None

    x: torch.Tensor = X
    rows: dict[str, torch.Tensor] = field(default_factory=dict)
    """In place of x, by case."""

    def drivers(self, problems, kernel):
        self.seed = problems.seed
        return self.beside(self.trials)

    def on_gpu(self, problems):
        self.asked_for_gpu = True
        return self.beside(self.gpu)

    def beside(self, trials):
        return {
            case: (replace(posed(self.rows.get(case, self.x)), seed=self.seed), trial) for case, trial in trials.items()
        }

    def compiled(self, launches):
        self.launches = launches
        return self.verdict


def judged(*trials, exercise=KERNEL, **gpu):
    return exercise.report(Told({f"case {n}": trial for n, trial in enumerate(trials)}, **gpu), seed=7)


def wrong(report):
    return {finding.case: finding.seen for finding in report.findings if not finding.ok}


# Right and wrong


def test_a_right_answer_has_all_points():
    report = judged(right(), right())
    assert (report.passed, report.points, report.diagnosis) == (True, 4, None)


def test_one_wrong_case_costs_all_points():
    report = judged(right(), right(results=[X]))
    assert (report.passed, report.points, list(wrong(report))) == (False, 0, ["case 1"])


def test_wrong_elements_are_counted_and_the_worst_is_shown_with_the_seed():
    y = torch.softmax(X, 1)
    y[0, 1:] = 0.5
    said = "2 of 6 elements are wrong, the worst at row 0, column 1: expected 0.244728, got 0.5 (seed 7)"
    assert wrong(judged(right(results=[y]))) == {"case 0": said}


@pytest.mark.parametrize(
    ("changed", "seen"),
    [
        ({"end": End.RAISED, "raised": "ValueError: no", "results": []}, "ValueError: no"),
        ({"got": "None; is a return missing?", "got_none": True, "results": []}, "got None; is a return missing?"),
        (
            {"got": "(2, 2) torch.float32", "results": []},
            "expected a tensor (2, 3) torch.float32, got (2, 2) torch.float32",
        ),
        ({"kernels": 0}, "no Triton kernel was launched"),
        ({"stored_by_kernels": 0, "eager": ["exp"]}, "the kernel stored nothing"),
        ({"stored_by_kernels": 0, "programs": 0, "eager": ["exp"]}, "the grid has 0 programs"),
        ({"input_changed": True}, "the input was overwritten"),
        ({"shares_storage": True}, "the result lies in the input's memory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_result_that_is_right_otherwise_is_a_finding_for(changed, seen):
    assert wrong(judged(right(), right(**changed))) == {"case 1": seen}


def test_the_type_of_an_error_is_in_the_finding():
    report = judged(right(), right(end=End.RAISED, raised="NameError: tl", error="NameError"))
    assert [finding.error for finding in report.findings if not finding.ok] == ["NameError"]


def test_a_softmax_in_torch_needs_no_kernel():
    assert judged(right(kernels=0, stored_by_kernels=0, eager=["exp"], loads=99), exercise=EAGER).passed


def test_columns_at_the_end_that_no_kernel_loads_are_a_finding_once():
    part = torch.tensor([[1, 1, 0], [1, 1, 0]])
    report = judged(right(results=[X], loaded=part), right(results=[X], loaded=part))
    assert wrong(report)["reach"] == "case 0: kernels loaded 2 of the row's 3 columns"
    assert [finding.case for finding in report.findings].count("reach") == 1


def test_what_the_answer_printed_first_is_in_the_report_cut_after_20_lines():
    lines = [str(n) for n in range(30)]
    report = judged(right(), right(printed="\n".join(lines)), right(printed="later"))
    assert report.printed.splitlines() == lines[:20]


# The budget, and whose work it is


@pytest.mark.parametrize(("loads", "points"), [(12, 4), (12.05, 4), (12.07, 2), (18, 2)])
def test_more_loads_than_the_budget_and_one_percent_cost_half(loads, points):
    assert judged(right(loads=loads)).points == points


@pytest.mark.parametrize(("stores", "points"), [(6, 4), (6.05, 4), (6.07, 2)])
def test_more_stores_than_one_an_element_and_one_percent_cost_half(stores, points):
    assert judged(right(stores=stores)).points == points


def test_what_is_never_stored_is_wrong_even_where_it_happens_to_be_right():
    report = judged(right(left_unwritten=2))
    assert report.points == 0 and "2 of 6 elements are never stored" in next(iter(wrong(report).values()))


def test_the_budget_is_that_of_every_case_with_room_for_eight_numbers_a_row():
    assert judged(right(loads=3), right(loads=3), right(loads=28.1)).points == 2
    assert judged(right(loads=3), right(loads=3), right(loads=28)).points == 4


@pytest.mark.parametrize(("moved", "points"), [([8, 9, 10], 4), ([8, 8, 7], 2), ([100] * 2, 2), ([1] * 23, 2)])
def test_a_program_has_room_for_eight_numbers_or_for_as_many_as_it_moves_if_these_are_less(moved, points):
    few = right(loads=0, stores=0)
    assert judged(few, few, right(loads=12 + 24, moved=moved)).points == points


def test_what_was_not_looked_at_for_races_is_said_and_costs_nothing_in_a_notebook():
    report = judged(right(), right(not_looked_at="Not looked at: l."))
    assert report.passed and report.note == "Not looked at: l."
    assert any(finding.seen == report.note for finding in report.findings)  # a grader's sign to look


SHARED = replace(KERNEL, shared=True)
LONG = torch.zeros(1, 9000)


def judged_long(exercise=SHARED, **changed):
    """The report on one row of 9,000 equal entries, by default in an exercise whose programs share rows."""
    every = torch.ones_like(LONG, dtype=torch.int64)
    seen = right(results=[torch.softmax(LONG, 1)], loaded=2 * every, stored=every, loads=18000, stores=9000)
    seen = replace(seen, **{"most_of_a_program": 0.5, **changed})
    return exercise.report(Told({"long": seen}, x=LONG), seed=7)


def test_fewer_loads_than_the_exercise_asks_for_are_another_exercise_s_kernel_and_keep_half():
    assert (report := judged_long(exercise=KERNEL, loads=9000)).points == 2 and report.diagnosis == ANOTHER_EXERCISE
    assert "this is lesson 03's kernel: it loads each element 1.0 times" in wrong(report)["the kernel asked for"]


@pytest.mark.parametrize(("most", "tile", "points"), [(0.5, 8192, 4), (1.0, 8192, 2), (0.95, 8192, 2), (0.5, 9000, 2)])
def test_a_long_row_is_shared_by_programs_and_streamed_where_the_exercise_asks_for_it(most, tile, points):
    assert judged_long(most_of_a_program=most, tile=tile).points == points


@pytest.mark.parametrize(("stores", "points"), [(9000, 4), (18000, 2)])
def test_what_programs_load_of_one_another_s_results_is_free_and_what_they_store_is_not(stores, points):
    assert judged_long(programs=9, most_of_a_program=0.2, loads=90000, stores=stores).points == points


def test_a_sampled_launch_is_no_part_of_the_budget():
    assert judged(right(), right(sampled=True, rows=[0, 1], loads=1000)).points == 4


GIVEN_UP = Trial(kernels=1, stored_by_kernels=1, skipped=True)


def test_a_launch_that_was_given_up_for_its_many_rows_is_not_wrong():
    assert judged(right(), *[replace(GIVEN_UP, sampled=True)] * 4).passed


@pytest.mark.parametrize(("columns", "passed"), [(1, False), (3, False), (4, True), (15, True), (16, False)])
def test_of_few_rows_it_is_not_if_rows_of_3_have_run_and_its_own_are_longer_and_not_much_longer(columns, passed):
    told = Told({"ran": right(), "given up": GIVEN_UP}, rows={"given up": torch.zeros(2, columns)})
    report = KERNEL.report(told, seed=7)
    assert report.passed is passed
    assert passed or (report.points, report.diagnosis.id) == (0, "too_slow")


# The second call


@pytest.mark.parametrize(
    ("changed", "seen"),
    [
        ({"again_raised": "KeyError: 3"}, "called again with other numbers: KeyError: 3"),
        ({"overwritten": True}, "a second call overwrites what the first has returned"),
        ({"results": [torch.softmax(decoy(X), 1)]}, "the result does not come from what kernels load of x"),
    ],
    ids=["raised", "overwritten", "elsewhere"],
)
def test_what_a_second_look_shows_is_a_finding(changed, seen):
    assert wrong(judged(right(), right(**changed))) == {"case 1": seen}


def test_the_second_call_is_held_against_the_numbers_that_x_had_then():
    assert judged(right(again=[torch.softmax(changed(X), 1)])).passed
    said = wrong(judged(right(again=[torch.softmax(X, 1) + 0.1])))["case 0"]
    assert said.startswith("called again with other numbers: 6 of 6 elements are wrong")


def test_a_buffer_may_cost_more_where_the_exercise_says_so():
    assert judged(right(loads=12.5), exercise=replace(KERNEL, buffer=0.1)).points == 4


def test_an_answer_over_budget_is_told_what_is_enough():
    report = judged(right(loads=18, stores=12))
    assert report.diagnosis is OVER_BUDGET
    assert wrong(report)["trips to memory"].startswith(
        "each element was loaded 3.0 times and stored 2.0 times; 2.0 and"
    )


def test_torch_at_work_in_any_case_costs_all_points():
    report = judged(right(), right(eager=["exp", "amax"]), right(eager=["exp"]))
    assert (report.points, report.diagnosis) == (0, TORCH_AT_WORK)
    assert wrong(report)["your own kernel"] == "PyTorch computed amax, exp; the kernel is to do it"


@pytest.mark.parametrize(
    "text",
    ["e = tl.softmax(x)", "e = x.softmax(0)", "f = lang.softmax", "from triton.language.standard import softmax as s"],
)
def test_a_kernel_that_calls_triton_s_own_softmax_has_no_points(text):
    report = judged(right(), right(launches=[{"unknown": ""}, {"asks": {"text": text, "name": "mine"}}]))
    assert (report.points, report.diagnosis) == (0, TRITON_S_SOFTMAX)
    assert wrong(report)["your own kernel"] == "mine calls tl.softmax; the kernel is to take its steps"


def test_a_kernel_of_that_name_is_not_triton_s():
    text = "def softmax(x):\n    pass\ndef softmax_kernel(y_ptr, x_ptr):\n    softmax(x)\n    tl.softmax_like"
    assert judged(right(launches=[{"asks": {"text": text, "name": "softmax_kernel"}}])).passed


def test_torch_at_work_counts_for_more_than_the_budget():
    report = judged(right(eager=["exp"], loads=99))
    assert (report.points, report.diagnosis) == (0, TORCH_AT_WORK)


# On a GPU


def test_what_fails_on_the_gpu_alone_costs_all_points():
    report = judged(right(), gpu={"case 0": right(results=[X])})
    assert (report.points, list(wrong(report))) == (0, ["on the GPU: case 0"])


def test_what_is_right_on_the_gpu_too_has_all_points():
    assert judged(right(), gpu={"case 0": right()}).points == 4


def test_over_budget_and_right_on_the_gpu_keeps_half():
    assert judged(right(loads=18), gpu={"case 0": right()}).points == 2


def test_over_budget_and_wrong_on_the_gpu_keeps_nothing():
    assert judged(right(loads=18), gpu={"case 0": right(results=[X])}).points == 0


@pytest.mark.parametrize("trial", [right(results=[X]), right(eager=["exp"])], ids=["wrong", "torch's work"])
def test_an_answer_without_points_is_not_run_on_the_gpu(trial):
    place = Told({"case 0": trial})
    KERNEL.report(place, seed=7)
    assert not place.asked_for_gpu


# Attempted or not

UNWRITTEN = Trial(End.NOT_IMPLEMENTED, "not implemented", unwritten=True)


def test_nothing_written_is_not_attempted():
    assert not judged(UNWRITTEN, UNWRITTEN).attempted


def test_what_was_not_run_any_more_says_nothing():
    assert not judged(UNWRITTEN, Trial(End.NOT_RUN, "not run any more")).attempted


def test_one_case_that_was_attempted_is_enough():
    assert judged(UNWRITTEN, right()).attempted


def test_a_kernel_that_stores_nothing_is_starter_code():
    assert not judged(right(stored_by_kernels=0, loads=0)).attempted


def test_a_kernel_that_loads_and_stores_nothing_is_an_attempt():
    report = judged(right(stored_by_kernels=0))
    assert report.attempted and report.diagnosis.id == "nothing_stored"


def test_torch_s_work_beside_a_kernel_that_stores_nothing_is_attempted():
    assert judged(right(stored_by_kernels=0, loads=0, eager=["exp"])).attempted


def test_what_starter_code_stores_is_not_attempted():
    exercise = replace(KERNEL, starter=lambda x: (x.exp(),), starter_loads=2)
    assert not judged(right(results=[X.exp()]), exercise=exercise).attempted


def test_what_starter_code_stores_is_an_attempt_where_more_was_loaded():
    exercise = replace(KERNEL, starter=lambda x: (x.exp(),), starter_loads=1)
    assert judged(right(results=[X.exp()]), exercise=exercise).attempted


def test_nothing_but_nan_is_not_called_starter_code_beside_other_results():
    nowhere = torch.full_like(X, float("nan"))
    exercise = replace(KERNEL, starter=lambda x: (nowhere,), starter_loads=2)
    assert not judged(right(results=[nowhere]), exercise=exercise).attempted
    assert wrong(judged(right(), right(results=[nowhere]), exercise=exercise))["case 1"].startswith(
        "6 of 6 elements are wrong"
    )


def test_an_answer_in_which_something_was_written_is_an_attempt_though_nothing_came_back():
    silent = {"results": [], "unwritten": True, "got": "None", "got_none": True, "kernels": 0}
    assert not judged(right(**silent)).attempted
    assert not judged(right(**silent, code=min(KERNEL.starters))).attempted
    assert judged(right(**silent, code="LOAD_FAST x; RETURN_CONST None")).attempted


def test_errors_in_one_line_are_of_one_kind():
    failed = [
        right(end=End.RAISED, raised=f"TypeError: {n}", error="TypeError", line="y = x[n]", results=[])
        for n in range(2)
    ]
    assert len({finding.kind for finding in judged(*failed).findings}) == 1


def test_the_case_that_shows_the_mistake_is_told():
    crash = right(end=End.RAISED, raised="TypeError: no", error="TypeError", cause="no_grid", results=[])
    report = judged(right(results=[X + 1]), crash)
    assert (report.diagnosis.id, report.shown_by) == ("no_grid", "case 1")


def test_what_starter_code_stores_is_a_finding_beside_other_results():
    exercise = replace(KERNEL, starter=lambda x: (x.exp(),), starter_loads=2)
    report = judged(right(), right(results=[X.exp()]), exercise=exercise)
    assert wrong(report) == {"case 1": "m and l are still what the starter code makes them"}


# The seed


@pytest.mark.parametrize("seed", [0, 7])
def test_the_seed_that_was_asked_for_draws_the_inputs(seed):
    place = Told({"case 0": right()})
    KERNEL.report(place, seed=seed)
    assert place.seed == seed


# Answers of values


@pytest.mark.parametrize("keys", ["a", "abc", ""], ids=["one is missing", "one too many", "none"])
def test_a_dict_has_the_keys_asked_for_and_no_others(keys):
    with pytest.raises(TypeError, match="check.spill takes a dict with the keys 'a', 'b'; got {"):
        EXERCISES["spill"].require_keys(dict.fromkeys(keys), "ab")


# Compiled for real GPUs


REFUSED = Refusal("mine", "sm_90", "unsupported AST node type: Break (in `break`)", "`break`: Triton has no `break`.")


def test_the_launches_of_all_cases_are_asked_about():
    one, other = ({"asks": {"name": name, "text": ""}} for name in ("one", "other"))
    place = Told({"a": right(launches=[one]), "b": right(launches=[other])})
    KERNEL.report(place, seed=7)
    assert place.launches == [one, other]


def test_what_compiles_says_for_which_gpus():
    (finding,) = [finding for finding in judged(right()).findings if finding.case == "compiled"]
    assert (finding.ok, finding.seen) == (True, "compiled for sm_75 and sm_90")


def test_what_the_compiler_refuses_has_no_points_and_is_told_why():
    report = judged(right(), verdict=Verdict((REFUSED,)))
    assert (report.points, report.diagnosis.id) == (0, "does_not_compile")
    assert report.diagnosis.question == "`break`: Triton has no `break`."
    assert wrong(report) == {"compiled: mine": REFUSED.reason}


def test_a_refusal_that_nobody_has_explained_is_told_in_the_compiler_s_words():
    report = judged(right(), verdict=Verdict((replace(REFUSED, meaning=""),)))
    assert report.diagnosis.question == f"The compiler's words: {REFUSED.reason}"


def test_a_kernel_refused_several_times_is_one_finding():
    twice = Verdict((REFUSED, replace(REFUSED, target="sm_75"), replace(REFUSED, kernel="other")))
    assert set(wrong(judged(right(), verdict=twice))) == {"compiled: mine", "compiled: other"}


def test_that_it_does_not_compile_counts_for_more_than_the_budget():
    report = judged(right(loads=18), verdict=Verdict((REFUSED,)))
    assert (report.points, report.diagnosis.id) == (0, "does_not_compile")


def test_what_could_not_be_compiled_costs_nothing_and_the_report_says_so():
    report = judged(right(), verdict=Verdict((), "the compiler did not answer: killed by SIGSEGV"))
    assert report.passed
    assert "Not compiled here: the compiler did not answer: killed by SIGSEGV" in str(report)


def test_a_softmax_in_torch_is_not_compiled():
    place = Told({"a": right(eager=["softmax"])})
    EAGER.report(place, seed=7)
    assert place.launches is None
