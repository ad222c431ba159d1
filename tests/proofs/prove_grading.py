"""Proofs about grading that take minutes: each is a command that prints what it saw.

python tests/proofs/prove_grading.py throughput   # against `nbgrader autograde`, on the same 40 notebooks
python tests/proofs/prove_grading.py killed       # SIGKILL at ten random moments, then the same gradebook
python tests/proofs/prove_grading.py cluster      # Dask with two workers, one of them killed midway
python tests/proofs/prove_grading.py soak --minutes 60   # hostile and honest ones mixed; the host before and after
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests/kit")]

from handed_in import EAGER, FULL, MASKED, ONLINE, TILE, TWO_PASS, corpus, notebook, solved, written
from helpers.instructor.collect import course
from helpers.instructor.grade import everyone as grade_here
from helpers.instructor.grade.workshop import Workshop
from helpers.instructor.report import export, gradebook

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def honest_class(directory, students, lessons):
    """A course with students who solved, half solved and did not touch their lessons; the points that each deserves."""
    course.make_course(directory, [ROOT / "solutions" / f"{lesson}.ipynb" for lesson in lessons])
    deserved = {}
    for number in range(students):
        student = f"student-{number:03}"
        for lesson in lessons:
            book, points = [(solved(lesson), FULL[lesson]), _half(lesson), (notebook(lesson), 0)][number % 3]
            path = directory / "submitted" / student / lesson / f"{lesson}.ipynb"
            path.parent.mkdir(parents=True)
            path.write_bytes(written(book))
            deserved[student, lesson] = points
    return deserved


def _half(lesson):
    if lesson == EAGER:
        return solved(lesson, "stable"), 2
    if lesson == ONLINE:
        return solved(lesson, "merge", "recurrence"), 3
    book = solved(lesson)
    for cell in book["cells"]:
        cell["source"] = "".join(cell["source"]).replace("x - tl.max(x, axis=0)", "x").replace("x - m", "x")
    return book, 0


def command(*arguments):
    """`python -m helpers.instructor` with these arguments, in its own process group."""
    words = [sys.executable, "-W", "ignore", "-m", "helpers.instructor", *map(str, arguments)]
    return subprocess.Popen(
        words, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def grade(*arguments):
    """Runs `grade` to its end; the seconds it took and what it printed."""
    began = time.monotonic()
    process = command("grade", *arguments)
    said = process.communicate()[0]
    assert process.returncode == 0, said
    return time.monotonic() - began, said


def points(directory):
    """What the gradebook holds, by student and lesson."""
    return {(s, lesson): p for s, own in export.grades(directory).points.items() for lesson, p in own.items()}


def processes():
    """Process ids of every process of a grading run on this machine, its sandboxes included."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"helpers.instructor.sandbox.zygote" in words or (b"helpers.instructor" in words and b"grade" in words):
                found.add(int(path.parent.name))
    return found


def killed_and_resumed(directory, times, workshop, jobs=2):
    """Grades in a forked process that is killed with SIGKILL after a few more results, `times` times, then to the end.

    Returns how many results were there after each kill. The workshop stays, so that no time goes into starts.
    """
    kept = []
    for _ in range(times):
        child = os.fork()
        if child == 0:
            try:
                grade_here.grade(directory, jobs=jobs, progress=False, workshop=workshop)
            finally:
                os._exit(1)
        wanted = _results(directory) + random.randint(0, 4)
        while _results(directory) < wanted and os.waitpid(child, os.WNOHANG) == (0, 0):
            time.sleep(0.01)
        time.sleep(random.uniform(0, 1))
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        kept.append(_results(directory))
    grade_here.grade(directory, jobs=jobs, progress=False, workshop=workshop)
    return kept


def _results(directory):
    return len(list((directory / course.GRADING / "results").glob("*/*.json")))


def killed():
    lessons = (EAGER, TILE, ONLINE)
    before = processes()
    workshop = Workshop()
    with tempfile.TemporaryDirectory() as folder:
        calm, rough = Path(folder, "calm"), Path(folder, "rough")
        deserved = honest_class(calm, 12, lessons)
        shutil.copytree(calm, rough)
        kept = killed_and_resumed(rough, 10, workshop)
        print("results that were there after each of ten kills:", kept, "of", len(deserved), flush=True)
        began = time.monotonic()
        grade_here.grade(calm, jobs=2, progress=False, workshop=workshop)
        print(f"{len(deserved)} notebooks, undisturbed in {time.monotonic() - began:.0f} s")
        workshop.close()
        deadline = time.monotonic() + 5
        while processes() - before - {os.getpid()} and time.monotonic() < deadline:
            time.sleep(0.1)
        print("processes left behind:", len(processes() - before - {os.getpid()}))
        print("gradebook as deserved:", points(calm) == deserved)
        print("gradebook of the run that was killed ten times the same:", points(rough) == points(calm))


@contextlib.contextmanager
def cluster(workers):
    """A Dask scheduler on this machine, and its workers, as processes: the address, and the workers."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "scheduler.log")
        scheduler = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
             "--no-dashboard"],
            cwd=scratch, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=log.open("w"),
        )  # fmt: skip
        while not (found := re.search(r"tcp://[\d.]+:\d+", log.read_text())):
            time.sleep(0.1)
        address = found[0]
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny",
                 "--no-dashboard", "--local-directory", scratch],
                cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )
            for _ in range(workers)
        ]  # fmt: skip
        try:
            yield address, running
        finally:
            for process in [*running, scheduler]:
                process.kill()
                process.wait()


def worker_killed_midway(directory, expected):
    """Grades on two workers and kills one of them when a third of the results are there; what `grade` printed."""
    with cluster(2) as (address, workers):
        process = command("grade", directory, "--scheduler", address)
        results = directory / course.GRADING / "results"
        while len(list(results.glob("*/*.json"))) < expected // 3 and process.poll() is None:
            time.sleep(0.05)
        workers[0].kill()
        said = process.communicate()[0]
        assert process.returncode == 0, said
        return said


def on_cluster():
    lessons = (EAGER, TILE, ONLINE)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        deserved = honest_class(directory, 12, lessons)
        said = worker_killed_midway(directory, len(deserved))
        print(said[-1500:])
        print("gradebook as deserved, one worker of two killed midway:", points(directory) == deserved)
        results = list((directory / course.GRADING / "results").glob("*/*.json"))
        print(f"{len(results)} results for {len(deserved)} notebooks")


def throughput():
    lessons = (TILE, MASKED, TWO_PASS, ONLINE)
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder, "original")
        deserved = honest_class(original, 10, lessons)
        rows = []

        def timed(name, run):
            directory = Path(folder, name.replace(" ", "-"))
            shutil.copytree(original, directory)
            began = time.monotonic()
            run(directory)
            rows.append((name, time.monotonic() - began, points(directory) == deserved))
            print(f"{name}: {rows[-1][1]:.0f} s", flush=True)

        timed("ours, 1 job", lambda directory: grade(directory, "--jobs", 1))
        timed("ours, 2 jobs", lambda directory: grade(directory, "--jobs", 2))
        with cluster(2) as (address, _):
            timed("ours, Dask, 2 workers", lambda directory: grade(directory, "--scheduler", address))
        timed("nbgrader autograde", lambda directory: _stock(directory, lessons))
        stock = rows[-1][1]
        print(f"\n{len(deserved)} honest notebooks, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}\n")
        print(f"{'':24}{'seconds':>9}{'a notebook':>12}{'ratio':>8}   all points as deserved")
        for name, seconds, right in rows:
            print(f"{name:24}{seconds:9.0f}{seconds / len(deserved):12.2f}{stock / seconds:8.1f}   {right}")


def _stock(directory, lessons):
    for lesson in lessons:
        words = [sys.executable, "-m", "nbgrader", "autograde", lesson]
        subprocess.run(words, cwd=directory, env=ENVIRONMENT, check=False, capture_output=True)


def _host():
    """What a machine has left and holds: in MB memory and disk, then counts."""
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    disk = os.statvfs(tempfile.gettempdir())
    ipc = sum(len(Path("/proc/sysvipc", kind).read_text().splitlines()) - 1 for kind in ("sem", "msg", "shm"))
    return {
        "memory available, MB": int(memory["MemAvailable"].split()[0]) >> 10,
        "kernel memory (SUnreclaim), MB": int(memory["SUnreclaim"].split()[0]) >> 10,
        "disk free, MB": disk.f_bavail * disk.f_frsize >> 20,
        "System V objects": ipc,
        "processes of a grading run": len(processes() - {os.getpid()}),
        "folders of sandboxes": len(list(Path(tempfile.gettempdir()).glob(f"softmax-sandboxes-{os.geteuid()}/*"))),
    }


def soak(minutes):
    """Grades the corpus, hostile and honest, again and again with two jobs; the first three runs end by SIGKILL."""
    handed_in = corpus()
    random.Random(0).shuffle(handed_in)
    wrong, graded, kills, runs = set(), 0, 3, 0
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        course.make_course(directory, sorted((ROOT / "solutions").glob("*.ipynb")))
        for one in handed_in:
            one.put(directory)
        before, end = _host(), time.monotonic() + 60 * minutes
        while time.monotonic() < end:
            process, runs = command("grade", directory, "--jobs", 2), runs + 1
            until = min(end, time.monotonic() + 60 * minutes / 6) if kills else end
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=max(1, until - time.monotonic()))
            finished = process.returncode is not None
            process.kill()
            process.communicate()
            kills -= bool(kills)
            if finished or time.monotonic() >= end:
                found = {(r.student, r.lesson): r.points for r in gradebook.results_of(directory)}
                graded += len(found)
                wrong |= {(o.name, o.points, found[key]) for o in handed_in
                          if (key := (o.name, o.lesson)) in found and found[key] != o.points}  # fmt: skip
                shutil.rmtree(directory / course.GRADING, ignore_errors=True)
        time.sleep(20)
        after = _host()
    print(f"{runs} runs in {minutes:g} minutes, three ended by SIGKILL; {graded} of {len(handed_in)} graded, with load "
          f"{os.getloadavg()[0]:.0f}")  # fmt: skip
    for name, value in before.items():
        print(f"{name:34}{value:10,}{after[name]:10,}")
    print("other points than deserved:", sorted(wrong) or "none")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("proof", choices=("throughput", "killed", "cluster", "soak"))
    parser.add_argument("--minutes", type=float, default=60)
    chosen = parser.parse_args()
    proofs = {"throughput": throughput, "killed": killed, "cluster": on_cluster, "soak": partial(soak, chosen.minutes)}
    proofs[chosen.proof]()


if __name__ == "__main__":
    main()
