"""What `measure.linear_loss` times is right, without a GPU; what its record says, and may say."""

import copy
import datetime
import json
import subprocess
import sys

import pytest
import torch

import needs
from helpers import DEVICE, recorded
from helpers.measure import linear_loss
from helpers.recorded.valid import problems

RECORD = recorded.by_gpu("linear_loss")[recorded.REFERENCE]


def test_all_contestants_have_the_right_results():
    torch.manual_seed(0)
    x, w, target = torch.randn(40, 8), torch.randn(30, 8), torch.randint(30, (40,))
    x, w, target = (one.to(DEVICE) for one in (x, w, target))
    right = linear_loss.right_results(x, w, target)
    ways = {name: way for name, way in linear_loss.linear_losses().items() if "torch" in name or "our" in name}
    for way in (*ways.values(), linear_loss.linear_losses()[linear_loss.LINEAR_LOSS]):
        for one, want in zip(linear_loss.step(way, x, w, target), right, strict=True):
            torch.testing.assert_close(one, want)


def test_the_record_says_what_is_promised():
    """Less than 512 MiB, ahead of all others that hold less than all logits, and errors at most twice torch's."""
    for cell in RECORD["cells"]:
        ours = cell["ms"][linear_loss.LINEAR_LOSS][1]
        assert cell["peak_mib"][linear_loss.LINEAR_LOSS] <= 512 and cell["alone_peak_mib"][linear_loss.LINEAR_LOSS] <= 8
        assert ours < 1.2 * sum(cell["products_ms"]) and ours < cell["ms"][linear_loss.WHOLE_LOGITS][1]
        assert all(ours < cell["ms"][name][1] for name in ("Liger", "cut cross-entropy"))
        of_both = (cell["errors"][name] for name in (linear_loss.LINEAR_LOSS, linear_loss.WHOLE_LOGITS))
        assert all(one <= 2 * other for one, other in zip(*of_both, strict=True))


def test_the_record_has_the_shapes_of_today():
    assert [(cell["M"], cell["H"], cell["V"]) for cell in RECORD["cells"]] == [*linear_loss.LAYERS]
    assert [one["chunks"] for one in RECORD["chunks"]] == [*linear_loss.NUMBERS_OF_CHUNKS]


def test_the_table_has_times_in_units_of_the_products():
    cell, text = RECORD["cells"][0], repr(linear_loss.table_of_linear_losses(RECORD))
    share = cell["ms"][linear_loss.LINEAR_LOSS][1] / sum(cell["products_ms"])
    assert f"{share:.2f}" in text and "32 chunks of 256 rows" in text


@pytest.mark.parametrize(
    ("ms", "found"), [([2.0, 2.1, 2.2], []), ([2.2, 2.1, 2.3], ["its median is outside of its quartiles."])]
)
def test_medians_lie_between_quartiles(ms, found, tmp_path):
    folder = tmp_path / "nvidia_h200"
    folder.mkdir()
    (folder / "softmax.json").write_bytes((recorded.HOME / "nvidia_h200" / "softmax.json").read_bytes())
    record = copy.deepcopy(RECORD)
    record["cells"][0]["ms"][linear_loss.LINEAR_LOSS] = ms
    (folder / "linear_loss.json").write_text(json.dumps(record), "utf-8")
    sentences = problems(folder, datetime.date(2026, 12, 31))
    assert [one.split(": ")[-1] for one in sentences] == found


@needs.interpreter
def test_it_says_that_it_needs_a_gpu():
    asked = subprocess.run([sys.executable, "-m", "helpers.measure.linear_loss"], capture_output=True, text=True)
    assert asked.returncode == 2 and "times are measured on a GPU; there is none." in asked.stderr
