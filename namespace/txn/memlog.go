package txn

import (
	"context"
	"encoding/json"
	"errors"
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
	all   map[string]*memoryRecord
}

// memoryRecord is one transaction, each record encoded by itself.
type memoryRecord struct {
	transaction Transaction
	steps       []byte
	intents     [][]byte
	outcomes    [][]byte
}

// BeginTransaction implements Log; IDs are "1", "2", ...
func (l *MemoryLog) BeginTransaction(_ context.Context, t Transaction) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	steps, err := json.Marshal(t.Steps)
	if err != nil {
		return "", err
	}
	if l.all == nil {
		l.all = map[string]*memoryRecord{}
	}
	t.ID, t.Steps = strconv.Itoa(len(l.order)+1), nil
	l.all[t.ID] = &memoryRecord{transaction: t, steps: steps}
	l.order = append(l.order, t.ID)
	return t.ID, nil
}

// Intent implements Log.
func (l *MemoryLog) Intent(_ context.Context, in Intent) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, err := l.get(in.TransactionID)
	if err != nil {
		return err
	}
	rec.intents, err = appendJSON(rec.intents, in)
	return err
}

// Outcome implements Log.
func (l *MemoryLog) Outcome(_ context.Context, out Outcome) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, err := l.get(out.TransactionID)
	if err != nil {
		return err
	}
	rec.outcomes, err = appendJSON(rec.outcomes, out)
	return err
}

// SetState implements Log.
func (l *MemoryLog) SetState(_ context.Context, id string, state State, message string, at time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, err := l.get(id)
	if err != nil {
		return err
	}
	rec.transaction.State, rec.transaction.Message = state, message
	if state.Finished() {
		rec.transaction.Ended = at
	}
	return nil
}

// Load implements Log.
func (l *MemoryLog) Load(_ context.Context, id string) (History, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, err := l.get(id)
	if err != nil {
		return History{}, err
	}
	return rec.history()
}

// Unfinished implements Log.
func (l *MemoryLog) Unfinished(_ context.Context, serial string) ([]Transaction, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []Transaction
	for _, id := range l.order {
		t := l.all[id].transaction
		if t.State.Finished() || serial != "" && t.Identity.Serial != serial {
			continue
		}
		h, err := l.all[id].history()
		if err != nil {
			return nil, err
		}
		found = append(found, h.Transaction)
	}
	return found, nil
}

func (l *MemoryLog) get(id string) (*memoryRecord, error) {
	rec, ok := l.all[id]
	if !ok {
		return nil, fmt.Errorf("no transaction %q", id)
	}
	return rec, nil
}

func (rec *memoryRecord) history() (History, error) {
	h := History{Transaction: rec.transaction}
	err := json.Unmarshal(rec.steps, &h.Transaction.Steps)
	for _, text := range rec.intents {
		var in Intent
		err = errors.Join(err, json.Unmarshal(text, &in))
		h.Intents = append(h.Intents, in)
	}
	for _, text := range rec.outcomes {
		var out Outcome
		err = errors.Join(err, json.Unmarshal(text, &out))
		h.Outcomes = append(h.Outcomes, out)
	}
	return h, err
}

func appendJSON(to [][]byte, v any) ([][]byte, error) {
	text, err := json.Marshal(v)
	return append(to, text), err
}
