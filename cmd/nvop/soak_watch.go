package main

import (
	"context"
	"sync"

	"nvop/endurance"
	"nvop/endurance/run"
)

// soakWatch tells others of the runs of this process: a program at each event, a
// file of figures. It sees what has been committed, and holds nothing up.
type soakWatch struct {
	// note writes a remark; several goroutines do.
	note    func(format string, args ...any)
	events  *eventRunner
	metrics *metricsFile
}

func (a *app) newSoakWatch(f watchFlags, note func(format string, args ...any)) *soakWatch {
	w := &soakWatch{note: note}
	if len(f.OnEvent) != 0 {
		w.events = newEventRunner(f.OnEvent, note)
	}
	if f.Metrics != "" {
		w.metrics = newMetricsFile(f.Metrics, a.clock, note)
	}
	return w
}

// recorder is the session's recorder, watched.
func (w *soakWatch) recorder(s *soakSession) endurance.Recorder {
	if w.events == nil && w.metrics == nil {
		return s.recorder
	}
	return &watchedRecorder{watch: w, session: s}
}

// watchedRecorder passes on what has been committed.
type watchedRecorder struct {
	watch   *soakWatch
	session *soakSession
	sample  *run.Sample
	// failing says that it was told that nothing can be committed.
	failing bool
}

// Commit implements endurance.Recorder.
func (r *watchedRecorder) Commit(ctx context.Context, b *run.Batch) error {
	if err := r.session.recorder.Commit(ctx, b); err != nil {
		if r.watch.events != nil && !r.failing {
			r.failing = true
			r.watch.events.tell(r.session.subject(), []run.Event{{Kind: "journal_failed", Text: err.Error(), WallUnixNS: b.Checkpoint.WallUnixNS, Second: b.Checkpoint.NextSecond}}, nil)
		}
		return err
	}
	r.failing = false
	for i := range b.Samples {
		if b.Samples[i].Failure == "" {
			s := b.Samples[i]
			r.sample = &s
		}
	}
	if r.watch.events != nil {
		r.watch.events.tell(r.session.subject(), b.Events, b.Verdict)
	}
	if r.watch.metrics != nil {
		r.watch.metrics.take(r.session.subject(), b, r.sample)
	}
	return nil
}

// ended notes how a run ended.
func (w *soakWatch) ended(s *soakSession, v run.Verdict) {
	if w.metrics != nil {
		w.metrics.ended(s.subject(), v)
	}
}

// close waits, not forever, until everything is told.
func (w *soakWatch) close() {
	var all sync.WaitGroup
	if w.events != nil {
		all.Go(w.events.close)
	}
	if w.metrics != nil {
		all.Go(w.metrics.close)
	}
	all.Wait()
}
