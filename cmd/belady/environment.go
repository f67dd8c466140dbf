package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"

	"belady/internal/core/perf"
	"belady/internal/profile"
	"belady/internal/store/origin"
)

// environment is what every verb is given in place of globals: where things are, how an origin's
// URL becomes an origin, and where output goes. Dir and Socket are valid once a verb runs, not
// while commands are being built: flags are parsed in between.
type environment struct {
	// Dir holds manifests, logs and locks. Flag --dir, else $BELADY_DIR, else dir in the settings'
	// file, else $XDG_DATA_HOME/belady, else ~/.local/share/belady.
	Dir string
	// Socket is the daemon's Unix socket. Flag --socket, else $BELADY_SOCKET, else socket in the
	// settings' file, else $XDG_RUNTIME_DIR/belady.sock, else belady.sock in Dir.
	Socket string
	// SettingsFile is a YAML file of settings. Flag --config, else $BELADY_CONFIG, else none.
	SettingsFile string
	// Settings is what that file says over the defaults, with Dir and Socket as above. Every verb
	// needs those two; the rest is for `belady serve`.
	Settings config
	// OpenOrigin opens the origin a URL or a path names; the caller closes it.
	OpenOrigin func(ctx context.Context, url string) (origin.Origin, error)
	// Out takes results, Err progress and diagnostics, so that results can be piped.
	Out, Err io.Writer
}

// resolve fills what the flags left empty. The process environment is an argument so that tests
// need not change the real one.
func (e *environment) resolve(getenv func(string) string) error {
	e.Settings = configDefaults()
	if file := cmp.Or(e.SettingsFile, getenv("BELADY_CONFIG")); file != "" {
		if err := e.Settings.readFile(file); err != nil {
			return usagef("read settings from %s: %w", file, err)
		}
	}
	e.Dir = cmp.Or(e.Dir, getenv("BELADY_DIR"), e.Settings.Dir)
	if e.Dir == "" {
		dir, err := defaultDir(getenv)
		if err != nil {
			return err
		}
		e.Dir = dir
	}
	e.Socket = cmp.Or(e.Socket, getenv("BELADY_SOCKET"), e.Settings.Socket,
		defaultSocket(getenv, e.Dir))
	e.Settings.Dir, e.Settings.Socket = e.Dir, e.Socket
	return nil
}

func defaultDir(getenv func(string) string) (string, error) {
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
	if runtime := getenv("XDG_RUNTIME_DIR"); runtime != "" {
		return filepath.Join(runtime, "belady.sock")
	}
	return filepath.Join(dir, "belady.sock")
}

// profile is the one that a flag or the settings name, or that in Dir; nil if nobody named one and
// there is none.
func (e *environment) profile(flag string) (*perf.Profile, error) {
	named := cmp.Or(flag, e.Settings.Profile)
	p, err := profile.Load(e.profilePath(flag))
	if named == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return p, err
}

// profilePath is the profile's file: the one of the flag, of the settings, or the usual one.
func (e *environment) profilePath(flag string) string {
	return cmp.Or(flag, e.Settings.Profile, filepath.Join(e.Dir, profile.Name))
}
