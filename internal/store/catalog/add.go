package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"belady/internal/core/dataset"
	"belady/internal/store/origin"
)

// Phase is what an Add is busy with.
type Phase string

// The phases of an Add, in order.
const (
	Listing Phase = "listing"
	Sorting Phase = "sorting"
	Writing Phase = "writing"
)

// Progress is how far an Add is. The total is not known before the listing ends.
type Progress struct {
	Phase   Phase
	Objects int64
	Bytes   int64
}

// Result is what an Add found.
type Result struct {
	Info    Info            `json:"dataset"`
	Changes dataset.Changes `json:"changes"`
	// Rescan is true when the dataset was known before.
	Rescan bool `json:"rescan"`
}

// Options says how an origin's objects become samples.
type Options struct {
	dataset.Options
	// Images leaves out all that torchvision's ImageFolder does.
	Images bool
}

// Add lists the origin at url and writes the manifest of dataset name. Adding the same name and URL
// again scans again, with the earlier options unless opts declares some, and counts what changed;
// the same content gives the same content id. On an error what was there before is intact, but for
// one case that the error names: the manifest was replaced and its Info could not be.
// progress may be nil; it is called from the goroutine of Add.
func (c *Catalog) Add(ctx context.Context, name, url string, opts Options,
	progress func(Progress),
) (Result, error) {
	if err := errors.Join(CheckName(name), CheckURL(url)); err != nil {
		return Result{}, err
	}
	if !strings.Contains(url, "://") {
		// A path is kept as it must be found later, from any folder.
		absolute, err := filepath.Abs(url)
		if err != nil {
			return Result{}, fmt.Errorf("adding dataset %s from %s: %w", name, url, err)
		}
		url = absolute
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return Result{}, fmt.Errorf("adding dataset %s: %w", name, err)
	}
	unlock, err := c.lock(name)
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	known, err := c.earlier(name, url, &opts)
	if err != nil {
		return Result{}, err
	}
	start := c.now()
	data, left, folders, err := c.scan(ctx, name, url, opts, progress)
	if err != nil {
		return Result{}, err
	}
	manifest, err := dataset.Open(data)
	if err != nil {
		return Result{}, fmt.Errorf("adding dataset %s: %w", name, err)
	}
	result := Result{Rescan: known, Changes: dataset.Changes{Added: manifest.Len()}, Info: Info{
		Name: name, URL: url, Format: manifest.Format(), Fields: opts.Fields,
		Images: opts.Images, ID: manifest.ID().String(), Samples: manifest.Len(),
		Bytes: manifest.TotalBytes(), MaxBytes: manifest.MaxSize(),
		Classes: len(manifest.Classes()), LeftOut: left,
		ScannedAt: start.UTC(), ScanMillis: c.now().Sub(start).Milliseconds(),
	}}
	if known {
		result.Changes = c.changes(name, manifest)
	}
	progress(Progress{Phase: Writing, Objects: int64(manifest.Len()), Bytes: manifest.TotalBytes()})
	return result, c.store(result, data, encodeFolders(folders, start))
}

// earlier says whether the dataset is known, and completes opts with those it was added with.
func (c *Catalog) earlier(name, url string, opts *Options) (bool, error) {
	info, err := c.Show(name)
	if errors.Is(err, ErrUnknown) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if info.URL != url {
		return false, fmt.Errorf("dataset %s is already %s: choose another name for %s, or first "+
			"run: belady dataset rm %s", name, info.URL, url, name)
	}
	if opts.Images && !info.Images {
		return false, fmt.Errorf("dataset %s already is every file of %s: choose another name for "+
			"its images alone, or first run: belady dataset rm %s", name, url, name)
	}
	opts.Images = info.Images
	if len(opts.Fields) == 0 {
		opts.Fields = info.Fields
	}
	return true, nil
}

// scan lists the origin into a manifest's bytes, holding the objects once, compactly, and no batch.
func (c *Catalog) scan(ctx context.Context, name, url string, opts Options,
	progress func(Progress),
) (data []byte, left dataset.LeftOut, folders []origin.Folder, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("adding dataset %s from %s: %w", name, url, err)
		}
	}()
	b, err := dataset.NewBuilder(opts.Options)
	if err != nil {
		return nil, left, nil, err
	}
	from, err := c.open(ctx, url)
	if err != nil {
		return nil, left, nil, err
	}
	defer func() { _ = from.Close() }() // Nothing was written: a failed close loses nothing.
	at := Progress{Phase: Listing}
	take := func(batch []dataset.Object) error {
		at.Objects += int64(len(batch))
		for i := range batch {
			at.Bytes += max(0, batch[i].Size)
		}
		progress(at)
		if opts.Images {
			batch = onlyImages(batch)
		}
		return b.Add(batch)
	}
	if tree, ok := from.(origin.Foldered); ok {
		err = tree.ListFolders(ctx, take, func(f origin.Folder) { folders = append(folders, f) })
	} else {
		err = from.List(ctx, take)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, left, nil, err
	}
	if hidden := b.LeftOut().Hidden; opts.Images && hidden > 0 {
		return nil, left, nil, fmt.Errorf("%d images have a name, or a folder's name, that begins "+
			"with a dot: torchvision's ImageFolder takes such files and Belady none, so rename or "+
			"remove them", hidden)
	}
	at.Phase = Sorting
	progress(at)
	data, err = b.Finish()
	if errors.Is(err, dataset.ErrEmpty) {
		err = fmt.Errorf("%w: check the URL, and that the folder has files", err)
	}
	return data, b.LeftOut(), folders, err
}

// changes compares with the manifest that is there. One that cannot be read is as good as none.
func (c *Catalog) changes(name string, after *dataset.Manifest) dataset.Changes {
	before, err := openManifest(c.manifestPath(name))
	if err != nil {
		return dataset.Changes{Added: after.Len()}
	}
	defer before.Close()
	return dataset.Diff(before.Manifest, after)
}

// store writes the manifest, then the folders, which must not be newer than it, then the Info that
// makes it exist.
func (c *Catalog) store(r Result, data, folders []byte) error {
	name := r.Info.Name
	text, err := json.MarshalIndent(r.Info, "", "  ")
	if err != nil {
		return fmt.Errorf("adding dataset %s: %w", name, err)
	}
	if err := os.MkdirAll(c.path(name), 0o700); err != nil {
		return fmt.Errorf("adding dataset %s: %w", name, err)
	}
	if err := c.sweep(name); err != nil {
		return err
	}
	state := "what was there before is intact"
	err = c.write(c.manifestPath(name), data)
	if err == nil {
		state = "the manifest is the new one, its description the old one"
		if len(folders) > 0 {
			err = c.write(c.foldersPath(name), folders)
		}
	}
	if err == nil {
		err = c.write(c.infoPath(name), append(text, '\n'))
	}
	if err == nil {
		return nil
	}
	if !r.Rescan {
		state = "nothing was added"
		_ = os.RemoveAll(c.path(name)) // The write's error matters more.
	}
	if full(err) {
		return fmt.Errorf("adding dataset %s: the disk of %s is full, the manifest needs %d MB: "+
			"free some space and add it again; %s (%w)", name, c.dir, len(data)/1e6+1, state, err)
	}
	return fmt.Errorf("adding dataset %s: %w; %s", name, err, state)
}

// sweep removes what a crash left half written. The lock is held, so nobody is writing now.
func (c *Catalog) sweep(name string) error {
	stale, err := filepath.Glob(filepath.Join(c.path(name), ".*"))
	if err != nil {
		return fmt.Errorf("adding dataset %s: %w", name, err)
	}
	for _, path := range stale {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("adding dataset %s: %w", name, err)
		}
	}
	return nil
}
