"""Drag a row's length and see which softmax to launch, why, and what that is known from: `picker.show()`.

A State is what was asked together with all that follows from it (model.py). Pure functions put it into words
(phrases.py) and draw it as a card, a table and a figure (view.py). `look` adds what the compiler makes of the launch,
and Newest asks for it in the background (compiling.py). The widget only carries the card to the browser (widget.py,
widget.js).
"""

from helpers.choosing.picker.model import State, state
from helpers.choosing.picker.view import card, figure, table
from helpers.choosing.picker.widget import Picker, show

__all__ = ["Picker", "State", "card", "figure", "show", "state", "table"]
