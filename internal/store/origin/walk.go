package origin

import (
	"context"
	"sync"

	"belady/internal/core/dataset"
)

// Walker is how drivers list a tree: several goroutines take folders from one stack, put the
// folders they find on it and hand objects to the one goroutine that called Walk. Memory is the
// folders not yet read and a few batches.
type Walker[F any] struct {
	read func(ctx context.Context, w *Walker[F], folder F) error
	out  chan []dataset.Object
	more *sync.Cond

	mu   sync.Mutex
	todo []F   // guarded by mu
	open int   // folders waiting or being read; zero means done; guarded by mu
	err  error // the first; guarded by mu
}

// Walk calls read for root and every folder pushed, from up to workers goroutines at once, and fn
// with what they emit, from this goroutine only. It stops at the first error of either and
// returns when all goroutines have ended.
func Walk[F any](ctx context.Context, workers int, root F,
	read func(ctx context.Context, w *Walker[F], folder F) error,
	fn func([]dataset.Object) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &Walker[F]{read: read, out: make(chan []dataset.Object, workers)}
	w.more = sync.NewCond(&w.mu)
	w.Push(root)
	stop := context.AfterFunc(ctx, func() { w.fail(ctx.Err()) })
	defer stop()
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { w.run(ctx) })
	}
	go func() {
		running.Wait()
		close(w.out)
	}()
	stopped := false
	for batch := range w.out {
		if stopped {
			continue // drained, so that no goroutine is left waiting to emit
		}
		if err := fn(batch); err != nil {
			w.fail(err)
			cancel()
			stopped = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Push puts a folder on the stack; called from read.
func (w *Walker[F]) Push(folder F) {
	w.mu.Lock()
	w.todo = append(w.todo, folder)
	w.open++
	w.mu.Unlock()
	w.more.Signal()
}

// Emit hands over a batch, which belongs to the walker from then on; called from read.
func (w *Walker[F]) Emit(ctx context.Context, batch []dataset.Object) error {
	if len(batch) == 0 {
		return nil
	}
	select {
	case w.out <- batch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pop returns the folder pushed last, so that the stack stays short; false when all is done.
func (w *Walker[F]) pop() (folder F, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.todo) == 0 && w.open > 0 && w.err == nil {
		w.more.Wait()
	}
	if w.err != nil || w.open == 0 {
		return folder, false
	}
	folder = w.todo[len(w.todo)-1]
	w.todo = w.todo[:len(w.todo)-1]
	return folder, true
}

func (w *Walker[F]) run(ctx context.Context) {
	for folder, ok := w.pop(); ok; folder, ok = w.pop() {
		if err := w.read(ctx, w, folder); err != nil {
			w.fail(err)
		}
		w.mu.Lock()
		w.open--
		last := w.open == 0
		w.mu.Unlock()
		if last {
			w.more.Broadcast()
		}
	}
}

func (w *Walker[F]) fail(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	w.more.Broadcast()
}
