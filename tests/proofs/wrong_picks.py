"""Variants of lesson 14's answers, wrong and right, as corpus.py lists those of the other lessons.

Most wrong ones are the edits by which the checks know them.
"""

from variants import coded as _code
from variants import swapped as _swap

_WINS, _EMPTY = "u * l < s_b", "    if m == -INF:\n        return m, 0.0, -1\n"
_LOAD = 'x = tl.load(x_row + cols * x_col, mask=cols < N, other=-float("inf")).to(tl.float32)'
_PAST = "past = (tl.cumsum(e, axis=0) > place) & (e > 0)"
_PICK = "pick = tl.min(tl.where(past, cols, last), axis=0)"
_IF = "        if place < s:\n"
_CHOSEN = "chosen = tl.min(tl.where(past, part, last), axis=0)"
_PICKED = "pick = tl.load(part_pick_ptr + row * parts + chosen)"
_BINARY_SEARCH = """low, high = tile * BLOCK, last
            while low < high:
                middle = (low + high) // 2
                is_past = tl.sum(tl.where(cols <= middle, e, 0.0), axis=0) > place
                low, high = tl.where(is_past, low, middle + 1), tl.where(is_past, middle, high)
            pick = low"""
_IN_TURN = """ends, chosen = 0.0, -1
    for i in range(parts):
        s_i = tl.sum(tl.where(part == i, s, 0.0), axis=0)
        ends += s_i
        chosen = tl.where((s_i > 0) & ((chosen < 0) | (ends - s_i <= place)), i, chosen)
    chosen = tl.maximum(chosen, 0)"""

WRONG = {
    "merge_picks": {
        "no guard": _swap("two_empty_parts_pick", _EMPTY, ""),
        "a pair": _swap("no_triple_with_pick", "return m, l, pick", "return m, l"),
        "a number of its own": _swap("not_by_u", _WINS, '__import__("random").random() * l < s_b'),
        "one comes back": _swap("no_triple_with_pick", "return m, l, pick", "return pick"),
    },
    "pick_of_tiles": {
        "a tile that wins is loaded again": _swap("over_budget", f"{_IF}", f"{_IF}            {_LOAD}\n            e = tl.exp(x - shift)\n"),
        "no mask": _swap("out_of_bounds", _LOAD, _LOAD.replace('mask=cols < N, other=-float("inf")', "")),
    },
    "pick_of_parts": {
        "no mask": _swap("out_of_bounds", 'mask=exists, other=-float("inf")', "", "mask=exists, other=0.0", ""),
    },
}  # fmt: skip

RIGHT = {
    "merge_picks": {
        "a below": _swap("", _WINS, "u * l >= s_a"),
        "the share": _swap("", _WINS, "u < s_b / l"),
        "from 1 down": _swap("", _WINS, "u >= 1 - s_b / l"),
        "another number made of u": _swap("", _WINS, "(37 * u) % 1 * l < s_b"),
        "a list": _swap("", "return m, l, pick", "return [m, l, pick]"),
        "empty parts first": _swap("", "    m = max(m_a, m_b)\n", "    if m_b == -INF:\n        return a\n    if m_a == -INF:\n        return b\n    m = max(m_a, m_b)\n"),
        "the larger first": _code("", "def merge(a, b, u):\n    (m, l, pick), (m_b, l_b, pick_b) = sorted((a, b), reverse=True)\n"
                                  "    s = l_b * math.exp(m_b - m) if m_b > -INF else 0.0\n    return m, l + s, pick_b if u * (l + s) < s else pick"),
    },
    "pick_of_tiles": {
        "where, and no if": _swap("", _IF, "        if True:\n", _PICK, f"pick = tl.where(place < s, {_PICK.removeprefix('pick = ')}, pick)"),
        "a count, and no further than the last": _swap("", _PAST, "past = tl.cumsum(e, axis=0) <= place", _PICK, "pick = tl.minimum(tile * BLOCK + tl.sum(past.to(tl.int32), axis=0), last)"),
        "exp2": _swap("", "tl.exp(x - shift)", "tl.exp2((x - shift) * 1.4426950408889634)", "tl.exp(m - shift)", "tl.exp2((m - shift) * 1.4426950408889634)"),
        "a binary search": _swap("", _PICK, _BINARY_SEARCH),
        "the share": _swap("", "if place < s:", "if place / l < s / l:"),
        "the maximum not guarded": _swap("", 'shift = tl.where(m_new == -float("inf"), 0.0, m_new)', "shift = tl.maximum(m_new, -3.4028234663852886e38)"),
    },
    "pick_of_parts": {
        "a count, and no further than the last": _swap("", _CHOSEN, "chosen = tl.minimum(tl.sum((tl.cumsum(s, axis=0) <= place).to(tl.int32), axis=0), last)"),
        "all picks loaded": _swap("", _PICKED, "picks = tl.load(part_pick_ptr + row * parts + part, mask=exists, other=0)\n    pick = tl.sum(tl.where(part == chosen, picks, 0), axis=0)"),
        "parts in turn": _swap("", _CHOSEN, _IN_TURN),
        "exp2": _swap("", "s = l * tl.exp(m - ", "s = l * tl.exp2(1.4426950408889634 * (m - ", "0.0, top))", "0.0, top)))"),
        "the end by tl.where": _swap("", "end = tl.minimum(tiles, first + TILES)", "end = tl.where(first + TILES < tiles, first + TILES, tiles)"),
        "lanes without a part left out": _swap("", "last = tl.max(tl.where(s > 0, part, 0), axis=0)", "last = tl.max(tl.where(exists & (s > 0), part, 0), axis=0)"),
    },
}  # fmt: skip
