package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"belady/internal/core/order"
	"belady/internal/core/order/torch"
)

// orderFlags are the verb's flags: a spec, the place in it, and the files two of its fields come
// from.
type orderFlags struct {
	spec        order.Spec
	epoch, rank int
	from        int64
	dropLast    bool
	weights     string
	state       string
	json        bool
}

func newOrderCommand() *cobra.Command {
	var f orderFlags
	cmd := &cobra.Command{
		Use:   "order",
		Short: "Print the samples a rank will read, in order",
		Long: "Print the samples a rank will read in one epoch, one index a line, exactly as the\n" +
			"framework's own sampler would yield them.\n\nKinds:\n" + describeKinds(),
		Example: "  belady order --kind torch-distributed --samples 50000 --seed 42 " +
			"--epoch 3 --world 8 --rank 0",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.print(cmd.OutOrStdout())
		},
	}
	f.register(cmd)
	return cmd
}

func describeKinds() string {
	var b strings.Builder
	for _, k := range order.Kinds {
		// An explicit order is what a client sends: there is nothing to print from a spec.
		if k.Name != order.Explicit {
			fmt.Fprintf(&b, "  %-18s %s\n", k.Name, k.Summary)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (f *orderFlags) register(cmd *cobra.Command) {
	s, flags := &f.spec, cmd.Flags()
	flags.StringVar(&s.Kind, "kind", order.Distributed, "which order")
	flags.IntVar(&s.Samples, "samples", 0, "samples in the dataset (default one a weight)")
	flags.Int64Var(&s.Seed, "seed", 0, "the sampler's or the generator's seed")
	flags.IntVar(&f.epoch, "epoch", 0, "the epoch, from 0")
	flags.IntVar(&s.World, "world", 1, "how many ranks")
	flags.IntVar(&f.rank, "rank", 0, "which of them, from 0")
	flags.Int64Var(&f.from, "from", 0,
		"resume: entries of the epoch, over all ranks, already returned to the training loop")
	flags.StringVar(&s.Torch, "torch", torch.Newest, "the PyTorch version, as in torch.__version__")
	flags.IntVar(&s.Batch, "batch", 1, "the loader's batch size")
	flags.BoolVar(&f.dropLast, "drop-last", false,
		"drop_last: the sampler's for torch-distributed, the loader's for other kinds")
	flags.BoolVar(&s.DropLast, "loader-drop-last", false, "the loader's drop_last, for any kind")
	flags.BoolVar(&s.NoShuffle, "no-shuffle", false, "shuffle=False")
	flags.IntVar(&s.Draws, "draws", 0, "num_samples of the sampler (default one a sample)")
	flags.StringVar(&f.weights, "weights", "", "file of weights, one number a line")
	flags.StringVar(&f.state, "state", "",
		"file with a torch.Generator's get_state(), in place of --seed")
	flags.BoolVar(&s.LoaderGenerator, "loader-generator", false,
		"the generator is DataLoader's too, which draws a base_seed from it every epoch")
	flags.BoolVar(&s.PersistentWorkers, "persistent-workers", false,
		"persistent_workers: that base_seed is drawn in epoch 0 only")
	flags.BoolVar(&s.SplitBatches, "split-batches", false, "Accelerate's split_batches")
	flags.BoolVar(&s.UnevenBatches, "uneven-batches", false, "Accelerate's even_batches=False")
	flags.BoolVar(&f.json, "json", false, "print one JSON object with the spec and the list")
}

// checkWorld refuses a --world that cannot be. A spec's 0 stands for one rank, but nobody who
// writes 0 means that.
func checkWorld(world int) error {
	if world < 1 || world > order.MaxWorld {
		return usagef("world is %d: it must be 1 to %d ranks", world, order.MaxWorld)
	}
	return nil
}

func (f *orderFlags) print(w io.Writer) error {
	if err := checkWorld(f.spec.World); err != nil {
		return err
	}
	if err := f.readFiles(); err != nil {
		return err
	}
	if f.spec.Kind == order.Explicit {
		return usagef("an explicit order is sent by its client and cannot be computed: " +
			"choose another --kind")
	}
	if f.dropLast && f.spec.Kind == order.Distributed {
		f.spec.SamplerDropLast = true
	} else if f.dropLast {
		f.spec.DropLast = true
	}
	o, err := order.New(f.spec)
	if err != nil {
		return usageError{err}
	}
	e, err := o.Epoch(f.epoch, f.rank, f.from, nil)
	if err != nil {
		return usageError{err}
	}
	out := bufio.NewWriterSize(w, 1<<16)
	if f.json {
		err = f.writeJSON(out, e)
	} else {
		err = writeIDs(out, e, "\n")
		if err == nil && len(e.IDs) > 0 {
			err = out.WriteByte('\n')
		}
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

func (f *orderFlags) readFiles() error {
	if f.state != "" {
		state, err := os.ReadFile(f.state)
		if err != nil {
			return fmt.Errorf("read the generator's state: %w", err)
		}
		f.spec.State = state
	}
	if f.weights == "" {
		return nil
	}
	text, err := os.ReadFile(f.weights)
	if err != nil {
		return fmt.Errorf("read the weights: %w", err)
	}
	for i, word := range strings.Fields(string(text)) {
		weight, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return fmt.Errorf("%s: weight %d is %q, not a number: give one a line",
				f.weights, i, word)
		}
		f.spec.Weights = append(f.spec.Weights, weight)
	}
	if f.spec.Samples == 0 {
		f.spec.Samples = len(f.spec.Weights)
	}
	return nil
}

// writeJSON streams the list: at millions of samples a second copy of it as text is worth avoiding.
func (f *orderFlags) writeJSON(out *bufio.Writer, e order.Epoch) error {
	spec, err := json.Marshal(f.spec)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, `{"spec":%s,"epoch":%d,"rank":%d,"from":%d,"batch":%d,"batches":%d,"ids":[`,
		spec, f.epoch, f.rank, f.from, e.Batch, e.Batches())
	if err := writeIDs(out, e, ","); err != nil {
		return err
	}
	_, err = out.WriteString("]}\n")
	return err
}

func writeIDs(out *bufio.Writer, e order.Epoch, separator string) error {
	var digits [16]byte
	for i, id := range e.IDs {
		text := digits[:0]
		if i > 0 {
			text = append(text, separator...)
		}
		if _, err := out.Write(strconv.AppendUint(text, uint64(id), 10)); err != nil {
			return err
		}
	}
	return nil
}
