package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"belady/internal/core/dataset"
	"belady/internal/progress"
	"belady/internal/store/catalog"
)

func newDatasetCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dataset",
		Short: "Add, list, show and remove datasets",
		Long: "A dataset is a name for what an origin's URL lists, scanned once into a manifest.\n" +
			"Adding it again scans it again and says what changed. The origin is never touched.",
		Args: refuseUnknownVerb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	asJSON := cmd.PersistentFlags().Bool("json", false, "print JSON")
	cmd.AddCommand(
		newDatasetAddCommand(env, asJSON),
		newDatasetListCommand(env, asJSON),
		newDatasetShowCommand(env, asJSON),
		newDatasetRemoveCommand(env, asJSON),
	)
	return cmd
}

func (e *environment) catalog() *catalog.Catalog { return catalog.New(e.Dir, e.OpenOrigin) }

func newDatasetAddCommand(env *environment, asJSON *bool) *cobra.Command {
	var opts catalog.Options
	cmd := &cobra.Command{
		Use:   "add NAME [URL]",
		Short: "Scan what a path or URL lists, and remember it under a name",
		Long: "Scan what a path or URL lists, and remember it under a name. A name that is known is\n" +
			"scanned again, as it was added, and needs no URL.",
		Example: "  belady dataset add imagenet /data/imagenet/train\n" +
			"  belady dataset add pairs s3://bucket/pairs --fields jpg,json\n" +
			"  belady dataset add masks /data/m --fields 'image=images/*.jpg,mask=masks/*.png?'\n" +
			"  belady dataset add photos /data/photos --images",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.RangeArgs(1, 2)(cmd, args); err != nil {
				return err
			}
			_, wrong := dataset.NewBuilder(opts.Options)
			wrong = errors.Join(catalog.CheckName(args[0]), wrong)
			if len(args) == 2 {
				wrong = errors.Join(wrong, catalog.CheckURL(args[1]))
			}
			return wrong
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				known, err := env.catalog().Show(args[0])
				if err != nil {
					return err
				}
				args = append(args, known.URL)
			}
			report, done := scanProgress(env.Err, "scanning "+args[0])
			result, err := env.catalog().Add(cmd.Context(), args[0], args[1], opts, report)
			done()
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(env.Out, result)
			}
			return printAdded(env.Out, result)
		},
	}
	cmd.Flags().StringVar(&opts.Format, "format", "folder",
		"how objects become samples: "+strings.Join(dataset.Formats(), ", "))
	cmd.Flags().StringSliceVar(&opts.Fields, "fields", nil,
		"group objects of one stem into a sample: extensions (jpg,json?), NAME=PREFIX*SUFFIX, or auto")
	cmd.Flags().BoolVar(&opts.Images, "images", false,
		"take only images below classes' folders, as torchvision's ImageFolder does")
	cmd.MarkFlagsMutuallyExclusive("images", "fields")
	return cmd
}

// scanProgress shows a scan as one bar. It begins with the first object listed, so that a refused
// name or URL prints its sentence and nothing else.
func scanProgress(w io.Writer, title string) (report func(catalog.Progress), done func()) {
	var bar progress.Bar
	phase := catalog.Listing
	report = func(p catalog.Progress) {
		if bar == nil {
			bar = progress.New(w, title, 0, "objects")
		}
		bar.Set(p.Objects)
		if p.Phase != phase {
			phase = p.Phase
			bar.Message(string(phase))
		}
	}
	return report, func() {
		if bar != nil {
			bar.Done()
		}
	}
}

func printAdded(w io.Writer, r catalog.Result) error {
	verb := "added"
	if r.Rescan {
		verb = "scanned again"
	}
	info := r.Info
	text := fmt.Sprintf("%s %s: %s, %s, %s, in %v\n", verb, info.Name,
		plural(info.Samples, "sample", "samples"), humanize.IBytes(uint64(info.Bytes)),
		plural(info.Classes, "class", "classes"), scanTime(info))
	if r.Rescan {
		c := r.Changes
		text += fmt.Sprintf("%d added, %d changed, %d removed, %d the same\n",
			c.Added, c.Changed, c.Removed, c.Same)
	}
	if left := leftOut(info.LeftOut); left != "" {
		text += "left out: " + left + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

func scanTime(info catalog.Info) time.Duration {
	return time.Duration(info.ScanMillis) * time.Millisecond
}

// leftOut says in words what the scan did not take, or nothing.
func leftOut(left dataset.LeftOut) string {
	var parts []string
	for _, part := range []struct {
		count int
		what  string
	}{
		{left.Hidden, "hidden"}, {left.Folders, "folder markers"},
		{left.Unmatched, "of no declared field"}, {left.Repeated, "listed twice"},
	} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.what))
		}
	}
	return strings.Join(parts, ", ")
}

func newDatasetListCommand(env *environment, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the datasets",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, listErr := env.catalog().List()
			var err error
			if *asJSON {
				// A list, even of nothing, is an array.
				err = printJSON(env.Out, append([]catalog.Info{}, all...))
			} else {
				err = printDatasets(env.Out, all)
			}
			if err == nil {
				err = listErr
			}
			return err
		},
	}
}

func printDatasets(w io.Writer, all []catalog.Info) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tSAMPLES\tSIZE\tCLASSES\tSCANNED\tURL")
	for _, info := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", info.Name,
			humanize.Comma(int64(info.Samples)), humanize.IBytes(uint64(info.Bytes)),
			humanize.Comma(int64(info.Classes)), info.ScannedAt.Format(time.DateTime),
			printable(info.URL))
	}
	return table.Flush()
}

// printable keeps a path with odd bytes from disturbing the terminal.
func printable(text string) string {
	quoted := fmt.Sprintf("%q", text)
	if quoted == `"`+text+`"` {
		return text
	}
	return quoted
}

func newDatasetShowCommand(env *environment, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Verify a dataset's manifest and show what it holds",
		Args:  oneDataset,
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := env.catalog().Open(args[0])
			if err != nil {
				return err
			}
			defer d.Close()
			if *asJSON {
				return printJSON(env.Out, d.Info)
			}
			return printDataset(env.Out, d)
		},
	}
}

// oneDataset wants the name of a dataset, known or not.
func oneDataset(cmd *cobra.Command, args []string) error {
	if err := cobra.ExactArgs(1)(cmd, args); err != nil {
		return err
	}
	return catalog.CheckName(args[0])
}

func printDataset(w io.Writer, d *catalog.Dataset) error {
	info := d.Info
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) { fmt.Fprintf(table, "%s\t%s\n", name, value) }
	row("name", info.Name)
	row("url", printable(info.URL))
	row("format", info.Format)
	row("fields", strings.Join(d.Manifest.Fields(), ", "))
	if info.Images {
		row("only", "images below classes' folders")
	}
	row("samples", humanize.Comma(int64(info.Samples)))
	row("size", humanize.IBytes(uint64(info.Bytes)))
	row("mean sample", humanize.IBytes(uint64(info.Bytes)/uint64(info.Samples)))
	row("largest sample", humanize.IBytes(uint64(info.MaxBytes)))
	row("classes", humanize.Comma(int64(info.Classes)))
	if left := leftOut(info.LeftOut); left != "" {
		row("left out", left)
	}
	row("scanned", fmt.Sprintf("%s, in %v", info.ScannedAt.Format(time.RFC3339), scanTime(info)))
	row("content id", info.ID)
	return table.Flush()
}

func newDatasetRemoveCommand(env *environment, asJSON *bool) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Forget a dataset; its origin is not touched",
		Args:  oneDataset,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := env.catalog().Remove(args[0]); err != nil {
				return err
			}
			if *asJSON {
				return printJSON(env.Out, map[string]string{"removed": args[0]})
			}
			_, err := fmt.Fprintf(env.Out, "removed %s; its origin is as it was\n", args[0])
			return err
		},
	}
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
