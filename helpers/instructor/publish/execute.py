"""Re-execute solutions and store them with their outputs. Needs nbclient and ipykernel, not nbgrader."""

import json
import os
from pathlib import Path

from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from tqdm.auto import tqdm

from helpers.check import EXERCISES, kept
from helpers.check.exercise import TensorExercise
from helpers.engine import notes
from helpers.instructor import REPOSITORY
from helpers.instructor.publish.notebooks import (
    NotebookError,
    label,
    normalised,
    place,
    read_notebook,
    to_bytes,
)

CELL_TIMEOUT = 300


class ThisPython(AsyncKernelManager):
    """Starts the Python that runs this code, whatever the notebook names, as nbval's `--nbval-current-env` does."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """How to start ipykernel with `sys.executable`."""
        return KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())


def kernel_environment() -> dict[str, str]:
    """This process's environment, with helpers importable, progress bars off and figures drawn in the notebook."""
    environment = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}
    python_path = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return environment | {"PYTHONPATH": os.pathsep.join(python_path), "TQDM_DISABLE": "1"}


def executed(nb: NotebookNode, folder: Path, name: str = "the notebook", timeout: int = CELL_TIMEOUT) -> NotebookNode:
    """A normalised copy of a notebook with fresh outputs, execution counts running from 1.

    The kernel works in `folder`; the notebook `nb` is left as it is, and the progress bar and error messages call it
    `name`. A cell may take `timeout` seconds. Raises NotebookError, with the cell and the error's last line, for a cell
    that fails, takes too long or ends the kernel; KeyboardInterrupt for Ctrl-C.
    """
    nb = normalised(nb)
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    for cell in code:
        cell.outputs, cell.execution_count = [], None
    filled = sum(bool(cell.source.strip()) for cell in code)
    current = 0

    with tqdm(total=filled, desc=name, unit="cell") as progress:

        def start(cell: NotebookNode, cell_index: int) -> None:
            nonlocal current
            current = cell_index

        def finish(cell: NotebookNode, cell_index: int, execute_reply: dict) -> None:
            progress.update()

        client = NotebookClient(
            nb,
            kernel_manager_class=ThisPython,
            extra_arguments=["--IPKernelApp.log_level=CRITICAL"],
            resources={"metadata": {"path": str(folder)}},
            timeout=timeout,
            record_timing=False,
            store_widget_state=False,
            on_cell_start=start,
            on_cell_executed=finish,
        )
        try:
            client.execute(env=kernel_environment())
        except CellExecutionError as error:
            reason = f"{error.ename}: {error.evalue}".strip().splitlines()[-1]
        except CellTimeoutError:
            reason = f"not finished after {timeout} s"
        except DeadKernelError:
            reason = "the kernel died"
        except AssertionError as error:  # nbclient stops the kernel on Ctrl-C, then finds none to stop
            raise KeyboardInterrupt from error
        else:
            return normalised(client.nb)
    raise NotebookError(f"{place(name, current, nb.cells[current])}: {reason}")


def execute(path: Path, timeout: int = CELL_TIMEOUT) -> None:
    """Executes the notebook at `path` in its own folder and stores it; a notebook that fails is left as it was.

    Its table of progress is that of a learner who has solved the lessons before, whatever has run in that folder; their
    kernels are the course's.

    Raises NotebookError as `executed` and `notebooks.read_notebook` do.
    """
    _solve_earlier_lessons(path)
    path.write_bytes(to_bytes(executed(read_notebook(path), path.parent, label(path), timeout)))


def _solve_earlier_lessons(path: Path) -> None:
    lesson, *_ = path.stem.split("_")
    earlier = {name: one for name, one in EXERCISES.items() if one.number.split(".")[0].zfill(2) < lesson}
    trips = {
        name: [float(one.loads), float(one.stores)]
        for name, one in earlier.items()
        if isinstance(one, TensorExercise) and isinstance(one.loads, int | float)
    }
    noted = {name: one.points for name, one in earlier.items()} | {kept.COUNTED_TRIPS: trips}
    (path.parent / notes.FILE).write_text(json.dumps(noted), encoding="utf-8")
