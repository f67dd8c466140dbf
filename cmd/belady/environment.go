package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"belady/internal/store/origin"
)

// environment is what every verb is given in place of globals: where things are, how an origin's
// URL becomes an origin, and where output goes. Dir and Socket are valid once a verb runs, not
// while commands are being built: flags are parsed in between.
type environment struct {
	// Dir holds manifests, logs and locks. Flag --dir, else $BELADY_DIR, else
	// $XDG_DATA_HOME/belady, else ~/.local/share/belady.
	Dir string
	// Socket is the daemon's Unix socket. Flag --socket, else $BELADY_SOCKET, else
	// $XDG_RUNTIME_DIR/belady.sock, else belady.sock in Dir.
	Socket string
	// OpenOrigin opens the origin a URL or a path names; the caller closes it.
	OpenOrigin func(ctx context.Context, url string) (origin.Origin, error)
	// Out takes results, Err progress and diagnostics, so that results can be piped.
	Out, Err io.Writer
}

// resolve fills what the flags left empty. The process environment is an argument so that tests
// need not change the real one.
func (e *environment) resolve(getenv func(string) string) error {
	if e.Dir == "" {
		dir, err := defaultDir(getenv)
		if err != nil {
			return err
		}
		e.Dir = dir
	}
	if e.Socket == "" {
		e.Socket = defaultSocket(getenv, e.Dir)
	}
	return nil
}

func defaultDir(getenv func(string) string) (string, error) {
	if dir := getenv("BELADY_DIR"); dir != "" {
		return dir, nil
	}
	if data := getenv("XDG_DATA_HOME"); data != "" {
		return filepath.Join(data, "belady"), nil
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "share", "belady"), nil
	}
	return "", errors.New("no folder for Belady's data is known because HOME is not set: " +
		"name one with --dir or $BELADY_DIR")
}

func defaultSocket(getenv func(string) string, dir string) string {
	if socket := getenv("BELADY_SOCKET"); socket != "" {
		return socket
	}
	if runtime := getenv("XDG_RUNTIME_DIR"); runtime != "" {
		return filepath.Join(runtime, "belady.sock")
	}
	return filepath.Join(dir, "belady.sock")
}
