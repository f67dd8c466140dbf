package perf

import (
	"errors"
	"fmt"
	"math"
)

// Above is how many of so many samples one of nodes nodes is expected to read more than least times
// in so many epochs, when every epoch gives each sample to a random one of them (NoPFS, section 3):
// samples · P(X > least), X binomial. It is a figure to print, never a part of a plan: floats may
// round differently between architectures.
func Above(samples, nodes, epochs, least int) (float64, error) {
	if samples < 0 || nodes < 1 || epochs < 1 || least < 0 {
		return 0, errors.New("samples and uses cannot be negative, nodes and epochs are at least 1: " +
			fmt.Sprintf("%d samples, %d nodes, %d epochs, above %d uses", samples, nodes, epochs, least))
	}
	if nodes == 1 { // which reads all of them in every epoch
		if epochs > least {
			return float64(samples), nil
		}
		return 0, nil
	}
	// In logarithms: the first terms of a thousand epochs are below the smallest float.
	p := 1 / float64(nodes)
	whole, _ := math.Lgamma(float64(epochs) + 1)
	sum := 0.0
	for k := epochs; k > least; k-- { // the smallest first
		drawn, _ := math.Lgamma(float64(k) + 1)
		left, _ := math.Lgamma(float64(epochs-k) + 1)
		sum += math.Exp(whole - drawn - left + float64(k)*math.Log(p) +
			float64(epochs-k)*math.Log1p(-p))
	}
	return float64(samples) * sum, nil
}
