// Package jobs keeps the record of what was delivered to each job, in files below the daemon's
// folder (docs/format/jobs.md). One process appends; any may read at the same time.
//
// It bounds what it keeps and decides nothing: what a record means is core/receipt's.
package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"belady/internal/core/receipt"
)

// Limits of what is kept.
const (
	MaxFileBytes = 4 << 20
	MaxJobs      = 256
)

// Kinds of records. Only append.
const (
	Attached  = "attached"
	Delivered = "delivered"
	Drift     = "drift"
)

// ErrUnknown: no record of a job of that name.
var ErrUnknown = errors.New("no record of such a job")

// Record is one line.
type Record struct {
	Kind    string    `json:"kind"`
	Time    time.Time `json:"time"`
	Session string    `json:"session"`
	Job     string    `json:"job"`
	// Batch is where a drift began; of other kinds it is not set.
	Batch int `json:"batch,omitempty"`
	receipt.Account
}

// Store is a folder of records.
type Store struct {
	dir string
	// MaxBytes and MaxJobs are the limits in force.
	MaxBytes int64
	MaxJobs  int
}

// New is the store below a daemon's folder. Nothing is made until something is appended.
func New(dir string) *Store {
	return &Store{dir: filepath.Join(dir, "jobs"), MaxBytes: MaxFileBytes, MaxJobs: MaxJobs}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Append writes a record. One goroutine of one process appends.
func (s *Store) Append(r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the record of job %q: %w", r.Job, err)
	}
	if err := s.append(filepath.Join(s.dir, ID(r.Job)+".log"), sealed(text)); err != nil {
		return fmt.Errorf("write the record of job %q: %w", r.Job, err)
	}
	return nil
}

// sealed is a line of the file.
func sealed(text []byte) []byte {
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli), text)
}

func (s *Store) append(path string, line []byte) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.makeRoom(); err != nil {
			return err
		}
		file, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	}
	if err != nil {
		return err
	}
	size, err := cutTorn(file)
	if err == nil && size > 0 && size+int64(len(line)) > s.MaxBytes {
		if err = os.Rename(path, path+".old"); err == nil {
			return errors.Join(file.Close(), s.append(path, line))
		}
	}
	if err == nil {
		_, err = file.Write(line)
	}
	return errors.Join(err, file.Close())
}

// cutTorn cuts off a last line that a crash left unfinished, and returns the file's size.
func cutTorn(file *os.File) (int64, error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	size := info.Size()
	var last [1]byte
	if _, err := file.ReadAt(last[:], size-1); err != nil || last[0] == '\n' {
		return size, err
	}
	data, err := os.ReadFile(file.Name())
	if err != nil {
		return 0, err
	}
	whole := int64(bytes.LastIndexByte(data, '\n') + 1)
	return whole, file.Truncate(whole)
}

// makeRoom removes the jobs written to longest ago, so that one more may come.
func (s *Store) makeRoom() error {
	ids, err := s.IDs()
	if err != nil || len(ids) < s.MaxJobs {
		return err
	}
	for _, id := range ids[:len(ids)-s.MaxJobs+1] {
		path := filepath.Join(s.dir, id+".log")
		for _, one := range []string{path, path + ".old"} {
			if err := os.Remove(one); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// IDs lists the jobs, the one written to longest ago first.
func (s *Store) IDs() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the jobs: %w", err)
	}
	written := map[string]time.Time{}
	var ids []string
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".log")
		info, err := e.Info()
		if !ok || err != nil {
			continue // another file, or removed meanwhile
		}
		ids, written[id] = append(ids, id), info.ModTime()
	}
	slices.SortStableFunc(ids, func(a, b string) int { return written[a].Compare(written[b]) })
	return ids, nil
}

// Log is all that is recorded of a job.
type Log struct {
	ID      string
	Records []Record
	// Damaged names the lines that do not fit their checksums, as FILE:LINE.
	Damaged []string
}

// Read reads a job's record.
func (s *Store) Read(id string) (*Log, error) {
	log := &Log{ID: id}
	if id == "" || strings.ContainsAny(id, "/\x00") {
		return nil, fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	found := false
	for _, suffix := range []string{".log.old", ".log"} {
		data, err := os.ReadFile(filepath.Join(s.dir, id+suffix))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the record of job %s: %w", id, err)
		}
		found = true
		log.decode(id+suffix, data)
	}
	if !found {
		return nil, fmt.Errorf("%w: %q; 'belady job ls' lists those there are", ErrUnknown, id)
	}
	return log, nil
}

func (l *Log) decode(name string, data []byte) {
	for number := 1; len(data) > 0; number++ {
		line, rest, ended := bytes.Cut(data, []byte{'\n'})
		data = rest
		if !ended {
			return // cut by a crash, or being written
		}
		r, err := decodeLine(line)
		switch {
		case err != nil:
			l.Damaged = append(l.Damaged, fmt.Sprintf("%s:%d", name, number))
		case r.Kind == Attached || r.Kind == Delivered || r.Kind == Drift:
			l.Records = append(l.Records, r)
		}
	}
}

var errDamaged = errors.New("damaged line")

func decodeLine(line []byte) (r Record, err error) {
	var sum uint32
	if len(line) < 10 || line[8] != ' ' {
		return r, errDamaged
	}
	if _, err := fmt.Sscanf(string(line[:8]), "%08x", &sum); err != nil {
		return r, errDamaged
	}
	text := line[9:]
	if crc32.Checksum(text, castagnoli) != sum || json.Unmarshal(text, &r) != nil {
		return r, errDamaged
	}
	return r, nil
}
