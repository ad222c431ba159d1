"""helpers.choosing.picker, under the name that lessons of the first edition import."""

from helpers.choosing.picker import *
