"""JupyterHub for a class on one machine: `jupyterhub -f jupyterhub_config.py`, JupyterHub 6.

Students get JupyterLab with the course's packages; lessons are fetched and submitted through nbgrader's exchange, whose
settings stand in nbgrader_config.py next to this file. What differs from place to place is read from the environment:

    SOFTMAX_CHECKOUT       the repository, after `make install`, read only for students  (/srv/softmax-in-triton)
    SOFTMAX_EXCHANGE       nbgrader's exchange folder, which everybody may write to        (/srv/nbgrader/exchange)
    SOFTMAX_AUTHENTICATOR  who may log in: an authenticator of the hub                     (pam)
    SOFTMAX_SPAWNER        what starts a student's server: a spawner of the hub            (local processes)
"""

import os
from pathlib import Path

c = get_config()  # noqa: F821

checkout = Path(os.environ.get("SOFTMAX_CHECKOUT", "/srv/softmax-in-triton"))
settings = checkout / "helpers" / "instructor" / "jupyterhub"

c.JupyterHub.authenticator_class = os.environ.get("SOFTMAX_AUTHENTICATOR", "pam")
c.Authenticator.allow_all = True  # whoever the authenticator knows is a student
c.JupyterHub.spawner_class = os.environ.get("SOFTMAX_SPAWNER", "jupyterhub.spawner.LocalProcessSpawner")

# The single-user servers run the course's own Python (`.venv/bin/pip install jupyterhub` there, of the hub's version).
c.Spawner.cmd = [str(checkout / ".venv" / "bin" / "python"), "-m", "jupyterhub.singleuser"]
c.Spawner.default_url = "/lab"
c.Spawner.environment = {
    "JUPYTER_CONFIG_PATH": str(settings),
    "PYTHONPATH": str(checkout),
    "PATH": f"{checkout / '.venv' / 'bin'}:/usr/bin:/bin",
    "OMP_NUM_THREADS": "1",
    "SOFTMAX_EXCHANGE": os.environ.get("SOFTMAX_EXCHANGE", "/srv/nbgrader/exchange"),
}

# Spawners of containers and of systemd hold servers to these; local processes are not held to them.
c.Spawner.mem_guarantee = "1G"
c.Spawner.mem_limit = "3G"
c.Spawner.cpu_limit = 1.0
c.JupyterHub.concurrent_spawn_limit = 20  # a class arrives within five minutes
c.JupyterHub.active_server_limit = 400
