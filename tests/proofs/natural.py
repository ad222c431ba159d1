"""Mistakes that learners make by themselves in a formula, mask, pointer or loop: for corpus.py, which says how."""

from variants import swapped

_LOAD = 'x = tl.load({} + cols.to(tl.int64) * x_col_stride, mask=cols < N, other=-float("inf")).to(tl.float32)'
_LOOP = "for start in range(0, N, BLOCK):\n        cols = start + tl.arange(0, BLOCK)\n        "
_L_LOAD, _Y_LOAD = (_LOAD.format("x_row") + "\n        " + then for then in ("l +=", "tl.store"))
_PLACES = "places = row * x_stride + cols * x_col_stride\n    mask = "
_GUARD = 'shift = tl.where(m_new == -float("inf"), 0.0, m_new)'
_WHY = "        # While all entries so far are −inf, subtracting 0 instead of m avoids −inf − (−inf), which is NaN.\n"
_NEW_M = "        m_new = tl.maximum(m, tl.max(x, axis=0))\n" + _WHY + "        " + _GUARD + "\n"
_RESCALED = "        l = l * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)\n"

_X_PTR = _LOAD.format("x_ptr") + "\n        "

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
        "math.inf, not imported": swapped("undefined_name", '-float("inf")', "-math.inf"),
        "mask of places": swapped("mask_of_places", "mask = cols < N", _PLACES + "places < N"),
        "mask of places, columns unstrided": swapped(
            "mask_of_places", "mask = cols < N", "mask = row * x_stride + cols < N"
        ),
        "mask of places on the load": swapped(
            "mask_of_places", "mask = cols < N", _PLACES + "cols < N", "mask=mask, other", "mask=places < N, other"
        ),
        "mask of places on the store": swapped(
            "mask_of_places", "e / l, mask=mask", "e / l, mask=row * y_stride + cols < N"
        ),
        "sum of x": swapped("scores_added", "tl.sum(e, axis=0)", "tl.sum(x, axis=0)"),
        "x divided": swapped("scores_divided", "e / l,", "x / l,"),
    },
    "two_pass": {
        "x divided": swapped("scores_divided", "tl.exp(x - m) / l", "x / l"),
        "sum of x": swapped("scores_added", "l += tl.sum(tl.exp(x - m)", "l += tl.sum(x"),
        "exp of the sum": swapped("exp_of_the_sum", "tl.sum(tl.exp(x - m), axis=0)", "tl.exp(tl.sum(x, axis=0) - m)"),
        "a tile at every column": swapped(
            "columns_counted_again", _LOOP + _L_LOAD, (_LOOP + _L_LOAD).replace("range(0, N, BLOCK)", "range(0, N)")
        ),
        "x_ptr in both loops": swapped("row_0_in_a_loop", _L_LOAD, _X_PTR + "l +=", _Y_LOAD, _X_PTR + "tl.store"),
        "x_ptr in the sum": swapped("row_0_in_a_loop", _L_LOAD, _X_PTR + "l +="),
        "x_ptr in the result": swapped("row_0_in_a_loop", _Y_LOAD, _X_PTR + "tl.store"),
    },
    "online": {
        "m is the shift": swapped("shift_kept_as_m", "        m = m_new\n", "        m = shift\n"),
        "the shift cut off": swapped("shift_cut_off", _GUARD, "shift = tl.maximum(m_new, -10000.0)"),
        "the shift cut off far below": swapped("shift_cut_off", _GUARD, "shift = tl.maximum(m_new, -1e30)"),
        "where swapped": swapped("guard_swapped", _GUARD, 'shift = tl.where(m_new == -float("inf"), m_new, 0.0)'),
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
        "sum of x": swapped("scores_added", "tl.sum(tl.exp(x - shift)", "tl.sum(x"),
        "x divided": swapped("scores_divided", "tl.exp(x - shift) / l", "x / l"),
    },
}
