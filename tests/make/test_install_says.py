"""What helpers/make/install.py says while pip works: a few words from what pip prints, as often as the place allows."""

import io

import pytest

from helpers.make import install as installer

FINDS = ["Looking in links: somewhere\n", "Collecting numpy==2.4.6 (from -r the.txt (line 2))\n"]
FETCHES = [*FINDS, "  Downloading numpy-2.4.6-cp311-manylinux_2_28_x86_64.whl (16.9 MB)\n"]
FILE = ["Processing /wheels/jupyter_core-5.9.1-py3-none-any.whl (from -r the.txt (line 3))\n"]
METADATA = [*FINDS, "  Downloading numpy-2.4.6-cp311-manylinux_2_28_x86_64.whl.metadata (62 kB)\n"]
FINDS_TWO = [*FETCHES, "Collecting torch\n", "Requirement already satisfied: numpy in .venv\n"]
UNPACKS = [*FINDS_TWO, "Installing collected packages: numpy, jupyter-core, torch\n"]


@pytest.mark.parametrize(
    ("lines", "of", "says"),
    [
        pytest.param([], 5, "making the environment", id="nothing printed yet"),
        pytest.param(FINDS, 5, "finding numpy, package 1 of 5", id="a package is found"),
        pytest.param(FINDS, 0, "finding numpy, package 1", id="nobody knows how many there are"),
        pytest.param(FILE, 5, "finding jupyter-core, package 1 of 5", id="a file is found"),
        pytest.param(FETCHES, 5, "fetching numpy 2.4.6 (16.9 MB)", id="a file is fetched"),
        pytest.param(METADATA, 5, "finding numpy, package 1 of 5", id="what a package says of itself is fetched"),
        pytest.param(FINDS_TWO, 5, "finding numpy, package 2 of 5", id="a package that is named twice counts once"),
        pytest.param(FINDS_TWO, 1, "finding numpy, package 2", id="more than there should be"),
        pytest.param(UNPACKS, 5, "installing: 2 of 3 packages", id="packages are unpacked"),
    ],
)
def test_what_pip_prints_becomes_a_few_words(lines, of, says):
    assert installer.going_on(lines, ["pip", "numpy", "jupyter_core"], of) == says


@pytest.fixture
def clock():
    """A clock that stands still until its `now` is changed."""

    class Clock:
        now = 100.0

        def __call__(self):
            return self.now

    return Clock()


def test_where_lines_do_not_move_one_comes_a_minute_at_most(clock):
    stream = io.StringIO()
    progress = installer.Progress(stream, clock)
    for clock.now in range(100, 221):
        progress.show("finding numpy")
    progress.clear()
    assert stream.getvalue() == "1:00  finding numpy\n2:00  finding numpy\n"
