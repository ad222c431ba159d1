"""helpers.choosing.rules, under the name that lessons of the first edition import."""

from helpers.choosing.rules import *
