"""`picker.show()`: drag the row length to see which softmax to launch, why, and which measurements say so.

A State is a question with all its answers (model.py). Pure functions put it into words (phrases.py) and draw it as a
card, a table and a picture (view.py). `look` adds the compiler's report on the launch, and Newest asks for that report
in the background (compiler.py). The widget carries the card to the browser (widget.py, widget.js). If anywidget is
missing, a table and a picture take the place of the widget (forms.py).
"""

from helpers.choosing.picker.forms import form, show
from helpers.choosing.picker.model import State, state
from helpers.choosing.picker.view import as_card, as_picture, as_table

__all__ = ["State", "as_card", "as_picture", "as_table", "form", "show", "state"]
