"""softmax(x, dim): a drop-in for torch.softmax that reads and writes each element once.

- `rows.tile_kernel`: a row, or several short ones, in the registers of one program;
- `flat`: the shortest rows, where they do not fill whole vectors, moved as the flat memory that they are;
- `shared.shared_kernel`: a longer row in the registers of several programs, whose pairs (m, l) meet in global memory;
- `columns`: another dimension, such as the channels of an image, in a tile of columns, or in tiles of several programs;
- `long_columns`: longer ones, read twice, in three launches;
- `gradient`: the gradient of rows, held and shared like the rows themselves; of other dimensions in
  `columns_gradient`;
- `strided`: what lies too far apart for a tile, streamed as in lesson 05.

The loss of such rows, with its gradient, comes from `loss_kernel.cross_entropy_kernel`, in the same ways, or of many
short rows from `loss_tile` or `loss_flat`, and of classes that others lie behind from `loss_columns`; `loss_sum` adds
the rows' losses up. In backward, unless 1 arrives, the gradient comes from `loss_backward`, or again from
`loss_columns`.

A row of more slices than one program can merge takes the two launches of `helpers.kernels.split_row_softmax`.

The letters that the kernels share:

- `ROWS`, `BLOCK`: rows and columns of a program's tile. A shared row is cut into slices of BLOCK columns;
- `V`: elements of a vector of 16 bytes, which a thread loads or stores with one instruction; 1 where no vector fits;
- `EDGES`: whether a row has elements before its first whole vector or after its last one, fewer than V at either end;
- `REST`: columns of a second, smaller tile for the rest of the row or the columns, or 0;
- `LANES`: columns that all the threads of a row move together, with one instruction each;
- `SPLIT`: programs that share a row, one for each slice (the grid's first dimension);
- `WIDTH`: neighbours whose columns a tile holds;
- `FOLD`: columns that are taken for one, so that vectors can move their neighbours;
- `WORDS`: lanes of the neighbours that differ then; WIDTH where FOLD is 1;
- `TEAM`: programs of a group of neighbours whose words the last of them merges, in `MATES` lanes for each neighbour;
- `TILES`: tiles of BLOCK columns in a part, or in all, of columns that are read twice;
- `RUN`: lanes of the memory of USED rows, which are ROWS lanes of BLOCK columns in between;
- `PARTS`: words that a program loads: SPLIT rounded up to a power of two, at least one a thread; of
  neighbours, one word a team;
- `WHOLE`: whether a tile holds the whole row;
- `POLICY`: how long loaded lines stay in the L2 cache: "evict_last", longer than written ones, or "", as long;
- `TURNS`: programs of an SM that begin one after another; `PAUSE`: cycles that a program lets pass before it looks for
  words; `AHEAD`: rows or groups between a program's tile and the one whose lines it fetches. Each may be 0;
- `GRAD`: whether a loss's gradient is written; without it, only the program that holds the target waits for the others;
- `PAIRS`: whether the pair (m, l) of each row is stored, for a gradient that is made later;
- `REDUCTION`: "none", "sum" or "mean" of the losses, of which a word adds up what `GROUP` programs hand in;
- `SMOOTHING`: the part of the target's probability that is spread evenly over all classes, from 0 to 1;
- `THREADS`: the threads of a program.

Elements are numbered from the first one of the tensor: `start` is that of a row, `first` that of its first whole
vector, and its whole vectors hold `n` elements. Where elements of x and y are moved together, `to_y` leads from the
number of an element in x to its number in y.
"""

from helpers.softmax.cross_entropy import cross_entropy
from helpers.softmax.function import softmax
from helpers.softmax.kernels.rows import tile_kernel
from helpers.softmax.kernels.shared import shared_kernel
from helpers.softmax.kernels.streamed import strided_kernel
from helpers.softmax.log_softmax import log_softmax
from helpers.softmax.plans.rows import Plan, plan_rows

__all__ = [
    "Plan", "cross_entropy", "log_softmax", "plan_rows", "shared_kernel", "softmax", "strided_kernel", "tile_kernel",
]  # fmt: skip
