# SPDX-License-Identifier: Apache-2.0
# `make demo` and `make test` set up what they need: Python 3.11, a C compiler and make suffice.

PYTHON ?= python3
# TVM=0.28.0 tries that version of TVM, in an environment of its own: docs/tvm-versions.md.
TVM :=
FFI :=
VENV := .venv$(if $(TVM),-tvm-$(TVM))
BIN := $(VENV)/bin
JOBS ?= 2
LOCK := requirements.lock
export PIP_DISABLE_PIP_VERSION_CHECK := 1

SHELL := /bin/bash

.PHONY: help demo dist site test pages quick soak soak-onnx soak-dtypes soak-mutants soak-bugs soak-rtl soak-tests install install-test lock lint typecheck ctest cppcheck cppcheck-exports misra backends clean \
  bench bench-library bench-cpu bench-cpu-operators bench-cpu-integers bench-cpu-tuning bench-cpu-widths bench-parallel bench-offload bench-quantized bench-compile bench-sim bench-chocolate bench-rtl bench-m3 bench-cmsis bench-cpu-costs

help:
	@echo "make demo       a fresh backend, a trained network, a C library, and the proof"
	@echo "make test       lint, type check, C tests and Python tests"
	@echo "make pages      the commands of README and docs, which have to print what the pages show"
	@echo "make quick      the fastest Python tests of all files, with one drawn example: one minute"
	@echo "make soak       soak-onnx: every node test of ONNX; soak-dtypes: every operator of all frontends"
	@echo "                with every dtype; soak-mutants: damaged files of all formats for SOAK_MINUTES;"
	@echo "                soak-bugs: bugs in copies of backends, which uma check finds, and of"
	@echo "                umakit, which the tests find;"
	@echo "                soak-rtl: faults in copies of designs and their drivers (needs Verilator);"
	@echo "                soak-tests: comparisons again, with SOAK_EXAMPLES networks each and"
	@echo "                SOAK_INFERENCES inputs"
	@echo "make bench      size, speed and cycles beside lower bounds and other compilers, in build/bench;"
	@echo "                make bench-parallel: layers in parts, two threads compared with one;"
	@echo "                make bench-compile: time and memory of compiling alone"
	@echo "                make bench-m3 BASE=REVISION: size, stack and instructions on the Cortex-M3 beside"
	@echo "                those of an earlier revision; make bench BASE=REVISION: that too"
	@echo "                make bench-cmsis: instructions and code on Cortex-M, compared with CMSIS-NN,"
	@echo "                which \$$CMSIS_NN names"
	@echo "                make bench-offload: parts of modules of PyTorch, compared with PyTorch alone"
	@echo "                make bench-cpu-tuning: what uma tune --cpu native gains"
	@echo "                make bench-cpu-widths: AVX-512 and VNNI compared with AVX2"
	@echo "                make bench-cpu-costs: costs of CPUs, fitted to what emulators count; WRITE=1 writes"
	@echo "                them into the descriptions, CPUS=\"cortex-m4 ...\" chooses these"
	@echo "make install    umakit in $(VENV), editable"
	@echo "make test TVM=0.28.0: with another version of TVM, in .venv-tvm-0.28.0; demo, quick, pages, ... too."
	@echo "                FFI=VERSION: with another apache-tvm-ffi than the lock's, which it may need"
	@echo "make lock       write $(LOCK) again, with the newest versions"
	@echo "make cppcheck   static analysis; make misra: deviations from MISRA C:2012 (both need cppcheck)"
	@echo "make dist       sdist, wheel and bill of materials of a release, in dist"
	@echo "make site       README, docs, examples and the help of all commands as a site, in build/site/html"
	@echo "make backends   write the reference backends again from the templates"
	@echo "make clean      remove .venv, .venv-tvm-* and build folders"

# Compiling all modules of all packages takes as long as installing them; few are ever imported.
PIP := $(BIN)/python -m pip install -qq --no-compile --constraint $(if $(TVM),$(VENV)/versions,$(LOCK))

ifdef TVM
# pip refuses a TVM that pyproject.toml does not allow: what else umakit needs comes first, then
# umakit alone.
NEEDED = import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  needed = project["dependencies"] + project["optional-dependencies"].get("$(1)", []); \
  print(*(each for each in needed if not each.startswith("apache-tvm")), sep="\n")
OTHER_VERSIONS := s/^apache-tvm==.*/apache-tvm==$(TVM)/$(if $(FFI),; s/^apache-tvm-ffi==.*/apache-tvm-ffi==$(FFI)/)
INSTALL = sed '$(OTHER_VERSIONS)' $(LOCK) > $(VENV)/versions \
  && $(BIN)/python -c '$(NEEDED)' > $(VENV)/needed \
  && $(PIP) apache-tvm apache-tvm-ffi --requirement $(VENV)/needed && $(PIP) --no-deps --editable .
else
INSTALL = $(PIP) --editable '.$(if $(1),[$(1)])'
endif

# --- set-up -------------------------------------------------------------------------------------

$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: umakit needs Python 3.11 or later; try make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: pyproject.toml $(LOCK) $(VENV)/python
	@echo "Installing umakit and TVM into $(VENV) (about a minute the first time)"
	$(INSTALL)
	@touch $@

$(VENV)/installed-test: $(VENV)/installed
	@echo "Installing the test tools into $(VENV)"
	$(call INSTALL,test)
	@touch $@

# Newest versions that pyproject.toml allows, with which `make test` has to pass before they are committed.
lock:
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install -qq '.[test]' furo myst-parser sphinx
	(sed -n '/^#/p' $(LOCK); build/lock/bin/python -m pip freeze --exclude umakit) > build/lock/versions
	mv build/lock/versions $(LOCK)

install: $(VENV)/installed
install-test: $(VENV)/installed-test

# --- use ----------------------------------------------------------------------------------------

demo: install
	@$(BIN)/python examples/digits/demo.py

# The checks before the Python tests run side by side, too. Tests are given out in the order of their
# files, so that fixtures of a file are made once; who is done takes from the other's rest.
# Compiled modules are kept, for commands that tests start, too: compiling them takes a tenth of the time.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(PYTEST_OPTIONS)

# Pages take a sixth of the time; CI types them along, too.
test: install-test
	$(MAKE) --jobs=$(JOBS) lint typecheck ctest
	$(PYTEST) $(if $(UMAKIT_CI),,-m 'not page')

pages: install-test
	$(PYTEST) -m page

quick: install-test
	$(PYTEST) --quick

# What make test compares with a few drawn networks and inputs, with many: for a night.
SOAK_EXAMPLES ?= 200
SOAK_INFERENCES ?= 1000
SOAK_MINUTES ?= 30

soak: soak-onnx soak-dtypes soak-mutants soak-bugs soak-rtl soak-tests

# Every node test of ONNX, in five columns; then with vectors of 4 and of 16 numbers.
soak-onnx: install-test
	$(BIN)/python tests/onnx_node_tests.py --thorough -j $(JOBS)
	for cpu in cortex-a76 x86-64-v4; do \
	  $(BIN)/python tests/onnx_node_tests.py --cpu $$cpu -j $(JOBS) || exit 1; \
	done

# Every operator of ONNX, TensorFlow Lite, Relax and PyTorch with every dtype, under sanitizers; then
# node tests of ONNX with one integer changed.
soak-dtypes: install-test
	$(BIN)/python tests/dtype_sweep.py -j $(JOBS)
	$(BIN)/python tests/limit_sweep.py --seconds $$(($(SOAK_MINUTES) * 60)) --seed $$$$

# Damaged files by random seeds, which are printed.
MUTATED := onnx tflite relax npz accel metadata torch

soak-mutants: install-test
	@failed=0; for format in $(MUTATED); do \
	  PYTHONPATH=tests $(BIN)/python -m mutators $$format \
	    --seconds $$(($(SOAK_MINUTES) * 60 / $(words $(MUTATED)))) || failed=1; \
	done; exit $$failed

# Bugs in copies of backends, each of which `uma check` has to find.
soak-bugs: install-test
	PYTHONPATH=tests $(BIN)/python tests/planted_bugs.py --json build/bugs.json --parallel $(JOBS)
	$(BIN)/python tests/planted_in_umakit.py

# Faults in copies of designs and of their drivers, which cosim and `uma check --rtl` have to find.
soak-rtl: install-test
	PYTHONPATH=tests $(BIN)/python tests/rtl_faults.py --json build/rtl_faults.json

soak-tests: install-test
	UMAKIT_EXAMPLES=$(SOAK_EXAMPLES) UMAKIT_INFERENCES=$(SOAK_INFERENCES) \
	  $(PYTEST) -m "hypothesis or soak"

# --- site ---------------------------------------------------------------------------------------

# Links that lead nowhere are errors. The site loads nothing from elsewhere; its search works in
# files that a browser opens from a disk.
site: $(VENV)/installed
	$(PIP) furo myst-parser sphinx
	$(BIN)/python site/stage.py build/site
	$(BIN)/python -m sphinx -b html -q -W --keep-going build/site/docs build/site/html
	@echo "wrote build/site/html/index.html"

# --- release ------------------------------------------------------------------------------------

# The wheel is built from the sdist of what is committed; its bytes depend on the commit alone, on
# no file mode or time of a checkout. The bill of materials
# (CycloneDX) has what the wheel installs, with the versions of the lock.
DIST := dist

dist: $(VENV)/python
	$(PIP) build cyclonedx-bom twine
	rm -rf $(DIST) build/sbom build/release && mkdir -p build/release
	umask 022 && git -c tar.umask=0022 archive HEAD | tar -x -p -C build/release
	umask 022 && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
	  $(BIN)/python -m build --outdir $(DIST) build/release > build/release/log
	$(BIN)/python -m twine check --strict $(DIST)/*
	$(BIN)/python -m venv build/sbom
	build/sbom/bin/python -m pip install -qq --no-compile --constraint $(LOCK) $(DIST)/*.whl
	$(BIN)/python -m cyclonedx_py environment --pyproject pyproject.toml --output-reproducible \
	  --output-file $(DIST)/umakit.cdx.json build/sbom/bin/python
	@ls -l $(DIST)

lint: install-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/lint_rtl.py

# The installed layout is what is checked: a wheel, unpacked. An environment to build it in is only
# made where setuptools is missing or too old.
WHEEL := $(BIN)/python -m pip wheel -qq --no-deps --wheel-dir build/typecheck

typecheck: install-test
	@rm -rf build/typecheck build/bdist.* && mkdir -p build/typecheck
	@$(WHEEL) --no-build-isolation . 2> build/typecheck/log || $(WHEEL) .
	@$(BIN)/python -m zipfile -e build/typecheck/*.whl build/typecheck/package
	cd build/typecheck/package && MYPYPATH=. ../../../$(BIN)/mypy --config-file ../../../pyproject.toml \
	  --cache-dir ../../mypy-cache -p umakit

# Once as it is shipped, once with the sanitizers watching, which CI builds with clang.
SANITIZED_CC ?= cc

ctest: install-test
	@mkdir -p build
	@for config in plain:cc:OFF sanitized:$(SANITIZED_CC):ON; do \
	  IFS=: read -r name compiler sanitize <<< "$$config"; \
	  echo "C tests: $$name"; \
	  { $(BIN)/cmake -S . -B build/cmake-$$name -DCMAKE_C_COMPILER=$$compiler \
	      -DUMAKIT_SANITIZE=$$sanitize -DPython3_EXECUTABLE=$(abspath $(BIN)/python) \
	    && $(BIN)/cmake --build build/cmake-$$name --parallel $(JOBS); } > build/cmake-$$name.log 2>&1 \
	    || { cat build/cmake-$$name.log; exit 1; }; \
	  $(BIN)/ctest --test-dir build/cmake-$$name --parallel $(JOBS) --output-on-failure || exit 1; \
	done

CPPCHECK := cppcheck --std=c99 --enable=warning,style,performance,portability --inline-suppr --quiet \
  --error-exitcode=1 -I sim/include

# What is generated counts as much as what is written by hand.
cppcheck-exports: install
	@mkdir -p build/cppcheck
	$(BIN)/uma compile examples/digits/digits.onnx -b backends/vanilla_accelerator -o build/cppcheck/c > build/cppcheck/log 2>&1
	$(BIN)/uma compile examples/digits/digits.onnx --pool fast=5K --pool sram --weights blob -o build/cppcheck/blob > build/cppcheck/log 2>&1
	$(BIN)/uma compile examples/digits/digits_int8.onnx -o build/cppcheck/int8 > build/cppcheck/log 2>&1
	$(BIN)/uma compile examples/digits/digits_int8.onnx --cpu x86-64-v3 -o build/cppcheck/avx2 > build/cppcheck/log 2>&1
	$(BIN)/uma compile examples/digits/digits_int8.onnx --cpu cortex-m55 -o build/cppcheck/mve > build/cppcheck/log 2>&1
	$(BIN)/uma compile examples/digits/digits_int8.onnx -b strawberry_accelerator -o build/cppcheck/strawberry > build/cppcheck/log 2>&1
	$(BIN)/uma compile examples/digits/digits_int8.onnx -b chocolate_accelerator -o build/cppcheck/chocolate > build/cppcheck/log 2>&1

# Rules of MISRA C:2012 that docs/misra.md does not list.
misra: cppcheck-exports
	$(BIN)/python tests/misra.py $(addprefix build/cppcheck/, c blob int8 strawberry chocolate)

# Needs cppcheck, which CI installs.
cppcheck: cppcheck-exports
	$(CPPCHECK) -D UMAKIT_DEVICE_BASE=0x40010000u sim/board
	$(CPPCHECK) -D UMAKIT_DEVICE_BASE=0x40010000u -D UMAKIT_DEVICE_IS_SYSTOLIC_ARRAY sim/board
	$(CPPCHECK) -D UMAKIT_DEVICE_BASE=0x40010000u -D UMAKIT_BOARD_HAS_INTERRUPT sim/board
	$(CPPCHECK) -D __AVX2__ -D __FMA__ build/cppcheck/avx2/codegen
	$(CPPCHECK) -D __ARM_FEATURE_MVE -D __ARM_FEATURE_DSP build/cppcheck/mve/codegen
	$(CPPCHECK) sim/src sim/mock sim/cosim bench \
	  backends/vanilla_accelerator backends/strawberry_accelerator backends/chocolate_accelerator \
	  -I umakit/devices/support umakit/devices/support \
	  build/cppcheck/c/codegen build/cppcheck/c/runtime build/cppcheck/int8/codegen \
	  build/cppcheck/strawberry/codegen build/cppcheck/strawberry/runtime \
  build/cppcheck/chocolate/codegen build/cppcheck/chocolate/runtime \
	  build/cppcheck/blob/codegen build/cppcheck/blob/runtime

$(VENV)/installed-bench: $(VENV)/installed-test
	@echo "Installing the compilers to compare with into $(VENV)"
	$(BIN)/python -m pip install -qq --editable '.[bench]'
	@touch $@

bench: bench-library bench-cpu bench-cpu-operators bench-cpu-integers bench-quantized bench-compile bench-sim bench-chocolate bench-rtl $(if $(BASE),bench-m3)

# $ONNX2C or an onnx2c on PATH joins in.
bench-library: $(VENV)/installed-bench
	PYTHONPATH=tests $(BIN)/python bench/library.py

bench-cpu: $(VENV)/installed-test
	PYTHONPATH=tests $(BIN)/python bench/cpu.py

bench-cpu-operators: $(VENV)/installed-test
	PYTHONPATH=tests $(BIN)/python bench/cpu_operators.py

bench-parallel: $(VENV)/installed-test
	PYTHONPATH=tests $(BIN)/python bench/parallel.py

# Needs torch and torchao.
bench-offload: $(VENV)/installed-test
	PYTHONPATH=tests $(BIN)/python bench/offload.py

# $UMAKIT_MODELS names the folder of the trained networks, which are compared with LiteRT.
bench-cpu-integers: $(VENV)/installed-bench
	PYTHONPATH=tests $(BIN)/python bench/cpu_integers.py

bench-cpu-tuning: $(VENV)/installed-bench
	PYTHONPATH=tests $(BIN)/python bench/cpu_tuning.py

bench-cpu-widths: $(VENV)/installed-bench
	PYTHONPATH=tests $(BIN)/python bench/cpu_widths.py

# $UMAKIT_MODELS names the folder of the trained networks.
bench-quantized: $(VENV)/installed-bench
	PYTHONPATH=tests $(BIN)/python bench/quantized.py

# $UMAKIT_MODELS as above.
bench-compile: $(VENV)/installed-test
	PYTHONPATH=tests $(BIN)/python bench/compile.py

bench-sim: $(VENV)/installed-test
	PYTHONPATH=tests $(BIN)/python bench/simulator.py

# $UMAKIT_MODELS as above; five to ten minutes.
bench-chocolate: $(VENV)/installed-test
	PYTHONPATH=tests $(BIN)/python bench/chocolate.py

# $UMAKIT_MODELS as above; Verilator has to be installed.
bench-rtl: $(VENV)/installed-test
	PYTHONPATH=tests $(BIN)/python bench/rtl.py

# BASE names the revision of git to compare with.
bench-m3: $(VENV)/installed-test
	PYTHONPATH=tests $(BIN)/python bench/cortex_m3.py "$(BASE)"

# $CMSIS_NN names a checkout of CMSIS-NN, $UMAKIT_MODELS as above.
bench-cmsis: $(VENV)/installed-test
	PYTHONPATH=tests $(BIN)/python bench/cmsis.py

bench-cpu-costs: $(VENV)/installed-test
	PYTHONPATH=tests $(BIN)/python bench/cpu_costs.py $(if $(WRITE),--write) $(CPUS)

# The designs in `rtl` are sources, which `uma new` takes from here, but for the files that designs
# share: those are in `templates/design`.
backends: install
	rm -rf build/backends && mkdir -p build/backends
	@for name in vanilla strawberry chocolate small_chocolate; do \
	  $(BIN)/uma new $${name}_accelerator --tutorial $$name --directory build/backends && \
	  find backends/$${name}_accelerator -mindepth 1 -maxdepth 1 ! -name rtl -exec rm -rf {} + && \
	  cp -R build/backends/$${name}_accelerator/. backends/$${name}_accelerator/ || exit 1; \
	done

clean:
	rm -rf .venv .venv-tvm-* build dist *.egg-info
