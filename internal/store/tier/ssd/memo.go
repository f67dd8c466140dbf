package ssd

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"belady/internal/core/perf"
	"belady/internal/store/vfs"
)

// memoName is a file that may be deleted at any time: what it says is measured or counted anew.
const memoName = "belady.json"

// memo is what a directory remembers beyond its logs. It is saved when a log is opened or closed: a
// crash forgets what was counted since.
type memo struct {
	mu   sync.Mutex
	says memoText
}

type memoText struct {
	Day      int64            `json:"day"`     // since 1970
	Written  int64            `json:"written"` // bytes, that day
	Opened   map[string]int64 `json:"opened"`  // a log's folder: when, in seconds since 1970
	Rates    perf.Rates       `json:"rates"`
	Measured int64            `json:"measured"` // when, in seconds since 1970
}

func processID() int { return os.Getpid() }

func (m *memo) load(files vfs.FS) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.says.Opened = map[string]int64{}
	f, err := files.Open(memoName, vfs.How{})
	if err != nil {
		return
	}
	defer f.Close()
	text := make([]byte, 1<<20)
	n, _ := f.ReadAt(text, 0)
	var says memoText
	if json.Unmarshal(text[:n], &says) == nil && says.Opened != nil {
		m.says = says
	}
}

// save writes the memo anew. It is not worth an error: nothing but counts would be lost.
func (m *memo) save(files vfs.FS) {
	m.mu.Lock()
	text, err := json.Marshal(m.says)
	m.mu.Unlock()
	if err != nil {
		return
	}
	_ = files.Remove(memoName)
	f, err := files.Open(memoName, vfs.How{Create: true, Write: true})
	if err != nil {
		return
	}
	_, _ = f.WriteAt(text, 0)
	_ = f.Close()
}

// opened remembers when a log was last used, for when room must be made.
func (m *memo) opened(folder string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.says.Opened[folder] = now.Unix()
}

func (m *memo) lastOpened(folder string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.says.Opened[folder]
}

func (m *memo) forget(folder string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.says.Opened, folder)
}

// wrote counts bytes written to the device, all of them wear.
func (m *memo) wrote(bytes int64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn(now)
	m.says.Written += bytes
}

func (m *memo) today(now time.Time) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn(now)
	return m.says.Written
}

func (m *memo) turn(now time.Time) {
	if day := now.Unix() / 86400; day != m.says.Day {
		m.says.Day, m.says.Written = day, 0
	}
}

// rates are what the device was measured to give, if that was less than a day ago.
func (m *memo) rates(now time.Time) (perf.Rates, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	age := now.Unix() - m.says.Measured
	return m.says.Rates, len(m.says.Rates.Random) > 0 && age >= 0 && age < 86400
}

func (m *memo) measured(rates perf.Rates, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.says.Rates, m.says.Measured = rates, now.Unix()
}
