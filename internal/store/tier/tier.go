// Package tier is the contract between the daemon and the tiers that outlive it: today the ssd.
//
// A tier is told what to hold and never evicts. All of it is soft state: a sample that a log has
// lost is read from the origin once more, so every failure here is a fall back and none is fatal.
package tier

import (
	"errors"

	"belady/internal/core/dataset"
	"belady/internal/core/sample"
)

var (
	// ErrAbsent is a sample that the log does not hold.
	ErrAbsent = errors.New("not in the log")
	// ErrCorrupt is a record that failed its checksum or could not be read; the log has dropped it.
	ErrCorrupt = errors.New("the record in the log is damaged")
	// ErrFull is an append beyond the log's capacity, or of a sample larger than it takes.
	ErrFull = errors.New("the log is full")
	// ErrBusy is an append that would have to wait for the device: try again, or give up.
	ErrBusy = errors.New("the log is busy writing")
	// ErrDown is a log none of whose directories can be used now.
	ErrDown = errors.New("the log's directories are down")
)

// A Layout is how a log places records; the daemon's --ssd-layout.
type Layout string

const (
	// Static leaves every record where it was first written, and reads each by itself.
	Static Layout = "static"
	// Carry copies each sample, when it is read, to where the next epoch reads it in sequence.
	Carry Layout = "carry"
	// Auto is the faster one on this device for this dataset, within the wear that is allowed.
	Auto Layout = "auto"
)

// Read asks for one sample.
type Read struct {
	ID sample.ID
	// Dst has the length of the sample. It is read into directly when it begins at a multiple of
	// vfs.Block and its capacity reaches the next multiple behind its length; what lies between
	// length and capacity is then overwritten.
	Dst []byte
	Err error // set by Log.Read
}

// Log holds the samples of one dataset. Any goroutine may call any method.
type Log interface {
	// Held has a bit for each sample that the log held when it was opened.
	Held() []uint64
	// Read fills Dst of each read with verified bytes, or sets its Err to ErrAbsent, ErrCorrupt or
	// ErrDown. It blocks for the device.
	Read(epoch int32, reads []Read)
	// Append adds a sample that was read in this epoch. It copies b and never waits: ErrBusy,
	// ErrFull, ErrDown. A sample that the log holds already (Carry: for the next epoch) is no error.
	Append(epoch int32, id sample.ID, b []byte) error
	Usage() Usage
	// Close writes and syncs all that was appended. Nothing is called after it.
	Close() error
}

// Uncarried in place of a bucket is a sample that memory keeps. It is written once and left where
// it is: it would not be read, hence not carried, and its slot never fall free.
const Uncarried = 1<<16 - 1

// A Follower is a log that can be carried along one job's order.
type Follower interface {
	// Follow says in which bucket of epoch each sample is wanted, in the order with this digest.
	Follow(order uint64, epoch int, buckets []uint16) error
	// BucketBytes is how many bytes of samples a bucket should have.
	BucketBytes() int64
	Unfollow()
}

// Directories are the places that a daemon may write logs to.
type Directories interface {
	// Open finds or begins the log of a dataset.
	Open(c Config) (Log, error)
	Usage() []DirUsage
	// Close ends them. Their logs are closed before.
	Close() error
}

// Config says whose log is opened, and whom it tells. Its functions may be nil, are called from the
// log's goroutines and must return soon.
type Config struct {
	Content   [32]byte // the dataset's content id
	Name      string   // of the dataset, for messages
	Sizes     dataset.Sizes
	Layout    Layout
	SlotBytes int64 // 0: by the rule of docs/format/log.md
	// Lend asks for memory of the node's pool, which Return gives back.
	Lend   func(bytes int64) bool
	Return func(bytes int64)
	// Changed says that the log also holds (held) or has lost samples: a bit for each.
	Changed func(held bool, set []uint64)
	Tell    func(Notice)
}

// NoticeKind is what a notice is about.
type NoticeKind string

const (
	Opened   NoticeKind = "opened"   // a log was opened: Samples, Bytes
	Dropped  NoticeKind = "dropped"  // damaged parts were given up
	Full     NoticeKind = "full"     // no more can be written: quota, or free space
	Unstable NoticeKind = "unstable" // a directory fails now and then; nothing is written to it
	Down     NoticeKind = "down"     // a directory is gone, or another file system is there
	Back     NoticeKind = "back"     // a directory is used again
	Buffered NoticeKind = "buffered" // a directory is read and written through the page cache
	Chosen   NoticeKind = "layout"   // which layout, and why
	Worn     NoticeKind = "wear"     // the day's bytes are written: carrying stops
	Removed  NoticeKind = "removed"  // the log of another dataset was removed to make room: Bytes
)

// A Notice is one thing that an operator may want to know.
type Notice struct {
	Kind           NoticeKind
	Dir            string
	Samples, Bytes int64
	Err            error
	Text           string
}

// Usage is what a log holds, and what it did since it was opened.
type Usage struct {
	Layout    Layout `json:"layout"`
	SampleMax uint32 `json:"sample_max"` // the largest sample that it takes
	Samples   int64  `json:"samples"`
	Capacity  int64  `json:"capacity"` // bytes of records that it may hold, in plan.RecordCost's unit
	Used      int64  `json:"used"`     // of Capacity
	Dead      int64  `json:"dead"`     // bytes of records that are no longer the authoritative ones
	Disk      int64  `json:"disk"`     // bytes of its files
	Pending   int64  `json:"pending"`  // appended and not yet synced

	ReadBytes int64 `json:"read_bytes"` // of samples
	Written   int64 `json:"written"`    // to the device, all of it
	Copied    int64 `json:"copied"`     // of ReadBytes, copied rather than read straight in
	Dropped   int64 `json:"dropped"`    // records given up when it was opened
	Refused   int64 `json:"refused"`    // appends that were ErrBusy or ErrFull
	Corrupt   int64 `json:"corrupt"`    // reads that were ErrCorrupt
}

// DirUsage is the state of one directory.
type DirUsage struct {
	Path         string `json:"path"`
	State        string `json:"state"` // ok, unstable, down
	Quota        int64  `json:"quota"`
	Used         int64  `json:"used"` // by all logs
	Total        int64  `json:"total"`
	Free         int64  `json:"free"`  // of the file system
	Floor        int64  `json:"floor"` // what must stay free
	WrittenToday int64  `json:"written_today"`
	CarriedToday int64  `json:"carried_today"` // of that, samples that were in a log already
	WearBudget   int64  `json:"wear_budget"`   // a day; 0: none
	Failures     int64  `json:"failures"`
	Buffered     bool   `json:"buffered"` // its file system cannot do without the page cache
	// Plain is why reads and writes hold a thread each, which costs speed; empty: they do not.
	Plain string `json:"plain,omitempty"`
}
