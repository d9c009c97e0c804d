package txn

import (
	"context"
	"time"
)

// Log stores transactions. Each writing method returns only when what it was
// given would survive a power cut. Implementations are used by one goroutine.
type Log interface {
	// BeginTransaction stores t with state [StateOpen] and returns the ID it
	// was given. t.ID is empty.
	BeginTransaction(ctx context.Context, t Transaction) (id string, err error)
	// Intent stores what is about to be sent.
	Intent(ctx context.Context, in Intent) error
	// Outcome stores how it ended. A second outcome with the same Seq is
	// possible, where an unclear one was cleared up later: both are kept, the
	// later one counts.
	Outcome(ctx context.Context, out Outcome) error
	// SetState stores a new state. A rollback that was refused before anything
	// was undone sets back the state there was.
	SetState(ctx context.Context, id string, state State, message string, at time.Time) error
	// Load returns everything recorded about a transaction, intents and
	// outcomes in the order they were stored. An unknown id is an error.
	Load(ctx context.Context, id string) (History, error)
	// Unfinished lists the transactions of the drive with this serial number
	// whose state is not finished, oldest first; "" means of any drive.
	Unfinished(ctx context.Context, serial string) ([]Transaction, error)
}
