"""helpers.choosing.launches, under the name that lessons of the first edition import."""

from helpers.choosing.launches import *
from helpers.choosing.launches import of_gpu as record
