package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"belady/internal/core/dataset"
)

func TestOpenOrigin(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, wantURL := range map[string]string{
		dir:                           "file://" + dir,
		"file://" + dir:               "file://" + dir,
		"throttle+file://" + dir:      "throttle+file://" + dir,
		"synth://s?samples=1&size=5B": "synth://s",
	} {
		o, err := openOrigin(t.Context(), name)
		if err != nil {
			t.Errorf("open %s: %v", name, err)
			continue
		}
		if !strings.HasPrefix(o.URL(), wantURL) {
			t.Errorf("open %s gave %s, want %s", name, o.URL(), wantURL)
		}
		objects := 0
		err = o.List(t.Context(), func(batch []dataset.Object) error {
			objects += len(batch)
			return nil
		})
		if err != nil || objects != 1 {
			t.Errorf("%s lists %d objects, %v; want 1", name, objects, err)
		}
		if err := o.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
	}
}

// Opening S3 makes no request, so the table can be checked without a server.
func TestOpenS3(t *testing.T) {
	for _, name := range []string{"s3://bucket/data", "throttle+s3://bucket/data"} {
		o, err := openOrigin(t.Context(), name+"?region=eu-north-1&anonymous=true")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(o.URL(), name) {
			t.Errorf("opened %s, want %s", o.URL(), name)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenOriginRefusals(t *testing.T) {
	for name, says := range map[string]string{
		"ftp://host/data":                "no driver for ftp://, write a path or one of file://",
		"throttle+ftp://host/data":       "no driver for ftp://",
		"throttle+synth://s?throttle.x=": "throttle.x",
		"throttle+throttle+synth://s":    "no driver for throttle+synth://",
		"synth://s?sampels=3":            "sampels",
		"file://host/data":               "file:///absolute/path",
		"/nowhere/at/all":                "/nowhere/at/all",
		"http://user:secret@host:x/":     "invalid port",
	} {
		_, err := openOrigin(t.Context(), name)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("open %s: got %v, want it to say %q", name, err, says)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("open %s tells the secret: %v", name, err)
		}
	}
}
