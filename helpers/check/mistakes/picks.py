"""The known mistakes of lesson 14, as edits of the course's answers: a column drawn of each row, and of parts of it."""

from __future__ import annotations

from helpers.check.mistakes import names
from helpers.check.mistakes.edited import OfTensors
from helpers.check.mistakes.shared import NUMBER_AT_A_TIME, OFFSETS_OVERFLOW, OUT_OF_BOUNDS
from helpers.check.mistakes.stops import GENERAL
from helpers.check.problems.picking import PICKS, PICKS_OF_PARTS
from helpers.softmax import picks

_TILES = OfTensors(picks.pick_of, picks.picks_kernel, picks.tile_sample, kind=PICKS)
_KEEP = "m = m_new"
_RANGE = "range(first, end)"
_LOAD = 'mask=cols < N, other=-float("inf"))'
_SHIFT = 'shift = tl.where(m_new == -float("inf"), 0.0, m_new)'
_L = "l = l * tl.exp(m - shift) + s"
_PLACE, _WINS = "place = tl.load(u_row + tile * u_col) * l", "if place < s:"
_PAST = "past = (tl.cumsum(e, axis=0) > place) & (e > 0)"
_PICK = "pick = tl.min(tl.where(past, cols, last), axis=0)"

OF_TILES = (
    *GENERAL,
    NUMBER_AT_A_TIME,
    _TILES.named(names.NEVER_RESCALED, 1, (_L, "l = l + s")),
    _TILES.mistake(
        "sum_of_this_tile",
        "The number u is multiplied by the sum of this tile alone.",
        "Is m kept for the next tile, is the old l added, and is it l that u is multiplied by?",
        1,
        (_KEEP, "m = m"),
        (_L, "l = s"),
        (_PLACE, _PLACE.replace("* l", "* s")),
    ),
    _TILES.mistake(
        "one_tile_takes_it",
        "The pick is the first tile's, or always the last one's.",
        "With which probability is the pick to be one of this tile's columns, once m and l know the tile?",
        2,
        (_WINS, "if True:"),
        (_WINS, "if s > 0:"),
        (_WINS, "if m == -float('inf'):", f"{_KEEP}\n", "\n", _PICK, f"{_PICK}\n        {_KEEP}"),
        (_WINS, "if (pick < 0) & (s > 0):"),
        (_RANGE, "range(first, first + 1)"),
        (_RANGE, "range(end - 1, end)"),
    ),
    _TILES.mistake(
        "share_of_another_sum",
        "A tile is not taken with its share of l.",
        "What is s / l of a row's first tile, and does yours always win there?",
        2,
        (_WINS, "if place >= s:"),
        (_PLACE, _PLACE.replace(" * l", "")),
        (_L, f"old = l * tl.exp(m - shift)\n        {_L}", _PLACE, _PLACE.replace("* l", "* old")),
        (_L, f"old = l\n        {_L}", _PLACE, _PLACE.replace("* l", "* old")),
    ),
    _TILES.mistake(
        "last_tile_left_out",
        "The last tile is left out.",
        "Which tile comes after end − 1, and does range(first, end) have it?",
        1,
        (_RANGE, "range(first, end - 1)"),
    ),
    _TILES.mistake(
        "one_number_for_all",
        "Every tile has the first one's number, or every row the first row's.",
        "At which address does the number of this tile lie, and is a number ever used twice?",
        2,
        (_PLACE, _PLACE.replace(" + tile * u_col", "")),
        ("u_ptr + row * u_stride", "u_ptr"),
    ),
    _TILES.mistake(
        "number_used_twice",
        "The number u is stretched over the tile, as if it had not decided anything yet.",
        "If the tile has won, u lies below s / l: between which bounds does u · s lie then, and u · l?",
        3,
        (_PAST, _PAST.replace("> place", "> place / l * s")),
        (_PAST, _PAST.replace("> place", "> s - place")),
    ),
    _TILES.mistake(
        "column_of_tile",
        "The pick is counted from the start of the tile.",
        "Which number has the first column of the second tile?",
        3,
        (_PICK, f"{_PICK} - tile * BLOCK"),
    ),
    _TILES.mistake(
        "most_probable",
        "The tile that wins gives its largest logit.",
        "Is the most probable column to be picked, or each with its probability?",
        3,
        (_PAST, "past = e == tl.max(e, axis=0)"),
        (_PAST, "past = (x == m) & (e > 0)"),
    ),
    _TILES.mistake(
        "next_column",
        "The pick is a neighbour of the right column.",
        "With sums of 0.2 and 0.5 up to the end of the first and the second column, which one has the place 0.3?",
        3,
        (_PAST, _PAST.replace("> place)", "- e > place)")),
        (_PICK, "pick = tl.max(tl.where(tl.cumsum(e, axis=0) <= place, cols, tile * BLOCK), axis=0)"),
        (_PICK, "pick = tile * BLOCK + tl.sum((tl.cumsum(e, axis=0) <= place).to(tl.int32), axis=0) + 1"),
    ),
    _TILES.mistake(
        "impossible_column",
        "A column of probability 0 is picked, or none that exists.",
        "If u = 0, or rounding puts place behind the last sum: which columns are left, and are all of them possible?",
        4,
        (_PICK, "pick = tile * BLOCK + tl.sum((tl.cumsum(e, axis=0) <= place).to(tl.int32), axis=0)"),
        (
            _PICK,
            "pick = tile * BLOCK + tl.minimum(BLOCK - 1, tl.sum((tl.cumsum(e, axis=0) <= place).to(tl.int32), axis=0))",
        ),
        (_PICK, "pick = tile * BLOCK + tl.sum((tl.cumsum(e, axis=0) < place).to(tl.int32), axis=0)"),
        (_WINS, "if place <= s:"),
        (_PICK, _PICK.replace(", last)", ", tile * BLOCK + BLOCK - 1)")),
        (_PICK, _PICK.replace(", last)", ", N - 1)")),
    ),
    _TILES.mistake(
        "tail_counted",
        "Lanes past the end of the row are counted in l.",
        "Which logit has the exponential 0, and what do masked lanes hold?",
        1,
        (_LOAD, "mask=cols < N, other=0.0)"),
    ),
    _TILES.mistake(
        "tile_of_minus_inf",
        "A tile of only −inf spoils the row.",
        "As long as m is −inf, what is m − m, and which number could be subtracted instead?",
        1,
        (_SHIFT, "shift = m_new"),
    ),
    OFFSETS_OVERFLOW,
    OUT_OF_BOUNDS,
)

_PARTS = OfTensors(picks.pick_of, picks.triples_kernel, picks.merge_kernel, picks.split_sample, kind=PICKS_OF_PARTS)
_FIRST, _END = "first = part * TILES", "end = tl.minimum(tiles, first + TILES)"
_ROWS = "x_ptr + row * x_stride, x_col, u_ptr + row * u_stride, u_col, N, first, end, BLOCK"
_AT = "at, exists = row * parts + part"
_STORES = "tl.store(pair_ptr + 2 * at, m)\n    tl.store(pair_ptr + 2 * at + 1, l)"
_M = 'm = tl.load(pair_ptr + 2 * at, mask=exists, other=-float("inf"))'
_L_PARTS = "l = tl.load(pair_ptr + 2 * at + 1, mask=exists, other=0.0)"
_S = 's = l * tl.exp(m - tl.where(top == -float("inf"), 0.0, top))'
_OF_ROW = "place = tl.load(u_ptr + row * u_stride) * tl.sum(s, axis=0)"
_PAST_PARTS = "past = (tl.cumsum(s, axis=0) > place) & (s > 0)"
_CHOSEN = "chosen = tl.min(tl.where(past, part, last), axis=0)"
_PICKED = "pick = tl.load(part_pick_ptr + row * parts + chosen)"

OF_PARTS = (
    *GENERAL,
    NUMBER_AT_A_TIME,
    _PARTS.mistake(
        "tiles_of_another_part",
        "A part has the tiles of another one, too, or not all of its own.",
        "Which is the first tile of part 1, and which one comes after its last?",
        1,
        (_FIRST, "first = part"),
        (_END, "end = tiles"),
        (_END, "end = first + 1"),
    ),
    _PARTS.mistake(
        "counted_from_the_part",
        "With a first tile above 0, pick_of takes other tiles, columns or numbers.",
        "Where in a row do tile t, its columns and its number lie, whichever tile is the first of the part?",
        1,
        (_RANGE, "range(0, end)"),
        (_PLACE, _PLACE.replace("tile * u_col", "(tile - first) * u_col")),
        ("cols = tile * BLOCK", "cols = (tile - first) * BLOCK"),
    ),
    _PARTS.mistake(
        "numbers_of_another",
        "Rows, or parts, have numbers of another one.",
        "Which row's numbers does a program use, and from which of them on does pick_of count?",
        1,
        ("u_ptr + row * u_stride, u_col", "u_ptr, u_col"),
        (_OF_ROW, _OF_ROW.replace(" + row * u_stride", "")),
    ),
    _PARTS.mistake(
        "parts_of_another_row",
        "A row gets the parts of another one.",
        "How many parts lie in the buffers before the first one of this row?",
        1,
        (_AT, "at, exists = part"),
        (_AT, "at, exists = row + part"),
        (_PICKED, "pick = tl.load(part_pick_ptr + chosen)"),
    ),
    _PARTS.mistake(
        "parts_not_rescaled",
        "The sums of the parts are compared as they are.",
        "With which maximum was each l made, and which one do all parts share?",
        2,
        (_S, "s = l"),
    ),
    _PARTS.mistake(
        "maximum_of_no_part",
        "Lanes without a part have a maximum.",
        "Which m does a part have that does not exist, if top is not to see it?",
        3,
        (_M, _M.replace('-float("inf")', "0.0")),
    ),
    _PARTS.mistake(
        "parts_without_l",
        "A part counts by its maximum alone.",
        "Of two parts with the same maximum, one has twice the other's l: how often is its pick taken?",
        2,
        (_S, _S.replace("l * ", "")),
    ),
    _PARTS.mistake(
        "place_without_sum",
        "The number of the row is not multiplied by the sum of all parts.",
        "Laid end to end, how far do the parts reach, and what does u · that sum say?",
        2,
        (_OF_ROW, _OF_ROW.replace(" * tl.sum(s, axis=0)", "")),
        (_OF_ROW, _OF_ROW.replace("tl.sum(s, axis=0)", "tl.sum(l, axis=0)")),
        (_OF_ROW, _OF_ROW.replace("tl.sum(s, axis=0)", "tl.max(s, axis=0)")),
    ),
    _PARTS.mistake(
        "part_for_pick",
        "The number of the part is stored, not its pick.",
        "A part has won: in which buffer lies the column that it picked?",
        3,
        (_PICKED, "pick = chosen.to(tl.int64)"),
    ),
    _PARTS.mistake(
        "largest_part",
        "The pick is always the largest part's, the first one's, or the last one's.",
        "Is one part to win every time, or each with its share? And has every part its tiles?",
        2,
        (_CHOSEN, "chosen = tl.min(tl.where(s == tl.max(s, axis=0), part, PARTS), axis=0)"),
        (_CHOSEN, "chosen = last"),
        (_CHOSEN, "chosen = 0"),
        (_CHOSEN, "chosen = tl.min(tl.where(s > 0, part, last), axis=0)"),
    ),
    _PARTS.mistake(
        "impossible_part",
        "A part of probability 0 is picked, or none that exists.",
        "If u = 0, or rounding puts place behind the last sum: which parts are left, and are all of them possible?",
        3,
        (_CHOSEN, "chosen = tl.sum((tl.cumsum(s, axis=0) < place).to(tl.int32), axis=0)"),
        (_PAST_PARTS, "past = tl.cumsum(s, axis=0) >= place"),
        (_CHOSEN, _CHOSEN.replace(", last)", ", parts - 1)")),
    ),
    _PARTS.mistake(
        "next_part",
        "The part before the right one, or behind it, is picked.",
        "With sums of 0.2 and 0.5 up to the end of the first and the second part, which one has the place 0.3?",
        3,
        (_PAST_PARTS, _PAST_PARTS.replace("> place)", "- s > place)")),
        (_CHOSEN, "chosen = tl.max(tl.where(tl.cumsum(s, axis=0) <= place, part, 0), axis=0)"),
    ),
    _PARTS.mistake(
        "m_for_l",
        "m and l change places, or one of them is loaded twice.",
        "In which order does triples_kernel store the two numbers of a part?",
        1,
        (_STORES, _STORES.replace("at, m", "at, l").replace("+ 1, l", "+ 1, m")),
        (_M, _M.replace("2 * at", "2 * at + 1"), _L_PARTS, _L_PARTS.replace("2 * at + 1", "2 * at")),
        (_L_PARTS, _L_PARTS.replace("2 * at + 1", "2 * at")),
    ),
    OFFSETS_OVERFLOW,
    OUT_OF_BOUNDS,
)
