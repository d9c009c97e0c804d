package txn

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// MemoryLog is a [Log] that lives as long as the process: for drives that do
// so too, and for tests. The zero value is ready. Everything passes through
// JSON, so what comes back is what a stored journal would give back. It is
// safe for concurrent use.
type MemoryLog struct {
	mu    sync.Mutex
	order []string
	all   map[string][]byte
}

// BeginTransaction implements Log; IDs are "1", "2", ...
func (l *MemoryLog) BeginTransaction(_ context.Context, t Transaction) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.ID = strconv.Itoa(len(l.order) + 1)
	if l.all == nil {
		l.all = map[string][]byte{}
	}
	if err := l.put(History{Transaction: t}); err != nil {
		return "", err
	}
	l.order = append(l.order, t.ID)
	return t.ID, nil
}

// Intent implements Log.
func (l *MemoryLog) Intent(_ context.Context, in Intent) error {
	return l.change(in.TransactionID, func(h *History) { h.Intents = append(h.Intents, in) })
}

// Outcome implements Log.
func (l *MemoryLog) Outcome(_ context.Context, out Outcome) error {
	return l.change(out.TransactionID, func(h *History) { h.Outcomes = append(h.Outcomes, out) })
}

// SetState implements Log.
func (l *MemoryLog) SetState(_ context.Context, id string, state State, message string, at time.Time) error {
	return l.change(id, func(h *History) {
		h.Transaction.State, h.Transaction.Message = state, message
		if state.Finished() {
			h.Transaction.Ended = at
		}
	})
}

// Load implements Log.
func (l *MemoryLog) Load(_ context.Context, id string) (History, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.get(id)
}

// Unfinished implements Log.
func (l *MemoryLog) Unfinished(_ context.Context, serial string) ([]Transaction, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []Transaction
	for _, id := range l.order {
		h, err := l.get(id)
		if err != nil {
			return nil, err
		}
		t := h.Transaction
		if !t.State.Finished() && (serial == "" || t.Identity.Serial == serial) {
			found = append(found, t)
		}
	}
	return found, nil
}

func (l *MemoryLog) change(id string, f func(*History)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, err := l.get(id)
	if err != nil {
		return err
	}
	f(&h)
	return l.put(h)
}

func (l *MemoryLog) get(id string) (History, error) {
	text, ok := l.all[id]
	if !ok {
		return History{}, fmt.Errorf("no transaction %q", id)
	}
	var h History
	err := json.Unmarshal(text, &h)
	return h, err
}

func (l *MemoryLog) put(h History) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	l.all[h.Transaction.ID] = text
	return nil
}
