"""Run the notebooks in JupyterLab, in a browser, as a learner does.

    python tests/proofs/lab.py OUT_FOLDER [NOTEBOOK ...] [--theme light|dark|both]

runs a copy of each notebook, lists what is wrong with it and writes pictures of all of it to OUT_FOLDER.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDERS = ("lessons", "solutions")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
WINDOW = {"width": 1000, "height": 900}
TALLEST_PICTURE = 1500

# The server's standard input closes however the runner ends; the server then ends itself and its kernels.
SERVER = """
import os, signal, threading

def end_with_the_runner():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_with_the_runner, daemon=True).start()
from jupyterlab.labapp import main
main()
"""
OPTIONS = (
    "--no-browser",
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.port=0",
    "--ServerApp.port_retries=0",
    "--ServerApp.allow_root=True",
    "--LabApp.expose_app_in_browser=True",
)
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false"},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
THEME_SETTING = "@jupyterlab/apputils-extension:themes"

OPEN = """async path => {
    for (const widget of [...jupyterapp.shell.widgets('main')]) widget.dispose();
    await jupyterapp.serviceManager.sessions.shutdownAll();
    window.panel = await jupyterapp.commands.execute('docmanager:open', {path});
    await panel.context.ready;
}"""

# Cells run before the kernel is connected do nothing and report success.
READY = """() => {
    const kernel = panel.sessionContext.session?.kernel;
    return kernel?.connectionStatus === 'connected' && kernel.status === 'idle';
}"""

QUIET = """() => new Promise(resolve => {
    let timer = setTimeout(resolve, 500);
    const wait = () => { clearTimeout(timer); timer = setTimeout(resolve, 500); };
    new MutationObserver(wait).observe(panel.node, {subtree: true, childList: true, attributes: true});
    setTimeout(resolve, 10000);
})"""

CODE_CELLS = """() => panel.content.widgets.flatMap((cell, index) => cell.model.type !== 'code' ? [] : [{
    number: index + 1,
    source: cell.model.sharedModel.getSource(),
    prompt: cell.node.querySelector('.jp-InputPrompt').textContent,
    errors: cell.model.outputs.toJSON().filter(output => output.output_type === 'error')
        .map(error => `${error.ename}: ${error.evalue}`),
}])"""

DIALOGS = "() => [...document.querySelectorAll('.jp-Dialog')].map(dialog => dialog.innerText)"

# JupyterLab itself names an image in HTML that has no name "Image".
FLAWS = """() => {
    const named = picture => !['', 'Image'].includes(picture.getAttribute('alt')?.trim() ?? '')
        || picture.getAttribute('aria-label')?.trim() || picture.querySelector(':scope > title')
        || picture.closest('[role=img][aria-label], [aria-hidden=true]');
    const shown = (cell, what = '') => [...cell.querySelectorAll(`.jp-OutputArea-output ${what}`)];
    const flaws = {
        'a picture without a text alternative': cell => shown(cell, ':is(img, svg)').some(picture => !named(picture)),
        'an output wider than its column': cell => shown(cell).some(node => node.scrollWidth > node.clientWidth + 1),
        'a formula with an error': cell => cell.querySelector('mjx-merror'),
    };
    return panel.content.widgets.flatMap((cell, index) => Object.entries(flaws)
        .filter(([, found]) => found(cell.node)).map(([flaw]) => `cell ${index + 1}: ${flaw}`));
}"""

SCROLLER = ".jp-Notebook .jp-WindowedPanel-outer"

CELL_ENDS = """scroller => panel.content.widgets.map(cell =>
    Math.ceil(cell.node.getBoundingClientRect().bottom - scroller.getBoundingClientRect().top + scroller.scrollTop))"""


def notebooks(root: Path = CHECKOUT) -> list[str]:
    """The notebooks of the course, as paths relative to `root`."""
    found = (path.relative_to(root) for folder in FOLDERS for path in sorted((root / folder).rglob("*.ipynb")))
    return [str(path) for path in found if ".ipynb_checkpoints" not in path.parts]


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab; `folder` is what it serves: copies of the course's notebooks."""

    url: str
    token: str
    folder: Path

    def open(self, page: Page, notebook: str) -> None:
        """Show `notebook`, a path in `folder`, in place of the one before it, whose kernel ends."""
        if not page.url.startswith(self.url) or page.evaluate(DIALOGS):
            page.goto(f"{self.url}doc?{urlencode({'token': self.token, 'reset': ''})}")
            page.wait_for_function("window.jupyterapp?.restored.then(() => true)")
        _call(page, OPEN, notebook)
        page.clear_console_messages()
        page.clear_page_errors()


@contextmanager
def serve(root: Path = CHECKOUT, theme: str = "light", options: Sequence[str] = ()) -> Iterator[Lab]:
    """A JupyterLab with settings of its own that runs copies of the notebooks in `root` on this Python.

    `options` are more options of its command line.
    """
    with TemporaryDirectory(prefix="jupyterlab-", ignore_cleanup_errors=True) as temporary:
        home = Path(temporary)
        folder = home / "course"
        folder.mkdir()
        for name in FOLDERS:
            if (root / name).is_dir():
                shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
        settings = home / "config" / "labconfig" / "default_setting_overrides.json"
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps(SETTINGS | {THEME_SETTING: {"theme": THEMES[theme]}}))
        log = home / "log"
        with log.open("w") as output:
            server = subprocess.Popen(
                [sys.executable, "-c", SERVER, *OPTIONS, *options, f"--ServerApp.root_dir={folder}"],
                cwd=folder,
                env=_environment(home, root),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield _started(server, home / "runtime", log, folder)
        finally:
            server.stdin.close()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _environment(home: Path, root: Path) -> dict[str, str]:
    """This process's environment, without its owner's Jupyter and IPython settings, and with `root` to import from."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
    return inherited | {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "IPYTHONDIR": str(home / "ipython"),
        "PYTHONPATH": os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def _started(server: subprocess.Popen, runtime: Path, log: Path, folder: Path, timeout: float = 60) -> Lab:
    """The server once it listens; its port and its token stand in a file that it writes then."""
    deadline = time.monotonic() + timeout
    while server.poll() is None and time.monotonic() < deadline:
        for file in runtime.glob("jpserver-*.json"):
            if text := file.read_text():
                info = json.loads(text)
                return Lab(info["url"], info["token"], folder)
        time.sleep(0.05)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")


@contextmanager
def browser() -> Iterator[Page]:
    """A page in a headless Chromium: the one on the PATH, else Playwright's own."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM)
        try:
            yield chromium.new_page(viewport=WINDOW)
        finally:
            chromium.close()


def _call(page: Page, function: str, argument: Any = None, timeout: float = 60) -> None:
    """Call an asynchronous JavaScript function and wait for its end; `page.evaluate` would wait for ever."""
    page.evaluate(
        f"""argument => {{
            const call = window.call = {{}};
            ({function})(argument).then(() => call.end = 'done', error => call.end = String(error));
        }}""",
        argument,
    )
    page.wait_for_function("call.end", timeout=1000 * timeout)
    if (end := page.evaluate("call.end")) != "done":
        raise RuntimeError(end)


def run_all(page: Page, timeout: float = 300) -> list[str]:
    """Run every cell of the open notebook, wait for the end, and return what went wrong."""
    problems, awaited = [], "no kernel after 60 s"
    try:
        page.wait_for_function(READY, timeout=60_000)
        awaited = f"not finished after {timeout:g} s"
        _call(page, "() => jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
        _call(page, "() => jupyterapp.commands.execute('notebook:run-all-cells')", timeout=timeout)
        page.evaluate(QUIET)
    except PlaywrightTimeout:
        problems.append(awaited)
    problems += [f"dialog: {' '.join(text.split())}" for text in page.evaluate(DIALOGS)]
    for cell in page.evaluate(CODE_CELLS):
        where = f"cell {cell['number']} ({cell['source'].partition(chr(10))[0]})"
        problems += [f"{where}: {error}" for error in cell["errors"]]
        if not cell["prompt"].strip("[]:").isdigit():
            problems.append(f"{where}: did not run to its end, {cell['prompt']}")
    problems += [f"console: {message.text}" for message in page.console_messages() if message.type == "error"]
    problems += [f"console: {error}" for error in page.page_errors()]
    return problems


def flaws(page: Page) -> list[str]:
    """What in the open notebook cannot be read: unnamed pictures, outputs that are too wide, broken formulas."""
    return page.evaluate(FLAWS)


def set_theme(page: Page, name: str) -> None:
    """Change JupyterLab's theme to "light" or "dark"."""
    _call(page, "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", THEMES[name])
    page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=THEMES[name])
    page.evaluate(QUIET)


def picture_spans(cell_ends: list[int]) -> list[tuple[int, int]]:
    """Tops and bottoms of pictures: as many whole cells as fit in each, and parts of a cell that fits in none."""
    spans, top, end = [], 0, 0
    for bottom in cell_ends:
        if bottom - top > TALLEST_PICTURE and end > top:
            spans.append((top, end))
            top = end
        while bottom - top > TALLEST_PICTURE:
            spans.append((top, top + TALLEST_PICTURE))
            top += TALLEST_PICTURE
        end = bottom
    return [*spans, (top, end)]


def screenshot(page: Page, path: Path) -> list[Path]:
    """Write the whole open notebook to pictures named like `path` with -1, -2, … before its suffix."""
    page.set_viewport_size(WINDOW | {"height": TALLEST_PICTURE + 200})
    page.evaluate(QUIET)
    scroller = page.locator(SCROLLER)
    spans = picture_spans(scroller.evaluate(CELL_ENDS))
    paths = [path.with_stem(f"{path.stem}-{number}") for number in range(1, len(spans) + 1)]
    for picture, (top, bottom) in zip(paths, spans, strict=True):
        scroller.evaluate("(scroller, top) => { scroller.scrollTop = top }", top)
        page.screenshot(path=picture, clip=scroller.bounding_box() | {"height": bottom - top})
    page.set_viewport_size(WINDOW)
    return paths


def main() -> int:
    """Run notebooks, say what is wrong with them, and write pictures of them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out_folder", type=Path, help="where the pictures go")
    parser.add_argument("notebook", nargs="*", type=Path, help="one of lessons/ or solutions/ (default: all of them)")
    parser.add_argument("--theme", choices=[*THEMES, "both"], default="light")
    options = parser.parse_args()

    if not CHROMIUM:
        parser.error("Chromium is not installed")
    known = notebooks()
    chosen = [os.path.relpath(path.resolve(), CHECKOUT) for path in options.notebook] or known
    if unknown := set(chosen) - set(known):
        parser.error(f"not a notebook of {' or '.join(FOLDERS)}: {', '.join(sorted(unknown))}")
    themes = list(THEMES) if options.theme == "both" else [options.theme]

    wrong = 0
    with serve() as lab, browser() as page:
        for notebook in chosen:
            started = time.monotonic()
            lab.open(page, notebook)
            problems = run_all(page) + flaws(page)
            print(f"{notebook}: {len(problems)} problems, {time.monotonic() - started:.1f} s", *problems, sep="\n  ")
            wrong += len(problems)
            for theme in themes:
                set_theme(page, theme)
                picture = options.out_folder / theme / Path(notebook).with_suffix(".png")
                print(*screenshot(page, picture), sep="\n", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
