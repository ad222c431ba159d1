"""What `make lint` asks beside ruff: the rules of the house, and turns of phrase that readers stumble over.

    python tests/lint

prints each place that breaks a rule; the exit status is 1 if there is any.
"""

import sys

from house import ROOT, RULES
from prose import too_frequent

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # where helpers is looked for
    broken = [f"{rule.__name__}: {place}" for rule in RULES for place in sorted(rule(ROOT))]
    broken += too_frequent()
    print("\n".join(broken) or "The rules of the house hold.")
    sys.exit(bool(broken))
