package main

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"belady/internal/store/origin"
	"belady/internal/store/origin/posix"
	"belady/internal/store/origin/s3"
	"belady/internal/store/origin/synth"
	"belady/internal/store/origin/throttle"
)

// originDrivers is every kind of origin by its URL's scheme. A name without a scheme is a path, and
// throttle+SCHEME:// wraps any of them.
var originDrivers = map[string]func(context.Context, *url.URL) (origin.Origin, error){
	"file":  openFiles,
	"s3":    openS3,
	"synth": openSynth,
}

// openOrigin opens the origin that name, a URL or a path, stands for. The caller closes it. A name
// that can be no origin is a usage error; an origin that is not there is a failure.
func openOrigin(ctx context.Context, name string) (origin.Origin, error) {
	if !strings.Contains(name, "://") {
		return posix.New(name)
	}
	u, err := url.Parse(name)
	if err != nil {
		// The error's own text repeats the URL, which may hold a secret.
		return nil, usagef("open origin: its URL does not parse: %w", errors.Unwrap(err))
	}
	if strings.HasPrefix(u.Scheme, "throttle+") {
		return openThrottled(ctx, u)
	}
	return openDriver(ctx, u)
}

func openDriver(ctx context.Context, u *url.URL) (origin.Origin, error) {
	open := originDrivers[u.Scheme]
	if open == nil {
		known := strings.Join(slices.Sorted(maps.Keys(originDrivers)), "://, ")
		return nil, usagef("open origin %s: no driver for %s://, write a path or one of %s://",
			u.Redacted(), u.Scheme, known)
	}
	return open(ctx, u)
}

func openThrottled(ctx context.Context, u *url.URL) (origin.Origin, error) {
	innerURL, config, err := throttle.ParseURL(u)
	if err != nil {
		return nil, usageError{err}
	}
	inner, err := openDriver(ctx, innerURL)
	if err != nil {
		return nil, err
	}
	throttled, err := throttle.New(inner, config)
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return throttled, nil
}

func openFiles(_ context.Context, u *url.URL) (origin.Origin, error) {
	dir, err := posix.ParseURL(u.String())
	if err != nil {
		return nil, usageError{err}
	}
	return posix.New(dir)
}

func openS3(ctx context.Context, u *url.URL) (origin.Origin, error) {
	config, err := s3.ParseURL(u)
	if err != nil {
		return nil, usageError{err}
	}
	return s3.New(ctx, config)
}

func openSynth(_ context.Context, u *url.URL) (origin.Origin, error) {
	config, err := synth.ParseURL(u)
	if err != nil {
		return nil, usageError{err}
	}
	return synth.New(config)
}
