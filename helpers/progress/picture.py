"""The ladder of a learner's own kernels as one picture that can be shown without any other words."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from helpers.draw import BLACK, BLUE, ORANGE, Picture
from helpers.engine.numbers import counted
from helpers.progress.gathered import Gathered, Rung

_WIDTH, _ABOVE, _BELOW, _LINE = 8.4, 1.15, 1.1, 0.42
"""In inches: of the picture, above and below the bars, and of one bar."""
_GREY = "#9A9A9A"
_LEFT = 0.33
"""Where the bars begin, of the width."""

TITLE = "My softmax, counted trip by trip"
NOTHING_YET = "No kernel has passed its check yet: the first one is exercise 2.1."


def figures(found: Gathered) -> list[tuple[str, str]]:
    """The numbers that sum everything up, each with what it counts."""
    made = len(found.predictions)
    predicted = [(f"{found.near}", f"of {counted(made, 'prediction')} within 10 %")] if made else []
    return [
        (f"{found.points:g}", f"of {found.most:g} points"),
        (f"{len(found.own)}", "kernel of my own" if len(found.own) == 1 else "kernels of my own"),
        *predicted,
    ]


def drawn_ladder(found: Gathered) -> Picture:
    """Bars of loads and stores, one for each kernel of the learner's own in blue and orange, PyTorch's in grey."""
    height = _ABOVE + _BELOW + _LINE * len(found.ladder)
    figure = Figure(figsize=(_WIDTH, height))
    figure.text(0.03, 1 - 0.42 / height, TITLE, fontsize=19, fontweight="bold", color=BLACK)
    under = "Softmax in Triton: trips to memory per element, as the checks counted them"
    figure.text(0.03, 1 - 0.74 / height, under if found.own else NOTHING_YET, fontsize=10.5, color="#555555")
    axes = figure.add_axes((_LEFT, _BELOW / height, 0.64, 1 - (_ABOVE + _BELOW) / height))
    _draw_bars(axes, found.ladder)
    for column, (number, words) in enumerate(figures(found)):
        left = 0.03 + 0.31 * column
        figure.text(left, 0.36 / height, number, fontsize=20, fontweight="bold", color=BLUE)
        figure.text(left, 0.15 / height, words, fontsize=9.5, color="#555555")
    return Picture(figure, described(found))


def _draw_bars(axes: object, ladder: Sequence[Rung]) -> None:
    most = max(rung.loads + rung.stores for rung in ladder if rung.loads is not None)
    labelled = False
    for line, rung in enumerate(ladder):
        first = rung.mine and not labelled
        labelled = labelled or rung.mine
        loads, stores = (BLUE, ORANGE) if rung.mine else (_GREY, "#CFCFCF")
        bar = {"y": line, "height": 0.66, "edgecolor": "white"}
        right, down = rung.loads or 0, rung.stores or 0
        axes.barh(width=right, color=loads, label="my loads" if first else None, **bar)
        axes.barh(width=down, left=right, color=stores, hatch="//", label="my stores" if first else None, **bar)
        words = rung.trips + (f"   {rung.speed}" if rung.speed else "")
        weight = "bold" if rung.mine else "normal"
        over = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        at = right + down + 0.1, line
        axes.text(*at, words, va="center", color=BLACK, fontsize=10, fontweight=weight, bbox=over)
    axes.set_yticks(range(len(ladder)), [f"{rung.number}  {rung.name}" if rung.mine else rung.name for rung in ladder])
    axes.tick_params(axis="y", length=0)
    axes.axvline(2, color=BLACK, linewidth=0.8, linestyle=":", zorder=0)
    axes.set(ylim=(len(ladder) - 0.4, -0.6), xlim=(0, most * 1.15), xlabel="")
    below = {"fontsize": 8.5, "color": "#555555", "va": "top"}
    axes.text(2.04, len(ladder) - 0.42, "a copy: 1 + 1", **below)
    if gpus := dict.fromkeys(rung.gpu for rung in ladder if rung.speed):
        axes.text(most * 1.15, len(ladder) - 0.42, f"timed on one {' and one '.join(gpus)}", ha="right", **below)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_xticks([])
    if labelled:
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize=9)


def described(found: Gathered) -> str:
    """The picture in words."""
    whose = {True: "mine", False: "PyTorch"}
    rungs = "; ".join(
        f"{rung.name} ({whose[rung.mine]}) {_in_words(rung)}" + (f", {rung.speed}" if rung.speed else "")
        for rung in found.ladder
    )
    together = ", ".join(" ".join(pair) for pair in figures(found))
    return f"{TITLE}. Trips to memory per element: {rungs}. {together}."


def _in_words(rung: Rung) -> str:
    return rung.trips if rung.loads is None else f"{rung.loads:.1f} loads and {rung.stores:.1f} stores"
