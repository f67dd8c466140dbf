package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"belady/internal/core/sample"
	"belady/internal/store/audit"
)

// What `log dump --json` prints, one object a line.
type (
	segmentLine struct {
		Kind    string   `json:"kind"` // segment
		File    string   `json:"file"`
		Bytes   int64    `json:"bytes"`
		Unread  string   `json:"unread,omitempty"`
		ID      string   `json:"id,omitempty"`
		Slot    uint32   `json:"slot_bytes"`
		Slots   uint32   `json:"slots"`
		Samples uint64   `json:"samples"`
		Durable uint64   `json:"durable"`
		Damage  []string `json:"damage,omitempty"`
	}
	slotLine struct {
		Kind       string   `json:"kind"` // slot
		File       string   `json:"file"`
		Slot       uint32   `json:"slot"`
		State      string   `json:"state"` // unused, open, closed
		Generation uint64   `json:"generation"`
		Durable    bool     `json:"durable"`
		Order      string   `json:"order,omitempty"`
		Epoch      uint32   `json:"epoch"`
		Bucket     uint32   `json:"bucket"`
		Records    int      `json:"records"`
		Used       uint32   `json:"used"`
		Damage     []string `json:"damage,omitempty"`
	}
	recordLine struct {
		Kind       string    `json:"kind"` // record
		File       string    `json:"file"`
		Slot       uint32    `json:"slot"`
		Generation uint64    `json:"generation"`
		Sample     sample.ID `json:"sample"`
		At         uint32    `json:"at"`
		Length     uint32    `json:"length"`
		Sum        string    `json:"sum"`
		Sound      bool      `json:"sound"`
	}
)

func (l segmentLine) String() string {
	if l.Unread != "" {
		return fmt.Sprintf("segment %s: %s", l.File, l.Unread)
	}
	return fmt.Sprintf("segment %s: id %s, %d slots of %s, durable %d%s", l.File, l.ID, l.Slots,
		humanize.IBytes(uint64(l.Slot)), l.Durable, damageText(l.Damage))
}

func (l slotLine) String() string {
	text := fmt.Sprintf("  slot %d: %s", l.Slot, l.State)
	if l.Generation != 0 {
		text += fmt.Sprintf(", generation %d, %d records, %d bytes used", l.Generation, l.Records,
			l.Used)
	}
	if l.Order != "" {
		text += fmt.Sprintf(", order %s, epoch %d, bucket %d", l.Order, l.Epoch, l.Bucket)
	}
	if l.Generation != 0 && !l.Durable {
		text += ", not said to be durable"
	}
	return text + damageText(l.Damage)
}

func (l recordLine) String() string {
	state := "sound"
	if !l.Sound {
		state = "UNSOUND"
	}
	return fmt.Sprintf("    sample %d: at %d, %d bytes, sum %s, %s", l.Sample, l.At, l.Length, l.Sum,
		state)
}

func damageText(damage []string) (text string) {
	for _, what := range damage {
		text += "; damaged: " + what
	}
	return text
}

func newLogDumpCommand(env *environment, asJSON *bool) *cobra.Command {
	only := int64(-1)
	slot := int64(-1)
	cmd := &cobra.Command{
		Use:   "dump DIR...",
		Short: "Print every segment, slot and record of the logs in directories",
		Long: "Print every segment, slot and record of the logs in directories, in the sequence of\n" +
			"the files, each sum verified. With --json one object a line.",
		Args: cobra.MinimumNArgs(1),
		RunE: overLogs(env, func(d *foundLogs) error {
			if err := d.some(); err != nil {
				return err
			}
			p := dumper{out: env.Out, json: *asJSON, sample: only, slot: slot}
			for _, l := range d.logs {
				if err := l.visit(true, p.segment, p.slots); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	cmd.Flags().Int64Var(&only, "sample", -1, "print the records of this sample only")
	cmd.Flags().Int64Var(&slot, "slot", -1, "print this slot of each segment only")
	return cmd
}

// dumper prints lines.
type dumper struct {
	out          io.Writer
	json         bool
	sample, slot int64 // below 0: all
}

func (p *dumper) print(line fmt.Stringer) error {
	if p.json {
		return json.NewEncoder(p.out).Encode(line)
	}
	_, err := fmt.Fprintln(p.out, line)
	return err
}

func (p *dumper) segment(s *audit.Segment) error {
	line := segmentLine{Kind: "segment", File: s.Path, Bytes: s.Bytes}
	if s.Unread != nil {
		line.Unread = s.Unread.Error()
	} else {
		line.ID, line.Slot, line.Slots = fmt.Sprintf("%016x", s.Header.ID), s.Header.SlotBytes, s.Slots
		line.Samples, line.Durable, line.Damage = s.Header.Samples, s.Durable, s.Damage
	}
	return p.print(line)
}

func (p *dumper) slots(in *audit.Segment, s *audit.Slot) error {
	if p.slot >= 0 && p.slot != int64(s.Number) {
		return nil
	}
	line := slotLine{Kind: "slot", File: in.Path, Slot: s.Number, State: "unused",
		Generation: s.Tag.Generation, Durable: s.Tag.Generation <= in.Durable, Epoch: s.Tag.Epoch,
		Bucket: s.Tag.Bucket, Records: len(s.Records), Used: s.Used, Damage: s.Damage}
	if s.Tag.Order != 0 {
		line.Order = fmt.Sprintf("%016x", s.Tag.Order)
	}
	if s.Tag.Generation != 0 {
		line.State = map[bool]string{false: "open", true: "closed"}[s.Closed]
	}
	if p.sample < 0 {
		if err := p.print(line); err != nil {
			return err
		}
	}
	for _, e := range s.Records {
		if p.sample >= 0 && p.sample != int64(e.ID) {
			continue
		}
		if err := p.print(recordLine{Kind: "record", File: in.Path, Slot: s.Number,
			Generation: s.Tag.Generation, Sample: e.ID, At: e.At, Length: e.Length,
			Sum: fmt.Sprintf("%08x", e.Sum), Sound: e.Sound}); err != nil {
			return err
		}
	}
	return nil
}
