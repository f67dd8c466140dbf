//go:build race

package strategy_test

// parts: the race detector makes a run ten times as long, and a run is one goroutine's. A quarter
// of the samples and of what holds them has the same ratios within 0.4 %, and the same bars.
const parts = 4
