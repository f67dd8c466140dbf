// Package catalog keeps the datasets a node knows: their manifests and where they came from.
//
//	DIR/datasets/NAME/manifest      docs/format/manifest.md, replaced whole, never changed in place
//	DIR/datasets/NAME/folders       when each folder of a path was modified, as the scan saw it
//	DIR/datasets/NAME/dataset.json  Info: the URL and how it was scanned; its presence means "exists"
//	DIR/datasets/.NAME.lock         held while NAME is added or removed
//
// Folders are 0700 and files 0600. Any number of processes may use one folder at once: readers see
// the old or the new manifest whole. Origins are only ever listed here, never read or changed, and
// no driver is known here: the caller passes OpenOrigin.
package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
)

// Sentinel errors, each a decision for the caller.
var (
	// ErrUnknown: no dataset has this name.
	ErrUnknown = errors.New("dataset is not known")
	// ErrBusy: another process is adding or removing the dataset.
	ErrBusy = errors.New("dataset is being added or removed by another process")
)

// OpenOrigin turns a URL into an origin; the catalog closes what it opened.
type OpenOrigin func(ctx context.Context, url string) (origin.Origin, error)

// Catalog is a folder of datasets. It is safe for concurrent use.
type Catalog struct {
	dir   string
	open  OpenOrigin
	now   func() time.Time
	write func(path string, data []byte) error
}

// New is the catalog under dir, which is created when the first dataset is added.
func New(dir string, open OpenOrigin) *Catalog {
	return &Catalog{dir: filepath.Join(dir, "datasets"), open: open, now: time.Now,
		write: writeFile}
}

// Info is what is known of a dataset without opening it, as dataset.json holds it.
type Info struct {
	Name   string `json:"name"`
	URL    string `json:"url"`
	Format string `json:"format"`
	// Fields are the declared fields, as dataset.ParseFields reads them.
	Fields []string `json:"fields,omitempty"`
	// Images: only images below classes' folders are samples, as torchvision's ImageFolder has it.
	Images     bool            `json:"images,omitempty"`
	ID         string          `json:"id"`
	Samples    int             `json:"samples"`
	Bytes      int64           `json:"bytes"`
	MaxBytes   uint32          `json:"max_sample_bytes"`
	Classes    int             `json:"classes"`
	LeftOut    dataset.LeftOut `json:"left_out"`
	ScannedAt  time.Time       `json:"scanned_at"`
	ScanMillis int64           `json:"scan_ms"`
}

var validName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

// CheckName says whether a dataset may be called so.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("dataset name %q is not possible: use 1 to 128 letters, digits, "+
			"'.', '_' and '-', and begin with none of '.' and '-'", name)
	}
	return nil
}

// CheckURL refuses passwords: the URL is kept and printed.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return nil // A path need not be a URL; its origin says what is wrong with it.
	}
	return fmt.Errorf("the URL of %s has credentials in it, and URLs are stored and shown: "+
		"put them in the environment or a credentials file", u.Redacted())
}

// List returns all datasets, sorted by name. One that cannot be read is named in the error and does
// not hide the others.
func (c *Catalog) List() ([]Info, error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the datasets: %w", err)
	}
	var all []Info
	var damaged []error
	for _, e := range entries {
		if CheckName(e.Name()) != nil {
			continue
		}
		info, err := c.Show(e.Name())
		if errors.Is(err, ErrUnknown) {
			continue // An add that has not finished, or never did.
		}
		if err != nil {
			damaged = append(damaged, err)
			continue
		}
		all = append(all, info)
	}
	return all, errors.Join(damaged...)
}

// Show returns one dataset's Info.
func (c *Catalog) Show(name string) (Info, error) {
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	text, err := os.ReadFile(c.infoPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, c.unknown(name, "add it with: belady dataset add "+name+" URL")
	}
	if err != nil {
		return Info{}, fmt.Errorf("reading dataset %s: %w", name, err)
	}
	var info Info
	err = json.Unmarshal(text, &info)
	if err == nil && info.Name != name {
		err = fmt.Errorf("it is of dataset %q", info.Name)
	}
	if err != nil {
		return Info{}, fmt.Errorf("reading dataset %s: %s is damaged (%w): "+
			"remove the dataset and add it again", name, c.infoPath(name), err)
	}
	return info, nil
}

// unknown says which names there are, because the usual cause is a slip of the finger, and what
// follows from it.
func (c *Catalog) unknown(name, so string) error {
	entries, _ := os.ReadDir(c.dir) // An unreadable folder knows no names either.
	var names []string
	for _, e := range entries {
		if _, err := os.Stat(c.infoPath(e.Name())); err == nil {
			names = append(names, e.Name())
		}
	}
	known := "there are none yet"
	if len(names) > 0 {
		known = "known are " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%w: %q (%s); %s", ErrUnknown, name, known, so)
}

// Remove forgets a dataset. Its origin is not touched, and readers that have it open keep it.
func (c *Catalog) Remove(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, err := os.Lstat(c.path(name)); errors.Is(err, fs.ErrNotExist) {
		return c.unknown(name, "nothing was removed")
	}
	unlock, err := c.lock(name)
	if err != nil {
		return err
	}
	defer unlock()
	// Out of sight in one step; a crash while deleting leaves a hidden folder, not half a dataset.
	gone := filepath.Join(c.dir, "."+name+".removed")
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("removing dataset %s: %w", name, err)
	}
	if err := os.Rename(c.path(name), gone); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return c.unknown(name, "nothing was removed")
		}
		return fmt.Errorf("removing dataset %s: %w", name, err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("removing dataset %s: %w", name, err)
	}
	return nil
}

func (c *Catalog) path(name string) string         { return filepath.Join(c.dir, name) }
func (c *Catalog) manifestPath(name string) string { return filepath.Join(c.dir, name, "manifest") }
func (c *Catalog) foldersPath(name string) string {
	return filepath.Join(c.dir, name, "folders")
}
func (c *Catalog) infoPath(name string) string {
	return filepath.Join(c.dir, name, "dataset.json")
}
