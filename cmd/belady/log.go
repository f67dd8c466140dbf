package main

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"belady/internal/core/dataset"
	"belady/internal/core/sample"
	"belady/internal/store/audit"
	"belady/internal/store/vfs"
)

func newLogCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Look at what is kept on ssd",
		Long: "A log is a dataset's samples on ssd, in directories that `belady serve --ssd` names.\n" +
			"These verbs read it, whether a daemon runs or not, and change nothing. What a dataset\n" +
			"has in several directories is one log.",
		Args: refuseUnknownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	asJSON := cmd.PersistentFlags().Bool("json", false, "print JSON")
	cmd.AddCommand(newLogListCommand(env, asJSON), newLogDumpCommand(env, asJSON),
		newLogVerifyCommand(env, asJSON))
	return cmd
}

// logReport is what was found of one dataset's log.
type logReport struct {
	Content  string `json:"content"`
	Dataset  string `json:"dataset,omitempty"` // its name in the catalogue, if it is there
	Samples  int64  `json:"samples"`           // different ones
	Of       int64  `json:"of"`                // samples of the dataset
	Records  int64  `json:"records"`
	Live     int64  `json:"live"`  // bytes of the samples, each counted once
	Bytes    int64  `json:"bytes"` // of its segments
	Segments int    `json:"segments"`
	Layout   string `json:"layout"`
	Order    string `json:"order,omitempty"` // that it is carried along
	Epoch    uint32 `json:"epoch"`           // the last one it was carried to

	Open    int64     `json:"open_slots"` // begun and not closed
	Torn    int64     `json:"torn"`       // records written in part when writing ended
	Dead    int64     `json:"dead"`       // records of samples that another sound record has
	Damaged []logPart `json:"damaged"`
	Foreign []string  `json:"foreign"` // left alone: not ours, or nothing to read in it

	generation uint64 // of the slot that Order and Epoch are of
	seen       []uint64
	sizes      dataset.Sizes
}

// logPart names one damaged thing.
type logPart struct {
	File   string  `json:"file"`
	Slot   *uint32 `json:"slot,omitempty"`
	Sample *uint32 `json:"sample,omitempty"`
	What   string  `json:"what"`
}

func (p logPart) String() string {
	text := p.File
	if p.Slot != nil {
		text += fmt.Sprintf(": slot %d", *p.Slot)
	}
	return text + ": " + p.What
}

// foundLogs are the logs of one or more directories, opened to be looked at. A dataset's log may be
// striped over several of them and is one log.
type foundLogs struct {
	dirs    []string
	disks   []*vfs.OS
	logs    []*foundLog
	foreign []string
	env     *environment
}

// foundLog is the log of one dataset: its folder in each directory that has one.
type foundLog struct {
	content [32]byte
	folders []*audit.Folder
}

func openLogs(env *environment, dirs []string) (*foundLogs, error) {
	all := &foundLogs{env: env, dirs: dirs}
	var seen []os.FileInfo
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		switch {
		case err != nil:
			err = fmt.Errorf("looking for logs: %w", err)
		case !info.IsDir():
			err = usagef("%s is no directory: name one that was given to --ssd", dir)
		case slices.ContainsFunc(seen, func(o os.FileInfo) bool { return os.SameFile(o, info) }):
			err = usagef("%s is named twice", dir)
		default:
			err = all.open(dir)
		}
		if err != nil {
			return nil, errors.Join(err, all.Close())
		}
		seen = append(seen, info)
	}
	slices.SortStableFunc(all.logs, func(a, b *foundLog) int {
		return bytes.Compare(a.content[:], b.content[:])
	})
	return all, nil
}

// open adds what lies in one directory.
func (d *foundLogs) open(dir string) error {
	disk, err := vfs.Dir(dir)
	if err != nil {
		return err
	}
	d.disks = append(d.disks, disk)
	folders, foreign, err := audit.List(disk, dir)
	if err != nil {
		return err
	}
	d.foreign = append(d.foreign, foreign...)
	for _, f := range folders {
		i := slices.IndexFunc(d.logs, func(l *foundLog) bool { return l.content == f.Content })
		if i < 0 {
			i = len(d.logs)
			d.logs = append(d.logs, &foundLog{content: f.Content})
		}
		d.logs[i].folders = append(d.logs[i].folders, f)
	}
	return nil
}

// some fails if there is no log: whoever wants to know what one holds has named another directory.
func (d *foundLogs) some() error {
	if len(d.logs) > 0 {
		return nil
	}
	return usagef("there is no log in %s: name a directory that was given to --ssd",
		printable(strings.Join(d.dirs, ", ")))
}

// Close gives the directories back.
func (d *foundLogs) Close() error {
	var failed []error
	for _, disk := range d.disks {
		failed = append(failed, disk.Close())
	}
	return errors.Join(failed...)
}

// visit reads all segments of a log; see audit.Folder.
func (l *foundLog) visit(whole bool,
	segment func(*audit.Segment) error, slot func(*audit.Segment, *audit.Slot) error) error {
	for _, f := range l.folders {
		if err := f.Visit(whole, segment, slot); err != nil {
			return err
		}
	}
	return nil
}

// report reads a log and says what it holds; its sizes are compared with the manifest's if the
// dataset is in the catalogue.
func (d *foundLogs) report(l *foundLog, whole bool) (*logReport, error) {
	r := &logReport{Content: hex.EncodeToString(l.content[:]), Layout: "static",
		Damaged: []logPart{}, Foreign: []string{}}
	for _, f := range l.folders {
		r.Foreign = append(r.Foreign, f.Foreign...)
	}
	all, _ := d.env.catalog().List() // one that cannot be read is not the log's fault
	for _, info := range all {
		if info.ID != r.Content {
			continue
		}
		set, err := d.env.catalog().Open(info.Name)
		if err != nil {
			return nil, err
		}
		defer set.Close()
		r.Dataset, r.Of, r.sizes = info.Name, int64(info.Samples), set.Manifest
		break
	}
	err := l.visit(whole, r.addSegment, r.addSlot)
	r.Damaged = slices.DeleteFunc(r.Damaged, func(p logPart) bool {
		again := p.Sample != nil && r.holds(sample.ID(*p.Sample))
		if again {
			r.Dead++
		}
		return again
	})
	r.Dead += r.Records - r.Samples // those carried away, too
	return r, err
}

// holds tells whether a sound record of a sample was found.
func (r *logReport) holds(id sample.ID) bool {
	word := int(id / 64)
	return word < len(r.seen) && r.seen[word]&(1<<(id%64)) != 0
}

func (r *logReport) addSegment(s *audit.Segment) error {
	r.Segments++
	r.Bytes += s.Bytes
	for _, what := range s.Damage {
		if s.Unread == nil {
			r.Damaged = append(r.Damaged, logPart{File: s.Path, What: what})
		}
	}
	switch {
	case s.Unread == nil:
		r.Of = max(r.Of, int64(s.Header.Samples))
	case s.Foreign():
		r.Foreign = append(r.Foreign, fmt.Sprintf("%s (%v)", s.Path, s.Unread))
	default:
		r.Damaged = append(r.Damaged, logPart{File: s.Path, What: s.Unread.Error()})
	}
	return nil
}

func (r *logReport) addSlot(in *audit.Segment, s *audit.Slot) error {
	if s.Tag.Generation != 0 && !s.Closed {
		r.Open++
	}
	if s.Tag.Order != 0 && s.Tag.Generation > r.generation {
		r.generation, r.Layout = s.Tag.Generation, "carry"
		r.Order, r.Epoch = fmt.Sprintf("%016x", s.Tag.Order), s.Tag.Epoch
	}
	fault := func(id *uint32, what string) {
		if !s.Unsure {
			r.Damaged = append(r.Damaged,
				logPart{File: in.Path, Slot: &s.Number, Sample: id, What: what})
		}
	}
	for _, what := range s.Damage {
		fault(nil, what)
	}
	for _, e := range s.Records {
		id := uint32(e.ID)
		switch {
		case !e.Sound && s.Unsure:
			r.Torn++
		case !e.Sound:
			fault(&id, fmt.Sprintf("sample %d does not fit its sum", id))
		case r.sizes != nil && (int64(id) >= r.Of || r.sizes.Size(e.ID) != e.Length):
			fault(&id, fmt.Sprintf("sample %d has %d bytes, not the manifest's", id, e.Length))
		default:
			r.add(e)
		}
	}
	return nil
}

func (r *logReport) add(e audit.Record) {
	r.Records++
	word := int(e.ID / 64)
	if word >= len(r.seen) {
		r.seen = append(r.seen, make([]uint64, max(word+1, int(r.Of+63)/64)-len(r.seen))...)
	}
	if !r.holds(e.ID) {
		r.seen[word] |= 1 << (e.ID % 64)
		r.Samples++
		r.Live += int64(e.Length)
	}
}

// logsReport is what `log ls` and `log verify` print for programs.
type logsReport struct {
	OK      bool         `json:"ok"`
	Logs    []*logReport `json:"logs"`
	Foreign []string     `json:"foreign"`
}

// reports looks at every log; whole: at every byte.
func (d *foundLogs) reports(whole bool) (logsReport, error) {
	all := logsReport{OK: true, Logs: []*logReport{}, Foreign: append([]string{}, d.foreign...)}
	for _, l := range d.logs {
		r, err := d.report(l, whole)
		if err != nil {
			return all, err
		}
		all.OK = all.OK && len(r.Damaged) == 0
		all.Logs = append(all.Logs, r)
	}
	return all, nil
}

func newLogListCommand(env *environment, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "ls DIR...",
		Short: "List the logs in directories",
		Args:  cobra.MinimumNArgs(1),
		RunE: overLogs(env, func(d *foundLogs) error {
			found, err := d.reports(false)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(env.Out, found)
			}
			return printLogs(env.Out, found)
		}),
	}
}

// overLogs is a command that reads the logs of the directories it is given.
func overLogs(
	env *environment, read func(*foundLogs) error,
) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		d, err := openLogs(env, args)
		if err != nil {
			return err
		}
		defer d.Close()
		return read(d)
	}
}

func printLogs(w io.Writer, d logsReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(d.Logs) > 0 {
		fmt.Fprintln(t, "DATASET\tCONTENT\tSAMPLES\tOF\tSIZE\tLIVE\tSEGMENTS\tLAYOUT")
	}
	for _, r := range d.Logs {
		layout := r.Layout
		if r.Order != "" {
			layout += fmt.Sprintf(" (order %s, epoch %d)", r.Order, r.Epoch)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d %%\t%d\t%s\n", cmp.Or(r.Dataset, "-"), r.Content[:12],
			humanize.Comma(r.Samples), humanize.Comma(r.Of), humanize.IBytes(uint64(r.Bytes)),
			100*r.Live/max(r.Bytes, 1), r.Segments, layout)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return printForeign(w, d)
}

func printForeign(w io.Writer, d logsReport) error {
	foreign := d.Foreign
	for _, r := range d.Logs {
		foreign = append(foreign, r.Foreign...)
	}
	for _, name := range foreign {
		if _, err := fmt.Fprintf(w, "left alone: %s\n", printable(name)); err != nil {
			return err
		}
	}
	return nil
}

func newLogVerifyCommand(env *environment, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR...",
		Short: "Read every byte of the logs in directories, and name what is damaged",
		Long: "Verify every checksum of every log in directories, and the sizes of samples where the\n" +
			"dataset is known. Exits with 1 if anything is damaged, and names each part. What a crash\n" +
			"left unfinished is no damage, since nothing of it was promised, nor is a record whose\n" +
			"sample has been written again: name all directories of a daemon, since that may be in\n" +
			"another one. Exits with 2 if there is no log in them.",
		Args: cobra.MinimumNArgs(1),
		RunE: overLogs(env, func(d *foundLogs) error {
			if err := d.some(); err != nil {
				return err
			}
			found, err := d.reports(true)
			if err != nil {
				return err
			}
			if *asJSON {
				err = printJSON(env.Out, found)
			} else {
				err = printVerified(env.Out, found)
			}
			return errors.Join(err, found.verdict())
		}),
	}
}

func printVerified(w io.Writer, d logsReport) error {
	for _, r := range d.Logs {
		for _, part := range r.Damaged {
			fmt.Fprintf(w, "damaged: %v\n", part)
		}
		verdict := "ok"
		if n := len(r.Damaged); n > 0 {
			verdict = fmt.Sprintf("%d damaged", n)
		}
		fmt.Fprintf(w, "%s: %s: %s samples in %s records, %s; open slots %d, "+
			"torn records %d, dead ones %d\n", cmp.Or(r.Dataset, r.Content[:12]), verdict,
			humanize.Comma(r.Samples), humanize.Comma(r.Records), humanize.IBytes(uint64(r.Bytes)),
			r.Open, r.Torn, r.Dead)
	}
	return printForeign(w, d)
}

func (d logsReport) verdict() error {
	damaged := 0
	for _, r := range d.Logs {
		damaged += len(r.Damaged)
	}
	if damaged == 0 {
		return nil
	}
	return fmt.Errorf("%d parts are damaged: no byte of them will be delivered; "+
		"a daemon reads these samples from the origin and writes them again", damaged)
}
