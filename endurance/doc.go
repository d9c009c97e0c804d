// Package endurance drives a soak: it keeps queues of a drive busy for as long
// as a [run.Job] says, reads the drive's health beside it, and hands rows,
// samples, events and checkpoints to a [Recorder].
//
// The same worker runs for real and in virtual time. [Run] gives each worker a
// thread of its own and the machine's clock. [Simulate] steps the worker with
// the smallest virtual time in one loop, and one seed gives one history.
//
// On the path of an operation nothing is shared, locked or allocated. What is
// recorded is exact: the rows add up to the totals and to what was transferred,
// also across a kill and a resume.
//
// What is read back is compared with what was written last. That follows, for any
// logical block, from the job and from how far each phase has come (package
// pattern makes the content, a permutation's inverse tells when a pass visited
// the block), so it takes no memory and works from the journal alone ([Written]).
// A block that is not right is read again before it is called lost, stale,
// misdirected, torn, rotten or unreadable. Writes that failed, or that a crash
// leaves in doubt, make a block unknown, which is counted apart. Where the order
// draws blocks anew a byte a block can be kept of what was written last, in memory
// and now and then in a file; what may have been written since is not known after a
// crash, until it is written again. A verification that decided nothing has failed.
//
// The package must not print, open devices or decide about consent: queues
// arrive from a [QueueFactory] that has been granted.
package endurance

import (
	"context"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

// Recorder keeps what a run yields. The journal is one.
type Recorder interface {
	// Commit makes everything in b durable, all or nothing, before it returns.
	// It keeps nothing of b. An error interrupts the run, which can be resumed.
	Commit(ctx context.Context, b *run.Batch) error
}

// Sampler reads a drive's health.
type Sampler interface {
	// Sample reads all counters once. Second, WallUnixNS, DurationNS and
	// EngineWriteBytes are set by the caller.
	Sample(ctx context.Context) (run.Sample, error)
}

// QueueFactory opens the queue of one worker, at least [run.Job.MaxDepth] deep.
// It is called on the worker's own thread.
type QueueFactory func(worker int) (nvmeioctl.IOQueue, error)

// Observer watches a run. Progress is called about once a wall second from one
// goroutine, which it must not hold up; it keeps nothing of p.
type Observer interface {
	Progress(p *run.Progress)
}

// Config is what a run needs. Job, Recorder and Queues are required.
type Config struct {
	Job      run.Job
	Recorder Recorder
	Queues   QueueFactory
	// Sampler may be nil: then nothing is known of health and WAF.
	Sampler Sampler
	// Observer may be nil.
	Observer Observer
	// Clock is the clock of the queues; nil means a new system clock. For
	// [Simulate] it only paces Observer.
	Clock nvmeioctl.Clock
	// Processors are those close to the drive, on which the threads of [Run] are
	// kept as far as the process may use them; nil means all. With the job's Pin
	// each thread has one of them.
	Processors []int
	// StartWallUnixNS is when the run began ([run.Header]), which second 0 is
	// counted from; 0 means now.
	StartWallUnixNS int64
	// Drive names the drive and namespace ([run.Header.Drive]), so that blocks of
	// one are told from those of another. It must not change over a resume.
	Drive string
	// Resume is the last checkpoint of the run; nil starts anew.
	Resume *run.Checkpoint
	// Of is the run that is verified, when the job only reads what another wrote.
	Of *Written
	// Runs are the names of the runs that are known, by the number that each puts
	// into its blocks ([run.DataRun]): a block of one of them is called so. It is
	// not changed while the run lasts.
	Runs map[uint64]string
	// MapFile is where the generation map is kept, if the job has one
	// ([run.Verify.GenerationMap]); empty means in memory only, so that it is not
	// known any more when the run goes on after an interruption.
	MapFile  string
	mapEvery time.Duration // how often it is saved at most; 0 means the usual
	// asleep is how long the machine has slept since it booted, in nanoseconds; nil
	// asks its clocks.
	asleep func() int64
	// Samples are those already recorded of the run, when it is resumed: WAF
	// is computed over them and the new ones.
	Samples []run.Sample
	// BeforePhase is called before anything of a phase is submitted, also on
	// resume: the place to check again that the drive is the same and unused.
	// Its error ends the run as interrupted. May be nil.
	BeforePhase func(ctx context.Context, phase int) error
	// Path is asked at every sample what happened on the way to the drive since
	// it was last asked (a link that became slower, bus errors); each answer is
	// an event of the run. It is called from one goroutine and must not block.
	// May be nil.
	Path func() []string
	// SaveDrive is called with the number of each checkpoint right before it is
	// committed, so that a simulated drive's file carries that number. May be nil.
	SaveDrive func(checkpoint uint64) error
	// CheckpointOps is how many operations of a simulated run lie between two
	// checkpoints, which happen at moments that depend on nothing else so that
	// one seed gives one history; 0 means so many as take about half a wall
	// second: 2^21, fewer where an operation stands for much.
	CheckpointOps uint64
}
