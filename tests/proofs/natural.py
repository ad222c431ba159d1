"""Mistakes that learners make by themselves in a formula, mask, pointer or loop: for corpus.py, which says how."""

from variants import swapped

_LOAD = 'x = tl.load(x_row + cols.to(tl.int64) * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)'
_LOOP = "for start in range(0, N, BLOCK):\n        cols = start + tl.arange(0, BLOCK)\n        "
_L_LOAD = _LOAD + "\n        l +="
_PLACES = "places = row * x_stride + cols * x_col_stride\n    mask = "
_GUARD = 'shift = tl.where(m_new == -float("inf"), 0.0, m_new)'
_WHY = "        # While all entries so far are −inf, subtracting 0 instead of m avoids −inf − (−inf), which is NaN.\n"
_NEW_M = "        m_new = tl.maximum(m, tl.max(x, axis=0))\n" + _WHY + "        " + _GUARD + "\n"
_RESCALED = "        l = l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)\n"

NATURAL = {
    "eager": {
        "counts to ten million": swapped("too_slow", "    m = x.max", "    sum(range(10_000_000))\n    m = x.max"),
        "maximum after exp": swapped("maximum_after_exp", "torch.exp(x - m)", "torch.exp(x) - m"),
        "sum of x": swapped("scores_added", "e.sum(dim=1", "x.sum(dim=1"),
        "sum of x - m": swapped("scores_added", "e.sum(dim=1", "(x - m).sum(dim=1"),
        "x divided": swapped("scores_divided", "return e /", "return x /"),
        "no exp": swapped("scores_divided", "torch.exp(x - m)", "x - m"),
        "exp of the sum": swapped(
            "exp_of_the_sum", "e.sum(dim=1, keepdim=True)", "torch.exp((x - m).sum(dim=1, keepdim=True))"
        ),
        "max of Python": swapped("builtin_of_tensor", "    m = x.max", "    m = max(x)\n    m = x.max"),
    },
    "single_tile": {
        "M and N swapped": swapped("out_of_bounds", "M, N = x.shape", "N, M = x.shape"),
        "y is never made": swapped("undefined_name", "    y = torch.empty_like(x)\n", ""),
        "maximum after exp": swapped("maximum_after_exp", "tl.exp(x - m)", "tl.exp(x) - m"),
        "sum of x": swapped("scores_added", "tl.sum(e, axis=0)", "tl.sum(x, axis=0)"),
        "x divided": swapped("scores_divided", "e / l)", "x / l)"),
    },
    "masked": {
        "a mask of BLOCK": swapped("load_unmasked", "mask = cols < N", "mask = cols < BLOCK"),
        "a mask upside down": swapped("nothing_stored", "mask = cols < N", "mask = cols >= N"),
        "strides swapped": swapped(
            "out_of_bounds", "row * x_stride + cols * x_col_stride", "row * x_col_stride + cols * x_stride"
        ),
        "math.inf, not imported": swapped("host_function", '-float("inf")', "-math.inf"),
        "mask of places": swapped("mask_of_places", "mask = cols < N", _PLACES + "places < N"),
        "mask of columns' places": swapped("mask_of_places", "mask = cols < N", "mask = cols * x_col_stride < N"),
        "mask of places, columns unstrided": swapped(
            "mask_of_places", "mask = cols < N", "mask = row * x_stride + cols < N"
        ),
        "mask of places on the load": swapped(
            "mask_of_places", "mask = cols < N", _PLACES + "cols < N", "mask=mask, other", "mask=places < N, other"
        ),
        "mask of places on the store": swapped(
            "mask_of_places", "e / l, mask=mask", "e / l, mask=row * y_stride + cols < N"
        ),
    },
    "two_pass": {
        "a tile at every column": swapped(
            "columns_counted_again", _LOOP + _L_LOAD, (_LOOP + _L_LOAD).replace("range(0, N, BLOCK)", "range(0, N)")
        ),
    },
    "online": {
        "the shift cut off far below": swapped("shift_cut_off", _GUARD, "shift = tl.maximum(m_new, -1e30)"),
        "l before m": swapped("terms_with_old_maximum", _NEW_M + _RESCALED, _RESCALED + _NEW_M),
        "l without a factor, before m": swapped(
            "terms_with_old_maximum", _NEW_M + _RESCALED, "        l += tl.sum(tl.exp(x - shift), axis=0)\n" + _NEW_M
        ),
        "m at once, not guarded": swapped(
            "never_rescaled",
            _NEW_M,
            "        m = tl.maximum(m, tl.max(x, axis=0))\n        shift = m\n",
            "        m = m_new\n",
            "",
        ),
    },
}
