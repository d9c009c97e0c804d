package journal

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"
)

// BenchmarkCommit measures one commit: a wall second of a real soak (1 row), of
// a simulated one (1,000 rows), and of one under time lapse (15,000 rows, 1,500
// samples, and as many rows due for thinning). It is bound by the medium's sync
// for few rows and by the processor for many; cpu-ms is processor time, which
// other work on the machine disturbs less.
func BenchmarkCommit(b *testing.B) {
	for _, rows := range []int64{1, 1000, 15_000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			j := openTest(b)
			r := beginTest(b, j, 1)
			s := newSynth(1)
			s.lean = true
			if rows > 1 {
				s.commitAll(b, r, 5000, secondsKept+5000)
			}
			var cpu time.Duration
			for b.Loop() {
				b.StopTimer()
				batch := s.batch(rows)
				start := processorTime(b)
				b.StartTimer()
				if err := r.Commit(context.Background(), batch); err != nil {
					b.Fatal(err)
				}
				cpu += processorTime(b) - start
			}
			b.ReportMetric(cpu.Seconds()*1e3/float64(b.N), "cpu-ms/op")
		})
	}
}

func processorTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// monthBytes is what a run of 30 days comes to: a day of seconds, and 30 days
// of minutes, histograms and samples.
func monthBytes(secondBytes, dayBytes float64) float64 {
	return secondsKept*secondBytes + 30*dayBytes
}

// TestSize_driveMonth measures the file at two ages of a run that keeps its
// seconds for a short time, tells from that what a second and what a day of
// minutes cost, and extrapolates. Every sample is an edge, the worst case, and
// reads and writes have wide latency histograms. BenchmarkDriveMonth does the
// same with three whole days.
func TestSize_driveMonth(t *testing.T) {
	const keep, until = 1800, 2 * 3600
	j := openTest(t)
	j.keepSeconds = keep
	r := beginTest(t, j, 1)
	s := newSynth(1)
	s.fill()
	size := func(at int64) float64 {
		s.commitAll(t, r, 600, at)
		if err := j.shrink(context.Background()); err != nil {
			t.Fatal(err)
		}
		return float64(fileSize(j.Path()))
	}
	empty := size(0)
	young, old := size(keep), size(until)
	day := (old - young) / (until - keep) * secondsKept
	second := (young - empty - day*keep/secondsKept) / keep
	month := monthBytes(second, day)
	t.Logf("%.0f bytes a second, %.2f MB a day of minutes: %.0f MB a month", second, day/1e6, month/1e6)
	if month > 300e6 {
		t.Errorf("a drive-month takes %.0f MB, more than 300", month/1e6)
	}
	if second < 40 || second > 400 || day < 1e6 {
		t.Errorf("%.0f bytes a second and %.0f a day are not plausible: the measurement is wrong", second, day)
	}
	if v, err := j.Verify(context.Background()); err != nil || !v.OK() {
		t.Errorf("%v, %v", v.Problems, err)
	}
}

// BenchmarkDriveMonth records three days, thinned as in use, and extrapolates
// the last day to a month.
func BenchmarkDriveMonth(b *testing.B) {
	for b.Loop() {
		j := openTest(b)
		r := beginTest(b, j, 1)
		s := newSynth(1)
		s.fill()
		var sizes [4]float64
		for day := range sizes {
			s.commitAll(b, r, 600, int64(day)*secondsKept)
			if err := j.shrink(context.Background()); err != nil {
				b.Fatal(err)
			}
			sizes[day] = float64(fileSize(j.Path()))
		}
		b.ReportMetric(sizes[1]/1e6, "MB-1st-day")
		b.ReportMetric((sizes[3]-sizes[2])/1e6, "MB/day")
		b.ReportMetric((sizes[3]+27*(sizes[3]-sizes[2]))/1e6, "MB/month")
	}
}
