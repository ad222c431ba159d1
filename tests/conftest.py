"""What all tests share. Importing helpers here, before any test module, lets them import triton in any order."""

import helpers  # noqa: F401
