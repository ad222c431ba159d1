"""softmax, log_softmax and cross_entropy: drop-ins for torch's that read and write each element once; sample, which
draws a column of each row and reads it once; and linear_cross_entropy, whose logits are never all there.

- `function`, `log_softmax`, `cross_entropy`, `sample`, `linear_loss`: what is called, and its derivative; `torch_side`
  leaves to torch what our kernels do not take;
- `parallel`: the same of rows that lie over several ranks, each of which holds a shard;
- `plans`: only numbers, from shape, strides, dtype and GPU to a plan, a small type for each way to launch;
- `launches`: from a plan to a launch, whose arguments are given by name;
- `kernels`: what Triton compiles. `rows.tile_kernel` holds a short row in one program, `shared.shared_kernel` a longer
  row in several; the docstring of `shared` explains how their pairs (m, l) meet. `flat` has the shortest rows.
  `columns` and `long_columns` are for another dimension, `streamed` for what lies too far apart for a tile; `gradient`
  and `columns_gradient` for the gradients. The loss has `loss_rows`, `loss_tiles`, `loss_flat`, `loss_columns`, and
  `loss_backward` if what arrives in backward is not 1; `add_up` makes one number of the losses. `shards` has the local
  parts of `parallel`, `sample` draws, and `linear_loss` walks over the classes of a linear layer.

A row of more slices than one program can merge takes the two launches of `helpers.kernels.split_row_softmax`. What was
measured on the way is in EXPERIMENTS.md.

A new way to launch rows takes a plan's type and the rule for it (`plans/rows.py`), a kernel (`kernels/`), the launch of
that type (`launches/rows.py`), a line here for each new letter, and a test.

One letter, one meaning. M are rows, N columns, C the classes of a loss, which are the N columns of its logits. The
meta-parameters of the kernels are:

- `VEC`: elements of a vector of 16 bytes, which a thread loads or stores with one instruction; 1 if no vector fits;
- `EDGES`: whether a row has elements before its first whole vector or after its last one, fewer than VEC at either end;
- `OTHER`: what lanes hold that lie past the end of the row;
- `ROWS`, `BLOCK`: rows and columns of a program's tile. A shared row is cut into slices of BLOCK columns;
- `TILES`: tiles of a row that a program takes at once, each of which leaves a pair of its own;
- `REST`: columns of a second, smaller tile for the rest of the row or the columns, or 0;
- `LANES`: columns that all the threads of a row move together, with one instruction each; `COUNT`: columns of a tile
  that is moved so;
- `USED`, `RUN`: rows that are moved flat, and the lanes of the run that they are;
- `N`: the columns, if they are known to the compiler, as of flat rows;
- `PARTS`: lanes for the words that a program loads: its row's, rounded up to a power of two, at least one a thread; of
  neighbours, one word a team;
- `WHOLE`: whether a tile holds the whole row;
- `WIDTH`: neighbours whose columns a tile holds;
- `FOLD`: columns that are taken for one, so that vectors can move their neighbours;
- `DISTINCT`: lanes of the neighbours that differ then; WIDTH if FOLD is 1;
- `TEAM`: programs of a group of neighbours whose words the last of them merges, in `MATES` lanes for each neighbour;
- `LOG`: whether the logarithm is computed, or the gradient of one;
- `POLICY`: how long loaded lines stay in the L2 cache: "evict_last", longer than written ones, or "", as long;
- `TURNS`: programs of each of the `SMS` multiprocessors that begin one after another, `CYCLES` of its clock apart;
- `PAUSE`: cycles that a program lets pass before it looks for words;
- `AHEAD`: rows or groups between a program's tile and the one whose lines it fetches. TURNS, PAUSE and AHEAD may be 0;
- `EARLY`: whether a launch may begin before the one ahead of it in the stream has ended, and waits for it by itself;
- `GRAD`: whether a loss's gradient is written; without it, only the program that holds the target waits for the others;
- `PAIRS`: whether the pair (m, l) of each row is stored, for a gradient that is made later;
- `REDUCTION`: "none", "sum" or "mean" of the losses, of which a word adds up what `GROUP` programs hand in;
- `SMOOTHING`: the part of the target's probability that is spread evenly over all classes, from 0 to 1;
- `OWN`: whether each program counts only the targets that it reads;
- `ROUNDS`: rounds of targets that are loaded together when they are counted;
- `AGAIN`: whether backward makes the gradient of the logits again, or scales the one that there is;
- `OF_ROWS`: whether one number for each row arrives in backward, or one for all; or whether each row has a temperature;
- `OVER`: whether the gradient is scaled in place, so that there is nothing to do if 1 arrives;
- `THREADS`: the threads of a program;
- `SLOTS`: words of a row that each rank has in the mail of all; `CHUNKS`: tiles of a part that the chip cannot hold;
- `W`: the ranks whose messages are merged, and `NAMED`: whether a caller has named the first class of a shard;
- `H`: the inputs of a linear layer, a step of a product takes `BLOCK_H`; V are its classes; `BLOCK_M`, `BLOCK_V`:
  rows and classes of a tile of logits; `BIAS`: whether it has one; `DESCRIBED`: whether the GPU copies whole tiles by a
  descriptor; `STAGES`: steps that are loaded ahead;
- `LOSS`: whether a shard is of a loss, or of a softmax; `MEAN`: whether the losses are averaged, or added.

And not known to the compiler: SPLIT, the programs that share a row or a group, one for each slice; TILES, the tiles of
BLOCK columns in a part, or in all, of columns that are read twice; INNER, the neighbours behind the columns. A word is
64 bits that programs leave for each other; `words` count them. LossOptions say what is computed of logits and targets.

Elements are numbered from the first one of the tensor: `start` is that of a row, `first` that of its first whole
vector, and its whole vectors hold `n` elements. If elements of x and y are moved together, `to_y` leads from the
number of an element in x to its number in y.
"""

from helpers.softmax.cross_entropy import cross_entropy
from helpers.softmax.function import softmax
from helpers.softmax.linear_loss import linear_cross_entropy
from helpers.softmax.log_softmax import log_softmax
from helpers.softmax.sample import sample

__all__ = ["cross_entropy", "linear_cross_entropy", "log_softmax", "sample", "softmax"]
