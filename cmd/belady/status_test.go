package main

import (
	"regexp"
	"strings"
	"testing"

	"belady/internal/core/pump"
	"belady/internal/node/daemon"
	"belady/internal/node/world"
	"belady/internal/store/tier"
)

// TestStatusOfALog: a layout that is not in force says so, and what the origin gave in the log's
// place is shown as fetched.
func TestStatusOfALog(t *testing.T) {
	for _, c := range []struct {
		log  world.LogStatus
		dir  tier.DirUsage
		says string
	}{
		{world.LogStatus{Usage: tier.Usage{Layout: tier.Static}}, tier.DirUsage{}, `d +static +0`},
		{world.LogStatus{Usage: tier.Usage{Layout: tier.Carry}},
			tier.DirUsage{WearBudget: 7, CarriedToday: 6}, `d +carry +0`},
		{world.LogStatus{Usage: tier.Usage{Layout: tier.Carry}},
			tier.DirUsage{WearBudget: 7, CarriedToday: 7}, `d +carry \(worn\) +0`},
		{world.LogStatus{Usage: tier.Usage{Layout: tier.Carry}, Stays: "memory lacks"},
			tier.DirUsage{}, `d +carry \(waits\) +0 (.*\n)+d: memory lacks\n`},
		{world.LogStatus{Instead: 3 << 20}, tier.DirUsage{}, `d +0 +0 .* 5\.0 MiB\n`},
	} {
		var out strings.Builder
		err := printStatus(&environment{Out: &out}, &daemon.Status{Ssd: []tier.DirUsage{c.dir},
			Datasets: []world.Status{{Dataset: "d", Ssd: &c.log,
				Pump: pump.Stats{FetchedBytes: 2 << 20}}}})
		if err != nil || !regexp.MustCompile(c.says).MatchString(out.String()) {
			t.Errorf("%v\n%swant %s", err, out.String(), c.says)
		}
	}
}
