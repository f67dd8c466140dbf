# Everything a contributor runs. `make help` lists it; `make test` is what the CI runs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

GO_MINIMUM := 1.26
STATICCHECK_VERSION := v0.8.2
FUZZTIME ?= 30s
BENCH ?= all
# The system's Python: the one apt's python3-torch belongs to, whatever else is on PATH.
PYTHON ?= $(or $(wildcard /usr/bin/python3),python3)

# What was built here, for the Python client.
CLIENT := BELADY_BIN=$(CURDIR)/bin/belady PYTHONPATH=$(CURDIR)/python
TOOLS := $(CURDIR)/.cache/bin
# The same Python with the training frameworks that tests use.
VENV := $(CURDIR)/.cache/venv
# Tests look for the servers they start on PATH.
export PATH := $(TOOLS):$(PATH)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: help
help: ## List these targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | \
		awk -F ':.*## ' '{ printf "  make %-8s %s\n", $$1, $$2 }'

.PHONY: go-present
go-present:
	@scripts/require-go.sh $(GO_MINIMUM)

.PHONY: build
build: go-present ## Build bin/belady, one static binary
	@mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' \
		-o bin/belady ./cmd/belady

.PHONY: demo
demo: build ## Stock DataLoader and Belady side by side (PYTHON=no: the daemon alone)
	@PYTHON=$(PYTHON) scripts/demo.sh

.PHONY: test
test: build race ## Install what tests need, build, vet, run every Go test with -race, then pytest
	$(CLIENT) $(VENV)/bin/python -m pytest -q python/tests

.PHONY: race
race: tools ## Run go vet and every Go test with the race detector
	go vet ./...
	@command -v gcc >/dev/null || \
		{ echo "make: the race detector needs gcc: apt-get install gcc" >&2; exit 1; }
	CGO_ENABLED=1 go test -race -json ./... | $(PYTHON) scripts/test-summary.py

.PHONY: check
check: go-present $(TOOLS)/staticcheck-$(STATICCHECK_VERSION) ## Format, vet, lint, laws, modules
	@unformatted=$$(find . -path ./.cache -prune -o -name '*.go' -print0 | xargs -0 gofmt -l); \
		[ -z "$$unformatted" ] || \
		{ printf 'gofmt would change, run gofmt -w:\n%s\n' "$$unformatted" >&2; exit 1; }
	go vet ./...
	$(TOOLS)/staticcheck-$(STATICCHECK_VERSION) ./...
	go test ./internal/archtest
	go mod verify
	go mod tidy -diff

.PHONY: bench
bench: build ## Run the benchmarks (BENCH=name, QUICK=1, SEED=n)
	@PYTHON=$(PYTHON) bench/run $(BENCH)

.PHONY: papers
papers: build ## Run the papers' scenarios and write docs/papers-results.md with pictures
	bin/belady papers scenarios --out docs/papers-results.md

.PHONY: soak
soak: build ## Open and close 10,000 loaders; kill and resume ten trainings
	@PYTHON=$(PYTHON) scripts/install-torch.sh torch pytest
	@$(CLIENT) $(PYTHON) python/tests/cycles.py 10000
	@for seed in {1..10}; do \
		BELADY_TEST_SEED=$$seed $(CLIENT) $(PYTHON) -m pytest -q python/tests/test_exactly_once.py; \
	done

.PHONY: crash
crash: build ## Kill the daemon 300 times, cut the power of its log for real and 20,000 times
	@[ "$$(id -u)" -eq 0 ] || { echo "make crash: mounting disks to cut needs root" >&2; exit 1; }
	@scripts/install-program.sh mkfs.btrfs btrfs-progs
	@scripts/install-program.sh mkfs.ext4 e2fsprogs
	BELADY_CRASH_KILLS=300 go test -count=1 -timeout 60m -v -run TestCrashes ./cmd/belady
	BELADY_CRASH_SEEDS=20000 go test -count=1 -timeout 60m ./internal/store/tier/ssd

.PHONY: fuzz
fuzz: go-present ## Run every fuzz target for FUZZTIME (30s)
	@scripts/fuzz.sh $(FUZZTIME)

.PHONY: tools
tools: go-present ## Install what the tests need: an S3 server, disks, PyTorch, pytest, frameworks
	@scripts/install-versitygw.sh
	@[ "$$(id -u)" -ne 0 ] || { scripts/install-program.sh mkfs.ext4 e2fsprogs && \
		scripts/install-program.sh mkfs.btrfs btrfs-progs; } # only root can mount the disks
	@PYTHON=$(PYTHON) scripts/install-torch.sh
	@PYTHON=$(PYTHON) scripts/install-frameworks.sh

$(TOOLS)/staticcheck-$(STATICCHECK_VERSION):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)
	mv $(TOOLS)/staticcheck $@

.PHONY: clean
clean: ## Remove what was built; downloaded tools in .cache stay
	rm -rf bin dist bench/out
