//go:build !race

package strategy_test

const parts = 1 // of the thesis's larger scenarios, one is run
