#!/usr/bin/env bash
# fuzz.sh TIME: run every fuzz target of the repository for TIME (30s, 5m), one after another.
#
# Targets are found, not listed, so that a new one cannot be forgotten.
set -euo pipefail
fuzztime=$1

count=0
while IFS=: read -r file line; do
	name=${line#func }
	name=${name%%(*}
	echo "fuzz $name in $(dirname "$file") for $fuzztime"
	# Of a target with goroutines each new input would else be made smaller for a minute.
	go test -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime" -fuzzminimizetime 2s \
		"./$(dirname "$file")"
	count=$((count + 1))
done < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Z][A-Za-z0-9_]*\(' cmd internal | sort)
echo "fuzz: $count targets, no failure"
