// Package memo keeps what a directory of logs remembers beyond them: bytes written today, when each
// log was last used, measured rates. Its file may be deleted at any time: what it said is then
// counted or measured anew. Nothing here fails, and nobody waits for it but who saves it.
package memo

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"belady/internal/core/perf"
	"belady/internal/store/vfs"
)

const (
	name = "belady.json"
	page = 4096

	// What a process that is killed may forget.
	keepBytes = 64 << 20
	keepAge   = 5 * time.Second
)

// Memo is what one directory remembers.
type Memo struct {
	files  vfs.FS
	saving atomic.Bool

	mu    sync.Mutex
	says  text
	bytes int       // of the file
	saved int64     // says.Written, as the file has it
	when  time.Time // it was saved
}

type text struct {
	Day      int64            `json:"day"`     // since 1970
	Written  int64            `json:"written"` // bytes, that day
	Carried  int64            `json:"carried"` // of samples that were in a log already
	Opened   map[string]int64 `json:"opened"`  // a log's folder: when, in seconds since 1970
	Rates    perf.Rates       `json:"rates"`
	Measured int64            `json:"measured"` // when, in seconds since 1970
}

// Load reads what a directory remembers, if anything.
func Load(files vfs.FS) *Memo {
	m := &Memo{files: files, says: text{Opened: map[string]int64{}}}
	f, err := files.Open(name, vfs.How{})
	if err != nil {
		return m
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	m.bytes, _ = f.ReadAt(b, 0)
	var says text
	if json.Unmarshal(b[:m.bytes], &says) == nil && says.Opened != nil {
		m.says, m.saved = says, says.Written
	}
	return m
}

// Keep saves what was counted once that is much or old.
func (m *Memo) Keep(now time.Time) {
	m.mu.Lock()
	due := m.says.Written-m.saved >= keepBytes || now.Sub(m.when) >= keepAge
	m.mu.Unlock()
	if due {
		m.Save(now)
	}
}

// Save writes the memo, unless that is being done. The file is written in place and in one piece
// that is never shorter than it: who is killed meanwhile leaves the old text or the new one, and a
// full file system takes it.
func (m *Memo) Save(now time.Time) {
	if !m.saving.CompareAndSwap(false, true) {
		return
	}
	defer m.saving.Store(false)
	m.mu.Lock()
	b, err := json.Marshal(m.says)
	written := m.says.Written
	whole := max(m.bytes, (len(b)+page-1)/page*page)
	m.mu.Unlock()
	if err != nil {
		return
	}
	b = append(b, bytes.Repeat([]byte{' '}, whole-len(b))...)
	f, err := m.files.Open(name, vfs.How{Write: true})
	if errors.Is(err, fs.ErrNotExist) {
		f, err = m.files.Open(name, vfs.How{Create: true, Write: true})
	}
	if err == nil {
		_, err = f.WriteAt(b, 0)
		_ = f.Close()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saved, m.when = written, now // one that cannot be written is not tried all the time
	if err == nil {
		m.bytes = whole
	}
}

// Opened remembers when a log was last used, for when room must be made.
func (m *Memo) Opened(folder string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.says.Opened[folder] = now.Unix()
}

// LastOpened is when a log was last used, in seconds since 1970; 0: nobody knows.
func (m *Memo) LastOpened(folder string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.says.Opened[folder]
}

// Forget forgets a log that was removed.
func (m *Memo) Forget(folder string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.says.Opened, folder)
}

// Wrote counts bytes written to the device.
func (m *Memo) Wrote(bytes int64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn(now)
	m.says.Written += bytes
}

// Carried counts bytes of samples that are written once more: what a day's wear bounds.
func (m *Memo) Carried(bytes int64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn(now)
	m.says.Carried += bytes
}

// Today is how many bytes were written to the device since midnight.
func (m *Memo) Today(now time.Time) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn(now)
	return m.says.Written
}

// CarriedToday is how many were carried since then.
func (m *Memo) CarriedToday(now time.Time) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn(now)
	return m.says.Carried
}

func (m *Memo) turn(now time.Time) {
	if day := now.Unix() / 86400; day != m.says.Day {
		m.says.Day, m.says.Written, m.says.Carried, m.saved = day, 0, 0, 0
	}
}

// Rates are what the device was measured to give, if that was less than a day ago.
func (m *Memo) Rates(now time.Time) (perf.Rates, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	age := now.Unix() - m.says.Measured
	return m.says.Rates, len(m.says.Rates.Random) > 0 && age >= 0 && age < 86400
}

// Measured remembers what the device was measured to give.
func (m *Memo) Measured(rates perf.Rates, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.says.Rates, m.says.Measured = rates, now.Unix()
}
