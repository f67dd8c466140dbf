package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// newTryCommand runs the Python package's trial: nothing but PyTorch can stand for its loader.
func newTryCommand(env *environment) *cobra.Command {
	seconds, batch, compute, ram, asJSON := 120.0, 64, 0.0, "", false
	cmd := &cobra.Command{
		Use:   "try PATH|URL",
		Short: "Read your own data through PyTorch's loader and through Belady, side by side",
		Long: "Read your own data for two minutes through PyTorch's DataLoader with 0, 2 and 4 " +
			"workers and through Belady's, in the same order, and say what binds and whether " +
			"Belady helps. It uses a daemon of its own and only reads the origin. It needs a " +
			"Python with PyTorch: $BELADY_PYTHON, or python3.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			number := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
			rest := []string{"-m", "belady", "try", args[0], "--seconds", number(seconds),
				"--batch", strconv.Itoa(batch), "--compute", number(compute), "--ram", ram}
			if asJSON {
				rest = append(rest, "--json")
			}
			return runPython(cmd.Context(), env, rest)
		},
	}
	cmd.Flags().Float64Var(&seconds, "seconds", seconds, "how long, in all")
	cmd.Flags().IntVar(&batch, "batch", batch, "samples a batch")
	cmd.Flags().Float64Var(&compute, "compute", compute, "what a training step takes, milliseconds")
	cmd.Flags().StringVar(&ram, "ram", ram, "the daemon's memory, such as 4GiB (default: a quarter)")
	cmd.Flags().BoolVar(&asJSON, "json", asJSON, "print JSON")
	return cmd
}

// runPython runs the package beside this binary, or an installed one, with the first Python that
// has PyTorch. What fails there has been said there.
func runPython(ctx context.Context, env *environment, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this binary: %w", err)
	}
	environ := append(os.Environ(), "BELADY_BIN="+self)
	if folder := packageBeside(self); folder != "" {
		path := strings.TrimSuffix(folder+":"+os.Getenv("PYTHONPATH"), ":")
		environ = append(environ, "PYTHONPATH="+path)
	}
	python, err := findPython(ctx, environ)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, python, args...)
	// Python cleans up behind itself when it is interrupted, once: in a group of its own it does not
	// hear the terminal's signal besides this one.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Env, cmd.Stdout, cmd.Stderr = environ, env.Out, env.Err
	err = cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return saidError(max(exit.ExitCode(), exitFailure)) // -1: ended by a signal
	}
	return err
}

// packageBeside is the folder to import the package from: that of a checkout whose binary this is,
// or of an installed wheel; empty if there is neither.
func packageBeside(binary string) string {
	bin := filepath.Dir(binary)
	for _, folder := range []string{filepath.Join(bin, "../python"), filepath.Join(bin, "../..")} {
		if _, err := os.Stat(filepath.Join(folder, "belady", "trial.py")); err == nil {
			return folder
		}
	}
	return ""
}

// findPython is $BELADY_PYTHON, else the first python3 that has what a trial needs.
func findPython(ctx context.Context, environ []string) (string, error) {
	candidates := []string{"python3", "/usr/bin/python3"}
	if named := os.Getenv("BELADY_PYTHON"); named != "" {
		candidates = []string{named}
	}
	var tried []string
	for _, name := range candidates {
		path, err := exec.LookPath(name)
		if err != nil || slices.Contains(tried, path) {
			continue
		}
		probe := exec.CommandContext(ctx, path, "-c", "import torch, belady.trial")
		probe.Env = environ
		if probe.Run() == nil {
			return path, nil
		}
		tried = append(tried, path)
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	which := strings.Join(candidates, " and ")
	return "", fmt.Errorf("a trial needs Python with PyTorch and the belady package, and %s cannot "+
		"import both: install them, or name another Python with $BELADY_PYTHON", which)
}
