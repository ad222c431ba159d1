"""softmax(x, dim): a drop-in for torch.softmax that reads and writes each element once, at every row length.

- `rows.tile_kernel`: a row, or several short ones, in the registers of one program;
- `shared.shared_kernel`: a longer row in the registers of several programs, whose pairs (m, l) meet in global memory;
- `strided.strided_kernel`: any other layout, such as a softmax over the channels of an image, streamed as in lesson 05.

A row of so many slices that no program could merge their pairs takes the two launches of
`helpers.kernels.split_row_softmax`.
"""

from helpers.softmax.function import softmax
from helpers.softmax.plan import Plan, plan
from helpers.softmax.rows import tile_kernel
from helpers.softmax.shared import shared_kernel
from helpers.softmax.strided import backward_kernel, strided_kernel

__all__ = ["Plan", "backward_kernel", "plan", "shared_kernel", "softmax", "strided_kernel", "tile_kernel"]
