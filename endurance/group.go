package endurance

import (
	"context"
	"runtime"
	"sync"

	"nvop/endurance/run"
)

// Member is one run of a group.
type Member struct {
	// Workers is how many threads the run has.
	Workers uint32
	// Run carries it out: [Run] or [Simulate], with what belongs around it.
	Run func(ctx context.Context) (run.Verdict, error)
}

// Outcome is how a member ended.
type Outcome struct {
	Verdict run.Verdict
	Err     error
}

// Group carries out several runs side by side, each for itself: one that ends,
// however it ends, does not end the others. It returns when all have ended, with
// their outcomes in order. ended is told of each as it ends, one at a time; it may
// be nil.
func Group(ctx context.Context, members []Member, ended func(member int, o Outcome)) []Outcome {
	// Each run sees to it that it has enough processors to its name; what one
	// gives back at its end the others still need.
	need := 2
	for _, m := range members {
		need += int(m.Workers)
	}
	if have := runtime.GOMAXPROCS(0); len(members) > 1 && have < need {
		runtime.GOMAXPROCS(need)
		defer runtime.GOMAXPROCS(have)
	}
	outcomes := make([]Outcome, len(members))
	var running sync.WaitGroup
	var one sync.Mutex
	for i, m := range members {
		running.Go(func() {
			v, err := m.Run(ctx)
			outcomes[i] = Outcome{v, err}
			if ended != nil {
				one.Lock()
				defer one.Unlock()
				ended(i, outcomes[i])
			}
		})
	}
	running.Wait()
	return outcomes
}
