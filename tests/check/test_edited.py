"""A mistake is an edit of the course's own answer: what it does is found by running the answer, edited."""

import pytest
import torch

from exercises import SOLUTIONS, judged
from helpers import kernels
from helpers.attention import decode
from helpers.check import EXERCISES
from helpers.check.exercises.lesson_05 import merge
from helpers.check.mistakes.edited import Answer, Edited, NotInAnswer, OfTensors, edited
from helpers.check.mistakes.edited_ranks import OfRanks
from helpers.check.mistakes.recognise import Seen
from helpers.check.mistakes.sharded_loss import loss_of_shard
from helpers.check.mistakes.sharded_softmax import softmax_of_shard
from helpers.check.problems.cases import SOFTMAX
from helpers.check.trial.ranked import Sharded, on_ranks
from helpers.check.trial.trial import Trial
from needs import interpreter

EDITED = {name: [one for one in exercise.known if isinstance(one, Edited)] for name, exercise in EXERCISES.items()}
X = torch.tensor([[1.0, 2.0, 3.0]])
ROWS = OfTensors(kernels.single_tile_kernel, kernels.single_tile_softmax, kind=SOFTMAX)
HALF = "e / l, mask", "0.5 * e / l, mask"


@pytest.mark.parametrize("name", [name for name, mistakes in EDITED.items() if mistakes])
def test_every_edit_is_one_of_the_answer_in_helpers_and_of_the_solution(name):
    for mistake in EDITED[name]:
        for edit in mistake.edits:
            assert callable(edited(mistake.answer.parts, edit)) and callable(SOLUTIONS[name].answered(*edit))


def test_text_that_the_answer_does_not_have_is_refused():
    with pytest.raises(NotInAnswer, match="the answer has no 'nonsense'"):
        edited((merge,), ("nonsense", "0"))


def seen(answer, ok=False, error=""):
    return Seen("a case", ((1.0, 2.0), (3.0, 4.0)), Trial(answer=answer, error=error), ok)


def test_an_edit_explains_what_it_returns_and_what_it_raises():
    answer = Answer(merge)
    failing = "m = max(m_a, m_b)", "m = max(m_a)"
    m, l = merge((1.0, 2.0), (3.0, 4.0))
    as_it_is = "l_a * math.exp(m_a - m) + l_b * math.exp(m_b - m)", "l_a + l_b"
    assert answer.gives(as_it_is)([seen([m, 6.0])]) == 1.0
    assert answer.gives(as_it_is)([seen([m, l])]) == 0.0
    assert answer.gives(failing)([seen(None, error="TypeError")]) == 1.0
    assert answer.gives(as_it_is)([seen(None, error="TypeError")]) == 0.0


def of_rows(y, ok=False):
    return Seen("a case", X, Trial(results=[y], tile=4), ok)


def test_an_edit_of_a_kernel_explains_the_tensors_that_it_returns():
    y = torch.softmax(X, dim=1)
    assert ROWS.gives(HALF)([of_rows(0.5 * y)]) == 1.0
    assert ROWS.gives(HALF)([of_rows(y, ok=True)]) == ROWS.gives(HALF)([of_rows(0.4 * y)]) == 0.0


SHARDED = Sharded([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, -1.0]], [3, 1])


def on_two_ranks(answer, case, *edit):
    return Seen("two ranks", case, Trial(answer=on_ranks(edited(answer.parts, edit), *case)), ok=False)


@pytest.mark.parametrize("id", ["own_sum", "pairs_reduced"])
def test_an_edit_of_a_function_of_ranks_explains_what_all_of_them_return(id):
    answer = OfRanks(softmax_of_shard)
    edits = {one.id: one.edits[0] for one in EDITED["sharded_softmax"]}
    case = on_two_ranks(answer, SHARDED, *edits[id])
    assert [name for name, edit in edits.items() if answer.gives(edit)([case])] == [id]


def test_an_edit_explains_less_if_it_explains_the_losses_of_ranks_alone():
    answer = OfRanks(loss_of_shard)
    loss, gradient = ("torch.log(l)", "l"), ("local[rows]] -= 1", "local[rows]] += 1")
    case = on_two_ranks(answer, SHARDED._replace(target=[1, 3]), *loss, *gradient)
    assert [answer.gives(edit)([case]) for edit in ((*loss, *gradient), loss, gradient)] == [1.0, 0.8, 0.0]


@interpreter
def test_a_launch_that_is_remembered_stores_what_it_stored():
    q, (k, v) = torch.randn(2, 16), torch.randn(2, 2, 20, 16)
    parts = decode.keys_of, decode.part_kernel, decode.merge_kernel, decode.decoded, decode.split_decode
    as_it_is = edited(parts, ("lse = m + tl.log(l)", "lse = tl.log(l) + m"))
    for _ in range(2):
        for got, want in zip(as_it_is(q, k, v), decode.split_decode(q, k, v), strict=True):
            torch.testing.assert_close(got, want)


def test_two_mistakes_at_once_are_both_named_with_the_question_of_the_first():
    wrong = SOLUTIONS["triples"].answered(
        "f_a * x + f_b * y", "f_a * x + y", "return m, f_a * l_a + f_b * l_b, o", "return m, l_a + l_b, o"
    )
    l, one_side = (next(one for one in EDITED["triples"] if one.id == id) for id in ("l_as_it_is", "one_side_rescaled"))
    named = judged("triples", wrong).diagnosis
    assert (named.id, named.question, named.hint) == (l.id, l.question, l.hint)
    assert named.name == f"Two things at once. {l.name} And: {one_side.name}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("no_column_stride", "idle_lanes_hold_0", id="the first shows in few cases"),
        pytest.param("no_maximum", "no_division", id="neither shows alone"),
    ],
)
def test_two_mistakes_in_a_kernel_of_rows_are_both_named(first, second):
    mistakes = {one.id: one for one in EDITED["masked"]}
    first, second = mistakes[first], mistakes[second]
    named = judged("masked", SOLUTIONS["masked"].answered(*first.edits[0], *second.edits[0])).diagnosis
    assert named.name == f"Two things at once. {first.name} And: {second.name}"


def test_one_mistake_is_named_alone():
    named = judged("triples", SOLUTIONS["triples"].answered("f_a * x + f_b * y", "x + y")).diagnosis
    assert named.id == "o_as_it_is" and "Two things" not in named.name
