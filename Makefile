# The only thing to bring is Python 3.11 to 3.14; everything else goes into .venv.
PYTHON ?= python3
PORT   ?= 8888
REMOTE ?=
GPU    ?=
ARGS   ?=
EVERY  ?= 1
BUGS   ?= 100
SEED   := $(or $(SEED),$(shell date +%s))

VENV_PYTHON := .venv/bin/python

# Names and files are UTF-8, whatever the locale.
export PYTHONUTF8 := 1

.PHONY: help install lab container test proofs lessons solutions record lock lint clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-12s%s\n", $$1, $$2 }' Makefile

install: # quick and silent once .venv is up to date
	@$(PYTHON) -c '' 2>/dev/null || \
	  { echo "The course needs Python 3.11 to 3.14, and '$(PYTHON)' does not start." >&2; exit 1; }
	@$(PYTHON) helpers/make/install.py

lab: install ## open your working copy, my-lessons/, in JupyterLab (PORT=8889 for another port, REMOTE=1 without a browser)
	@$(VENV_PYTHON) helpers/make/working_copy.py || true
	@$(VENV_PYTHON) helpers/make/lab.py --port '$(PORT)' $(if $(filter-out 0,$(REMOTE)),--remote)

container: ## the same in Docker, on macOS too (GPU=1 with an NVIDIA GPU)
	@docker build --file .devcontainer/Dockerfile --tag softmax-in-triton \
	  --build-arg TORCH=$(if $(filter-out 0,$(GPU)),cu130,cpu) .
	@docker run --rm --interactive --tty $(if $(filter-out 0,$(GPU)),--gpus all) \
	  --user "$$(id -u):$$(id -g)" --env HOME=/tmp --env PUBLISHED_PORT=$(PORT) \
	  --publish 127.0.0.1:$(PORT):8888 --volume '$(CURDIR):/course' softmax-in-triton

# Where this is set, as images for containers do, each of the processes that tests start compiles the course anew.
test proofs: export PYTHONDONTWRITEBYTECODE :=

test: install ## run the tests and every solution (ARGS="tests -k softmax" for some of them)
	@$(VENV_PYTHON) -m pytest $(ARGS)

proofs: install ## run all there is: every test in a random order (SEED=1 for another), then the proofs, which take longer
	@$(VENV_PYTHON) -m pytest --random-order-bucket=parent --random-order-seed=$(SEED)
	@$(VENV_PYTHON) -m pytest -m proof --every=$(EVERY) --shift=$(SEED)
	@$(VENV_PYTHON) tests/proofs/handed_in.py --every $(EVERY) --shift $(SEED)
	@$(VENV_PYTHON) tests/proofs/planted.py --sample $(BUGS) --limit 90 --seed $(SEED)

lessons: install ## make lessons/ anew from solutions/
	@$(VENV_PYTHON) -m helpers.instructor lessons

solutions: install ## execute the solutions on this machine
	@$(VENV_PYTHON) -m helpers.instructor execute

record: install ## record the measurements of this machine
	@$(VENV_PYTHON) -m helpers.measure.record

.PHONY: site
site: install ## make the solutions and guides into a static book, build/site
	@$(VENV_PYTHON) -m uv pip install --quiet --python $(VENV_PYTHON) --group site
	@$(VENV_PYTHON) -m helpers.make.site

lock: install ## renew the lock: the newest versions that agree; then run everything with them
	@$(VENV_PYTHON) -m helpers.make.lock
	@$(MAKE) proofs

lint: install ## check the style of all code, in notebooks too, and the rules of the house
	@$(VENV_PYTHON) -m ruff check
	@$(VENV_PYTHON) -m ruff format --check
	@$(VENV_PYTHON) tests/lint

clean: ## remove .venv
	rm -rf .venv
