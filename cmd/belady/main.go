// Command belady is the whole of Belady in one binary: the node daemon, the simulator and the
// command line over both.
//
// Each verb is one file here, and only this package knows every other one: it picks the drivers by
// name from visible tables (origins.go), reads configuration (config.go), and hands each package
// what it needs. It decides nothing about data: that is internal/core's.
//
// Exit codes: 0 done, 1 it failed, 2 it was asked wrongly (unknown verb, flag or argument).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
)

// version is stamped by the Makefile with -ldflags -X; a plain `go build` says "dev".
var version = "dev"

const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// usageError marks an error as the caller's: wrong arguments rather than failed work.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// saidError is the exit code of a program that a verb ran and that has said itself what failed.
type saidError int

func (e saidError) Error() string { return fmt.Sprintf("it ended with code %d", int(e)) }

// usagef is for verbs that find out only while running that they were asked wrongly.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

func main() {
	// The first signal asks the verb to stop cleanly; once it was delivered the default handling is
	// back, so a second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	env := &environment{OpenOrigin: openOrigin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(run(ctx, env, os.Args[1:]))
}

// run executes one command line and returns its exit code; errors become one sentence on env.Err.
func run(ctx context.Context, env *environment, args []string) int {
	root, started := newRoot(env)
	return execute(ctx, env, root, started, args)
}

// execute is run for a tree that is already built; tests add verbs of their own to it.
func execute(
	ctx context.Context, env *environment, root *cobra.Command, started *bool, args []string,
) int {
	root.SetArgs(args)
	unknown := refuseHelpForUnknown(root)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = *unknown
	}
	if err == nil {
		return exitOK
	}
	if said := saidError(0); errors.As(err, &said) {
		return int(said)
	}
	// What cobra refuses before any verb starts (unknown verb, flag, argument count) is usage.
	if !*started || errors.As(err, new(usageError)) {
		fmt.Fprintf(env.Err, "belady: %s (see 'belady --help')\n", oneLine(err))
		return exitUsage
	}
	fmt.Fprintf(env.Err, "belady: %s\n", oneLine(err))
	return exitFailure
}

// newRoot builds the command tree. started turns true when the arguments were accepted and the
// verb's own work begins.
func newRoot(env *environment) (root *cobra.Command, started *bool) {
	started = new(bool)
	root = &cobra.Command{
		Use:           "belady",
		Short:         "A clairvoyant data cache for deep-learning training",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          refuseUnknownVerb,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			// Cobra checks required flags only after this hook; here a lack of one is still usage.
			if err := cmd.ValidateRequiredFlags(); err != nil {
				return err
			}
			*started = true
			return env.resolve(os.Getenv)
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.SetVersionTemplate("belady {{.Version}}\n")
	root.PersistentFlags().StringVar(&env.Dir, "dir", "",
		"where Belady keeps its data (default $BELADY_DIR, or belady in the user's data folder)")
	root.PersistentFlags().StringVar(&env.Socket, "socket", "",
		"the daemon's Unix socket (default $BELADY_SOCKET, or belady.sock in "+
			"$XDG_RUNTIME_DIR, or without that in --dir)")
	root.PersistentFlags().StringVar(&env.SettingsFile, "config", "",
		"YAML file of settings (default $BELADY_CONFIG, or none)")

	// Every verb, each from the file of its name.
	root.AddCommand(
		newBenchCommand(env),
		newDatasetCommand(env),
		newJobCommand(env),
		newLogCommand(env),
		newOrderCommand(),
		newPlanCommand(env),
		newPapersCommand(env),
		newReadCommand(env),
		newServeCommand(env),
		newSimCommand(env),
		newStatusCommand(env),
		newTryCommand(env),
		newVersionCommand(env),
	)
	return root, started
}

func newVersionCommand(env *environment) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return printJSON(env.Out, map[string]string{"version": version})
			}
			_, err := io.WriteString(env.Out, "belady "+version+"\n")
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// flagError says of a flag's value what people write there, not what failed to read it.
func flagError(err error) error {
	var number *strconv.NumError
	said, text := "", err.Error()
	switch {
	case errors.As(err, &number):
		said = number.Error()
		text = "not a whole number"
		if number.Func == "ParseFloat" {
			text = "not a number"
		} else if number.Func == "ParseBool" {
			text = "neither true nor false"
		}
		if errors.Is(err, strconv.ErrRange) {
			text = "too large or too small a number"
		}
	case strings.Contains(text, ": time: "):
		said = text[strings.Index(text, "time: "):]
		text = "not a duration; write it like 30ms or 1.5s"
	default:
		return err
	}
	return errors.New(strings.TrimSuffix(err.Error(), said) + text)
}

// plural is a number and what is counted.
func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(int64(n)) + " " + more
}

// refuseUnknownVerb stands in for cobra's own check, which is off once the root can run.
func refuseUnknownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	sentence := fmt.Sprintf("there is no verb %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		sentence += fmt.Sprintf("; did you mean %q?", near[0])
	}
	return errors.New(sentence)
}

// refuseHelpForUnknown makes `belady nonsense --help` as wrong as `belady nonsense`: cobra would
// show the help of the last verb it knows and call that success. The error is set while root
// executes.
func refuseHelpForUnknown(root *cobra.Command) *error {
	unknown := new(error)
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			*unknown = refuseUnknownVerb(cmd, cmd.Flags().Args())
		}
		if *unknown == nil {
			help(cmd, args)
		}
	})
	return unknown
}

// oneLine flattens joined errors: a failure is one sentence, so that logs and scripts can use it.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}
