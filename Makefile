# `make demo` and `make test` set up everything they need (tools/setup.sh) and are safe to run again.
# SHORT=1 leaves out the tests marked slow (what .ci/run does for interop and chaos).

PY := .venv/bin/python
# Three processes on the two cores we build for: some tests wait for a broker. One file stays in one process, so that fixtures are shared.
PYTEST := $(PY) -m pytest
# The files that take longest begin: else one process would work on them at last, and the other would have nothing to do.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder
LONGEST := tests/spark tests/sim tests/cli
# Foreign peers take as long to start as to answer: two processes, each with its own Apache Kafka, keep both cores busy.
BESIDE := -n 2 --dist loadfile --no-loadscope-reorder
LONGEST_BESIDE := tests/interop/test_born_in_apache_kafka.py tests/interop/test_demo_on_apache_kafka.py
# Whole scripts, run by Spark in processes of their own: half a minute each.
SPARK_SCRIPTS := spark and slow and not interop and not chaos
# SHORT=1 makes "make sim" about a minute long, if nothing says how long it is to be.
SIM_SHORT := $(if $(SHORT),$(if $(SEED)$(HOURS)$(REPORT)$(WORLD),,300))
NOT_SLOW := $(if $(SHORT), and not slow,)

.PHONY: help setup setup-interop demo demo-secure picture test interpreted check interop chaos sim fuzz models bench docs docs-check requirements wheel clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 16

setup: ## virtual environment, pinned requirements, the package with its compiled codec, Java
	@tools/setup.sh

setup-interop:
	@tools/setup.sh interop

demo: setup ## the main job: real text through broker, Spark and back, exactly once, across kill -9
	$(PY) -m ottla demo $(DEMO)

demo-secure: setup ## the same over TLS, with passwords, and ACLs that allow just what is needed
	$(PY) -m ottla demo --secure $(DEMO)

picture: setup ## record the demo again, and draw the README's picture from the recording
	$(PY) tools/picture.py record docs/pictures/demo.cast --title "make demo" -- $(PY) -m ottla demo $(DEMO)
	$(PY) tools/picture.py draw docs/pictures/demo.cast docs/pictures/demo.svg

test: setup ## every test that needs no foreign peer; the codecs compiled and interpreted (the house's rules: make check)
	OTTLA_INTERPRETED=1 $(PYTEST) $(PARALLEL) -q tests/wire tests/log/cleaner
	$(PYTEST) $(PARALLEL) --ignore=tests/house -m "not interop and not chaos and not ($(SPARK_SCRIPTS))$(NOT_SLOW)" \
	  $(LONGEST) tests

interpreted: setup ## the log once more, with interpreted codecs
	OTTLA_INTERPRETED=1 $(PYTEST) $(PARALLEL) -q tests/log

spark: setup ## Spark scripts whose driver is killed, and what Spark writes of secrets
	$(PYTEST) $(PARALLEL) -m "$(SPARK_SCRIPTS)" tests/spark tests/hidden

check: setup ## ruff, mypy --strict, import contracts, the rules of the house
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports
	$(PYTEST) -q tests/house

interop: setup-interop ## foreign clients on our broker, our client and pipeline on Apache Kafka
	$(PYTEST) $(BESIDE) -m "interop$(NOT_SLOW)" $(LONGEST_BESIDE) tests

chaos: setup-interop ## kill -9 of every process of the house, then the count
	$(PYTEST) -m "chaos$(NOT_SLOW)"

sim: setup ## clients and broker in simulated worlds: SEED= SEEDS= HOURS= KIND= WORLD= REPORT= (docs/simulation.md)
	@SEED="$(SEED)" SEEDS="$(or $(SEEDS),$(SIM_SHORT))" HOURS="$(HOURS)" KIND="$(KIND)" JOBS="$(JOBS)" WORLD="$(WORLD)" \
	  REPORT="$(REPORT)" STOP="$(STOP)" $(PY) -m sim

fuzz: setup ## random frames on every listener, before and after authentication, and half-open handshakes: HOURS= (1)
	$(PY) -m bench.fuzz --hours $(or $(HOURS),1) $(FUZZ)

models: setup ## members of groups, honest ones of both protocols in one group, and a log on a failing disk: HISTORIES= of each (5000)
	OTTLA_GROUP_SEEDS=$(or $(HISTORIES),5000) $(PYTEST) -n 2 -q tests/client/core/consumer/group/test_group_model.py tests/coordinator/group/test_owners.py
	OTTLA_LOG_HISTORIES=$(or $(HISTORIES),5000) $(PYTEST) -n 2 -q tests/log/test_any_order.py

bench: setup-interop ## figures against Apache Kafka, confluent-kafka, aiokafka and Spark's own connector
	$(PY) -m bench $(BENCH)

docs: setup ## write the generated pages again
	$(PY) tools/gen_docs.py
	$(PY) tools/spec_tests.py

docs-check: setup ## generated pages are up to date, links lead somewhere
	$(PY) tools/gen_docs.py --check
	$(PY) tools/spec_tests.py --check
	$(PYTEST) tests/house/test_docs.py

requirements: setup ## pin the newest versions again, with hashes
	$(PY) -m pip install -q uv
	$(PY) -m uv pip compile pyproject.toml requirements/dev.in --extra spark --extra demo --universal \
	  --python-version 3.11 --generate-hashes --no-header --no-annotate -q --upgrade -o requirements/dev.txt
	$(PY) -m uv pip compile requirements/build.in --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate -q --upgrade -o requirements/build.txt

wheel: setup ## a wheel in dist/
	$(PY) -m pip wheel -q --no-deps --no-build-isolation -w dist .

clean: ## leave only what git knows
	git clean -fdXq
