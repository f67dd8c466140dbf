"""Read `go test -json` on stdin: one line a package, failures in full, and closing counts.

Exits 1 when anything failed, and also when a test was skipped or nothing ran: a skip that nobody
sees is a hole in the proof.
"""

import collections
import json
import sys


def main() -> int:
    output = collections.defaultdict(list)  # (package, test) → what it printed
    results = collections.Counter()  # of tests
    packages = collections.Counter()
    skipped = []

    for line in sys.stdin:
        if not line.startswith("{"):
            print(line, end="")
            continue
        event = json.loads(line)
        action = event["Action"]
        package = event.get("Package") or event.get("ImportPath", "")
        test = event.get("Test", "")
        if action in ("output", "build-output"):
            output[package, test].append(event["Output"])
        if action not in ("pass", "fail", "skip", "build-fail"):
            continue
        if action in ("fail", "build-fail"):
            print("".join(output[package, test]), end="")
        if test:
            results[action] += 1
            output.pop((package, test), None)
            if action == "skip":
                skipped.append(f"{package} {test}")
        elif action == "build-fail":
            packages["fail"] += 1
        else:
            packages[action] += 1
            seconds = event.get("Elapsed", 0)
            word = {"pass": "ok", "fail": "FAIL", "skip": "no tests"}[action]
            print(f"{word:8} {package} ({seconds:.1f} s)", flush=True)

    for name in skipped:
        print(f"skipped  {name}: every test must run in `make test`")
    print(
        f"go test: {results['pass']} passed, {results['fail']} failed,"
        f" {results['skip']} skipped in {packages['pass']} packages"
        f" ({packages['skip']} without tests, {packages['fail']} failed)"
    )
    return int(bool(results["fail"] or packages["fail"] or skipped or not results["pass"]))


if __name__ == "__main__":
    sys.exit(main())
