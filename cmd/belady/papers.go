package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"belady/internal/scenario"
	"belady/internal/scenario/show"
)

// newPapersCommand runs all scenarios of a folder and writes one page of them: `make papers`.
func newPapersCommand(env *environment) *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:    "papers DIR",
		Short:  "Run all scenarios of a folder and write a page of their results, with pictures",
		Hidden: true, // for those who build Belady
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writePapers(cmd, env, args[0], out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "papers-results.md", "the page; pictures lie beside it")
	return cmd
}

func writePapers(cmd *cobra.Command, env *environment, dir, out string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, usagef("%s has no scenarios: no file there ends in .yaml", dir))
	}
	above, err := os.ReadFile(filepath.Join(dir, "about.md"))
	if err != nil {
		return fmt.Errorf("read what stands above the results: %w", err)
	}
	pictures := strings.TrimSuffix(out, ".md")
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return err
	}
	// All are read before the first is run: a slip in the last must not cost the time of the others.
	all := make([]*scenario.Scenario, len(files))
	for i, file := range files {
		if all[i], err = scenario.Load(file); err != nil {
			return err
		}
	}
	var sections []show.Section
	var missed []error
	for i, file := range files {
		report, err := runScenario(cmd, env, all[i], scenario.Options{})
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		section := show.Section{File: filepath.ToSlash(file), Report: report}
		for n, picture := range show.Pictures(report) {
			name := strings.TrimSuffix(filepath.Base(file), ".yaml")
			if n > 0 {
				name += fmt.Sprintf("-%d", n+1)
			}
			if err := draw(filepath.Join(pictures, name+".svg"), picture); err != nil {
				return err
			}
			section.Pictures = append(section.Pictures, filepath.Base(pictures)+"/"+name+".svg")
		}
		sections = append(sections, section)
		missed = append(missed, missedBars(report))
	}
	var page bytes.Buffer
	if err := show.Page(&page, string(above), sections); err != nil {
		return err
	}
	if err := renameio.WriteFile(out, page.Bytes(), 0o644); err != nil {
		return err
	}
	return errors.Join(missed...)
}
