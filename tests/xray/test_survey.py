"""The table of `python -m helpers.xray`."""

import torch

from helpers.xray import __main__ as command
from helpers.xray.references import Reference
from small_kernels import ROW, copy_kernel


def test_the_survey_is_a_line_for_every_kernel_dtype_and_target(monkeypatch):
    monkeypatch.setattr(command, "DTYPES", {"fp32": torch.float32})
    copy = Reference("copy", copy_kernel, (ROW, ROW, 8), {"BLOCK": 8, "num_warps": 4})
    monkeypatch.setattr(command, "references", lambda dtype: [copy])
    table = command.survey(("sm_80", "sm_90"))
    assert [row[:3] for row in table.rows] == [["copy 8, 4 warps", "fp32", t] for t in ("sm_80", "sm_90")]
    assert [note.split(":")[0] for note in table.notes] == [
        "Compiled, with empty caches",
        "Asked again, read from disk",
    ]
