package endurance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"nvop/endurance/run"
	"nvop/nvmeioctl"
)

const (
	// mapEvery is how often the generation map is saved, at most. Saving takes no
	// more than a twentieth of the time, and writes no more than mapBytesPerSecond on
	// average: over months it must not wear out what the journal lies on.
	mapEvery          = time.Second
	mapBusyBy         = 20
	mapBytesPerSecond = 4 << 20
)

// mapKeeper keeps a run's generation map in a file, so that a session that goes on
// with the run knows what the one before did. It belongs to the driver's goroutine.
type mapKeeper struct {
	m      *generationMap
	path   string
	number uint64
	// due is when it is to be saved next. done says how the saving under way ended;
	// nil when none is.
	due, since nvmeioctl.Instant
	done       chan error
	// told says that it was told that it cannot be kept.
	told bool
	// every is how often at most; mapEvery outside tests.
	every time.Duration
}

// again is when the map is saved next, after a saving that took a while.
func (k *mapKeeper) again(now nvmeioctl.Instant, took time.Duration) {
	wears := time.Duration(uint64(len(k.m.bytes)) * 1000 / mapBytesPerSecond * uint64(time.Millisecond))
	k.due = now.Add(max(k.every, mapBusyBy*took, wears))
	if k.every < mapEvery {
		k.due = now.Add(k.every)
	}
}

// prepareMap makes the generation map of the run, and takes up what is known of it
// when the run goes on.
func (s *session) prepareMap() error {
	granule := s.job.GenerationGranuleBytes()
	if granule == 0 {
		return nil
	}
	m, err := newGenerationMap(s.job.RegionBytes(), granule, s.cfg.Resume == nil)
	if err != nil {
		return err
	}
	s.track.generations = m
	number := run.DataRun(s.cfg.StartWallUnixNS, s.job.Seed, s.cfg.Drive)
	if s.cfg.MapFile != "" {
		s.keeper = &mapKeeper{m: m, path: s.cfg.MapFile, number: number, every: cmp.Or(s.cfg.mapEvery, mapEvery)}
		s.keeper.again(s.cfg.Clock.Now(), 0)
	}
	if s.cfg.Resume == nil || s.cfg.MapFile == "" {
		return nil
	}
	s.mapDoubts, s.mapRemark, err = m.recall(s.cfg.MapFile, number, s.job, s.cfg.Resume)
	return err
}

// borrowMap takes up the generation map of the run that is verified. Without its
// file the map knows nothing, which is said.
func (s *session) borrowMap() error {
	of := *s.cfg.Of
	granule := of.Job.GenerationGranuleBytes()
	if granule == 0 || of.MapFile == "" {
		return nil
	}
	m, err := newGenerationMap(of.Job.RegionBytes(), granule, false)
	if err != nil {
		return err
	}
	s.track.generations = m
	h, err := m.load(of.MapFile, run.DataRun(of.StartWallUnixNS, of.Job.Seed, of.Drive))
	if err != nil {
		// As without a map: nothing of the run's is in doubt that was not before.
		s.mapRemark = m.lose(of.MapFile, err, &of.Checkpoint)
		m.whole = false
		return m.clear()
	}
	doubts, remark, err := m.settle(&h, &of.Job, &of.Checkpoint, "")
	s.mapRemark = remark
	of.Checkpoint.Doubts = append(slices.Clone(of.Checkpoint.Doubts), doubts...)
	s.cfg.Of = &of
	return err
}

// mapHead is what the map knows for certain at this moment.
func (s *session) mapHead() mapHead {
	h := mapHead{Run: s.keeper.number, Phase: s.ledger.cp.Phase}
	for _, m := range s.ledger.marks {
		h.Workers = append(h.Workers, run.WorkerMark{Next: m.Next, Incomplete: slices.Clone(m.Incomplete)})
	}
	return h
}

// keepMap saves the map in the background when it is time for it, beside the
// workers.
func (m *machine) keepMap(now nvmeioctl.Instant) {
	k := m.keeper
	if k == nil {
		return
	}
	if k.done != nil {
		select {
		case err := <-k.done:
			k.done = nil
			k.again(now, now.Sub(k.since))
			m.mapKept(err)
		default:
			return
		}
	}
	if now < k.due {
		return
	}
	k.since, k.done = now, make(chan error, 1)
	head, done := m.mapHead(), k.done
	go func() { done <- k.m.save(k.path, head) }() // waited for in keepMapLast
}

// keepMapLast waits for a saving under way, and saves how the map stands at the
// end of the session, when no worker changes it any more.
func (s *session) keepMapLast(still bool) {
	k := s.keeper
	if k == nil {
		return
	}
	if k.done != nil {
		s.mapKept(<-k.done)
		k.done = nil
	}
	if still {
		s.mapKept(k.m.save(k.path, s.mapHead()))
	}
}

// mapKept notes once that the map cannot be kept: it is of use without.
func (s *session) mapKept(err error) {
	if err == nil || s.keeper.told {
		return
	}
	s.keeper.told = true
	s.ledger.event(max(s.ledger.cp.NextSecond-1, 0), run.EventMap, fmt.Sprintf("the generation map cannot be kept, and will not be known after an interruption: %v", err))
}

// keepMap saves the map, no more often than makes sense. The drive has been saved
// with what was written to it so far, so the map is never ahead of it.
func (m *simulation) keepMap() {
	k := m.keeper
	if k == nil {
		return
	}
	now := m.cfg.Clock.Now()
	if now < k.due {
		return
	}
	m.mapKept(k.m.save(k.path, m.mapHead()))
	after := m.cfg.Clock.Now()
	k.again(after, after.Sub(now))
}
