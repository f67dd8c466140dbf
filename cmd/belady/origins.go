package main

import (
	"context"
	"fmt"

	"belady/internal/store/origin"
)

// openOrigin opens the origin that url names.
func openOrigin(_ context.Context, url string) (origin.Origin, error) {
	return nil, fmt.Errorf("open origin %q: no driver knows this kind of URL", url)
}
