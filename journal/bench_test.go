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
